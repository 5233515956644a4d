// SPDX-License-Identifier: Apache-2.0
#include "operator/api/plain_line.h"

#include <random>

#include <gtest/gtest.h>

namespace weir::api {
namespace plain_line_test {

constexpr auto kInfo =
    R"({"ts":"2026-01-01T00:00:00Z","level":"info","component":"app","msg":"model and data","model":"mlp"})";
constexpr auto kError =
    R"({"ts":"2026-01-01T00:00:01Z","level":"error","component":"checkpoint","msg":"cannot be written","step":40,"reason":"No space left on device"})";

std::string lines(std::initializer_list<std::string> all) {
  std::string text;
  for (const auto& line : all) text += line + "\n";
  return text;
}

TEST(PlainLine, IsTheLastErrorOfALogWithItsFields) {
  EXPECT_EQ(plain_line(lines({kInfo, kError, kInfo, "goodbye"})),
            "cannot be written: No space left on device, step 40");
}

TEST(PlainLine, IsTheLastPlainLineOtherwise) {
  EXPECT_EQ(plain_line("weir-worker: --model=gtp: unknown model\n\n"),
            "weir-worker: --model=gtp: unknown model");
  EXPECT_EQ(plain_line(lines({"usage: ...", kInfo, "weir-worker: --steps: not a number", kInfo})),
            "weir-worker: --steps: not a number");
}

TEST(PlainLine, IsTheLastMessageOfALogWithoutErrors) {
  EXPECT_EQ(plain_line(lines({kInfo})), "model and data: model mlp");
}

TEST(PlainLine, LeavesALineOutWhoseBeginningIsCut) {
  const std::string end = R"( such file or directory"})";
  EXPECT_EQ(plain_line(lines({end, kError})),
            "cannot be written: No space left on device, step 40");
  EXPECT_EQ(plain_line(end), "such file or directory") << "nothing else is left";
}

TEST(PlainLine, IsOneShortLineWhateverWasLeft) {
  EXPECT_EQ(plain_line(""), "");
  EXPECT_EQ(plain_line("\n \r\n"), "");
  EXPECT_EQ(plain_line("{\"msg\""), "{\"msg\"");
  EXPECT_EQ(plain_line(R"({"level":"error","msg":"a\nb"})"), "a b");
  EXPECT_EQ(plain_line(R"({"level":"error","msg":{"a":1},"list":[1,2]})"),
            R"({"a":1}: list [1,2])");
  std::string umlauts;
  for (int i = 0; i < 1000; ++i) umlauts += "ä";
  const std::string line = plain_line("x" + umlauts);
  EXPECT_EQ(line, "x" + umlauts.substr(0, 508) + "...");
  EXPECT_LE(line.size(), kLongestPlainLine);
}

TEST(PlainLine, IsOneShortLineOfAnyBytes) {
  std::mt19937 random(20);
  const std::string good = lines({kInfo, kError, "weir-worker: no"});
  for (int round = 0; round < 2000; ++round) {
    std::string left = good;
    for (int change = 0; change < 4; ++change) {
      left[random() % left.size()] = static_cast<char>(random() % 256);
      left.erase(random() % left.size(), random() % 8);
    }
    const std::string line = plain_line(left);
    ASSERT_FALSE(line.empty());
    ASSERT_LE(line.size(), kLongestPlainLine);
    ASSERT_EQ(line.find_first_of("\r\n"), std::string::npos);
  }
}

}  // namespace plain_line_test
}  // namespace weir::api
