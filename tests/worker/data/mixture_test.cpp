// SPDX-License-Identifier: Apache-2.0
#include "worker/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "worker/data/dataset.h"

namespace weir::data {
namespace mixture_test {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<Share> shares_of(const std::string& text) {
  auto shares = parse_shares(text);
  EXPECT_TRUE(shares) << shares.error().message;
  return *std::move(shares);
}

std::string refusal_of(const std::string& text) {
  const auto shares = parse_shares(text);
  return shares ? "" : shares.error().message;
}

TEST(Shares, AreThousandthsOfTheWeights) {
  EXPECT_THAT(shares_of("0.7:a,0.2:b,0.1:c"),
              ElementsAre(Share{"a", 700}, Share{"b", 200}, Share{"c", 100}));
  EXPECT_THAT(shares_of("7:a,2:b,1:c"),
              ElementsAre(Share{"a", 700}, Share{"b", 200}, Share{"c", 100}));
  EXPECT_THAT(shares_of("a,b,c"), ElementsAre(Share{"a", 334}, Share{"b", 333}, Share{"c", 333}));
  EXPECT_THAT(shares_of("1:a,999:b"), ElementsAre(Share{"a", 1}, Share{"b", 999}));
  EXPECT_THAT(shares_of("5:/data/a"), ElementsAre(Share{"/data/a", 1000}));
}

TEST(Shares, APathMayHaveAColon) {
  EXPECT_THAT(shares_of("/data/2024:text"), ElementsAre(Share{"/data/2024:text", 1000}));
  EXPECT_THAT(shares_of("2:x:y,2:z"), ElementsAre(Share{"x:y", 500}, Share{"z", 500}));
}

TEST(Shares, ThatAreNoneAreNamed) {
  EXPECT_EQ(refusal_of("0:a,1:b"), "0:a: its weight is not above 0");
  EXPECT_EQ(refusal_of("-1:a"), "-1:a: its weight is not above 0");
  EXPECT_EQ(refusal_of("2:a,b"), "some of its files have a weight and some have none");
  EXPECT_EQ(refusal_of("1:a,10000:b"), "a: its share is below a thousandth");
  for (const char* text : {"", "a,,b", "a,", "1:"}) EXPECT_EQ(refusal_of(text), "a path is empty");
  EXPECT_THAT(refusal_of("a" + std::string(1000, ',')), HasSubstr("empty"));
}

TEST(Mixture, GivesEachFileItsShareOfEveryThousand) {
  const std::vector<std::vector<int>> cases = {{1000},   {500, 500},      {700, 200, 100},
                                               {1, 999}, {334, 333, 333}, {997, 1, 1, 1}};
  for (const std::vector<int>& places : cases) {
    const Mixture mixture(places);
    std::vector<std::uint64_t> given(places.size(), 0);
    for (std::uint64_t sample = 0; sample < 3 * kPlaces; ++sample) {
      const Mixture::Sample found = mixture.at(sample);
      EXPECT_EQ(found.number, given[found.file]++);
      // Spread out: no file is ahead of its share, or behind it, by a sample or more for each file.
      for (std::size_t i = 0; i < places.size(); ++i) {
        const double share = places[i] * static_cast<double>(sample + 1) / kPlaces;
        EXPECT_LT(std::abs(static_cast<double>(given[i]) - share),
                  static_cast<double>(places.size()));
      }
      if ((sample + 1) % kPlaces != 0) continue;
      for (std::size_t i = 0; i < places.size(); ++i) {
        EXPECT_EQ(given[i], (sample + 1) / kPlaces * static_cast<std::uint64_t>(places[i]));
      }
    }
  }
}

TEST(Mixture, TakesTheFilesInTurn) {
  const Mixture mixture({500, 250, 250});
  std::vector<std::size_t> files;
  for (std::uint64_t sample = 0; sample < 8; ++sample) files.push_back(mixture.at(sample).file);

  EXPECT_THAT(files, ElementsAre(0, 1, 2, 0, 0, 1, 2, 0));
}

class MixedFiles : public ::testing::Test {
 protected:
  std::string list() const {
    return "3:" + dir_.file("a", std::string(100, 'a')) +
           ",1:" + dir_.file("b", std::string(5000, 'b'));
  }
  static std::unique_ptr<Dataset> open(const std::string& list) {
    auto opened = open_tokens(list, {.sequence = 4, .vocabulary = 256, .seed = 1});
    EXPECT_TRUE(opened) << opened.error().message;
    return *std::move(opened);
  }
  weir::test::TempDir dir_;
};

TEST_F(MixedFiles, AreReadInTheirShares) {
  const auto data = open(list());
  std::vector<std::int32_t> inputs(4), targets(4);
  int of_a = 0;
  for (int step = 0; step < 125; ++step) {
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(data->sample(step, i, 8, inputs, targets));
      of_a += inputs[0] == 'a' ? 1 : 0;
    }
  }

  EXPECT_EQ(of_a, 750);
}

TEST_F(MixedFiles, AreReadOnceAnEpochEach) {
  std::string text, other;
  for (int i = 0; i < 41; ++i) text += static_cast<char>(i);  // 10 windows
  for (int i = 0; i < 81; ++i) other += static_cast<char>(100 + i);
  const auto data = open(dir_.file("a", text) + "," + dir_.file("b", other));
  std::vector<std::int32_t> inputs(4), targets(4), starts;
  for (int i = 0; i < 20; ++i) {  // 10 of each
    ASSERT_TRUE(data->sample(0, i, 20, inputs, targets));
    if (inputs[0] < 100) starts.push_back(inputs[0]);
  }
  EXPECT_FALSE(std::ranges::is_sorted(starts));
  std::ranges::sort(starts);

  EXPECT_THAT(starts, ElementsAre(0, 4, 8, 12, 16, 20, 24, 28, 32, 36));
}

TEST_F(MixedFiles, AreKnownByTheContentOfAllAndByTheirShares) {
  const std::string content = open(list())->content();

  EXPECT_THAT(content, StartsWith("750/1000 of 100 bytes, sha256:"));
  EXPECT_THAT(content, HasSubstr("; 250/1000 of 5000 bytes, sha256:"));
  EXPECT_THAT(open(list())->description(), HasSubstr("b, 5000 bytes, 1249 windows of 4"));
  EXPECT_NE(open("2" + list())->content(), content);
  std::string many = dir_.file("a", "abcde");
  for (int i = 1; i < 9; ++i) many += "," + dir_.file("a", "abcde");
  EXPECT_THAT(open(many)->content(), StartsWith("9 files, sha256:"));
  const std::string before = list();
  dir_.file("b", std::string(4999, 'b') + "c");
  EXPECT_NE(open(before)->content(), content);
}

TEST_F(MixedFiles, OneThatIsWrongIsNamed) {
  const auto opened = open_tokens(dir_.file("a", "abcdefgh") + "," + dir_.file("b", "abc"),
                                  {.sequence = 4, .vocabulary = 256, .seed = 1});
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, EndsWith("b: 3 bytes, less than one window of 5"));
}

}  // namespace mixture_test
}  // namespace weir::data
