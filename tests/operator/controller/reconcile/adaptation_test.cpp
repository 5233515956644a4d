// SPDX-License-Identifier: Apache-2.0
// When a running job gets another plan: by the tuner, by an edit of its spec, and when it does not.
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"
#include "worker/schedule/validate.h"

namespace weir::reconcile::test {
namespace adaptation_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

World running() {
  World world;
  world.run();
  return world;
}

// 20 steps on quick links; then one of them is slow.
World preempted_after_peace() {
  World world = running();
  world.links(kFast, kFast);
  world.steps(20, 1.15);
  world.links(kFast, kSlow);
  return world;
}

TEST(Adaptation, StaysOnAQuietNetwork) {
  World world = running();
  world.links(kFast, kFast);
  world.steps(60, 1.15);

  EXPECT_EQ(world.job.status.plan.revision, 1);
  EXPECT_EQ(world.event_count("PlanRetuned"), 0);
}

TEST(Adaptation, RaisesKWhenALinkIsPreempted) {
  World world = preempted_after_peace();
  world.steps(20, 1.75);

  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRetune);
  EXPECT_GT(world.plan()->schedule.k, 1);
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kKeep);
  EXPECT_TRUE(schedule::same_generation(world.plans[0], world.plans[1]));
  EXPECT_THAT(world.last_note("PlanRetuned"),
              AllOf(HasSubstr("k 1->"), HasSubstr("link n2->n3 3.2Gbit/s->40.0Mbit/s"),
                    HasSubstr("predicted +")));
  EXPECT_EQ(world.condition("Degraded").reason, "NetworkContended");
}

TEST(Adaptation, NamesThePreemptedLinkBeforeAnyBaselineIsKnown) {
  World world = running();
  world.links(kFast, kSlow);
  for (auto& link : world.estimates.links) link.baseline = 0;
  world.steps(20, 1.75);

  EXPECT_THAT(world.last_note("PlanRetuned"), HasSubstr("link n2->n3 10.0Gbit/s->40.0Mbit/s"));
}

TEST(Adaptation, ALinkTooFastToBeTimedDoesNotBlockTheTuner) {
  World world = running();
  world.links(kFast, kSlow);
  world.estimates.rates.rates.erase({0, 0, estimator::Direction::kForward});
  world.estimates.rates.rates[{0, 2, estimator::Direction::kBackward}].assign(
      16, std::numeric_limits<double>::quiet_NaN());
  world.steps(20, 1.75);

  EXPECT_EQ(world.job.status.plan.revision, 2);
  EXPECT_GT(world.plan()->schedule.k, 1);
}

TEST(Adaptation, TellsTheOutcomeAfterTenSteps) {
  World world = preempted_after_peace();
  world.steps(16, 1.75);
  ASSERT_EQ(world.job.status.plan.revision, 2);
  world.coordinator_applies();
  EXPECT_THAT(world.job.status.plan.predicted_gain_interval, HasSubstr("..+"));
  std::optional<gate::Observation> judged;
  world.decided = [&](const World&, const Outcome& outcome) {
    if (outcome.judged) judged = outcome.judged;
  };
  world.steps(20, 1.3);

  EXPECT_EQ(world.event_count("PlanOutcome"), 1);
  EXPECT_THAT(world.last_note("PlanOutcome"), HasSubstr("measured +"));
  EXPECT_THAT(world.last_note("PlanOutcome"), HasSubstr("% (80 %: +"));
  EXPECT_FALSE(world.job.status.plan.measured_gain_percent.empty());
  EXPECT_FALSE(world.job.status.plan.measured_gain_error.empty());
  ASSERT_TRUE(judged);
  EXPECT_EQ(judged->tier, gate::Tier::kRetune);
  EXPECT_NEAR(100 * judged->measured, std::stod(world.job.status.plan.measured_gain_percent), 0.06);
  EXPECT_NE(world.adaptation.memory.calibration.error(gate::Tier::kRetune), 0.03);
}

