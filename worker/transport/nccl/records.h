// SPDX-License-Identifier: Apache-2.0
// Records of a fixed size that the two ends of a link exchange over TCP. Pure. Input from outside
// is checked here. The sender of a link writes kAnnounce and kHost; its receiver writes kCredit and
// kTaken.
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
  kHello = 1,  // the first record, in both directions; data: Hello
  kCredit,     // sequence = number of receives posted so far whose memory is free
  kAnnounce,   // message `sequence` of `bytes` comes by NCCL: both ends launch now
  kHost,       // message `sequence` of `bytes`, in host memory; data is its next part
  kTaken,      // message `sequence` has arrived; bytes that were timed, and busy ns
};

struct Record {
  RecordType type = RecordType::kHello;
  Channel channel = Channel::kForward;  // selects one of the links between the two stages
  std::uint16_t part = 0;               // used bytes of data
  std::uint64_t sequence = 0;           // number of the message on its link, from 0
  std::uint64_t bytes = 0;
  std::uint64_t busy = 0;
  std::array<std::byte, kRecordData> data{};
};

using RecordText = std::array<std::byte, kRecordBytes>;
RecordText encode_record(const Record& record);
// kInvalid: unknown type or channel, or a part that is longer than the data.
Result<Record> decode_record(std::span<const std::byte, kRecordBytes> text);

struct Hello {
  PeerFacts facts;  // the name of the GPU is cut to the available size
  UniqueId id{};    // of the link on which the writer sends to the reader
};
Record encode_hello(const Hello& hello, Channel channel);
Result<Hello> decode_hello(const Record& record);

}  // namespace weir::transport::nccl
