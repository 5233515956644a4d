// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/frame.h"

#include <string>

#include "worker/base/digest.h"
#include "worker/wire/little_endian.h"
#include "worker/wire/other_version.h"

namespace weir::transport::tcp {
namespace {

constexpr std::uint32_t kFrameMagic = 0x31524557;  // "WER1"
constexpr std::uint8_t kFrameVersion = 1;
constexpr std::size_t kChecked = kFrameHeaderBytes - sizeof(std::uint32_t);
constexpr unsigned kPartShift = 32;
constexpr std::uint64_t kPartLength = (std::uint64_t{1} << kPartShift) - 1;
// A week: longer busy times are nonsense, and this keeps sums far from overflow.
constexpr std::uint64_t kMaxBusyNanoseconds = 7ULL * 24 * 3600 * 1'000'000'000;

Error invalid(std::string reason) {
  return {Code::kInvalid, "frame header: " + std::move(reason)};
}

bool length_fits(FrameType type, std::uint64_t length) {
  switch (type) {
    case FrameType::kData:
      return length <= kMaxMessageBytes;
    case FrameType::kPart:
      return length > 0 && length <= kPartBytes;
    case FrameType::kAcknowledgement:
      return length == kAcknowledgementBytes;
    case FrameType::kCredit:
    case FrameType::kPing:
    case FrameType::kPong:
    case FrameType::kGoodbye:
      return length == 0;
  }
  return false;
}

}  // namespace

std::array<std::byte, kFrameHeaderBytes> encode_frame(const FrameHeader& header) {
  std::array<std::byte, kFrameHeaderBytes> out{};
  wire::store<std::uint32_t>(out, 0, kFrameMagic);
  wire::store<std::uint8_t>(out, 4, kFrameVersion);
  wire::store<std::uint8_t>(out, 5,
                            static_cast<std::uint8_t>((static_cast<unsigned>(header.type) << 4U) |
                                                      static_cast<unsigned>(header.channel)));
  wire::store<std::uint16_t>(out, 6, header.incarnation);
  wire::store<std::uint32_t>(out, 8, header.revision);
  wire::store<std::uint64_t>(out, 12, header.sequence);
  wire::store<std::uint64_t>(out, 20, header.length | std::uint64_t{header.part} << kPartShift);
  wire::store<std::uint32_t>(out, kChecked, crc32c(std::span(out).first(kChecked)));
  return out;
}

Result<FrameHeader> decode_frame(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameHeaderBytes) return invalid("too short");
  if (wire::load<std::uint32_t>(bytes, 0) != kFrameMagic) return invalid("wrong magic");
  if (const auto theirs = wire::load<std::uint8_t>(bytes, 4); theirs != kFrameVersion) {
    return invalid(wire::other_version(theirs, kFrameVersion));
  }
  if (wire::load<std::uint32_t>(bytes, kChecked) != crc32c(bytes.first(kChecked))) {
    return invalid("wrong checksum");
  }
  const unsigned kind = wire::load<std::uint8_t>(bytes, 5);
  if ((kind >> 4U) > static_cast<unsigned>(FrameType::kPart)) return invalid("unknown type");
  if ((kind & 0xFU) > static_cast<unsigned>(Channel::kBackward)) return invalid("unknown channel");
  const auto type = static_cast<FrameType>(kind >> 4U);
  const auto length = wire::load<std::uint64_t>(bytes, 20);
  const bool part = type == FrameType::kPart;
  const FrameHeader header{.type = type,
                           .channel = static_cast<Channel>(kind & 0xFU),
                           .incarnation = wire::load<std::uint16_t>(bytes, 6),
                           .revision = wire::load<std::uint32_t>(bytes, 8),
                           .sequence = wire::load<std::uint64_t>(bytes, 12),
                           .length = part ? length & kPartLength : length,
                           .part = part ? static_cast<std::uint32_t>(length >> kPartShift) : 0};
  if (!length_fits(header.type, header.length)) {
    return invalid("length " + std::to_string(header.length) + " is impossible here");
  }
  return header;
}

std::array<std::byte, kAcknowledgementBytes> encode_acknowledgement(const Arrival& arrival) {
  std::array<std::byte, kAcknowledgementBytes> out{};
  wire::store<std::uint64_t>(out, 0, static_cast<std::uint64_t>(arrival.counted_bytes));
  wire::store<std::uint64_t>(out, 8, static_cast<std::uint64_t>(arrival.busy.count()));
  return out;
}

Result<Arrival> decode_acknowledgement(std::span<const std::byte> bytes) {
  if (bytes.size() != kAcknowledgementBytes) {
    return Error{Code::kInvalid, "acknowledgement: wrong length"};
  }
  const auto counted = wire::load<std::uint64_t>(bytes, 0);
  const auto busy = wire::load<std::uint64_t>(bytes, 8);
  if (counted > kMaxMessageBytes || busy > kMaxBusyNanoseconds) {
    return Error{Code::kInvalid, "acknowledgement: impossible figures"};
  }
  return Arrival{static_cast<std::int64_t>(counted),
                 std::chrono::nanoseconds(static_cast<std::int64_t>(busy))};
}

}  // namespace weir::transport::tcp