TEST(Adaptation, ChangesNothingWhenTheNetworkIsUnknown) {
  for (const auto freshness : {estimator::Freshness::kStale, estimator::Freshness::kQueryFailed,
                               estimator::Freshness::kNoSeries}) {
    World world = running();
    world.links(kFast, kSlow);
    world.estimates.freshness = freshness;
    world.steps(40, 1.75);

    EXPECT_EQ(world.job.status.plan.revision, 1);
    EXPECT_EQ(world.condition("NetworkMetricsAvailable").status, "False");
  }
}

// Nobody knows whether the plan or the network makes steps slower.
TEST(Adaptation, JudgesNoChangeWhileTheNetworkIsUnknown) {
  World world = preempted_after_peace();
  world.steps(16, 1.75);
  ASSERT_EQ(world.job.status.plan.revision, 2);
  world.coordinator_applies();
  world.estimates.freshness = estimator::Freshness::kQueryFailed;
  world.steps(30, 2.5);
  EXPECT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.event_count("PlanOutcome"), 0);

  world.estimates.freshness = estimator::Freshness::kFresh;
  world.steps(1, 2.5);
  EXPECT_EQ(world.event_count("PlanRolledBack"), 1);
}

// The plan before was in force a moment ago: what speaks against it passes.
TEST(Adaptation, ARollbackThatIsRefusedIsAskedForAgain) {
  World world = preempted_after_peace();
  world.steps(16, 1.75);
  ASSERT_EQ(world.job.status.plan.revision, 2);
  world.coordinator_applies();
  for (int i = 0; i < 16 && world.job.status.plan.revision == 2; ++i) world.steps(1, 2.5);
  ASSERT_EQ(world.event_count("PlanRolledBack"), 1);
  world.report->body.last_switch =
      protocol::LastSwitch{3, protocol::Outcome::kRefused, world.report->body.step, 0, "no memory"};
  for (int i = 0; i < 10 && world.job.status.plan.revision == 3; ++i) world.steps(1, 2.5);
  EXPECT_EQ(world.event_count("PlanRolledBack"), 2);
  EXPECT_EQ(world.plan()->schedule.k, 1);
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kKeep);
}

// How long the next pass sleeps.
std::chrono::milliseconds sleep_of(World& world) {
  return world.pass().requeue.value_or(std::chrono::milliseconds::max());
}

// The metrics wake the job at each of their ticks: a tick that came early asks for the rest of the
// interval. An operator without metrics must not look at each idle job every five seconds.
TEST(Adaptation, NoIdleJobIsLookedAtForAnEvaluationThatCannotBe) {
  World world = running();
  world.links(kFast, kFast);
  world.steps(20, 1.15);
  world.settle();
  world.adaptation.memory.last_evaluation = world.now - std::chrono::milliseconds(4900);
  EXPECT_EQ(sleep_of(world), std::chrono::milliseconds(100));

  world.estimates = {};
  world.estimates.freshness = estimator::Freshness::kNotConfigured;
  world.adaptation.memory.last_evaluation = world.now - std::chrono::seconds(6);
  World off = world;
  off.job.spec.adaptation.mode = "Off";
  EXPECT_EQ(sleep_of(world), sleep_of(off));
}

// The pod that takes its place has not failed, and is not the one of the plan.
TEST(Adaptation, ChangesNothingWhileAWorkerIsMadeAgain) {
  World world = preempted_after_peace();
  world.fail("job-gpu-2", 1);
  world.settle();
  ASSERT_EQ(world.job.status.restarts, 1);
  ASSERT_EQ(world.pod("job-gpu-2-1").phase, "Pending");
  world.steps(20, 1.75);

  EXPECT_EQ(world.job.status.plan.revision, 1);
  EXPECT_EQ(world.event_count("PlanRetuned"), 0);
}

// Each worker has so much of its memory free.
void set_free_memory(World& world, const std::string& pod, std::int64_t percent) {
  for (auto& member : world.report->body.members) {
    if (member.pod != pod) continue;
    member.memory_limit_bytes = 1'000'000;
    member.memory_free_bytes = 10'000 * percent;
  }
}

