// SPDX-License-Identifier: Apache-2.0
// Files of tokens with the layouts of megatron-core, llm.c and nanoGPT.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/worker/data/token_bytes.h"
#include "worker/data/dataset.h"

namespace weir::data {
namespace token_formats_test {

using test::llm_c_header;
using test::MegatronIndex;
using test::raw;
using test::raw_all;
using test::rising;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::int32_t kGpt2 = 20240520, kLlama3 = 20240801;  // magic numbers of llm.c

class TokenFormats : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }

  // Reads the whole file as one window; it then has one order.
  std::vector<std::int32_t> tokens(const std::string& name, int count, int vocabulary = 60000) {
    auto opened = open_tokens(
        path(name), {.sequence = count - 1, .vocabulary = vocabulary, .seed = 1, .flat = flat_});
    if (!opened) {
      ADD_FAILURE() << opened.error().message;
      return {};
    }
    content_ = (*opened)->content();
    description_ = (*opened)->description();
    const auto length = static_cast<std::size_t>(count) - 1;
    std::vector<std::int32_t> inputs(length), targets(length);
    const Status read = (*opened)->sample(3, 1, 4, inputs, targets);
    EXPECT_TRUE(read) << read.error().message;
    inputs.push_back(targets.back());
    return inputs;
  }
  std::string refusal(const std::string& name, int vocabulary = 60000) {
    const auto opened = open_tokens(
        path(name), {.sequence = 4, .vocabulary = vocabulary, .seed = 1, .flat = flat_});
    const std::string message = opened ? "accepted" : opened.error().message;
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    return message;
  }
  void megatron(const MegatronIndex& index, const std::string& bin) {
    dir_.file("corpus.idx", index.bytes());
    dir_.file("corpus.bin", bin);
  }

  weir::test::TempDir dir_;
  std::optional<TokenType> flat_;
  std::string content_, description_;
};

TEST_F(TokenFormats, MegatronIsReadInEachOfItsTypes) {
  const std::vector<int> few = rising(12, 5);
  megatron({.lengths = {4, 0, 3, 5}, .width = 2, .code = 8}, raw_all<std::uint16_t>(few));
  EXPECT_EQ(tokens("corpus", 12), few);
  EXPECT_EQ(description_, path("corpus.bin") + " (Megatron), 12 tokens of u16, 1 windows of 11");
  EXPECT_THAT(content_, StartsWith("24 bytes of u16, sha256:"));
  EXPECT_EQ(tokens("corpus.bin", 12), few);

  megatron({.lengths = {12}, .width = 1, .code = 1}, raw_all<std::uint8_t>(few));
  EXPECT_EQ(tokens("corpus", 12), few);
  megatron({.lengths = {1, 11}, .width = 4, .code = 4}, raw_all<std::int32_t>(few));
  EXPECT_EQ(tokens("corpus", 12), few);
  megatron({.lengths = {6, 6}, .width = 8, .code = 5}, raw_all<std::int64_t>(few));
  EXPECT_EQ(tokens("corpus", 12), few);
}

TEST_F(TokenFormats, AnIndexOfManySequencesIsReadInPieces) {
  constexpr int kSequences = 140'000;
  const std::vector<int> lengths(kSequences, 1);
  megatron({.lengths = lengths, .width = 1, .code = 1}, std::string(kSequences, 'x'));

  EXPECT_EQ(tokens("corpus", kSequences), std::vector<std::int32_t>(kSequences, 'x'));
}

