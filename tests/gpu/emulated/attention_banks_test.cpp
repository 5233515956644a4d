// SPDX-License-Identifier: Apache-2.0
// Shared memory has 32 banks of 4 bytes; reads of one bank by several threads of a warp wait for
// each other. In attention.cu a warp reads 8 rows of one tile and 4 of another at the same channel.
#include <set>

#include <gtest/gtest.h>

#include "worker/stage/ops/cuda/attention_head.h"

namespace weir::stage::ops {
namespace {

TEST(AttentionTiles, HaveTheRowsOfAWarpInDifferentBanks) {
  for (const int size : {16, 24, 32, 48, 64, 80, 96, 128}) {
    std::set<int> banks;
    for (int row = 0; row < 8; ++row) banks.insert(row * stride_of(size) % 32);
    EXPECT_EQ(banks.size(), 8U) << "heads of " << size;
  }
}

}  // namespace
}  // namespace weir::stage::ops
