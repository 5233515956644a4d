// SPDX-License-Identifier: Apache-2.0
// Replicas of unequal speed: shares move, the outcome is judged, and the tuner counts with each of
// them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"
#include "worker/schedule/validate.h"

namespace weir::reconcile::test {
namespace replicas_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two replicas of two stages, 16 micro-batches of 4; the links of both are quick.
World two_replicas(const std::string& sync_mode = "Exact") {
  World world = two_stages(2);
  world.job.spec.sync_mode = sync_mode;
  world.last_checkpoint = 0;
  world.run();
  world.replica_links({kFast, kFast});
  return world;
}

// Own times of both replicas as measured under the plan in force; T_p by its law.
struct Speeds {
  double first = 0.06, second = 0.06;  // seconds of one micro-batch, forward and backward

  double step(World& world, int replica) const {
    const auto& plan = *world.plan();
    const int share = plan.micro_batches[static_cast<std::size_t>(replica)];
    return (replica == 0 ? first : second) * (share + plan.stage_count() - 1);
  }
  void train(World& world, int steps) const {
    const double slowest = std::max(step(world, 0), step(world, 1));
    for (int i = 0; i < steps; ++i) {
      world.replica_seconds({step(world, 0), step(world, 1)});
      world.steps(1, slowest);
      const bool applied = world.job.status.plan.applied_revision == world.job.status.plan.revision;
      if (!applied) return;
    }
  }
};

// Replica 1 has got fewer micro-batches, and trains with them.
World with_shares_moved(const Speeds& slow) {
  World world = two_replicas();
  slow.train(world, 40);
  world.coordinator_applies();
  world.settle();
  return world;
}

TEST(Rebalance, AReplicaThatStaysSlowGetsFewerMicroBatches) {
  World world = two_replicas();
  const Speeds slow{0.06, 0.12};
  Speeds{}.train(world, 10);
  slow.train(world, 12);
  EXPECT_EQ(world.job.status.plan.revision, 1) << "16 steps are not over";
  slow.train(world, 12);

  ASSERT_EQ(world.job.status.plan.revision, 2);
  const auto& plan = *world.plan();
  EXPECT_EQ(plan.trigger, schedule::Trigger::kRetune);
  EXPECT_EQ(plan.state, schedule::StateMove::kKeep);
  EXPECT_GT(plan.micro_batches[0], plan.micro_batches[1]);
  EXPECT_EQ(plan.step_micro_batches(), 16);
  EXPECT_TRUE(schedule::broken_rules(plan, 4).empty());
  EXPECT_TRUE(schedule::same_generation(world.plans[0], world.plans[1]));
  EXPECT_THAT(
      world.last_note("PlanRetuned"),
      AllOf(HasSubstr("replica 1 takes"), HasSubstr("shares 8,8 -> "), HasSubstr("predicted +")));
  EXPECT_EQ(world.event_count("Straggler"), 1);

  world.coordinator_applies();
  world.settle();
  const double after = std::max(slow.step(world, 0), slow.step(world, 1));
  EXPECT_LE(after, 0.76 * 0.12 * 9) << "1.33 x the speed of equal shares";
  slow.train(world, 12);
  EXPECT_EQ(world.event_count("PlanOutcome"), 1);
  EXPECT_THAT(world.last_note("PlanOutcome"), HasSubstr("measured +50.0 %"));
  slow.train(world, 20);
  EXPECT_NE(world.condition("Degraded").reason, "Straggler") << "all end together now";
}

TEST(Rebalance, WhatWasMeasuredUnderAnotherPlanSaysNothing) {
  World world = two_replicas();
  const Speeds slow{0.06, 0.12};
  slow.train(world, 3);
  world.replica_seconds({1, 2}, 40);
  world.estimates.replicas_revision = 7;
  world.steps(10, 1);

  EXPECT_EQ(world.job.status.plan.revision, 1);
  EXPECT_EQ(world.event_count("Straggler"), 0);
}

// Step times of replicas are fresh for a minute; the last query of the network failed.
TEST(Rebalance, WaitsWhileTheNetworkIsUnknown) {
  World world = two_replicas();
  world.estimates.freshness = estimator::Freshness::kQueryFailed;
  Speeds{0.06, 0.12}.train(world, 40);

  EXPECT_EQ(world.job.status.plan.revision, 1);
}

TEST(Rebalance, ObserveOnlyProposes) {
  World world = two_replicas();
  world.job.spec.adaptation.mode = "Observe";
  Speeds{0.06, 0.12}.train(world, 40);

  EXPECT_EQ(world.job.status.plan.revision, 1);
  EXPECT_EQ(world.event_count("PlanProposed"), 1);
  EXPECT_THAT(world.last_note("PlanProposed"), HasSubstr("shares 8,8 -> "));
}

TEST(Rebalance, OffLeavesTheSharesAndNamesTheStraggler) {
  World world = two_replicas();
  world.job.spec.sync_rebalance = false;
  Speeds{0.06, 0.12}.train(world, 40);

  EXPECT_EQ(world.job.status.plan.revision, 1);
  EXPECT_EQ(world.condition("Degraded").reason, "Straggler");
  EXPECT_THAT(world.condition("Degraded").message,
              AllOf(HasSubstr("replica 1 takes"), HasSubstr("shares 8,8")));
}

TEST(Rebalance, TurnedOffTakesUnevenSharesBack) {
  World world = with_shares_moved({0.06, 0.12});
  ASSERT_EQ(world.job.status.plan.revision, 2);
  world.job.spec.sync_rebalance = false;
  world.job.spec.adaptation.mode = "Off";
  world.settle();

  ASSERT_EQ(world.job.status.plan.revision, 3);
  EXPECT_EQ(world.plan()->micro_batches, (std::vector<int>{8, 8}));
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kManual);
}

