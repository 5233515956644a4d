// SPDX-License-Identifier: Apache-2.0
// Plans with a split backward: the bits of whole backwards with every cut, schedule and number of
// replicas, through changes between both, and memory within what the plan says.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"
#include "worker/engine/plan_rules.h"

namespace weir::engine::test {
namespace split_test {

using schedule::Dispatch;
using schedule::Family;
using testing::Each;

constexpr int kMicroBatches = 6;

struct Case {
  Family family;
  int k;
  Dispatch dispatch;
  int more;       // held beyond the caps
  int postponed;  // on every stage
};

schedule::Plan split_plan(int stages, int layers, int micro_batches, const Case& one) {
  schedule::Plan plan = plan_of(stages, layers, micro_batches, one.family, one.k, one.dispatch);
  plan.schedule.dispatch = one.dispatch;
  schedule::Split split;
  for (const int cap : plan.schedule.caps) {
    split.held.push_back(std::min(micro_batches, cap + one.more));
    split.postponed.push_back(one.postponed);
  }
  plan.schedule.split = split;
  return plan;
}

const std::vector<Case> kCases = {{Family::kOneFOneB, 1, Dispatch::kHint, 0, 0},
                                  {Family::kOneFOneB, 1, Dispatch::kStrict, 2, 1},
                                  {Family::kKfkb, 2, Dispatch::kHint, 0, 0},
                                  {Family::kKfkb, 2, Dispatch::kHint, 3, 2},
                                  {Family::kGpipe, kMicroBatches, Dispatch::kStrict, 0, 6}};

TEST(SplitBackward, GivesTheLossOfWholeOnesBitForBitWithEverySchedule) {
  constexpr int kSteps = 3;
  for (const std::string model : {"mlp", "mlp in bf16", "gpt-tiny", "gpt-tiny in bf16"}) {
    const auto expected = reference_losses(model, kMicroBatches, kSteps);
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(kSteps));
    for (int stages = 1; stages <= 4; ++stages) {
      for (const Case& one : kCases) {
        if (stages == 1 && one.family == Family::kKfkb) continue;
        Group group(model, stages, kSteps);
        ASSERT_EQ(group.start(split_plan(stages, group.layers(), kMicroBatches, one)), "");

        EXPECT_THAT(group.finish(), Each(Exit::kFinished));

        EXPECT_EQ(losses_of(group.records(stages - 1)), expected)
            << model << " " << stages << " stages " << name(one.family) << " " << name(one.dispatch)
            << " " << one.more << " more";
      }
    }
  }
}

TEST(SplitBackward, ClipsByTheSameNorm) {
  constexpr int kSteps = 4;
  constexpr double kLimit = 1e-4;
  const auto expected = reference_losses("gpt-tiny", kMicroBatches, kSteps, kLimit);
  for (const int stages : {2, 4}) {
    Group group("gpt-tiny", stages, kSteps, kLimit);
    ASSERT_EQ(group.start(split_plan(stages, group.layers(), kMicroBatches, kCases[3])), "");
    EXPECT_THAT(group.finish(), Each(Exit::kFinished));
    EXPECT_EQ(losses_of(group.records(stages - 1)), expected) << stages << " stages";
  }
}

TEST(SplitBackward, OfReplicasAddsTheSameSums) {
  constexpr int kSteps = 4;
  for (const std::string model : {"mlp", "gpt-tiny in bf16"}) {
    for (const double limit : {0.0, 1e-4}) {
      const auto expected = reference_losses(model, 8, kSteps, limit);
      for (const Case& one : kCases) {
        if (one.family == Family::kGpipe) continue;
        Group group(model, 4, kSteps, limit);
        auto plan = split_plan(2, group.layers(), 3, one);
        plan.micro_batches = {3, 5};
        ASSERT_EQ(group.start(plan), "");

        EXPECT_THAT(group.finish(), Each(Exit::kFinished));

        EXPECT_EQ(losses_of(group.records(1)), expected) << model << " " << name(one.dispatch);
        EXPECT_EQ(losses_of(group.records(3)), expected) << model << " " << name(one.dispatch);
      }
    }
  }
}

TEST(SplitBackward, AndWholeOnesChangeInBandWithoutABitOfDifference) {
  constexpr int kSteps = 150;
  for (const int replicas : {1, 2}) {
    Group group("mlp", 2 * replicas, kSteps);
    const int share = kMicroBatches / replicas;
    const auto plan_with = [&](bool split, std::uint32_t revision) {
      const Case one{Family::kKfkb, 2, Dispatch::kHint, 2, 1};
      auto plan = split_plan(2, group.layers(), share, one);
      if (!split) plan.schedule.split.reset();
      plan.micro_batches.assign(static_cast<std::size_t>(replicas), share);
      plan.revision = revision;
      if (revision > 1) plan.trigger = schedule::Trigger::kRetune;
      return plan;
    };
    ASSERT_EQ(group.start(plan_with(false, 1)), "");
    std::uint32_t revision = 1;
    while (group.engine(0).statistics().step < kSteps - 30 && revision < 9) {
      ASSERT_TRUE(group.reaches(0, 10 * revision));
      ++revision;
      ASSERT_EQ(group.switch_to(plan_with(revision % 2 == 0, revision)), "");
    }
    EXPECT_THAT(group.finish(), Each(Exit::kFinished));

    EXPECT_EQ(losses_of(group.records(1)), reference_losses("mlp", kMicroBatches, kSteps));
    std::set<std::uint32_t> epochs;
    for (const StepRecord& record : group.records(0)) epochs.insert(record.epoch);
    EXPECT_GE(epochs.size(), 4U);
  }
}

// Values and moments after kSaved steps, and a run that goes on from there.
TEST(SplitBackward, SavesTheStateOfWholeOnesAndResumesFromIt) {
  constexpr int kSteps = 20, kSaved = 8;
  const std::string model = "gpt-tiny";
  std::vector<Saves> saves(2);
  for (const bool split : {false, true}) {
    Saves& kept = saves[split ? 1 : 0];
    Group group(model, 3, kSteps, 0, &kept);
    auto plan = split_plan(3, group.layers(), kMicroBatches, kCases[3]);
    if (!split) plan.schedule.split.reset();
    ASSERT_EQ(group.prepare(plan), "");
    ASSERT_EQ(group.commit(3, 1, 0), "");
    for (int i = 0; i < 3; ++i) {
      group.engine(i).mailbox().put(protocol::Go{1});
      group.engine(i).mailbox().put(protocol::Save{.step = kSaved});
    }
    ASSERT_TRUE(eventually([&] { return kept.copies(kSaved) == 3; }));
    for (int i = 0; i < 3; ++i) group.engine(i).mailbox().put(protocol::Saved{.step = kSteps});
    EXPECT_THAT(group.finish(), Each(Exit::kFinished));
  }
  EXPECT_TRUE(saves[0].state(kSaved) == saves[1].state(kSaved));

  Group other(model, 2, kSteps, 0, &saves[0]);
  auto plan = split_plan(2, other.layers(), kMicroBatches, kCases[0]);
  plan.revision = 2;
  plan.trigger = schedule::Trigger::kRestart;
  plan.state = schedule::StateMove::kCheckpoint;
  plan.checkpoint_step = kSaved;
  ASSERT_EQ(other.start(plan), "");
  for (int i = 0; i < 2; ++i) other.engine(i).mailbox().put(protocol::Saved{.step = kSteps});
  EXPECT_THAT(other.finish(), Each(Exit::kFinished));
  const auto expected = reference_losses(model, kMicroBatches, kSteps);
  EXPECT_EQ(losses_of(other.records(1)),
            std::vector<double>(expected.begin() + kSaved, expected.end()));
}

TEST(SplitBackward, KeepsEachStageWithinItsCapsAndItsMemory) {
  for (const std::string model : {"mlp", "gpt-tiny"}) {
    for (const Case& one : kCases) {
      Group group(model, 3, 2);
      const auto plan = split_plan(3, group.layers(), kMicroBatches, one);
      const stage::Model described = *stage::describe_model(tiny_model(model));
      ASSERT_EQ(group.start(plan), "");
      group.finish();

      for (int s = 0; s < 3; ++s) {
        const auto index = static_cast<std::size_t>(s);
        const Statistics statistics = group.engine(s).statistics();
        const schedule::StageMemory memory = stage_memory(plan, s, described);
        const std::int64_t held = plan.schedule.split->held[index];
        EXPECT_LE(statistics.in_flight_peak, plan.schedule.caps[index]);
        EXPECT_LE(statistics.activation_bytes_peak,
                  held * std::max(memory.activation_bytes, memory.held_bytes));
        EXPECT_GT(statistics.weights.sum, 0);
        for (const StepRecord& record : group.records(s)) {
          EXPECT_LE(record.held_peak, held);
          EXPECT_GE(record.held_peak, record.in_flight_peak);
        }
      }
    }
  }
}

}  // namespace split_test
}  // namespace weir::engine::test
