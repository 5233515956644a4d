// SPDX-License-Identifier: Apache-2.0
// Replicas go on without one that lacks a rank, and it joins them when its place is filled.
#include "worker/coordinator/cover.h"

#include <map>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/coordinator/three_replicas.h"
#include "worker/coordinator/kept_sums.h"

namespace weir::coordinator::test {
namespace cover_test {

using schedule::StateMove;
using schedule::Trigger;

TEST(RedistributedShares, KeepTheSumAndFollowTheSpeedOfTheLiving) {
  EXPECT_EQ(redistributed_shares({4, 4}, {1}), (Ranks{8, 0}));
  EXPECT_EQ(redistributed_shares({4, 4, 4}, {0}), (Ranks{0, 6, 6}));
  EXPECT_EQ(redistributed_shares({6, 2, 4}, {2}), (Ranks{9, 3, 0}));
  EXPECT_EQ(redistributed_shares({5, 5, 1}, {2}), (Ranks{6, 5, 0})) << "of equal ones the lowest";
  EXPECT_EQ(redistributed_shares({3, 2, 2}, {0, 2}), (Ranks{0, 7, 0}));
  for (int a = 1; a < 9; ++a) {
    for (int b = 1; b < 9; ++b) {
      const Ranks before{a, b, 3, 7};
      const Ranks after = redistributed_shares(before, {2});
      EXPECT_EQ(std::accumulate(after.begin(), after.end(), 0), a + b + 10);
      for (const std::size_t r : {0U, 1U, 3U}) EXPECT_GE(after[r], before[r]);
    }
  }
}

TEST(NumberInWhole, IsThatOfThePlanWithAllReplicas) {
  EXPECT_EQ(number_in_whole(0, {}), 0);
  EXPECT_EQ(number_in_whole(0, {0}), 1);
  EXPECT_EQ(number_in_whole(1, {0, 2}), 3);
  EXPECT_EQ(number_in_whole(0, {1}), 0);
}

TEST(WaitBeforeCover, IsShortWhereCoveringIsCheapAndNeverLongerThanARestartInPlace) {
  EXPECT_EQ(wait_before_cover(0s, 1, 1), 0s) << "unknown";
  EXPECT_EQ(wait_before_cover(200ms, 1, 1), 0s);
  EXPECT_EQ(wait_before_cover(1s, 1, 1), 3s);
  EXPECT_EQ(wait_before_cover(1s, 7, 1), 0s) << "a seventh more for each";
  EXPECT_EQ(wait_before_cover(1h, 1, 1), 4s);
}

std::vector<std::pair<int, int>> places(const schedule::Plan& plan) {
  std::vector<std::pair<int, int>> list;  // worker, replica
  for (const auto& rank : plan.ranks) list.emplace_back(rank.pod.back() - '0', rank.replica);
  return list;
}

TEST(Cover, TheOthersGoOnAtOnceWithTheWholeBatch) {
  ThreeReplicas job;
  job.lose(3);

  const auto prepare = job.last<protocol::Prepare>();
  EXPECT_EQ(prepare.incarnation, 1);
  EXPECT_EQ(prepare.plan.revision, 1U);
  EXPECT_EQ(prepare.plan.micro_batches, (Ranks{3, 6}));
  EXPECT_EQ(places(prepare.plan),
            (std::vector<std::pair<int, int>>{{0, 0}, {1, 0}, {4, 1}, {5, 1}}));
  EXPECT_EQ(prepare.plan.state, StateMove::kKeep);
  EXPECT_EQ(job.receivers<protocol::Prepare>(), (Ranks{0, 1, 2, 4, 5}))
      << "2 learns that it is idle";

  job.ready(1, {0, 1, 4, 5});
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 5) << "the step that was hit";
  job.loaded({0, 1, 4, 5}, 5);
  EXPECT_EQ(job.receivers<protocol::Go>(), (Ranks{0, 1, 2, 4, 5}));
  job.finish({0, 1, 4, 5}, 6);
  ASSERT_EQ(job.finished.size(), 1U);
  EXPECT_EQ(job.finished[0].outcome, protocol::Outcome::kApplied);
  EXPECT_EQ(job.finished[0].repeated_steps, 0);
  EXPECT_EQ(job.finished[0].reason, "the others go on, incarnation 1");
  EXPECT_EQ(job.switcher.covered(), (std::set<int>{1}));
  ASSERT_NE(job.switcher.training(), nullptr);
  EXPECT_EQ(job.switcher.training()->replica_count(), 2);
}

TEST(Cover, TheOthersMakeTheUpdateThatOneHasMade) {
  ThreeReplicas job;
  job.finish({0}, 6);
  job.summed = {1, 2, 4, 5};
  job.lose(3);
  EXPECT_EQ(job.prepare().state, StateMove::kKeep);
  job.ready(1, {0, 1, 4, 5});
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 6);
  EXPECT_TRUE(job.last<protocol::Commit>().verdict);
}

