// SPDX-License-Identifier: Apache-2.0
// A link between two workers is dead while both are connected to the coordinator.
#include "worker/coordinator/dead_links.h"

#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/coordinator/three_replicas.h"

namespace weir::coordinator::test {
namespace dead_links_test {

using schedule::Trigger;
using Replicas = std::set<int>;

protocol::Unanswered unanswered(int silent) {
  return {.ip = "10.0.0." + std::to_string(silent), .data_port = 7071 + silent};
}

// The replicas of a plan with as many, without which none of these links is dead.
Replicas left_out(int replicas, const std::vector<std::pair<int, int>>& links,
                  Replicas without = {}) {
  World world(2 * replicas);
  DeadLinks dead;
  for (const auto& [from, to] : links) {
    EXPECT_TRUE(dead.add(from, unanswered(to), world.members, world.now));
  }
  const schedule::Plan plan = replicated(1, Trigger::kInitial, Ranks(std::size_t(replicas), 2));
  dead.leave_out(without, plan, world.members);
  return without;
}

TEST(DeadLinks, LeaveOutTheReplicasWithMostOfThem) {
  EXPECT_EQ(left_out(3, {}), (Replicas{}));
  EXPECT_EQ(left_out(3, {{2, 3}}), (Replicas{1})) << "between the stages of a replica";
  EXPECT_EQ(left_out(3, {{0, 2}}), (Replicas{1})) << "the highest of equal ones";
  EXPECT_EQ(left_out(3, {{0, 2}, {4, 0}}), (Replicas{0}));
  EXPECT_EQ(left_out(3, {{0, 2}, {2, 0}, {2, 4}}), (Replicas{1}));
  EXPECT_EQ(left_out(4, {{0, 2}, {4, 6}}), (Replicas{1, 3}));
  EXPECT_EQ(left_out(3, {{0, 2}}, {1}), (Replicas{1})) << "it is lost in any case";
  EXPECT_EQ(left_out(1, {{0, 1}}), (Replicas{0})) << "none is left";
}

TEST(DeadLinks, AreBetweenConnectedWorkersOfTheJobOnly) {
  World world(3);
  DeadLinks dead;
  EXPECT_FALSE(dead.add(0, {.ip = "10.0.0.9", .data_port = 7071}, world.members, world.now));
  EXPECT_FALSE(dead.add(0, {.ip = "10.0.0.1", .data_port = 80}, world.members, world.now));
  EXPECT_FALSE(dead.add(0, unanswered(0), world.members, world.now)) << "itself";
  world.lose(1);
  EXPECT_FALSE(dead.add(0, unanswered(1), world.members, world.now));
  EXPECT_TRUE(dead.add(0, unanswered(2), world.members, world.now));
  EXPECT_EQ(dead.text(world.members), "pod pod-0 gets no answer from pod pod-2 at 10.0.0.2:7073");
  world.now += 40s;
  const auto told = dead.told(world.members, world.now);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].from, "pod-0");
  EXPECT_EQ(told[0].to, "pod-2");
  EXPECT_EQ(told[0].seconds, 40);
}

TEST(DeadLinks, EndWithThePodButNotWithTheProcess) {
  World world(3);
  DeadLinks dead;
  EXPECT_TRUE(dead.add(0, unanswered(2), world.members, world.now));
  world.lose(2);
  EXPECT_TRUE(dead.told(world.members, world.now).empty()) << "nobody can say";
  world.come(2);
  dead.follow(world.members);
  EXPECT_EQ(dead.told(world.members, world.now).size(), 1U);
  world.lose(2);
  world.come(2, 0, 0, 0, "another uid");
  dead.follow(world.members);
  EXPECT_TRUE(dead.told(world.members, world.now).empty());
}

struct Broken : ThreeReplicas {
  // All are there, but 1 and 3 cannot meet when the ranks join again.
  Broken() {
    say(1,
        protocol::PeerLost{.replica = 1, .stage = 1, .revision = 1, .reason = "silent for 30 s"});
    ready(1, {0, 1, 2, 3, 4, 5});
    pass(30s);
    forget();
    say(1, unanswered(3));
  }
  void cover() {
    pass(1s);
    pass(1s);  // after a failure
    ready(2, {0, 1, 4, 5});
    loaded({0, 1, 4, 5}, 5);
    finish({0, 1, 4, 5}, 6);
  }
};

// The others begin step 5 in this incarnation without replica 1.
void expect_that_others_go_on(ThreeReplicas& job, int incarnation) {
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{3, 6}));
  job.ready(incarnation, {0, 1, 4, 5});
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 5) << "nothing is repeated";
  job.loaded({0, 1, 4, 5}, 5);
  job.finish({0, 1, 4, 5}, 6);
  EXPECT_EQ(job.switcher.covered(), (std::set<int>{1}));
}

