// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/group_peer.h"

#include <gtest/gtest.h>

namespace weir::transport::tcp {
namespace {

constexpr GroupFrame kFrame{.phase = GroupPhase::kResult,
                            .session = 0xFFFFFFFF,
                            .tag = {.step = 1ULL << 60U, .part = 7},
                            .length = 12345};

TEST(GroupFrame, ComesBackAsItWas) {
  const auto back = decode_group_frame(encode_group_frame(kFrame));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, kFrame);
}

TEST(GroupFrame, IsRefusedWithAnyByteChanged) {
  const auto good = encode_group_frame(kFrame);
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto bad = good;
    bad[i] ^= std::byte{0x10};
    EXPECT_FALSE(decode_group_frame(bad)) << "byte " << i;
  }
  EXPECT_FALSE(decode_group_frame(std::span(good).first(good.size() - 1)));
}

TEST(GroupFrame, IsRefusedWithAnImpossibleLength) {
  GroupFrame frame = kFrame;
  frame.length = 1ULL << 40U;
  EXPECT_FALSE(decode_group_frame(encode_group_frame(frame)));
}

}  // namespace
}  // namespace weir::transport::tcp