TEST(Cover, TheOthersKeepWhatTheyHaveComputedOfTheStep) {
  ThreeReplicas job;
  for (const int index : {0, 1}) job.sums[index] = {{{0, 2}}, 1, 9};
  for (const int index : {4, 5}) job.sums[index] = {{{5, 4}}, 1, 9};
  job.lose(3);
  job.ready(1, {0, 1, 4, 5});
  const auto commit = job.last<protocol::Commit>();
  EXPECT_EQ(commit.at_step, 5);
  ASSERT_EQ(commit.kept.size(), 2U);
  EXPECT_EQ(commit.kept[0].replica, 0);
  EXPECT_EQ(commit.kept[0].ids, (schedule::Ids{{0, 2}}));
  EXPECT_EQ(commit.kept[1].replica, 1) << "that was replica 2";
  EXPECT_EQ(commit.kept[1].ids, (schedule::Ids{{5, 4}}));

  job.sums.clear();  // another loss, and this time nobody has finished its part
  job.loaded({0, 1, 4, 5}, 5);
  job.lose(5);
  job.ready(2, {0, 1});
  EXPECT_TRUE(job.last<protocol::Commit>().kept.empty());
}

TEST(Cover, AReplicaIsToldThatItIsNotWholeWhileOthersAreWaitedFor) {
  ThreeReplicas job;
  job.tells = false;  // it finishes its part of the step
  job.lose(3);
  EXPECT_EQ(job.receivers<protocol::PeerLost>(), (Ranks{0, 1, 2, 4, 5}));
  job.forget();
  job.lose(4);
  EXPECT_EQ(job.receivers<protocol::PeerLost>(), (Ranks{5}));
  EXPECT_EQ(job.last<protocol::PeerLost>().replica, 2);
}

// Held::sums of one rank of each replica, by the test's hand.
struct Kept {
  schedule::Plan plan = replicated(1, Trigger::kInitial, {2, 3, 4});
  std::vector<protocol::Held> held;
  Kept() {
    for (const auto& rank : plan.ranks) {
      const schedule::Ids ids[] = {{{0, 2}}, {{2, 3}}, {{5, 4}}};
      held.push_back(
          {.step = 5,
           .sums = protocol::KeptSums{ids[rank.replica], plan.schedule.micro_batch_size, 9}});
    }
  }
  // Which replicas keep theirs.
  Ranks replicas() const {
    std::vector<const protocol::Held*> list;
    for (const auto& one : held) list.push_back(one.step < 0 ? nullptr : &one);
    Ranks result;
    for (const auto& kept : kept_sums(plan, 5, list)) result.push_back(kept.replica);
    return result;
  }
};

