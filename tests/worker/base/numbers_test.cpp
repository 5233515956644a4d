// SPDX-License-Identifier: Apache-2.0
#include "worker/base/numbers.h"

#include <limits>
#include <string>

#include <gmock/gmock.h>

namespace weir {
namespace numbers_test {

using testing::HasSubstr;

TEST(Numbers, AWholeNumberIsDecimal) {
  EXPECT_EQ(*parse_whole("12", 0, 100), 12);
  EXPECT_EQ(*parse_whole("010", 0, 100), 10);  // not 8
  EXPECT_EQ(*parse_whole("08", 0, 100), 8);
  EXPECT_EQ(*parse_whole("+7", 0, 100), 7);
  EXPECT_EQ(*parse_whole("-7", -10, 10), -7);
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(*parse_whole("9223372036854775807", 0, kMost), kMost);
}

TEST(Numbers, WhatIsNoWholeNumberInTheRangeIsRefusedWithTextAndRange) {
  for (const char* text : {"", " ", " 1", "1 ", "1\n", "0x10", "1e1", "1_0", "1.0", "--1", "+-1",
                           "+", "-1", "101", "18446744073709551616", "nan", "\xEF\xBC\x95"}) {
    const auto parsed = parse_whole(text, 0, 100);
    ASSERT_FALSE(parsed) << text;
    EXPECT_THAT(parsed.error().message, HasSubstr("must be a whole number from 0 to 100, found "));
    EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  }
  EXPECT_THAT(parse_whole("1e3", 0, 9).error().message, HasSubstr("'1e3'"));
}

TEST(Numbers, ANumberIsFinite) {
  EXPECT_EQ(*parse_number("0.5", 0, 1), 0.5);
  EXPECT_EQ(*parse_number("1e-3", 0, 1), 1e-3);
  EXPECT_EQ(*parse_number("007", 0, 10), 7);
  for (const char* text :
       {"", "nan", "-nan", "inf", "-1", "1.5", "1e400", "0x1p-1", "1,5", "0.5 ", "1s"}) {
    EXPECT_FALSE(parse_number(text, 0, 1)) << text;
  }
}

}  // namespace numbers_test
}  // namespace weir
