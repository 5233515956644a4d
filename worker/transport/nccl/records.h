// SPDX-License-Identifier: Apache-2.0
// What the two ends of a link tell each other over TCP, in records of one fixed size. Pure; what
// comes from outside is checked here. A link's records from its sender: kAnnounce, kHost; from its
// receiver: kCredit, kTaken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "worker/base/result.h"
#include "worker/transport/communicator.h"
#include "worker/transport/nccl/nccl_api.h"
#include "worker/transport/nccl/start_checks.h"

namespace weir::transport::nccl {

constexpr std::size_t kRecordBytes = 256;
constexpr std::size_t kRecordData = 224;

enum class RecordType : std::uint8_t {
  kHello = 1,  // first of all, in both directions; data: Hello
  kCredit,     // sequence = receives posted so far whose memory is free
  kAnnounce,   // message `sequence` of `bytes` comes by NCCL: both ends launch now
  kHost,       // message `sequence` of `bytes`, in host memory: data is its next part
  kTaken,      // message `sequence` has arrived; bytes that count for the rate, and busy ns
};

struct Record {
  RecordType type = RecordType::kHello;
  Channel channel = Channel::kForward;  // which link between the two stages
  std::uint16_t part = 0;               // bytes of data in use
  std::uint64_t sequence = 0;           // counts messages per link from 0
  std::uint64_t bytes = 0;
  std::uint64_t busy = 0;
  std::array<std::byte, kRecordData> data{};
};

using RecordText = std::array<std::byte, kRecordBytes>;
RecordText encode_record(const Record& record);
// kInvalid: unknown type or channel, or a part that is longer than the data.
Result<Record> decode_record(std::span<const std::byte, kRecordBytes> text);

struct Hello {
  PeerFacts facts;  // gpu: cut to what fits
  UniqueId id{};    // of the link on which the writer sends to the reader
};
Record encode_hello(const Hello& hello, Channel channel);
Result<Hello> decode_hello(const Record& record);

}  // namespace weir::transport::nccl
