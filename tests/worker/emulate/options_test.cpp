// SPDX-License-Identifier: Apache-2.0
#include "worker/emulate/options.h"

#include <gtest/gtest.h>

namespace weir::emulate {
namespace options_test {

TEST(ParseRate, TellsBitsFromBytes) {
  EXPECT_DOUBLE_EQ(*parse_rate("40Mbit"), 5e6);
  EXPECT_DOUBLE_EQ(*parse_rate("5MB"), 5e6);
  EXPECT_DOUBLE_EQ(*parse_rate("800kbit"), 1e5);
  EXPECT_DOUBLE_EQ(*parse_rate("1.5GB"), 1.5e9);
  for (const char* wrong :
       {"", "40", "Mbit", "-1MB", "0MB", "40 Mbit", "40mbit", "nanMB", "infMB"}) {
    EXPECT_FALSE(parse_rate(wrong)) << wrong;
  }
}

}  // namespace options_test
}  // namespace weir::emulate