TEST(KeptSums, AreThoseThatAllRanksOfAReplicaHave) {
  EXPECT_EQ(Kept().replicas(), (Ranks{0, 1, 2}));
  Kept one;
  one.held[2].sums->ids = {{2, 2}};  // its other rank has {2, 3}
  EXPECT_EQ(one.replicas(), (Ranks{0, 2}));
  one = {};
  one.held[3].sums.reset();
  one.held[4].step = -1;  // takes its state from elsewhere
  EXPECT_EQ(one.replicas(), (Ranks{0}));
  one = {};
  one.held[0].step = 4;
  one.held[2].sums->micro_batches = 8;
  one.held[4].sums->micro_batch_size += 1;
  EXPECT_EQ(one.replicas(), Ranks{}) << "other steps, other batches";
  one = {};
  for (const int i : {4, 5}) one.held[static_cast<std::size_t>(i)].sums->ids = {{4, 5}};
  EXPECT_EQ(one.replicas(), (Ranks{0, 1})) << "micro-batch 4 counts once";
  one = {};
  for (const int i : {4, 5}) one.held[static_cast<std::size_t>(i)].sums->ids = {{5, 7}};
  EXPECT_EQ(one.replicas(), (Ranks{0, 1})) << "the step has 9";
  one = {};
  one.plan.sync.mode = schedule::SyncMode::kPartial;
  EXPECT_EQ(one.replicas(), Ranks{});
}

TEST(KeptSums, AreThoseOfTheCodecsOfThePlan) {
  using schedule::Codec;
  const schedule::Codecs codecs = {.forward = {Codec::kInt8}, .backward = {Codec::kInt6}};
  Kept one;
  one.plan.codecs = codecs;
  EXPECT_EQ(one.replicas(), Ranks{});
  for (const int i : {2, 3}) one.held[static_cast<std::size_t>(i)].sums->codecs = codecs;
  EXPECT_EQ(one.replicas(), (Ranks{1}));
  one.plan.codecs = {.forward = {Codec::kRaw}, .backward = {Codec::kRaw}};
  EXPECT_EQ(one.replicas(), (Ranks{0, 2}));
}

TEST(Cover, TheReplicaJoinsAtABoundaryWhenItsPlaceIsFilled) {
  ThreeReplicas job;
  job.cover();
  job.forget();
  job.pass(60s);
  EXPECT_TRUE(job.sent.empty()) << "training goes on";
  job.come(3);

  const auto prepare = job.last<protocol::Prepare>();
  EXPECT_EQ(prepare.incarnation, 2);
  EXPECT_EQ(prepare.plan.micro_batches, (Ranks{2, 3, 4}));
  EXPECT_EQ(prepare.plan.ranks.size(), 6U);
  EXPECT_EQ(prepare.plan.state, StateMove::kMove);
  EXPECT_EQ(prepare.plan.holders.size(), 4U);
  job.ready(2, {0, 1, 2, 3, 4, 5});
  const auto commit = job.last<protocol::Commit>();
  EXPECT_EQ(commit.at_step, 6 + 2 + 20) << "0.2 s of steps ahead";
  job.loaded({0, 1, 2, 3, 4, 5}, commit.at_step);
  job.finish({0, 1, 2, 3, 4, 5}, commit.at_step + 1);
  ASSERT_EQ(job.finished.size(), 1U);
  EXPECT_EQ(job.finished[0].reason, "joined again, incarnation 2");
  EXPECT_TRUE(job.switcher.gone().empty());
  EXPECT_EQ(job.finished[0].repeated_steps, 0);
  EXPECT_TRUE(job.switcher.covered().empty());
}

TEST(Cover, APlanWithAnotherPodInThePlaceTakesItsStateFromTheOthers) {
  ThreeReplicas job;
  job.cover();
  job.forget();
  job.come(3, 0, 0, 0, "another uid");
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty()) << "not that of the plan";
  auto restart = replicated(2, Trigger::kRestart, {3, 3, 3});
  restart.state = StateMove::kRecover;
  restart.ranks[3].pod_uid = "another uid";
  job.offer(restart);

  EXPECT_EQ(job.prepare().state, StateMove::kMove);
  EXPECT_EQ(job.prepare().holders.size(), 4U);
  job.ready(0, {0, 1, 2, 3, 4, 5}, 2);
  EXPECT_GT(job.last<protocol::Commit>().at_step, 6);
  EXPECT_TRUE(job.switcher.covered().empty());
}

