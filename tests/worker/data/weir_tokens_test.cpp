// SPDX-License-Identifier: Apache-2.0
// What weir-tokens (worker/python) has written is read as it was.
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "worker/data/dataset.h"

namespace weir::data {
namespace weir_tokens_test {

using ::testing::HasSubstr;

TEST(WeirTokens, WritesWhatTheWorkerReads) {
  if (std::system("python3 -c 1 >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "python3 is not installed";
  }
  const weir::test::TempDir folder;
  const std::string lines = folder.file("a.jsonl", R"({"text": "zwölf"})"
                                                   "\n"
                                                   R"({"text": "two words"})"
                                                   "\n");
  const std::string text = folder.file("b.txt", "a text");
  const std::string base = (folder.path() / "corpus").string();
  const std::string command = "python3 " WEIR_SOURCE_DIR
                              "/worker/python/weir_torch/tokens.py --tokenizer=bytes --out=" +
                              base + " " + lines + " " + text + " >/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);

  std::vector<std::int32_t> expected;
  for (const std::string document : {"zwölf", "two words", "a text"}) {
    for (const char c : document) expected.push_back(static_cast<unsigned char>(c));
    expected.push_back(256);
  }
  const auto length = expected.size() - 1;
  const auto opened =
      open_tokens(base, {.sequence = static_cast<int>(length), .vocabulary = 257, .seed = 1});
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_THAT((*opened)->description(), HasSubstr("(Megatron), 24 tokens of u16"));
  std::vector<std::int32_t> inputs(length), targets(length);
  ASSERT_TRUE((*opened)->sample(0, 0, 1, inputs, targets));
  inputs.push_back(targets.back());
  EXPECT_EQ(inputs, expected);
}

}  // namespace weir_tokens_test
}  // namespace weir::data
