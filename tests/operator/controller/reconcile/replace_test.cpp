// SPDX-License-Identifier: Apache-2.0
// Tier replace: a node becomes slow for good, and neither another order nor another cut is allowed.
#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/repartition_job.h"

namespace weir::reconcile::test {
namespace replace_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Job = RepartitionJob;

Job with_replace(bool free_node, int spares = 0) {
  Job job;
  job.world.job.spec.worker_groups[0].spares = spares;
  if (spares > 0) job.run();
  job.world.job.spec.adaptation.regroup.enabled = false;
  job.world.job.spec.adaptation.replace.enabled = true;
  for (const auto& rank : job.world.plan()->ranks) {
    api::Node node;
    node.meta.name = rank.node;
    job.world.nodes.push_back(node);
  }
  if (free_node) {
    api::Node node;
    node.meta.name = "spare";
    job.world.nodes.push_back(node);
  }
  job.train(20);
  job.world.report->body.last_checkpoint_step = job.world.report->body.step;
  return job;
}

TEST(Replace, MakesTheWorkerAgainElsewhereAndAvoidsTheNode) {
  Job job = with_replace(true);
  const std::string victim = job.node_of_stage(1);
  const int restarts = job.world.job.status.restart_budget_used;
  job.shape(victim);
  for (int i = 0; i < 120 && job.world.event_count("WorkerReplaced") == 0; ++i) {
    job.world.report->body.last_checkpoint_step = job.world.report->body.step;
    job.train(1);
  }
  ASSERT_EQ(job.world.event_count("WorkerReplaced"), 1);
  EXPECT_THAT(job.world.last_note("WorkerReplaced"),
              AllOf(HasSubstr("moves away from node " + victim), HasSubstr("predicted +")));
  ASSERT_EQ(job.world.job.status.avoided_nodes.size(), 1U);
  EXPECT_EQ(job.world.job.status.avoided_nodes.front().node, victim);
  EXPECT_EQ(job.world.job.status.restart_budget_used, restarts);

  job.world.settle();
  ASSERT_EQ(job.world.last_created.size(), 1U);
  EXPECT_THAT(job.world.last_created.front().avoided_nodes, ::testing::ElementsAre(victim));
  EXPECT_EQ(job.world.pods_created, 5);
  job.run();
  EXPECT_EQ(job.world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(job.world.plan()->state, schedule::StateMove::kRecover);
  EXPECT_EQ(job.world.pods_created, 5);

  job.shape("");
  job.train(20);
  EXPECT_THAT(job.world.last_note("PlanOutcome"),
              AllOf(HasSubstr("leave node " + victim), HasSubstr("measured +")));
  EXPECT_EQ(job.world.event_count("WorkerReplaced"), 1);
}

TEST(Replace, NeedsAFreeNode) {
  Job job = with_replace(false);
  job.shape(job.node_of_stage(1));
  job.train(120);
  EXPECT_EQ(job.world.event_count("WorkerReplaced"), 0);
}

// It costs no restart and no repeated step, so it pays for less, and no other node has to be free.
TEST(Replace, TakesASpareAtOnce) {
  for (const bool spare : {false, true}) {
    Job job = with_replace(false, spare ? 1 : 0);
    job.world.report->body.snapshots = "each 4 steps, with copies on neighbors";
    job.shape(job.node_of_stage(1));
    const std::string left = job.world.plan()->ranks[1].pod;
    for (int i = 0; i < 120 && job.world.event_count("WorkerReplaced") == 0; ++i) job.train(1);
    ASSERT_EQ(job.world.event_count("WorkerReplaced"), spare ? 1 : 0);
    if (!spare) continue;
    job.world.settle();
    EXPECT_THAT(job.world.last_note("SpareUsed"), HasSubstr("takes stage 1 of " + left));
    EXPECT_EQ(job.world.plan()->state, schedule::StateMove::kRecover);
  }
}

TEST(Replace, TakesNoSpareOfTheSameNodeNorForTheCoordinator) {
  for (const bool coordinator : {false, true}) {
    Job job = with_replace(false, 1);
    const std::string victim = job.node_of_stage(coordinator ? 0 : 1);
    if (!coordinator) job.world.pod("job-gpu-s0").node = victim;
    job.world.report->body.snapshots = "each 4 steps, with copies on neighbors";
    job.shape(victim);
    job.train(120);
    EXPECT_EQ(job.world.event_count("WorkerReplaced"), 0);
  }
}

TEST(Replace, TakesASpareForTheFirstWorkerOnceAnotherOneCoordinates) {
  Job job = with_replace(false, 1);
  const std::string victim = job.node_of_stage(0);
  const auto& ranks = job.world.plan()->ranks;
  const auto other = std::ranges::find_if(ranks, [](const auto& rank) { return rank.stage == 1; });
  job.world.job.status.coordinator =
      api::CoordinatorStatus{.pod = other->pod, .pod_uid = other->pod_uid, .term = 2};
  job.world.report->body.snapshots = "each 4 steps, with copies on neighbors";
  job.shape(victim);
  for (int i = 0; i < 120 && job.world.event_count("WorkerReplaced") == 0; ++i) job.train(1);
  ASSERT_EQ(job.world.event_count("WorkerReplaced"), 1);
  job.world.settle();
  EXPECT_THAT(job.world.last_note("SpareUsed"), HasSubstr("takes stage 0 of "));
}

TEST(Replace, WaitsWhileARegroupGainsEnough) {
  Job job = with_replace(true);
  job.world.job.spec.adaptation.regroup.enabled = true;
  job.shape(job.node_of_stage(1));
  job.train(60);
  EXPECT_GE(job.world.event_count("PlanRegrouped"), 1);
  EXPECT_EQ(job.world.event_count("WorkerReplaced"), 0);
}

TEST(Replace, ObserveProposes) {
  Job job = with_replace(true);
  job.world.job.spec.adaptation.mode = "Observe";
  job.shape(job.node_of_stage(1));
  for (int i = 0; i < 120; ++i) {
    job.world.report->body.last_checkpoint_step = job.world.report->body.step;
    job.train(1);
  }
  EXPECT_EQ(job.world.event_count("WorkerReplaced"), 0);
  EXPECT_EQ(job.world.pods_created, 4);
  EXPECT_TRUE(std::ranges::any_of(job.world.events, [](const auto& event) {
    return event.reason == "PlanProposed" &&
           event.note.find("moves away from node") != event.note.npos;
  }));
}

}  // namespace replace_test
}  // namespace weir::reconcile::test