TEST(Adaptation, ADeviceNearlyFullLowersItsCapsWhateverIsKnownOfTheNetwork) {
  World world = running();
  world.links(kFast, kSlow);
  world.steps(20, 1.75);
  ASSERT_EQ(world.job.status.plan.revision, 2);
  world.coordinator_applies();
  const auto before = world.plan()->schedule.caps;
  const std::string pod = world.plan()->ranks[1].pod;
  for (const auto& rank : world.plan()->ranks) {
    world.report->body.members.push_back({.pod = rank.pod, .pod_uid = rank.pod_uid});
  }
  set_free_memory(world, pod, 30);
  world.estimates.freshness = estimator::Freshness::kStale;
  world.steps(12, 1.3);
  ASSERT_EQ(world.job.status.plan.revision, 2) << "there is enough";

  set_free_memory(world, pod, 1);
  world.steps(8, 1.3);

  ASSERT_EQ(world.job.status.plan.revision, 3);
  EXPECT_LT(world.plan()->schedule.caps[1], before[1]);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRetune);
  EXPECT_THAT(world.last_note("PlanRetuned"), HasSubstr("less than 2 % of a device's memory"));
}

TEST(Adaptation, NoCapExceedsTheMemoryOfItsDevice) {
  const auto caps_with = [](std::int64_t bytes) {
    World world = running();
    for (auto& member : world.members->body.members) member.ranks.front().memory_bytes = bytes;
    world.links(kFast, kSlow);
    world.steps(20, 1.75);
    return world.plan()->schedule.caps;
  };
  ASSERT_GT(caps_with(0).front(), 4) << "memory unknown: no limit";
  for (const int cap : caps_with(600'000)) EXPECT_LE(cap, 4) << "123 kB a micro-batch, 10 % kept";
}

TEST(Adaptation, WhateverMicroBatchSizeItChoosesTheGlobalBatchStays) {
  World world;
  world.job.spec.micro_batch_size.reset();
  world.run();
  world.links(kFast, kSlow);
  for (int i = 0; i < 40; ++i) {
    world.steps(1, 1.75);
    world.coordinator_applies();
    const auto& plan = *world.plan();
    ASSERT_EQ(plan.schedule.micro_batch_size * plan.micro_batches.front(), 64);
    ASSERT_TRUE(schedule::broken_rules(plan, 4).empty());
  }
  EXPECT_GT(world.job.status.plan.revision, 1) << "a slow link is answered";
}

TEST(Adaptation, ObserveOnlyProposes) {
  World world;
  world.job.spec.adaptation.mode = "Observe";
  world.job.spec.adaptation.regroup.enabled = false;
  world.run();
  world.links(kFast, kSlow);
  world.steps(40, 1.75);

  EXPECT_EQ(world.job.status.plan.revision, 1);
  EXPECT_EQ(world.event_count("PlanProposed"), 1);
}

TEST(Adaptation, AFrozenPlanStays) {
  World world = running();
  world.job.meta.annotations["weir.dev/freeze-plan"] = "true";
  world.links(kFast, kSlow);
  world.steps(40, 1.75);

  EXPECT_EQ(world.job.status.plan.revision, 1);
}

TEST(Adaptation, ARefusedPlanLeavesTheOldOneInForceAndIsToldOnce) {
  World world = preempted_after_peace();
  while (world.job.status.plan.revision == 1 && world.report->body.step < 100) world.steps(1, 1.75);
  ASSERT_EQ(world.job.status.plan.revision, 2);
  world.report->body.last_switch =
      protocol::LastSwitch{2, protocol::Outcome::kRefused, 40, 0, "rank 1: no memory"};
  world.settle();
  world.settle();

  EXPECT_EQ(world.event_count("PlanRefused"), 1);
  EXPECT_EQ(world.job.status.plan.k, 1);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_THAT(world.condition("ReplanInProgress").message, HasSubstr("no memory"));
}

TEST(Edit, ThePlanThatRunsStaysHoweverOftenTheNextIsRefused) {
  World world = running();
  const auto applied = world.job.status.plan.applied_revision;
  for (int most = 8; most <= 15; ++most) {
    world.job.spec.schedule.in_flight_caps = {most, 6, 4, 2};
    ++world.job.meta.generation;
    world.settle();
    const auto revision = static_cast<std::uint32_t>(world.job.status.plan.revision);
    world.report->body.last_switch =
        protocol::LastSwitch{revision, protocol::Outcome::kRefused, 40, 0, "rank 1: no memory"};
    world.steps(20, 1.75);
  }
  ASSERT_GE(world.job.status.plan.revision, applied + 6);

  EXPECT_EQ(world.job.status.plan.applied_revision, applied);
  EXPECT_TRUE(
      std::ranges::any_of(world.plans, [&](const auto& plan) { return plan.revision == applied; }));
  EXPECT_LE(world.plans.size(), 6U);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(Edit, OfTheScheduleMakesAPlanWithAdaptationOff) {
  World world = running();
  world.job.spec.schedule.type = "OneFOneB";
  world.job.spec.schedule.dispatch = "Strict";
  world.job.spec.adaptation.mode = "Off";
  world.job.meta.generation = 2;
  world.settle();

  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kManual);
  EXPECT_EQ(world.plan()->schedule.family, schedule::Family::kOneFOneB);
  EXPECT_EQ(world.plan()->schedule.caps, (std::vector<int>{4, 3, 2, 1}));
  EXPECT_TRUE(schedule::same_generation(world.plans[0], world.plans[1]));
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.pods_created, 4);
}

TEST(Edit, OfKKeepsItWithinItsBounds) {
  World world = running();
  world.job.spec.schedule.k_initial.reset();
  world.job.spec.schedule.k_min = 3;
  world.settle();

  EXPECT_EQ(world.plan()->schedule.k, 3);
  EXPECT_GT(world.settle(), 0);
  EXPECT_EQ(world.job.status.plan.revision, 2);
}

TEST(Edit, OfCapsAndThenOfTheirDispatchIsFollowed) {
  World world = running();
  world.job.spec.schedule.in_flight_caps = {8, 6, 4, 2};
  world.settle();
  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.plan()->schedule.caps, (std::vector<int>{8, 6, 4, 2}));
  EXPECT_EQ(world.plan()->schedule.k, 2);
  EXPECT_EQ(world.plan()->schedule.dispatch, schedule::Dispatch::kHint);
  world.coordinator_applies();
  world.settle();
  world.job.spec.schedule.dispatch = "Strict";
  world.settle();

  ASSERT_EQ(world.job.status.plan.revision, 3);
  EXPECT_EQ(world.plan()->schedule.caps, (std::vector<int>{8, 6, 4, 2}));
  EXPECT_EQ(world.plan()->schedule.dispatch, schedule::Dispatch::kStrict);
}