TEST(DeadLink, EndsTheMeetingAndTheOthersGoOn) {
  Broken job;
  EXPECT_TRUE(job.sent.empty()) << "others may find more of them";
  job.say(3, unanswered(1));
  job.pass(1s);
  EXPECT_EQ(job.receivers<protocol::Abort>(), (Ranks{0, 1, 2, 3, 4, 5}));
  job.pass(1s);
  expect_that_others_go_on(job, 2);
}

// A link that ends a step tells that it is dead, so no meeting of all is tried in vain.
TEST(DeadLink, OfTheStepIsLeftOutAtOnce) {
  ThreeReplicas job;
  job.say(5, unanswered(3));
  job.say(5, protocol::PeerLost{.replica = 2, .stage = 1, .revision = 1, .reason = "no byte"});
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty()) << "others may find more of them";
  job.say(1, unanswered(3));
  job.pass(1s);
  expect_that_others_go_on(job, 1);
}

TEST(DeadLink, ThatBreaksNothingIsProbedToo) {
  ThreeReplicas job;
  job.say(1, unanswered(3));
  job.pass(9s);
  EXPECT_TRUE(job.receivers<protocol::Probe>().empty());
  job.pass(1s);
  ASSERT_EQ(job.receivers<protocol::Probe>(), (Ranks{1}));
  job.say(1, protocol::Probed{.rtt_seconds = 1e-4});
  EXPECT_TRUE(job.switcher.dead_links().told(job.members, job.now).empty());
}

TEST(DeadLink, EndsNothingIfTheRanksMeetAllTheSame) {
  Broken job;
  job.loaded({0, 1, 2, 3, 4, 5}, 5);
  EXPECT_EQ(job.receivers<protocol::Go>().size(), 6U);
  job.pass(1s);
  EXPECT_TRUE(job.receivers<protocol::Abort>().empty());
  job.finish({0, 1, 2, 3, 4, 5}, 6);
  EXPECT_TRUE(job.switcher.dead_links().told(job.members, job.now).empty());
}

TEST(DeadLink, IsProbedUntilItAnswersAndThenTheReplicaJoins) {
  Broken job;
  job.cover();
  job.forget();
  job.pass(9s);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty()) << "training would stand still for 30 s";
  for (int i = 0; i < 3; ++i) {
    job.forget();
    job.pass(10s);
    ASSERT_EQ(job.receivers<protocol::Probe>(), (Ranks{1}));
    EXPECT_EQ(job.last<protocol::Probe>().data_port, 7074);
    job.say(1, protocol::Probed{});
    job.pass(1s);
    EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  }
  job.pass(10s);
  job.say(1, protocol::Probed{.rtt_seconds = 1e-4});
  job.pass(1s);
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{2, 3, 4}));
  EXPECT_EQ(job.receivers<protocol::Prepare>().size(), 6U);
}

TEST(DeadLink, RefusesAPlanThatNeedsItMeanwhile) {
  Broken job;
  job.cover();
  job.forget();
  job.offer(replicated(2, Trigger::kRegroup, {3, 3, 3}));
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  job.pass(11s);
  ASSERT_FALSE(job.finished.empty());
  EXPECT_EQ(job.finished[0].outcome, protocol::Outcome::kRefused);
  EXPECT_EQ(job.finished[0].reason, "pod pod-1 gets no answer from pod pod-3 at 10.0.0.3:7074");
  EXPECT_NE(job.switcher.training(), nullptr);
}

TEST(DeadLink, OfAnotherPodIsForgotten) {
  Broken job;
  job.cover();
  job.forget();
  job.lose(3);
  job.come(3, 0, 0, 0, "made again");
  job.offer(replicated(2, Trigger::kRestart, {2, 3, 4}));
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{2, 3, 4}));
}

// Without another replica the ranks try again, and each failure says why.
TEST(DeadLink, OfTheOnlyReplicaIsTriedAgain) {
  World world(2);
  world.offer(replicated(1, Trigger::kInitial, {4}));
  world.all_ready(1, 0, 2);
  world.pass(30s);
  world.say(0, unanswered(1));
  world.pass(1s);
  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.finished[0].outcome, protocol::Outcome::kAborted);
  EXPECT_EQ(world.finished[0].reason, "pod pod-0 gets no answer from pod pod-1 at 10.0.0.1:7072");
  world.forget();
  world.pass(1s);
  EXPECT_EQ(world.receivers<protocol::Prepare>(), (Ranks{0, 1}));
  world.all_ready(1, 1, 2);
  world.all_loaded(1, 2);
  world.all_finish_step(1, 1, 2);
  EXPECT_NE(world.switcher.training(), nullptr);
}

}  // namespace dead_links_test
}  // namespace weir::coordinator::test
