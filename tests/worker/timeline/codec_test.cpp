// SPDX-License-Identifier: Apache-2.0
#include "worker/timeline/codec.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/timeline/records.h"
#include "worker/protocol/step_part.h"

namespace weir::timeline {
namespace codec_test {

using testing::HasSubstr;

std::string octets() {
  std::string text;
  for (const RankRecord& record : test::two_stages(5)) text += encode(record);
  return text;
}

std::string refusal(const std::string& text) {
  const auto records = decode(text);
  return records ? "accepted" : records.error().message;
}

TEST(RecordCodec, ReadsWhatItWrote) {
  auto records = test::two_stages(-3, 7);
  records[0].events.push_back({.begin = -5,
                               .end = -1,
                               .extra = 9,
                               .step = 4'000'000'000,
                               .detail = static_cast<std::uint8_t>(protocol::kStepParts - 1)});
  const auto read = decode(encode(records[0]) + encode(records[1]));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, records);
  EXPECT_EQ(encode(records[0]).size(), 16U + 8 + 4 + 8 + 3 * 2 + 8 + 7 + 2 + 4 + 5 * kEventBytes);
}

TEST(RecordCodec, NamesTheByteAtWhichAFileIsWrong) {
  EXPECT_EQ(refusal(""), "byte 0: no record begins here");
  EXPECT_EQ(refusal("{\"traceEvents\": []}"), "byte 0: no record begins here");
  const std::string good = octets();
  const std::size_t first = encode(test::two_stages(5)[0]).size();
  EXPECT_EQ(refusal(good + "x"), "byte " + std::to_string(good.size()) + ": no record begins here");
  std::string wrong = good;
  wrong[first + 8 + 3] = '\x7f';
  EXPECT_THAT(refusal(wrong), HasSubstr("byte " + std::to_string(first + 8) + ": a length of 21"));
  EXPECT_THAT(refusal(good.substr(0, first - 1)), HasSubstr("byte 8: a length of "));
  EXPECT_EQ(refusal(good.substr(0, first + 11)),
            "byte " + std::to_string(first + 11) + ": the record ends in its head");
  wrong = good;
  wrong[first - 1] ^= 1;
  EXPECT_EQ(refusal(wrong), "byte 16: the record is damaged: its checksum is another one");
}

TEST(RecordCodec, KeepsTheNewestStepsThatFit) {
  RankRecord record = test::two_stages()[0];
  for (std::uint32_t step = 8; step < 11; ++step) {
    for (int i = 0; i < 4; ++i) {
      record.events.push_back(test::op(schedule::OpKind::kForward, i, step, step + 1, step));
    }
  }
  const std::size_t whole = encode(record).size();
  const auto steps_within = [&record](std::size_t bytes) {
    RankRecord cut = record;
    keep_newest(cut, bytes);
    EXPECT_LE(cut.events.empty() ? 0 : encode(cut).size(), bytes);
    std::vector<std::uint32_t> steps;
    for (const Event& event : cut.events) steps.push_back(event.step);
    return steps;
  };
  EXPECT_EQ(steps_within(whole).size(), 16U);
  EXPECT_THAT(steps_within(whole - 1),
              testing::ElementsAre(8, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 10));
  EXPECT_THAT(steps_within(whole - 9 * kEventBytes), testing::ElementsAre(10, 10, 10, 10));
  EXPECT_THAT(steps_within(whole - 13 * kEventBytes), testing::ElementsAre(10, 10, 10));
  EXPECT_THAT(steps_within(whole - 16 * kEventBytes), testing::IsEmpty());
  EXPECT_THAT(steps_within(0), testing::IsEmpty());
}

// With a right checksum, as another program could write it.
TEST(RecordCodec, RefusesWhatNoRankCouldHaveWritten) {
  const auto with = [](const Event& event) {
    RankRecord record = test::two_stages()[0];
    record.events = {event};
    return refusal(encode(record));
  };
  const std::size_t at = 16 + 8 + 4 + 8 + 3 * 2 + 8 + 7 + 2 + 4;
  const std::string here = "byte " + std::to_string(at);
  EXPECT_EQ(with({}), "accepted");
  EXPECT_EQ(with({.detail = static_cast<std::uint8_t>(protocol::kStepParts)}),
            here + ": an event of unknown detail " + std::to_string(protocol::kStepParts));
  EXPECT_EQ(with({.kind = static_cast<EventKind>(kEventKinds)}),
            here + ": an event of unknown kind 5");
  EXPECT_EQ(with({.begin = 2, .end = 1}), here + ": an event with an impossible time");
  EXPECT_EQ(with({.begin = INT64_MIN}), here + ": an event with an impossible time");
  EXPECT_EQ(with({.extra = -1}), here + ": an event with an impossible time");
  RankRecord record = test::two_stages()[0];
  record.stage = 2;
  EXPECT_EQ(refusal(encode(record)), "byte 16: the place of the rank is impossible");
  record = test::two_stages()[0];
  record.wall_less_own = INT64_MIN;
  EXPECT_EQ(refusal(encode(record)), "byte 16: the clock of the rank is impossible");
}

TEST(RecordCodec, ATextThatIsTooLongIsCut) {
  RankRecord record = test::two_stages()[0];
  record.pod = std::string(100'000, 'p');
  const auto read = decode(encode(record));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->front().pod.size(), 1024U);
}

TEST(Records, OfOneFileBelongTogether) {
  const auto records = test::two_stages();
  EXPECT_TRUE(belong_together(records));
  EXPECT_TRUE(belong_together({}));
  const auto why = [&](auto change) {
    auto others = records;
    change(others[1]);
    const Status status = belong_together(others);
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(why([](RankRecord& r) { r.job = "demo/bert"; }), "records of two jobs");
  EXPECT_EQ(why([](RankRecord& r) { r.stages = 3; }),
            "records of plans with other numbers of replicas or stages");
  EXPECT_EQ(why([](RankRecord& r) { r.stage = 0; }), "two records of replica 0, stage 0");
}

TEST(CutTo, LeavesEachRankItsNewestSteps) {
  RankRecord record{.stages = 2};
  for (std::uint32_t step = 0; step < 100; ++step) record.events.push_back({.step = step});
  std::string octets = encode(record);
  record.stage = 1;
  octets += encode(record);

  EXPECT_EQ(cut_to(octets, octets.size()), octets);
  const std::string cut = cut_to(octets, octets.size() / 2);

  EXPECT_LE(cut.size(), octets.size() / 2);
  const auto records = decode(cut);
  ASSERT_TRUE(records) << records.error().message;
  ASSERT_EQ(records->size(), 2U);
  for (const RankRecord& one : *records) {
    EXPECT_GT(one.events.size(), 40U);
    EXPECT_EQ(one.events.back().step, 99U);
  }
  EXPECT_EQ(cut_to(octets, 10), "");
  EXPECT_EQ(cut_to("nonsense", 4), "");
}

}  // namespace codec_test
}  // namespace weir::timeline
