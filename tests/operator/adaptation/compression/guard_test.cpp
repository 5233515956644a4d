// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/compression/guard.h"

#include <cmath>

#include <gtest/gtest.h>

namespace weir::compression {
namespace guard_test {

using schedule::Codec;

schedule::Plan plan_with(Codec codec) {
  schedule::Plan plan;
  plan.stages = {{0, 0}, {1, 1}, {2, 2}};
  plan.codecs = {{Codec::kRaw, codec}, {Codec::kRaw, codec}};
  return plan;
}
protocol::Segment segment_with(double error, double zeroed, int steps = 8) {
  return {.steps = steps,
          .links = {{.boundary = 0, .forward = true},
                    {.boundary = 1, .forward = true, .rounding_error = 0.0075, .zeroed = 0.01},
                    {.boundary = 1, .forward = false, .rounding_error = error, .zeroed = zeroed}}};
}

TEST(Guard, TakesOneCodecBackWhoseRoundingIsUnusual) {
  const auto plan = plan_with(Codec::kInt8);
  const auto usual = segment_with(0.008, 0.01), large = segment_with(0.031, 0.01);
  EXPECT_FALSE(guard(plan, 4, &usual, {}));
  EXPECT_FALSE(guard(plan, 4, nullptr, {}));
  const auto few = segment_with(0.031, 0.01, 7);
  EXPECT_FALSE(guard(plan, 4, &few, {})) << "too few steps";
  const auto reverted = guard(plan, 4, &large, {});
  ASSERT_TRUE(reverted);
  EXPECT_EQ(describe(reverted->codecs), "1-2:Int8/BF16");
  EXPECT_EQ(reverted->why,
            "link 1-2 backward: error ratio 0.031 for 8 steps, limit 0.020; Int8 is not tried "
            "again for 1000 steps");
  EXPECT_FALSE(reverted->for_good);
  EXPECT_EQ(describe(guard(plan, 2, &large, {})->codecs), "1-2:Int8/Raw") << "of a bf16 job";
  const auto zeroed = segment_with(0.008, 0.2);
  EXPECT_EQ(describe(guard(plan_with(Codec::kInt6), 4, &zeroed, {})->codecs), "1-2:Int6/Int8");
  EXPECT_FALSE(guard(plan_with(Codec::kRaw), 4, &zeroed, {}));
}

TEST(Guard, TakesAllBackWhereValidationGetsWorseTwice) {
  Validations validations;
  const auto told = [&](std::int64_t step, double loss, bool raw) {
    note(protocol::Validation{.step = step, .loss = loss}, raw, validations);
  };
  const auto plan = plan_with(Codec::kInt8);
  told(100, 2.0, true);
  told(200, 2.03, false);
  told(200, 2.03, false);  // told again
  EXPECT_FALSE(guard(plan, 4, nullptr, validations)) << "once";
  told(300, 2.01, false);
  told(400, 2.03, false);
  EXPECT_FALSE(guard(plan, 4, nullptr, validations)) << "not in a row";
  told(500, NAN, false);
  const auto reverted = guard(plan, 4, nullptr, validations);
  ASSERT_TRUE(reverted);
  EXPECT_TRUE(reverted->codecs.raw());
  EXPECT_TRUE(reverted->for_good);
  EXPECT_EQ(reverted->why,
            "two validation losses in a row are more than 1 % above 2.0000, that of raw tensors; "
            "no codec is tried until weir.dev/replan");
}

// Losses around `level` from step `first` on, one a report.
void train(Losses& losses, std::int64_t first, double level, bool raw) {
  for (int i = 0; i < 50; ++i) note(level + (i % 2 == 0 ? 0.05 : -0.05), first + i, raw, losses);
}

TEST(Guard, TakesAllBackWhereTrainingGetsWorseWithoutValidations) {
  const auto plan = plan_with(Codec::kInt8);
  Losses losses;
  train(losses, 1, 2.0, true);
  train(losses, 100, 2.03, false);  // within noise: the standard error is 0.01
  EXPECT_FALSE(guard(plan, 4, nullptr, {}, losses));
  train(losses, 200, 2.06, false);
  const auto reverted = guard(plan, 4, nullptr, {}, losses);
  ASSERT_TRUE(reverted);
  EXPECT_TRUE(reverted->codecs.raw());
  EXPECT_TRUE(reverted->for_good);
  EXPECT_EQ(reverted->why,
            "the training loss of 50 reports is 2.0600, with raw tensors it was 2.0000; no codec "
            "is tried until weir.dev/replan");
  Validations validations;
  note(protocol::Validation{.step = 300, .loss = 2}, false, validations);
  EXPECT_FALSE(guard(plan, 4, nullptr, validations, losses)) << "validations are the better judge";
}

TEST(Guard, JudgesByFiftyTrainingLossesOfEachKind) {
  const auto plan = plan_with(Codec::kInt8);
  Losses losses;
  train(losses, 1, 2.0, true);
  for (int i = 0; i < 49; ++i) note(3, 100 + i, false, losses);
  note(NAN, 149, false, losses);
  note(3, 148, false, losses);  // told again
  EXPECT_FALSE(guard(plan, 4, nullptr, {}, losses)) << "49 are too few";
  note(2, 150, true, losses);
  EXPECT_TRUE(losses.coded.empty()) << "raw again";
}

TEST(Guard, ComparesWithTheFirstValidationWhereNoneWasRaw) {
  Validations validations;
  note(protocol::Validation{.step = 10, .loss = 3}, false, validations);
  note(protocol::Validation{.step = 20, .loss = 2.9}, false, validations);
  EXPECT_EQ(validations.worse_in_row, 0);
  note(std::nullopt, false, validations);
  EXPECT_EQ(validations.step, 20);
}

}  // namespace guard_test
}  // namespace weir::compression