TEST_F(TokenFormats, AMegatronIndexThatIsDamagedIsNamedWithTheReason) {
  const std::string bin = raw_all<std::uint16_t>(rising(12));
  const auto says = [&](const std::string& index) {
    dir_.file("corpus.idx", index);
    dir_.file("corpus.bin", bin);
    const std::string message = refusal("corpus");
    EXPECT_THAT(message, StartsWith("data file " + path("corpus.idx") + ": "));
    return message;
  };
  const MegatronIndex good{.lengths = {4, 8}};
  ASSERT_EQ(says(good.bytes() + std::string(1, '\0')),
            "data file " + path("corpus.idx") +
                ": its 83 bytes are not those of 2 sequences and 3 documents");
  EXPECT_THAT(says(good.bytes().substr(0, 81)), HasSubstr("its 81 bytes are not those of"));
  EXPECT_THAT(says(good.bytes().substr(0, 20)), HasSubstr("20 bytes are no header"));
  EXPECT_THAT(says("MMIDIDY" + good.bytes().substr(7)), EndsWith("does not begin with MMIDIDX"));
  EXPECT_THAT(says(MegatronIndex{.lengths = {12}, .version = 2}.bytes()),
              EndsWith("version 2 is not 1"));
  EXPECT_THAT(says(MegatronIndex{.lengths = {12}, .code = 6}.bytes()), HasSubstr("type 6 is none"));
  EXPECT_THAT(says(MegatronIndex{.lengths = {4, 9}}.bytes()),
              EndsWith("sequence 1 ends at byte 26, the .bin has 24"));
  EXPECT_THAT(says(MegatronIndex{.lengths = {4, 7}}.bytes()),
              EndsWith("its sequences end at byte 22, the .bin has 24"));
  EXPECT_THAT(says(MegatronIndex{.lengths = {13, -1}}.bytes()), HasSubstr("sequence 0 ends at"));
  EXPECT_THAT(says(MegatronIndex{.lengths = {-1, 13}}.bytes()),
              EndsWith("sequence 0 has a length of -1"));
  EXPECT_THAT(says(MegatronIndex{.lengths = {4, 8}, .width = 4}.bytes()),
              EndsWith("sequence 1 does not begin where the one before it ends"));
  std::string huge = good.bytes();
  for (const std::size_t at : {18U, 26U}) {  // sizes that overflow when they are multiplied
    for (const std::uint64_t count : {~0ULL, 1ULL << 61, (1ULL << 62) + 2}) {
      std::string index = good.bytes();
      index.replace(at, 8, raw(count));
      EXPECT_THAT(says(index), HasSubstr("are not those of"));
    }
  }
}

TEST_F(TokenFormats, HalfOfAMegatronPairIsNamed) {
  dir_.file("corpus.bin", raw_all<std::uint16_t>(rising(12)));
  EXPECT_EQ(refusal("corpus"), "data file " + path("corpus") + ": No such file or directory; " +
                                   path("corpus.bin") + " has no index " + path("corpus.idx"));
  EXPECT_THAT(refusal("corpus.bin"), HasSubstr("neither an index beside it nor a header of llm.c"));

  dir_.file("other.idx", MegatronIndex{.lengths = {12}}.bytes());
  EXPECT_THAT(refusal("other"), HasSubstr("other.bin: No such file"));
}

TEST_F(TokenFormats, FilesOfLlmCAreKnownByTheirHeader) {
  const std::vector<int> few = rising(9, 50000);
  dir_.file("train.bin", llm_c_header(kGpt2, 1, 9) + raw_all<std::uint16_t>(few));
  EXPECT_EQ(tokens("train.bin", 9), few);
  EXPECT_THAT(description_, HasSubstr("(llm.c), 9 tokens of u16"));

  const std::vector<int> large = rising(9, 128000);
  dir_.file("llama", llm_c_header(kLlama3, 7, 9) + raw_all<std::uint32_t>(large));
  EXPECT_EQ(tokens("llama", 9, 128256), large);
}

TEST_F(TokenFormats, AFileOfLlmCWithAWrongVersionOrCountIsRefused) {
  const std::string body = raw_all<std::uint16_t>(rising(9));
  dir_.file("a.bin", llm_c_header(kGpt2, 2, 9) + body);
  EXPECT_EQ(refusal("a.bin"), "data file " + path("a.bin") +
                                  ": begins with llm.c's 20240520, but version 2 is not 1");
  dir_.file("a.bin", llm_c_header(kLlama3, 1, 9) + body);
  EXPECT_THAT(refusal("a.bin"), EndsWith("version 1 is not 7"));
  for (const int count : {10, 8, -9, 0x7FFFFFFF}) {
    dir_.file("a.bin", llm_c_header(kGpt2, 1, count) + body);
    EXPECT_THAT(refusal("a.bin"), EndsWith("its 1042 bytes are not a header and " +
                                           std::to_string(count) + " tokens of u16"));
  }
  dir_.file("a.bin", llm_c_header(kGpt2, 1, 9).substr(0, 500));
  EXPECT_THAT(refusal("a.bin"), HasSubstr("its 500 bytes are not a header"));
}

