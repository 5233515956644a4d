// SPDX-License-Identifier: Apache-2.0
#include "worker/app/fatal_signals.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::app {
namespace fatal_signals_test {

using engine::UnderWay;
using protocol::StepPart;

constexpr std::int64_t kMs = 1'000'000;

std::string words(const UnderWay& part) {
  return std::string(last_words(11, part, 5000 * kMs).view());
}

TEST(FatalSignals, TellWhereTheRankIsAndForWhomItWaits) {
  UnderWay part{.part = StepPart::kBackward,
                .micro_batch = 7,
                .step = 811,
                .since = 4988 * kMs,
                .replica = 1,
                .stage = 2,
                .stages = 4};
  const std::string place = "weir-worker: ended by signal 11 in step 812, replica 1, stage 2, ";
  EXPECT_EQ(words(part), place + "backward of micro-batch 7 for 12 ms");
  part.part = StepPart::kGradientLate;
  EXPECT_EQ(words(part), place + "gradient_late of micro-batch 7 from stage 3 for 12 ms");
  part.part = StepPart::kForwardLate;
  EXPECT_EQ(words(part), place + "forward_late of micro-batch 7 from stage 1 for 12 ms");
  part.part = StepPart::kSum;
  part.micro_batch = timeline::kNoMicroBatch;
  EXPECT_EQ(words(part), place + "sum for 12 ms");
  part.since = 6000 * kMs;
  EXPECT_EQ(words(part), place + "sum for 0 ms") << "the next part has just begun";
}

TEST(FatalSignals, SaySoBeforeTheFirstStep) {
  EXPECT_EQ(words({}), "weir-worker: ended by signal 11 before its first step");
}

TEST(FatalSignals, TextThatDoesNotFitIsLeftOut) {
  SignalText text;
  for (int i = 0; i < 100; ++i) text << "12345" << std::int64_t{i};
  EXPECT_EQ(text.view().size(), 320U);
  EXPECT_TRUE(text.view().starts_with("1234501234511234521"));
}

}  // namespace fatal_signals_test
}  // namespace weir::app
