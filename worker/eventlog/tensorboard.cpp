// SPDX-License-Identifier: Apache-2.0
#include "worker/eventlog/tensorboard.h"

#include <bit>
#include <cmath>
#include <span>

#include "worker/base/digest.h"

namespace weir::eventlog {
namespace {

constexpr int kMostFiles = 100;

template <class T>
std::string little_endian(T value) {
  std::string out;
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>((value >> (8 * i)) & 0xFF);
  return out;
}

std::uint32_t masked_crc(std::string_view data) {
  constexpr std::uint32_t kMask = 0xA282EAD8;  // tensorflow/core/lib/hash/crc32c.h
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(data)));
  return std::rotr(crc, 15) + kMask;
}

// Wire types of protobuf.
enum Wire : unsigned char { kVarint = 0, kFixed64 = 1, kText = 2, kFixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7U) out += static_cast<char>((value & 0x7F) | 0x80);
  return out + static_cast<char>(value);
}
std::string tag(int field, Wire wire) {
  return varint(static_cast<std::uint64_t>(field) << 3U | wire);
}
std::string text_field(int field, std::string_view text) {
  return tag(field, kText) + varint(text.size()) + std::string(text);
}
std::string whole_field(int field, std::int64_t value) {
  return tag(field, kVarint) + varint(static_cast<std::uint64_t>(value));
}
std::string double_field(int field, double value) {
  return tag(field, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string float_field(int field, float value) {
  return tag(field, kFixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
std::string event_at(SystemTime time, std::int64_t step) {
  const double seconds = std::chrono::duration<double>(time.time_since_epoch()).count();
  return double_field(1, seconds) + whole_field(2, step);
}

// Summary.Value: tag = 1, simple_value = 2; Summary: value = 1.
void add_scalar(std::string& summary, std::string_view name, double value) {
  if (!std::isfinite(value)) return;
  summary += text_field(1, text_field(1, name) + float_field(2, static_cast<float>(value)));
}

}  // namespace

std::string tf_record(std::string_view data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + little_endian(masked_crc(length)) + std::string(data) +
         little_endian(masked_crc(data));
}

std::string version_event(SystemTime time) {
  return event_at(time, 0) + text_field(3, "brain.Event:2");
}

std::string start_event(SystemTime time, std::int64_t step) {
  constexpr int kStart = 1;  // SessionLog: status = 1
  return event_at(time, step) + text_field(7, whole_field(1, kStart));
}

std::string scalars_event(const Entry& entry) {
  std::string summary;
  if (entry.validation_loss) {
    add_scalar(summary, "validation/loss", *entry.validation_loss);
    return event_at(entry.time, entry.step) + text_field(5, summary);
  }
  add_scalar(summary, "train/loss", entry.loss);
  add_scalar(summary, "train/learning_rate", entry.learning_rate);
  add_scalar(summary, "time/step", entry.seconds);
  add_scalar(summary, "time/samples_per_second", samples_per_second(entry));
  add_scalar(summary, "plan/k", entry.k);
  return event_at(entry.time, entry.step) + text_field(5, summary);
}

Result<std::unique_ptr<EventFile>> EventFile::begin(const std::string& folder,
                                                    const std::string& pod, SystemTime time,
                                                    std::int64_t step) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
  const std::string name = folder + "/events.out.tfevents." + std::to_string(seconds) + "." + pod;
  for (int i = 0; i < kMostFiles; ++i) {
    auto file = AppendFile::open(i == 0 ? name : name + "." + std::to_string(i), true);
    if (!file && file.error().code == Code::kConflict) continue;
    if (!file) return file.error();
    WEIR_OK((*file)->append(tf_record(version_event(time)) + tf_record(start_event(time, step))));
    return std::unique_ptr<EventFile>(new EventFile(*std::move(file)));
  }
  return invalid(name + ": 100 files of this second exist");
}

Status EventFile::append(const Entry& entry) {
  return file_->append(tf_record(scalars_event(entry)));
}

}  // namespace weir::eventlog
