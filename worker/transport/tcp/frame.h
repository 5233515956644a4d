// SPDX-License-Identifier: Apache-2.0
// Frames of a data connection: 32 bytes of header, little-endian, then the payload. Pure; what
// comes from outside is checked here and refused with a reason.
//   u32 magic, u8 version, u8 type << 4 | channel, u16 incarnation, u32 revision, u64 sequence,
//   u64 length, u32 crc32c of the 28 bytes before
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
// Far above any boundary tensor; a longer one is a broken header.
constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 36;

enum class FrameType : std::uint8_t {
  kData,             // sequence of the message; payload
  kCredit,           // sequence = receives posted so far
  kAcknowledgement,  // sequence of the message; payload: u64 counted bytes, u64 busy ns
  kPing,             // sequence chosen by the sender of the data
  kPong,             // the same sequence
  kGoodbye,          // the connection ends on purpose
};

struct FrameHeader {
  FrameType type = FrameType::kData;
  Channel channel = Channel::kForward;
  std::uint16_t incarnation = 0;
  std::uint32_t revision = 0;
  std::uint64_t sequence = 0;
  std::uint64_t length = 0;
  bool operator==(const FrameHeader&) const = default;
};

std::array<std::byte, kFrameHeaderBytes> encode_frame(const FrameHeader& header);
// kInvalid: too short, wrong magic, version, checksum, type, channel, or a length that the type
// cannot have.
Result<FrameHeader> decode_frame(std::span<const std::byte> bytes);

std::array<std::byte, kAcknowledgementBytes> encode_acknowledgement(const Arrival& arrival);
Result<Arrival> decode_acknowledgement(std::span<const std::byte> bytes);

}  // namespace weir::transport::tcp
