// SPDX-License-Identifier: Apache-2.0
// Two workers reach the coordinator, but not each other: what the job says of it, and when one of
// them is made again elsewhere.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace dead_links_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two stages, at step 70.
World training(int replicas) {
  World world = two_stages(replicas);
  world.run();
  world.reaches(70);
  return world;
}

void report(World& world, std::vector<protocol::DeadLink> links) {
  world.report->body.dead_links = std::move(links);
  world.report->received = world.now;
  world.settle();
}

// Indexes in the group of the pods that were made last.
std::vector<int> made_again(const World& world) {
  std::vector<int> result;
  for (const auto& pod : world.last_created) result.push_back(pod.index_in_group);
  return result;
}

TEST(DeadLink, IsToldAndIsNoFailureForTwoMinutes) {
  World world = training(1);
  report(world, {{"job-gpu-0", "job-gpu-1", 31}});
  EXPECT_EQ(world.condition("Degraded").status, "True");
  EXPECT_EQ(world.condition("Degraded").reason, "LinkDead");
  const std::string text =
      "pod job-gpu-0 gets no answer from the data port of pod job-gpu-1, though both reach the "
      "coordinator";
  EXPECT_EQ(world.condition("Degraded").message, text);
  EXPECT_EQ(world.last_note("LinkDead"), text);
  world.now += 80s;
  report(world, {{"job-gpu-0", "job-gpu-1", 111}});
  EXPECT_EQ(world.event_count("LinkDead"), 1);
  EXPECT_EQ(world.job.status.restarts, 0);
  world.now += 5s;
  report(world, {});
  EXPECT_NE(world.condition("Degraded").reason, "LinkDead");
}

TEST(DeadLink, OfACoveredReplicaIsWhyItIsMissing) {
  World world = training(2);
  world.report->body.lost_replicas = {1};
  report(world, {{"job-gpu-2", "job-gpu-3", 31}});
  EXPECT_EQ(world.condition("Degraded").reason, "ReducedReplicas");
  EXPECT_EQ(world.condition("Degraded").message,
            "1 of 2 replicas train: pod job-gpu-2 gets no answer from the data port of pod "
            "job-gpu-3, though both reach the coordinator");
  EXPECT_THAT(world.last_note("ReplicasReduced"), HasSubstr("job-gpu-3, though both reach"));
  EXPECT_THAT(world.last_note("ReplicasReduced"), HasSubstr("; they compute its micro-batches"));
}

TEST(DeadLink, OfTwoMinutesMakesTheWorkerAgainWhereAnotherNodeHasRoom) {
  World world = training(2);
  const std::string node = world.pod("job-gpu-3").node;
  report(world, {{"job-gpu-2", "job-gpu-3", 121}});
  EXPECT_EQ(world.job.status.last_restart_reason, "LinkDead");
  EXPECT_EQ(world.job.status.restart_budget_used, 0);
  ASSERT_THAT(made_again(world), ElementsAre(3));
  EXPECT_THAT(world.last_created[0].avoided_nodes, IsEmpty()) << "another one may not exist";
  EXPECT_THAT(world.last_created[0].last_nodes, ElementsAre(node));
  EXPECT_THAT(world.last_note("NodeAvoided"),
              HasSubstr("avoided for 1 h, where another one has room: pod job-gpu-3: no connection "
                        "with pod job-gpu-2 for 121 s"));
  report(world, {{"job-gpu-2", "job-gpu-3", 126}});
  EXPECT_EQ(world.job.status.restarts, 1) << "the report is of the pod that goes";
}

TEST(DeadLink, MakesTheWorkerAgainThatMostOthersDoNotReach) {
  World world = training(2);
  report(world, {{"job-gpu-3", "job-gpu-1", 130}, {"job-gpu-0", "job-gpu-1", 125}});
  EXPECT_THAT(made_again(world), ElementsAre(1));

  World other = training(2);
  report(other, {{"job-gpu-1", "job-gpu-0", 130}});
  EXPECT_THAT(made_again(other), ElementsAre(1)) << "not the coordinator";
}

// A network that stays broken would end one pod after the other.
TEST(DeadLink, IsBorneTwiceAsLongAfterEachWorkerThatWasMadeAgain) {
  World world = training(2);
  report(world, {{"job-gpu-2", "job-gpu-3", 121}});
  world.run();
  world.steps(1, 300);
  report(world, {{"job-gpu-0", "job-gpu-3-1", 230}});
  EXPECT_EQ(world.job.status.restarts, 1);
  report(world, {{"job-gpu-0", "job-gpu-3-1", 241}});
  EXPECT_EQ(world.job.status.restarts, 2);
}

TEST(DeadLink, OfAnOldReportCountsNot) {
  World world = training(2);
  world.report->body.dead_links = {{"job-gpu-2", "job-gpu-3", 121}};
  world.now = world.report->received + 31s;
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 0);
}

}  // namespace dead_links_test
}  // namespace weir::reconcile::test