TEST(Rebalance, WaitsForTheCooldown) {
  World world = two_replicas();
  world.job.spec.adaptation.retune.cooldown_seconds = 600;
  world.job.status.retune_last_change = world.now;
  const Speeds slow{0.06, 0.12};
  slow.train(world, 40);
  EXPECT_EQ(world.job.status.plan.revision, 1);
  world.job.status.retune_last_change = world.now - 700s;
  world.adaptation.memory.retune.clock.last_change.reset();
  slow.train(world, 10);

  EXPECT_EQ(world.job.status.plan.revision, 2);
}

TEST(Rebalance, SharesThatDoNotHelpAreTakenBackAndKeptOut) {
  const Speeds slow{0.06, 0.12};
  World world = with_shares_moved(slow);
  ASSERT_EQ(world.job.status.plan.revision, 2);
  const auto tried = world.plan()->micro_batches;
  for (int i = 0; i < 14 && world.job.status.plan.revision == 2; ++i) world.steps(1, 2.0);

  ASSERT_EQ(world.job.status.plan.revision, 3);
  EXPECT_EQ(world.plan()->micro_batches, (std::vector<int>{8, 8}));
  EXPECT_THAT(world.last_note("PlanRolledBack"), HasSubstr("back to shares 8,8"));
  world.coordinator_applies();
  world.settle();
  slow.train(world, 60);
  EXPECT_NE(world.plan()->micro_batches, tried) << "not again for 100 steps";
}

TEST(Rebalance, SharesThatTheWorkersRefuseAreNotAskedForAgain) {
  World world = two_replicas();
  const Speeds slow{0.06, 0.12};
  slow.train(world, 40);
  ASSERT_EQ(world.job.status.plan.revision, 2);
  world.report->body.last_switch =
      protocol::LastSwitch{2, protocol::Outcome::kRefused, 40, 0, "rank 1: no memory"};
  world.settle();
  for (int i = 0; i < 40; ++i) {
    world.replica_seconds({0.54, 1.08});
    world.steps(1, 1.08);
  }

  EXPECT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.job.status.plan.micro_batches, 8);
  EXPECT_EQ(world.condition("Degraded").reason, "Straggler");
}

TEST(Tuning, FollowsTheSlowLinkOfOneReplica) {
  World world = two_replicas();
  Speeds{}.train(world, 20);
  world.replica_links({kFast, kSlow});
  for (int i = 0; i < 20 && world.job.status.plan.revision == 1; ++i) world.steps(1, 0.9);

  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_GT(world.plan()->schedule.k, 1);
  EXPECT_EQ(world.plan()->micro_batches, (std::vector<int>{8, 8}));
  EXPECT_TRUE(schedule::broken_rules(*world.plan(), 4).empty());
}

// The slow link of one of two: who averages in groups goes on, as what is measured then says, too.
TEST(Tuning, InGroupsTheSlowestReplicaIsNotTheStep) {
  const auto costed = [](const std::string& mode, std::vector<double> links) {
    World world = two_replicas(mode);
    world.job.spec.adaptation.mode = "Observe";
    Speeds{}.train(world, 20);
    world.replica_links(std::move(links));
    world.steps(10, 0.54);  // their own time: nothing is left for the averages
    EXPECT_EQ(world.job.status.plan.revision, 1) << mode;
    return world.adaptation.memory.retune.costed_step;
  };
  const double fast = costed("Exact", {kFast, kFast}), slow = costed("Exact", {kFast, kSlow});

  ASSERT_GT(slow, 1.1 * fast);
  EXPECT_NEAR(costed("Partial", {kFast, kSlow}), 2 / (1 / fast + 1 / slow), 0.01 * fast);
}

TEST(Tuning, KeepsUnevenShares) {
  const Speeds slow{0.06, 0.12};
  World world = with_shares_moved(slow);
  ASSERT_EQ(world.job.status.plan.revision, 2);
  const auto shares = world.plan()->micro_batches;
  slow.train(world, 14);
  world.replica_links({kSlow, kSlow});
  for (int i = 0; i < 30 && world.job.status.plan.revision == 2; ++i) {
    world.replica_seconds({1.2, 1.2});
    world.steps(1, 1.2);
  }

  ASSERT_EQ(world.job.status.plan.revision, 3);
  EXPECT_EQ(world.plan()->micro_batches, shares);
  EXPECT_TRUE(schedule::broken_rules(*world.plan(), 4).empty());
}

}  // namespace replicas_test
}  // namespace weir::reconcile::test
