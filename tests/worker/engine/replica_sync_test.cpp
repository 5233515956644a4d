// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/replica_sync.h"

#include <gtest/gtest.h>

namespace weir::engine {
namespace replica_sync_test {

StepSummary summary(std::uint32_t next_epoch) {
  return {.step = 1ULL << 40U,
          .epoch = 7,
          .incarnation = 2,
          .next_epoch = next_epoch,
          .losses = {0.5, -1.25, 3}};
}

TEST(StepSummary, ComesBackAsItWas) {
  const auto bytes = encode_summary(summary(8));
  EXPECT_EQ(bytes.size(), summary_bytes(3));
  const auto back = decode_summary(bytes, 3);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, summary(8));
}

TEST(StepSummary, AnotherSizeOrNumberOfLossesIsRefused) {
  auto bytes = encode_summary(summary(8));
  EXPECT_FALSE(decode_summary(bytes, 2));
  bytes[20] = std::byte{9};  // the number of losses
  EXPECT_FALSE(decode_summary(bytes, 3));
  bytes.pop_back();
  EXPECT_FALSE(decode_summary(bytes, 3));
}

TEST(StepSummary, AllMustWantTheSameChange) {
  EXPECT_EQ(agreed_epoch({summary(8), summary(8), summary(8)}), 8U);
  EXPECT_EQ(agreed_epoch({summary(8), summary(0), summary(8)}), 0U);
  EXPECT_EQ(agreed_epoch({summary(8), summary(9)}), 0U);
  EXPECT_EQ(agreed_epoch({summary(0), summary(0)}), 0U);
  EXPECT_EQ(agreed_epoch({}), 0U);
}

}  // namespace replica_sync_test
}  // namespace weir::engine
