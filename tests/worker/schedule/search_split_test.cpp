// SPDX-License-Identifier: Apache-2.0
// What stages hold and postpone with split backwards.
#include "worker/schedule/search_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/schedule/validate.h"

namespace weir::schedule {
namespace search_split_test {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using Values = std::vector<int>;

std::vector<HeldLimit> limits(const Values& most, bool known = true) {
  std::vector<HeldLimit> all;
  for (const int value : most) all.push_back({.most = value, .known = known});
  return all;
}

// f = 10 ms, b = 20 ms, half of it weights, every transfer 5 ms.
PipelineModel pipeline(std::size_t stages) {
  PipelineModel model;
  model.stages.assign(
      stages,
      {.forward = 10ms, .backward = 20ms, .backward_input = 10ms, .backward_weights = 10ms});
  model.forward.assign(stages - 1, {.transfer = 5ms});
  model.backward = model.forward;
  return model;
}

Schedule whole(Values caps) {
  Schedule schedule;
  schedule.k = k_of_caps(caps);
  schedule.dispatch = dispatch_in_force(caps, Dispatch::kHint);
  schedule.caps = std::move(caps);
  return schedule;
}

TEST(HeldChoices, AreTheCapsThoseOfTheFullestDeviceAndTheLimit) {
  EXPECT_THAT(
      held_choices(Values{8, 6, 4, 2}, limits({32, 32, 32, 32})),
      ElementsAre(ElementsAre(8, 6, 4, 2), ElementsAre(8, 8, 8, 8), ElementsAre(32, 32, 32, 32)));
}

TEST(HeldChoices, ADeviceWithLessMemoryHoldsLess) {
  EXPECT_THAT(
      held_choices(Values{8, 6, 4, 2}, limits({8, 6, 5, 12})),
      ElementsAre(ElementsAre(8, 6, 4, 2), ElementsAre(8, 6, 5, 8), ElementsAre(8, 6, 5, 12)));
  EXPECT_THAT(held_choices(Values{8, 6, 4, 2}, limits({8, 6, 4, 2})),
              ElementsAre(ElementsAre(8, 6, 4, 2)))
      << "no room for a postponed W";
  EXPECT_THAT(held_choices(Values{8, 6, 4, 2}, limits({8, 6, 3, 12})), IsEmpty())
      << "less than the cap";
}

TEST(HeldChoices, UnknownMemoryAllowsWhatTheFullestDeviceHoldsAlready) {
  EXPECT_THAT(held_choices(Values{4, 2}, limits({16, 16}, false)),
              ElementsAre(ElementsAre(4, 2), ElementsAre(4, 4)));
}

TEST(WithSplit, PostponesOnlyWhatMakesAShorterStep) {
  const Schedule caps = whole({5, 4, 2, 1});
  const Schedule postponing = with_split(caps, {5, 5, 5, 5}, Dispatch::kHint, 32, pipeline(4));
  ASSERT_TRUE(postponing.split);
  EXPECT_EQ(postponing.split->postponed.front(), 0);
  EXPECT_GT(postponing.split->postponed.back(), 0);
  EXPECT_THAT(broken_rules(postponing, 4, 32), IsEmpty());
  Schedule none = postponing;
  none.split->postponed.assign(4, 0);
  EXPECT_LT(simulate(postponing, 32, pipeline(4))->step, simulate(none, 32, pipeline(4))->step);

  const Schedule same = with_split(caps, caps.caps, Dispatch::kHint, 32, pipeline(4));
  EXPECT_THAT(same.split->postponed, ElementsAre(0, 0, 0, 0));
}

// 20 ms a transfer and ops of 10 ms: an idle stage that postpones nothing gets each input at the
// very end of a W in the model, and just after the start of the next one on real links.
TEST(WithSplit, DoesNotRestOnArrivalsAtTheEndOfAnOp) {
  PipelineModel model = pipeline(8);
  model.forward.assign(7, {.transfer = 20ms});
  model.backward = model.forward;
  const Schedule caps = whole({16, 16, 16, 13, 10, 7, 4, 1});
  const Schedule chosen = with_split(caps, Values(8, 16), Dispatch::kHint, 16, model);
  Schedule none = chosen;
  none.split->postponed.assign(8, 0);
  EXPECT_LE(simulate(none, 16, model)->step, simulate(chosen, 16, model)->step);

  for (LinkModel& link : model.forward) link.transfer += 50us;
  model.backward = model.forward;
  EXPECT_GT(simulate(none, 16, model)->step, 800ms);
  EXPECT_LT(simulate(chosen, 16, model)->step, 755ms);
}

TEST(WithSplit, LongSumsOverReplicasLeaveNoTimeToPostpone) {
  const Schedule caps = whole({5, 4, 2, 1});
  const std::vector<std::chrono::nanoseconds> sums(4, 1s);
  const Schedule split = with_split(caps, {5, 5, 5, 5}, Dispatch::kHint, 32, pipeline(4), sums);
  EXPECT_THAT(split.split->postponed, ElementsAre(0, 0, 0, 0));
}

TEST(WithSplit, CapsOfK1RunHintIfTheyAreSplit) {
  const Schedule split =
      with_split(whole({4, 3, 2, 1}), {4, 4, 4, 4}, Dispatch::kHint, 32, pipeline(4));
  EXPECT_EQ(split.dispatch, Dispatch::kHint);
  EXPECT_THAT(broken_rules(split, 4, 32), IsEmpty());
  EXPECT_LT(simulate(split, 32, pipeline(4))->step,
            simulate(whole({4, 3, 2, 1}), 32, pipeline(4))->step);
}

TEST(HasWeights, LayersThatCannotSplitHaveNone) {
  PipelineModel model = pipeline(2);
  EXPECT_TRUE(has_weights(model.stages));
  for (StageTime& stage : model.stages) {
    stage.backward_input = stage.backward;
    stage.backward_weights = 0ms;
  }
  EXPECT_FALSE(has_weights(model.stages));
}

TEST(DescribeSplit, IsShortWhereStagesAreEqual) {
  EXPECT_EQ(describe(Split{.held = {8, 8}, .postponed = {0, 0}}), "held 8");
  EXPECT_EQ(describe(Split{.held = {8, 6}, .postponed = {0, 2}}), "held 8,6 postponed 0,2");
}

// The most that fits is exactly where memory_bytes reaches the limit.
TEST(MostHeld, IsTheInverseOfTheMemoryFormula) {
  for (const std::int64_t held : {30, 100, 140}) {
    const StageMemory stage{.activation_bytes = 100,
                            .held_bytes = held,
                            .in_backward_bytes = std::max<std::int64_t>(held, 100) + 7,
                            .input_bytes = 10,
                            .output_bytes = 20,
                            .static_bytes = 1000};
    Schedule schedule = whole({4, 2});
    for (std::int64_t limit = 1000; limit < 4000; limit += 13) {
      const int most = most_held(stage, schedule, 0, limit, 16);
      schedule.split = Split{.held = {std::max(most, 4), 4}, .postponed = {0, 0}};
      if (most >= 4) {
        EXPECT_LE(memory_bytes(stage, schedule, 0), limit);
      } else {
        EXPECT_GT(memory_bytes(stage, schedule, 0), limit);
      }
      if (most >= 4 && most < 16) {
        ++schedule.split->held[0];
        EXPECT_GT(memory_bytes(stage, schedule, 0), limit);
      }
      schedule.split.reset();
    }
  }
}

}  // namespace search_split_test
}  // namespace weir::schedule
