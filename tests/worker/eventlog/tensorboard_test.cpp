// SPDX-License-Identifier: Apache-2.0
// The records are read by a second implementation, from the documents of the format.
#include "worker/eventlog/tensorboard.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace weir::eventlog {
namespace tensorboard_test {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::Pair;

std::uint32_t slow_crc32c(std::string_view data) {
  std::uint32_t crc = ~0U;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

template <class T>
T number_at(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xA282EAD8U;
  return rotated >> 17U | rotated << 15U;
}

// The data of whole records; a torn one ends them.
std::vector<std::string> records_of(std::string_view file) {
  std::vector<std::string> records;
  while (file.size() >= 16) {
    const auto length = number_at<std::uint64_t>(file, 0);
    EXPECT_EQ(unmasked(number_at<std::uint32_t>(file, 8)), slow_crc32c(file.substr(0, 8)));
    if (file.size() < 16 + length) break;
    const std::string_view data = file.substr(12, length);
    EXPECT_EQ(unmasked(number_at<std::uint32_t>(file, 12 + length)), slow_crc32c(data));
    records.emplace_back(data);
    file.remove_prefix(16 + length);
  }
  return records;
}

// The fields of a message, by number; numbers of any width as their bytes.
std::multimap<int, std::string> fields_of(std::string_view message) {
  std::multimap<int, std::string> fields;
  const auto varint = [&message] {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.front());
      message.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if ((byte & 0x80U) == 0) return value;
    }
  };
  while (!message.empty()) {
    const std::uint64_t tag = varint();
    std::string value;
    std::uint64_t size = 0;
    switch (tag & 7U) {
      case 0:
        value = std::to_string(varint());
        break;
      case 1:
        size = 8;
        break;
      case 2:
        size = varint();
        break;
      default:
        size = 4;
    }
    if ((tag & 7U) != 0) {
      value = message.substr(0, size);
      message.remove_prefix(size);
    }
    fields.emplace(static_cast<int>(tag >> 3U), value);
  }
  return fields;
}

std::map<std::string, float> scalars_in(const std::string& event) {
  std::map<std::string, float> scalars;
  const auto fields = fields_of(event);
  const auto summary = fields.find(5);
  if (summary == fields.end()) return scalars;
  for (const auto& [number, value] : fields_of(summary->second)) {
    EXPECT_EQ(number, 1);
    const auto parts = fields_of(value);
    scalars[parts.find(1)->second] = number_at<float>(parts.find(2)->second, 0);
  }
  return scalars;
}

Entry entry() {
  Entry out;
  out.step = 300;
  out.time = SystemTime(std::chrono::milliseconds(1767323045500));
  out.loss = 2.25;
  out.learning_rate = 3e-4;
  out.seconds = 0.5;
  out.samples = 32;
  out.k = 4;
  return out;
}

TEST(TensorBoard, WritesTheScalarsOfAStep) {
  const std::string event = scalars_event(entry());

  EXPECT_EQ(number_at<double>(fields_of(event).find(1)->second, 0), 1767323045.5);
  EXPECT_EQ(fields_of(event).find(2)->second, "300");
  EXPECT_THAT(
      scalars_in(event),
      ElementsAre(Pair("plan/k", 4), Pair("time/samples_per_second", 64), Pair("time/step", 0.5F),
                  Pair("train/learning_rate", FloatEq(3e-4F)), Pair("train/loss", 2.25F)));
  Entry skipped = entry();
  skipped.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(scalars_in(scalars_event(skipped)).count("train/loss"), 0U);
  Entry validation = entry();
  validation.validation_loss = 1.5;
  EXPECT_THAT(scalars_in(scalars_event(validation)), ElementsAre(Pair("validation/loss", 1.5F)));
}

TEST(TensorBoard, AFileBeginsWithVersionAndStart) {
  const test::TempDir folder;
  const SystemTime time(std::chrono::seconds(1767323045));
  const auto file = EventFile::begin(folder.path().string(), "gpt-w-0", time, 301);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_TRUE((*file)->append(entry()).ok());

  std::ifstream in(folder.path() / "events.out.tfevents.1767323045.gpt-w-0", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const auto records = records_of(bytes);

  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(fields_of(records[0]).find(3)->second, "brain.Event:2");
  EXPECT_EQ(fields_of(records[1]).find(2)->second, "301");
  EXPECT_THAT(fields_of(fields_of(records[1]).find(7)->second), ElementsAre(Pair(1, "1")));
  EXPECT_EQ(scalars_in(records[2]).size(), 5U);
  // A process that is killed in a write leaves a file whose whole records can be read.
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_LT(records_of(std::string_view(bytes).substr(0, size)).size(), 3U);
  }
}

TEST(TensorBoard, TwoStartsInASecondHaveTwoFiles) {
  const test::TempDir folder;
  const SystemTime time(std::chrono::seconds(5));

  ASSERT_TRUE(EventFile::begin(folder.path().string(), "p", time, 1).ok());
  ASSERT_TRUE(EventFile::begin(folder.path().string(), "p", time, 1).ok());

  EXPECT_TRUE(std::filesystem::exists(folder.path() / "events.out.tfevents.5.p"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "events.out.tfevents.5.p.1"));
}

}  // namespace tensorboard_test
}  // namespace weir::eventlog
