// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::cli {
namespace text_test {

using ::testing::ElementsAre;

TEST(Printable, LeavesOutWhatATerminalActsOn) {
  EXPECT_EQ(printable("a\x1b[31mred\x07\r\n\t"), "a [31mred    ");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            " 31m");                                          // CSI as one character
  EXPECT_EQ(printable("x\xE2\x80\xAEgnp.exe"), "x gnp.exe");  // right-to-left override
  EXPECT_EQ(printable("\x7F\xFF"), " \xEF\xBF\xBD");          // DEL, no UTF-8
  EXPECT_EQ(printable("\xC3\xA4 \xE2\x86\x92 \xF0\x9F\x9A\x80"),
            "\xC3\xA4 \xE2\x86\x92 \xF0\x9F\x9A\x80");  // letters, arrows and pictures stay
}

TEST(Table, AlignsColumnsByCharacters) {
  EXPECT_THAT(table({{"A", "B"}, {"\xC3\xA4\xC3\xB6", "1"}, {"x", ""}}, {}),
              ElementsAre("A   B", "\xC3\xA4\xC3\xB6  1", "x"));
}

TEST(Table, CutsTheWidestFlexibleColumnAtTheLinesEnd) {
  const auto lines =
      table({{"NAME", "WHAT", "N"}, {std::string(63, 'n'), std::string(90, 'w'), "7"}}, {0, 1});

  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(width_of(lines[1]), kLineWidth);
  EXPECT_TRUE(lines[1].ends_with("...  7")) << lines[1];
}

TEST(Paragraph, BreaksBetweenWordsAndIndents) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "word" + std::to_string(i) + " ";

  const auto lines = paragraph("Head  ", text);

  ASSERT_GT(lines.size(), 1U);
  EXPECT_TRUE(lines[0].starts_with("Head  word0 word1"));
  EXPECT_TRUE(lines[1].starts_with("      word"));
  for (const auto& line : lines) EXPECT_LE(width_of(line), kLineWidth);
}

TEST(Paragraph, BreaksAWordThatIsLongerThanALine) {
  const auto lines = paragraph("", std::string(300, 'x'));

  EXPECT_THAT(lines,
              ElementsAre(std::string(120, 'x'), std::string(120, 'x'), std::string(60, 'x')));
}

}  // namespace text_test
}  // namespace weir::cli
