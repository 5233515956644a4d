// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "worker/data/dataset.h"

namespace weir::data {
namespace token_file_test {

using ::testing::HasSubstr;

struct Sample {
  std::vector<std::int32_t> inputs, targets;
  bool operator==(const Sample&) const = default;
};

Sample sample_of(const Dataset& data, int sequence, std::int64_t step, int index, int batch) {
  const auto length = static_cast<std::size_t>(sequence);
  Sample sample{std::vector<std::int32_t>(length), std::vector<std::int32_t>(length)};
  EXPECT_TRUE(data.sample(step, index, batch, sample.inputs, sample.targets));
  return sample;
}

Result<std::unique_ptr<Dataset>> open_at(const std::string& path, int sequence,
                                         std::uint64_t seed) {
  return open_tokens(path, {.sequence = sequence, .vocabulary = 256, .seed = seed});
}

std::string rising_bytes(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>(i);
  return text;
}

class TokenFile : public ::testing::Test {
 protected:
  std::unique_ptr<Dataset> open(const std::string& text, int sequence, std::uint64_t seed = 1) {
    auto opened = open_at(dir_.file("text", text), sequence, seed);
    EXPECT_TRUE(opened.ok());
    return *std::move(opened);
  }
  test::TempDir dir_;
};

TEST_F(TokenFile, GivesTheNextByteAsTarget) {
  const auto data = open(rising_bytes(255), 10);

  const Sample sample = sample_of(*data, 10, 3, 1, 4);
  for (std::size_t t = 0; t < 10; ++t) EXPECT_EQ(sample.targets[t], sample.inputs[t] + 1);
  EXPECT_EQ(sample.inputs[9], sample.inputs[0] + 9);
}

TEST_F(TokenFile, IsKnownByItsContentAndNotByItsPath) {
  const std::string text(100'000, 'x');
  std::string other = text;
  other[70'000] = 'y';
  const std::string content = open(text, 10)->content();

  const auto moved = open_at(dir_.file("elsewhere", text), 20, 5);
  ASSERT_TRUE(moved);
  EXPECT_EQ((*moved)->content(), content);
  EXPECT_NE(open(other, 10)->content(), content);
  EXPECT_NE(open(text + "x", 10)->content(), content);
}

TEST_F(TokenFile, OfALargeSizeIsKnownByBlocksFromItsFirstByteToItsLast) {
  const std::string text(5'000'000, 'x');
  const std::string content = open(text, 10)->content();

  for (const std::size_t at : {std::size_t{0}, text.size() - 1}) {
    std::string other = text;
    other[at] = 'y';
    EXPECT_NE(open(other, 10)->content(), content) << at;
  }
  EXPECT_NE(open(text + "x", 10)->content(), content);
}

// In place, as `cp` and editors do.
TEST_F(TokenFile, ThatIsReplacedOrBecomesShorterIsNamed) {
  const auto dataset = open(std::string(1000, 'x'), 10);
  const auto fails = [&] {
    std::vector<std::int32_t> inputs(10), targets(10);
    for (int i = 0; i < 99; ++i) {
      const Status read = dataset->sample(0, i, 99, inputs, targets);
      if (!read) return read.error();
    }
    return Error{Code::kCancelled, "all of it was read"};
  };
  EXPECT_EQ(fails().code, Code::kCancelled);

  dir_.file("text", std::string(1000, 'y'));
  EXPECT_EQ(fails().code, Code::kGone);
  EXPECT_THAT(fails().message, HasSubstr("text: its content has changed"));

  dir_.file("text", std::string(500, 'x'));
  EXPECT_EQ(fails().code, Code::kGone);
  EXPECT_THAT(fails().message, HasSubstr("text: "));
}

TEST_F(TokenFile, MayGrowOrBeTouched) {
  const auto dataset = open(std::string(1000, 'x'), 10);
  dir_.file("text", std::string(2000, 'x'));
  std::vector<std::int32_t> inputs(10), targets(10);

  for (int i = 0; i < 99; ++i) EXPECT_TRUE(dataset->sample(0, i, 99, inputs, targets));
}

TEST_F(TokenFile, ReadsBytesAbove127AsPositiveTokens) {
  const auto data = open("\xFF\x80\x7F", 2);

  EXPECT_EQ(sample_of(*data, 2, 0, 0, 1), (Sample{{255, 128}, {128, 127}}));
}

TEST_F(TokenFile, CoversEachWindowOnceAnEpoch) {
  const auto data = open(rising_bytes(8 * 7 + 1 + 3), 8);  // 7 windows and 3 bytes over

  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> starts;
    for (int i = 0; i < 7; ++i) {  // one sample a step, then several: the numbering goes on
      starts.push_back(sample_of(*data, 8, epoch * 7 + i, 0, 1).inputs[0]);
    }
    std::sort(starts.begin(), starts.end());
    EXPECT_EQ(starts, (std::vector{0, 8, 16, 24, 32, 40, 48})) << epoch;
  }
}

TEST_F(TokenFile, ShufflesAnewEachEpoch) {
  const auto data = open(std::string(rising_bytes(250)), 2);
  std::vector<int> first, second;
  for (int i = 0; i < 124; ++i) {
    first.push_back(sample_of(*data, 2, 0, i, 124).inputs[0]);
    second.push_back(sample_of(*data, 2, 1, i, 124).inputs[0]);
  }

  EXPECT_NE(first, second);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
}

TEST_F(TokenFile, DependsOnTheSeedAndOnNothingElse) {
  const auto data = open(rising_bytes(200), 4, 5);
  const auto again = open(rising_bytes(200), 4, 5);
  const auto other = open(rising_bytes(200), 4, 6);
  int equal = 0;
  for (int i = 0; i < 49; ++i) {
    const Sample sample = sample_of(*data, 4, 0, i, 49);
    EXPECT_EQ(sample, sample_of(*again, 4, 0, i, 49));
    equal += sample == sample_of(*other, 4, 0, i, 49) ? 1 : 0;
  }

  EXPECT_LT(equal, 10);
}

TEST_F(TokenFile, TakesAFileOfOneWindow) {
  const auto data = open("abc", 2);

  EXPECT_EQ(sample_of(*data, 2, 9, 0, 1), (Sample{{'a', 'b'}, {'b', 'c'}}));
  EXPECT_THAT(data->description(), HasSubstr("3 bytes, 1 windows of 2"));
}

TEST_F(TokenFile, NamesAMissingFile) {
  const auto opened = open_at((dir_.path() / "absent").string(), 8, 1);

  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Code::kNotFound);
  EXPECT_THAT(opened.error().message, HasSubstr("absent: No such file"));
}

TEST_F(TokenFile, NamesAFileShorterThanAWindow) {
  const auto opened = open_at(dir_.file("short", "12345678"), 8, 1);

  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Code::kInvalid);
  EXPECT_THAT(opened.error().message, HasSubstr("short: 8 bytes, less than one window of 9"));
}

TEST_F(TokenFile, RefusesAFolderAndAPipe) {
  const std::string pipe = (dir_.path() / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);

  for (const auto& path : {dir_.path().string(), pipe}) {
    const auto opened = open_at(path, 8, 1);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, Code::kInvalid);
    EXPECT_THAT(opened.error().message, HasSubstr("not a regular file"));
  }
}

TEST_F(TokenFile, NamesAnUnreadableFile) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read every file";
  const std::string path = dir_.file("secret", "0123456789");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);

  const auto opened = open_at(path, 8, 1);
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("secret: Permission denied"));
}

TEST_F(TokenFile, RefusesAnEmptySequence) {
  EXPECT_FALSE(open_at(dir_.file("text", "abc"), 0, 1).ok());
}

}  // namespace token_file_test
}  // namespace weir::data
