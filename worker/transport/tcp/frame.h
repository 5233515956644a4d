// SPDX-License-Identifier: Apache-2.0
// Frames of a data connection: a header of 32 bytes, little-endian, then the payload. Pure. Input
// from outside is checked here and refused with a reason.
//   u32 magic, u8 version, u8 type << 4 | channel, u16 incarnation, u32 revision, u64 sequence,
//   u64 length, u32 crc32c of the first 28 bytes
// A part has its index in the upper half of `length`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "worker/base/result.h"
#include "worker/transport/busy_meter.h"
#include "worker/transport/communicator.h"

namespace weir::transport::tcp {

constexpr std::size_t kFrameHeaderBytes = 32;
constexpr std::size_t kAcknowledgementBytes = 16;
// Far above any boundary tensor. A longer message means a broken header.
constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 36;

// On links of several connections messages above this size travel in parts of it; the last part is
// shorter. Part i begins at i * kPartBytes.
constexpr std::size_t kPartBytes = std::size_t{256} * 1024;
constexpr std::size_t parts_of(std::size_t bytes) {
  return (bytes + kPartBytes - 1) / kPartBytes;
}

enum class FrameType : std::uint8_t {
  kData,             // sequence of the message; with payload
  kCredit,           // sequence = number of receives posted so far
  kAcknowledgement,  // sequence of the message; payload: u64 counted bytes, u64 busy ns
  kPing,             // sequence chosen by the sender
  kPong,             // the same sequence
  kGoodbye,          // the connection ends without a failure
  kPart,             // sequence of the message that it belongs to; with payload
};

struct FrameHeader {
  FrameType type = FrameType::kData;
  Channel channel = Channel::kForward;
  std::uint16_t incarnation = 0;
  std::uint32_t revision = 0;
  std::uint64_t sequence = 0;
  std::uint64_t length = 0;
  std::uint32_t part = 0;  // kPart: its index
  bool operator==(const FrameHeader&) const = default;
};

std::array<std::byte, kFrameHeaderBytes> encode_frame(const FrameHeader& header);
// kInvalid: too short, a wrong magic, version, checksum, type or channel, or a length that the type
// does not allow.
Result<FrameHeader> decode_frame(std::span<const std::byte> bytes);

std::array<std::byte, kAcknowledgementBytes> encode_acknowledgement(const Arrival& arrival);
Result<Arrival> decode_acknowledgement(std::span<const std::byte> bytes);

}  // namespace weir::transport::tcp
