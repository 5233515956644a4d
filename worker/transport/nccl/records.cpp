// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/records.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weir::transport::nccl {
namespace {

// Equal in memory and on the wire: all machines on which NCCL runs are little-endian.
static_assert(std::endian::native == std::endian::little);
struct Head {
  std::uint8_t type, channel;
  std::uint16_t part;
  std::uint32_t unused;
  std::uint64_t sequence, bytes, busy;
};
static_assert(sizeof(Head) + kRecordData == kRecordBytes);

constexpr std::size_t kGpuBytes = kRecordData - sizeof(std::uint32_t) - kUniqueIdBytes;

}  // namespace

RecordText encode_record(const Record& record) {
  const Head head{static_cast<std::uint8_t>(record.type),
                  static_cast<std::uint8_t>(record.channel),
                  record.part,
                  0,
                  record.sequence,
                  record.bytes,
                  record.busy};
  RecordText text{};
  std::memcpy(text.data(), &head, sizeof head);
  std::memcpy(text.data() + sizeof head, record.data.data(), kRecordData);
  return text;
}

Result<Record> decode_record(std::span<const std::byte, kRecordBytes> text) {
  Head head{};
  std::memcpy(&head, text.data(), sizeof head);
  const bool known = head.type >= static_cast<std::uint8_t>(RecordType::kHello) &&
                     head.type <= static_cast<std::uint8_t>(RecordType::kTaken);
  if (!known || head.channel > 1 || head.part > kRecordData) {
    return invalid("a record of type " + std::to_string(head.type) + ", channel " +
                   std::to_string(head.channel) + ", part " + std::to_string(head.part));
  }
  Record record{.type = static_cast<RecordType>(head.type),
                .channel = static_cast<Channel>(head.channel),
                .part = head.part,
                .sequence = head.sequence,
                .bytes = head.bytes,
                .busy = head.busy};
  std::memcpy(record.data.data(), text.data() + sizeof head, kRecordData);
  return record;
}

Record encode_hello(const Hello& hello, Channel channel) {
  Record record{.type = RecordType::kHello, .channel = channel, .part = kRecordData};
  const auto version = static_cast<std::uint32_t>(hello.facts.nccl);
  std::byte* to = record.data.data();
  std::memcpy(to, &version, sizeof version);
  std::memcpy(to + sizeof version, hello.id.data(), kUniqueIdBytes);
  std::memcpy(to + sizeof version + kUniqueIdBytes, hello.facts.gpu.data(),
              std::min(hello.facts.gpu.size(), kGpuBytes));
  return record;
}

Result<Hello> decode_hello(const Record& record) {
  if (record.type != RecordType::kHello || record.part != kRecordData) {
    return invalid("no hello where one is due");
  }
  std::uint32_t version = 0;
  const std::byte* from = record.data.data();
  std::memcpy(&version, from, sizeof version);
  Hello hello;
  hello.facts.nccl = static_cast<int>(version);
  std::memcpy(hello.id.data(), from + sizeof version, kUniqueIdBytes);
  const char* gpu = reinterpret_cast<const char*>(from + sizeof version + kUniqueIdBytes);
  hello.facts.gpu.assign(gpu, std::find(gpu, gpu + kGpuBytes, '\0'));
  return hello;
}

}  // namespace weir::transport::nccl
