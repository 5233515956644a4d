// SPDX-License-Identifier: Apache-2.0
#include "worker/base/utf8.h"

#include <gtest/gtest.h>

namespace weir {
namespace utf8_test {

TEST(OneLine, HasNoControlCharactersAndNoBrokenOnes) {
  EXPECT_EQ(one_line("no plan\n", 100), "no plan");
  EXPECT_EQ(one_line("a\nb\tc\x7f"
                     "d",
                     100),
            "a b c d");
  EXPECT_EQ(one_line("bad \xff byte", 100), "bad \xEF\xBF\xBD byte");
}

TEST(OneLine, IsCutBetweenCharacters) {
  EXPECT_EQ(one_line(std::string(30, 'x'), 10), "xxxxxxx...");
  std::string umlauts;
  for (int i = 0; i < 1000; ++i) umlauts += "\xC3\xBC";
  for (const std::size_t most : {100U, 101U}) {
    const std::string part = one_line(umlauts, most);
    EXPECT_LE(part.size(), most);
    EXPECT_EQ(one_line(part, most), part);  // no half character, which would become U+FFFD
  }
}

TEST(InQuotes, IsShortAndOneLine) {
  EXPECT_EQ(in_quotes("a:b"), "'a:b'");
  EXPECT_EQ(in_quotes("a\nb"), "'a b'");
  EXPECT_LE(in_quotes(std::string(100'000, 'x')).size(), 110U);
}

}  // namespace utf8_test
}  // namespace weir