TEST(Edit, OfTheMicroBatchSizeKeepsTheGlobalBatch) {
  World world = running();
  world.job.spec.micro_batch_size = 8;
  world.settle();

  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.plan()->schedule.micro_batch_size, 8);
  EXPECT_EQ(world.plan()->micro_batches, std::vector<int>{8});
}

TEST(Edit, OfAFixedKIsThatK) {
  World world = running();
  world.job.spec.schedule.k_mode = "Fixed";
  world.job.spec.schedule.k_initial = 4;
  world.settle();

  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.plan()->schedule.k, 4);
}

TEST(Plans, OnlyTheLastFiveAreKept) {
  World world = running();
  for (int i = 0; i < 8; ++i) {
    world.job.spec.schedule.k_initial.reset();
    world.job.spec.schedule.k_max.reset();
    world.job.spec.schedule.k_min = i % 2 == 0 ? 3 : 1;
    if (i % 2 == 1) world.job.spec.schedule.k_max = 2;
    world.settle();
    world.coordinator_applies();
    world.settle();
  }

  EXPECT_EQ(world.job.status.plan.revision, 9);
  EXPECT_LE(world.plans.size(), 5U);
  EXPECT_EQ(world.plans.back().revision, 9U);
}

}  // namespace adaptation_test
}  // namespace weir::reconcile::test