TEST(Cover, AnotherLossLeavesWhoIsWhole) {
  ThreeReplicas job;
  job.cover();
  EXPECT_EQ(job.switcher.gone(), (std::set<int>{1}));
  job.lose(0);
  EXPECT_EQ(job.switcher.gone(), (std::set<int>{1})) << "until the others train";
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{9}));
  EXPECT_EQ(places(job.prepare()), (std::vector<std::pair<int, int>>{{4, 0}, {5, 0}}));
  EXPECT_EQ(job.last<protocol::Prepare>().incarnation, 2);
  job.ready(2, {4, 5});
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 6);
  job.loaded({4, 5}, 6);
  job.finish({4, 5}, 7);
  EXPECT_EQ(job.switcher.covered(), (std::set<int>{0, 1}));
  EXPECT_EQ(job.switcher.gone(), (std::set<int>{0, 1}));

  job.forget();
  job.come(3);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty()) << "one place is still open";
  job.come(0);
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{2, 3, 4}));
}

TEST(Cover, ALossWhileItBeginsLeavesWhoIsWholeAtOnce) {
  for (const bool committed : {false, true}) {
    ThreeReplicas job;
    job.lose(3);
    if (committed) job.ready(1, {0, 1, 4, 5});
    job.lose(4);
    EXPECT_EQ(places(job.prepare()), (std::vector<std::pair<int, int>>{{0, 0}, {1, 0}}));
    EXPECT_EQ(job.prepare().micro_batches, (Ranks{9}));
  }
}

// A generation counts as applied when its first step is done, which takes long.
TEST(Cover, ALossInTheFirstStepWithoutAReplicaDelaysNothing) {
  for (const bool peers_tell_first : {false, true}) {
    ThreeReplicas job;
    job.lose(3);
    job.ready(1, {0, 1, 4, 5});
    job.loaded({0, 1, 4, 5}, 5);
    if (peers_tell_first) job.say(0, protocol::PeerLost{.revision = 1, .reason = "closed"});
    job.lose(4);
    EXPECT_EQ(job.last<protocol::Prepare>().incarnation, 2);
    EXPECT_EQ(job.prepare().micro_batches, (Ranks{9}));
  }
}

// A new coordinator, of the second term unless the test says otherwise, where pod 0 coordinated
// before. Its ranks have done five steps of the plan of ThreeReplicas.
struct NewCoordinator : World {
  explicit NewCoordinator(std::int64_t term = 2, const std::string& lost_pod_uid = "uid-0")
      : World(0, 1800s, term, lost_pod_uid) {
    tells = false;
  }
  static schedule::Plan plan() {
    auto result = replicated(1, Trigger::kInitial, {2, 3, 4});
    for (auto& rank : result.ranks) rank.pod_uid = "uid-" + rank.pod.substr(rank.pod.size() - 1);
    return result;
  }
  void find(const Ranks& who, std::uint32_t revision = 1) {
    for (const int index : who) {
      protocol::Hello hello{.member = member(index), .revision = revision};
      if (revision != 0) {
        hello.step = 5;
        hello.inventory = {
            .history = 1,
            .held = {{.first = index % 2, .last = index % 2, .step = 5, .history = 1}}};
      }
      members.hello(++last_session, hello, now);
      take(switcher.tick(members, now));
    }
  }
};

TEST(Cover, ANewCoordinatorGoesOnWithoutTheReplicaOfTheOneBefore) {
  NewCoordinator job;
  auto first = NewCoordinator::plan();
  first.state = StateMove::kCheckpoint;  // done when it began
  job.offer(first);
  job.find({1, 2, 3, 4});
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  job.find({5});

  const auto prepare = job.last<protocol::Prepare>();
  EXPECT_EQ(prepare.plan.micro_batches, (Ranks{4, 5}));
  EXPECT_EQ(places(prepare.plan),
            (std::vector<std::pair<int, int>>{{2, 0}, {3, 0}, {4, 1}, {5, 1}}));
  EXPECT_EQ(prepare.plan.state, StateMove::kKeep);
  for (const int index : {2, 3, 4, 5}) {
    job.say(index, protocol::Ready{.revision = 1, .incarnation = prepare.incarnation});
  }
  EXPECT_EQ(job.last<protocol::Commit>().at_step, 5);
  EXPECT_GT(job.last<protocol::Commit>().history, std::int64_t{1} << 32)
      << "higher than any of the coordinator before, which may go on somewhere";
}