TEST_F(TokenFormats, FlatTokensAreOfTheTypeThatIsGiven) {
  const std::vector<int> few = rising(10, 100);
  dir_.file("train.bin", raw_all<std::uint16_t>(few));
  flat_ = TokenType::kU16;
  EXPECT_EQ(tokens("train.bin", 10), few);
  EXPECT_THAT(content_, StartsWith("20 bytes of u16, sha256:"));

  dir_.file("wide", raw_all<std::uint32_t>(rising(10, 100000)));
  flat_ = TokenType::kU32;
  EXPECT_EQ(tokens("wide", 10, 200000), rising(10, 100000));
  EXPECT_THAT(content_, StartsWith("40 bytes of u32, sha256:"));
  dir_.file("wide", std::string(41, '\0'));
  EXPECT_EQ(refusal("wide"),
            "data file " + path("wide") + ": 41 bytes are no whole number of tokens of u32");

  dir_.file("letters", raw_all<std::uint8_t>(rising(10)));
  flat_ = TokenType::kU8;  // tokens, so that the vocabulary may be smaller than that of bytes
  EXPECT_EQ(tokens("letters", 10, 10), rising(10));
  flat_.reset();
  EXPECT_THAT(refusal("letters", 255), HasSubstr("bytes of a text need a vocabulary of 256"));
}

TEST_F(TokenFormats, ATokenOutsideTheVocabularyIsNamedWithItsPosition) {
  flat_ = TokenType::kU16;
  dir_.file("train.bin", raw_all<std::uint16_t>(rising(10, 100)));
  EXPECT_EQ(refusal("train.bin", 107), "data file " + path("train.bin") +
                                           ": token 107 at position 7 is outside the vocabulary "
                                           "of 107 (--vocab)");

  megatron({.lengths = {3}, .width = 8, .code = 5},
           raw_all<std::int64_t>(std::vector<std::int64_t>{1, 1LL << 40, -3}));
  EXPECT_THAT(refusal("corpus"), HasSubstr("token 1099511627776 at position 1 is"));
  megatron({.lengths = {3}, .width = 4, .code = 4},
           raw_all<std::int32_t>(std::vector<int>{1, 2, -3}));
  EXPECT_THAT(refusal("corpus"), HasSubstr("token -3 at position 2 is"));
}

// At the start only some places are read.
TEST_F(TokenFormats, ATokenOutsideTheVocabularyIsFoundWhenItIsReadToo) {
  std::vector<int> numbers(2'000'000, 7);
  numbers[3001] = 300;
  dir_.file("train.bin", raw_all<std::uint16_t>(numbers));
  const auto opened = open_tokens(
      path("train.bin"), {.sequence = 1000, .vocabulary = 256, .seed = 1, .flat = TokenType::kU16});
  ASSERT_TRUE(opened) << opened.error().message;
  std::vector<std::int32_t> inputs(1000), targets(1000);
  std::string message;
  for (int i = 0; i < 1999; ++i) {
    const Status read = (*opened)->sample(0, i, 1999, inputs, targets);
    if (read) continue;
    EXPECT_EQ(read.error().code, Code::kNotFound);
    message = read.error().message;
  }
  EXPECT_THAT(message,
              AllOf(HasSubstr("train.bin: token 300 at position 3001"), HasSubstr("of 256")));
}

TEST_F(TokenFormats, WhatIsReadDoesNotDependOnTheFormat) {
  std::vector<int> numbers;
  for (int i = 0; i < 5000; ++i) numbers.push_back(i * 7919 % 251);
  const std::string wide = raw_all<std::uint16_t>(numbers);
  dir_.file("text", raw_all<std::uint8_t>(numbers));
  dir_.file("train.bin", llm_c_header(kGpt2, 1, 5000) + wide);
  megatron({.lengths = {1000, 4000}}, wide);
  std::vector<std::vector<std::int32_t>> read;
  for (const char* name : {"text", "train.bin", "corpus"}) {
    const auto opened = open_tokens(path(name), {.sequence = 16, .vocabulary = 256, .seed = 9});
    ASSERT_TRUE(opened) << opened.error().message;
    std::vector<std::int32_t>& all = read.emplace_back();
    std::vector<std::int32_t> inputs(16), targets(16);
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE((*opened)->sample(i, 2, 5, inputs, targets));
      all.insert(all.end(), inputs.begin(), inputs.end());
      all.insert(all.end(), targets.begin(), targets.end());
    }
  }
  EXPECT_EQ(read[1], read[0]);
  EXPECT_EQ(read[2], read[0]);
}

}  // namespace token_formats_test
}  // namespace weir::data
