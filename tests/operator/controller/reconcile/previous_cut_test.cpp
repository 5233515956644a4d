// SPDX-License-Identifier: Apache-2.0
// After a repartition: its rollback, and retries of the previous cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/repartition_job.h"

namespace weir::reconcile::test {
namespace previous_cut_test {

using ::testing::HasSubstr;
using Job = RepartitionJob;

// The job regroups, and then its steps are slower than before, until it rolls back.
void roll_back(Job& job) {
  const double before = job.train_until_it_regroups();
  ASSERT_EQ(job.world.plan()->trigger, schedule::Trigger::kRegroup);
  for (int i = 0; i < 12 && job.world.event_count("PlanRolledBack") == 0; ++i) {
    job.world.steps(1, 1.2 * before);
  }
  ASSERT_EQ(job.world.event_count("PlanRolledBack"), 1);
}

TEST(Rollback, ThatIsRefusedIsAskedForAgain) {
  Job job;
  roll_back(job);
  job.refuse();
  job.world.steps(1, 4);
  EXPECT_EQ(job.world.event_count("PlanRolledBack"), 1) << "not at once";
  for (int i = 0; i < 10 && job.world.event_count("PlanRolledBack") == 1; ++i) {
    job.world.steps(1, 4);
  }
  ASSERT_EQ(job.world.event_count("PlanRolledBack"), 2);
  EXPECT_EQ(job.world.plan()->stage_count(), 4);
  EXPECT_EQ(job.world.plan()->state, schedule::StateMove::kMove);
  job.world.coordinator_applies();
  job.measure();
  job.train(60);
  EXPECT_EQ(job.world.event_count("PlanRolledBack"), 2);
  EXPECT_EQ(job.world.plan()->stage_count(), 4);
}

TEST(Rollback, ThatIsAlwaysRefusedIsGivenUp) {
  Job job;
  roll_back(job);
  std::int64_t first = job.world.job.status.plan.revision, last = first;
  for (int i = 0; i < 200; ++i) {
    if (job.world.job.status.plan.revision != job.world.report->body.plan_revision) {
      last = job.world.job.status.plan.revision;
      job.refuse();
    }
    job.world.steps(1, 4);
  }
  EXPECT_EQ(job.world.event_count("PlanRolledBack"), 4);
  EXPECT_GE(last, first + 3);
}

// Its memory is lost with the leader; what it was to bring is in the plan.
TEST(Rollback, IsDoneByANewLeaderToo) {
  Job job;
  const double before = job.train_until_it_regroups();
  ASSERT_EQ(job.world.plan()->trigger, schedule::Trigger::kRegroup);
  job.world.adaptation = {};
  for (int i = 0; i < 14 && job.world.event_count("PlanRolledBack") == 0; ++i) {
    job.world.steps(1, 1.2 * before);
  }
  EXPECT_EQ(job.world.event_count("PlanRolledBack"), 1);
  EXPECT_EQ(job.world.plan()->stage_count(), 4);
}

TEST(Rollback, IsNotDoneAgainByANewLeader) {
  Job job;
  job.train_until_it_regroups();
  job.train(12);
  ASSERT_EQ(job.world.event_count("PlanOutcome"), 1);
  job.world.adaptation = {};
  job.train(12);
  EXPECT_EQ(job.world.event_count("PlanOutcome"), 1);
}

// The recovery of an idle node cannot be measured, so the time that it may have cost is summed up.
TEST(PreviousCut, IsRetriedWhenIdlingMayHaveCostAFailedRetry) {
  Job job;
  const std::string victim = job.node_of_stage(1);
  job.train_until_it_regroups();
  ASSERT_FALSE(job.uses(victim));
  const auto changed = job.world.job.status.regroup_last_change;
  job.shape("");
  int steps = 0;
  for (; steps < 200 && !job.uses(victim); ++steps) job.train(1);
  EXPECT_TRUE(job.uses(victim));
  EXPECT_GT(steps, 20);
  EXPECT_LT(steps, 100);
  EXPECT_EQ(job.world.plan()->trigger, schedule::Trigger::kRegroup);
  EXPECT_EQ(job.world.plan()->state, schedule::StateMove::kMove);
  EXPECT_EQ(job.world.plan()->stage_count(), 4);
  EXPECT_EQ(job.world.job.status.regroup_last_change, changed) << "no cooldown begins";
  job.train(100);
  EXPECT_TRUE(job.uses(victim));
  EXPECT_EQ(job.world.event_count("PlanRolledBack"), 0);
  EXPECT_EQ(job.world.event_count("PlanRegrouped"), 2);
}

TEST(PreviousCut, IsRetriedLessAndLessOftenWhileTheNodeStaysSlow) {
  Job job;
  const std::string victim = job.node_of_stage(1);
  job.train_until_it_regroups();
  std::vector<int> retries;
  int slow_steps = 0;
  for (int step = 0; step < 700; ++step) {
    const bool before = job.uses(victim);
    job.train(1);
    if (job.uses(victim) && !before) retries.push_back(step);
    slow_steps += job.uses(victim) ? 1 : 0;
  }
  ASSERT_GE(retries.size(), 2U);
  EXPECT_LE(retries.size(), 5U);
  for (std::size_t i = 2; i < retries.size(); ++i) {  // up to the limit
    EXPECT_GT(retries[i] - retries[i - 1], 1.5 * std::min(160, retries[i - 1] - retries[i - 2]));
  }
  EXPECT_EQ(job.world.event_count("PlanRolledBack"), static_cast<int>(retries.size()));
  EXPECT_LE(slow_steps, 8 * static_cast<int>(retries.size())) << "a failed retry ends soon";
  EXPECT_FALSE(job.uses(victim));
}

TEST(PreviousCut, IsJudgedWithoutPrometheusToo) {
  Job job;
  const std::string victim = job.node_of_stage(1);
  job.train_until_it_regroups();
  for (int i = 0; i < 400 && !job.uses(victim); ++i) job.train(1);
  ASSERT_TRUE(job.uses(victim));
  job.world.estimates.freshness = estimator::Freshness::kQueryFailed;
  for (int i = 0; i < 8; ++i) job.world.steps(1, job.step_seconds());
  EXPECT_EQ(job.world.event_count("PlanRolledBack"), 1);
  EXPECT_FALSE(job.uses(victim));
}

TEST(PreviousCut, ThatANewLeaderFindsInProgressIsJudged) {
  Job job;
  const std::string victim = job.node_of_stage(1);
  job.train_until_it_regroups();
  for (int i = 0; i < 400 && !job.uses(victim); ++i) job.train(1);
  ASSERT_TRUE(job.uses(victim));
  ASSERT_EQ(job.world.event_count("PlanRolledBack"), 0);
  job.world.adaptation = {};
  job.train(14);
  EXPECT_FALSE(job.uses(victim));
  EXPECT_EQ(job.world.event_count("PlanRolledBack"), 1);
}

TEST(PreviousCut, IsFoundByANewLeaderAmongThePlans) {
  Job job;
  const std::string victim = job.node_of_stage(1);
  job.train_until_it_regroups();
  job.train(12);
  job.world.adaptation = {};
  job.shape("");
  for (int i = 0; i < 100 && !job.uses(victim); ++i) job.train(1);
  EXPECT_TRUE(job.uses(victim));
  EXPECT_EQ(job.world.plan()->stage_count(), 4);
}

// Its codecs were for the network of then.
TEST(PreviousCut, ComesBackRaw) {
  Job job;
  const std::string victim = job.node_of_stage(1);
  job.train_until_it_regroups();
  auto& cut = job.world.adaptation.memory.repartition.previous_cut;
  ASSERT_TRUE(cut);
  cut->plan.codecs = {.forward = {3, schedule::Codec::kInt8},
                      .backward = {3, schedule::Codec::kInt8}};
  job.world.job.spec.adaptation.compress.enabled = true;
  job.shape("");
  for (int i = 0; i < 200 && !job.uses(victim); ++i) job.train(1);
  ASSERT_TRUE(job.uses(victim));
  EXPECT_TRUE(job.world.plan()->codecs.raw());
}

// Each retry costs a little, and a node that has been slow for long may recover at any time.
TEST(PreviousCut, IsRetriedSoonEnoughHoweverLongTheNodeWasSlow) {
  Job job;
  const std::string victim = job.node_of_stage(1);
  job.train_until_it_regroups();
  job.train(3000);
  for (int i = 0; i < 20 && job.uses(victim); ++i) job.train(1);  // a retry is in progress
  ASSERT_FALSE(job.uses(victim));
  job.shape("");
  int steps = 0;
  for (; steps < 1000 && !job.uses(victim); ++steps) job.train(1);
  EXPECT_LT(steps, 400);
}

// A plan that is made from scratch avoids a slow node without having left another plan for that.
TEST(PreviousCut, LeadsFromARestartPlanToTheOneForFreeLinks) {
  Job job;
  const std::string victim = job.node_of_stage(1);
  job.train(20);
  job.shape(victim);
  job.train(1);
  job.world.fail(job.world.plan()->ranks[3].pod, 1);
  job.run();
  job.measure();
  ASSERT_EQ(job.world.plan()->trigger, schedule::Trigger::kRestart);
  ASSERT_FALSE(job.uses(victim)) << "the node was slow a moment ago";
  job.shape("");
  for (int i = 0; i < 200 && !job.uses(victim); ++i) job.train(1);
  EXPECT_TRUE(job.uses(victim));
  EXPECT_EQ(job.world.plan()->stage_count(), 4);
}

TEST(PreviousCut, EndsWithTheMembersThatItIsFor) {
  Job job;
  job.train_until_it_regroups();
  ASSERT_TRUE(job.world.adaptation.memory.repartition.previous_cut.has_value());
  job.world.fail(job.world.plan()->ranks[0].pod, 1);
  for (int i = 0; i < 4; ++i) {
    job.world.settle();
    job.world.kubelets_run();
    job.world.workers_register();
    job.world.members->body.model.layers = 12;
  }
  job.world.settle();
  ASSERT_EQ(job.world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_FALSE(job.world.adaptation.memory.repartition.previous_cut.has_value());
}

}  // namespace previous_cut_test
}  // namespace weir::reconcile::test