TEST(Cover, ANewCoordinatorIsSoonFoundByAllThatLive) {
  NewCoordinator job;
  job.offer(NewCoordinator::plan());
  job.find({1, 2, 3, 4});
  job.pass(2900ms);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty()) << "5 may still find it";
  job.pass(200ms);
  EXPECT_EQ(job.last<protocol::Prepare>().plan.micro_batches, (Ranks{9}));
  EXPECT_EQ(places(job.prepared), (std::vector<std::pair<int, int>>{{2, 0}, {3, 0}}));
}

TEST(Cover, ANewCoordinatorMissesAtOnceOnlyTheOneBefore) {
  struct Case {
    const char* lost_pod_uid;
    Ranks found;
    bool at_once;
  };
  for (const auto& [lost, found, at_once] : {Case{"uid-0", {1, 2, 3, 4, 5}, true},
                                             {"uid-0", {0, 1, 2, 3, 4}, false},
                                             {"uid-5", {0, 1, 2, 3, 4}, true},
                                             {"uid-0", {2, 3, 4, 5}, false},
                                             {"", {1, 2, 3, 4, 5}, false},
                                             {"a spare", {1, 2, 3, 4, 5}, false}}) {
    NewCoordinator job(2, lost);
    job.offer(NewCoordinator::plan());
    job.find(found);
    EXPECT_EQ(!job.receivers<protocol::Prepare>().empty(), at_once) << lost << found.size();
    job.pass(3100ms);
    EXPECT_FALSE(job.receivers<protocol::Prepare>().empty()) << lost << found.size();
  }
}

TEST(Cover, ANewCoordinatorWaitsForAllRanksOfAPlanThatNobodyHasRun) {
  NewCoordinator job;
  job.offer(NewCoordinator::plan());
  job.find({1, 2, 3, 4, 5}, 0);
  job.pass(60s);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
}

// Its process has ended and is back, and the rank in it, too.
TEST(Cover, TheFirstCoordinatorWaitsForARankThatIsAlone) {
  NewCoordinator job(1, "");
  job.offer(NewCoordinator::plan());
  job.find({1, 2, 3, 4, 5});
  job.pass(2900ms);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  job.find({0});
  EXPECT_EQ(job.last<protocol::Prepare>().plan.micro_batches, (Ranks{2, 3, 4}));
}

TEST(Cover, AFailureThatNoLossExplainsDelaysTheNextAttempt) {
  ThreeReplicas job;
  job.lose(3);
  job.ready(1, {0, 1, 4, 5});
  job.loaded({0, 1, 4, 5}, 5);
  job.say(0, protocol::PeerLost{.revision = 1, .reason = "broken"});
  EXPECT_EQ(job.last<protocol::Prepare>().incarnation, 1);
  job.pass(1s);
  EXPECT_EQ(job.last<protocol::Prepare>().incarnation, 2);
}

TEST(Cover, AProcessThatIsLostAgainAtOnceDelaysTheNextAttempt) {
  ThreeReplicas job(10);
  job.lose(3);
  job.come(3);
  EXPECT_EQ(job.last<protocol::Prepare>().incarnation, 1);
  job.ready(1, {0, 1, 2, 3, 4, 5});
  job.lose(3);
  job.come(3);
  EXPECT_EQ(job.last<protocol::Prepare>().incarnation, 1);
  job.pass(1s);
  EXPECT_EQ(job.last<protocol::Prepare>().incarnation, 2);
}

TEST(Cover, WithoutAWholeReplicaAllPlacesAreWaitedFor) {
  ThreeReplicas job;
  job.cover();
  job.lose(0);
  job.ready(2, {4, 5});
  job.loaded({4, 5}, 6);
  job.forget();
  job.lose(5);
  job.pass(2s);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  EXPECT_TRUE(job.switcher.broken());
}

TEST(Cover, WhoeverReturnsButHoldsNothingIsNoReplica) {
  ThreeReplicas job;
  job.lose(4);
  job.ready(1, {0, 1, 2, 3});
  job.loaded({0, 1, 2, 3}, 5);
  job.finish({0, 1, 2, 3}, 6);
  job.come(4);  // replica 2 is there again, but empty
  job.lose(0);
  job.lose(2);
  job.forget();
  job.pass(2s);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty()) << "0 or 2 may bring it";
}

TEST(Cover, ALossInTheJoinIsCoveredAgainAndTheNextJoinComesLater) {
  ThreeReplicas job;
  const std::int64_t at = job.cover_until_the_join();
  job.lose(3);
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{3, 6}));
  EXPECT_EQ(job.last<protocol::Prepare>().incarnation, 3);
  job.ready(3, {0, 1, 4, 5});
  job.loaded({0, 1, 4, 5}, job.last<protocol::Commit>().at_step);
  job.finish({0, 1, 4, 5}, at + 1);
  job.forget();
  job.come(3);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  job.pass(1s);
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{2, 3, 4}));
}

TEST(Cover, ALossOfAnotherInTheJoinDoesNotDelayTheNextJoin) {
  ThreeReplicas job;
  const std::int64_t at = job.cover_until_the_join();
  job.loaded({0, 1, 2, 3, 4, 5}, at);
  job.lose(4);
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{4, 5}));
  job.ready(3, {0, 1, 2, 3});
  job.loaded({0, 1, 2, 3}, at);
  job.finish({0, 1, 2, 3}, at + 1);
  job.forget();
  job.come(4);
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{2, 3, 4}));
}

TEST(Cover, LongStepsWaitForARestartInPlace) {
  ThreeReplicas job(10);
  job.lose(3);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  job.come(3);
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{2, 3, 4})) << "all are there again";

  ThreeReplicas longer(10);
  longer.lose(3);
  longer.pass(4s);
  EXPECT_EQ(longer.prepare().micro_batches, (Ranks{3, 6}));

  ThreeReplicas leaves(10);
  leaves.members.leave(3, "SIGTERM");
  leaves.lose(3);
  EXPECT_EQ(leaves.prepare().micro_batches, (Ranks{3, 6})) << "it does not come back";
}

TEST(Cover, RanksThatAllLeaveEndWithoutAnotherGeneration) {
  ThreeReplicas job;
  for (int i = 0; i < 6; ++i) job.members.leave(i, "SIGTERM");
  for (const int i : {5, 4, 3, 1}) job.lose(i);
  job.pass(10s);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
}

TEST(Cover, RanksThatRefuseWaitForThePlaceInstead) {
  ThreeReplicas job;
  job.lose(3);
  job.say(0, protocol::Reject{.revision = 1, .reason = "memory", .incarnation = 1});
  job.forget();
  job.pass(30s);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  EXPECT_TRUE(job.finished.empty());
  job.come(3);
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{2, 3, 4}));
}

TEST(Cover, ReplicasThatAverageGoOnByThemselves) {
  ThreeReplicas job;
  auto partial = replicated(2, Trigger::kRegroup, {2, 3, 4});
  partial.sync.mode = schedule::SyncMode::kPartial;
  job.offer(partial);
  job.ready(0, {0, 1, 2, 3, 4, 5}, 2);
  job.loaded({0, 1, 2, 3, 4, 5}, 7, 2);
  job.finish({0, 1, 2, 3, 4, 5}, 8, 2);
  job.forget();
  job.lose(3);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  EXPECT_TRUE(job.switcher.covered().empty());
  EXPECT_EQ(job.switcher.lost(), (std::set<int>{1}));
}

}  // namespace cover_test
}  // namespace weir::coordinator::test
