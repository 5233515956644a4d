// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/state_wire.h"

#include "worker/base/check.h"
#include "worker/wire/little_endian.h"

namespace weir::transport::tcp {
namespace {

constexpr std::uint32_t kWishMagic = 0x46524557;   // "WERF"
constexpr std::uint32_t kChunkMagic = 0x43524557;  // "WERC"
constexpr std::size_t kDigestAt = 24, kDigestBytes = 64;

std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

}  // namespace

std::string encode_state_wish(const StateWish& wish) {
  std::string out(kStateRequestBytes, '\0');
  wire::store<std::uint32_t>(bytes_of(out), 0, kWishMagic);
  wire::store<std::uint32_t>(bytes_of(out), 4, wish.first_layer);
  wire::store<std::uint32_t>(bytes_of(out), 8, wish.last_layer);
  wire::store<std::uint32_t>(bytes_of(out), 12, wish.piece_bytes);
  wire::store<std::uint64_t>(bytes_of(out), 16, static_cast<std::uint64_t>(wish.step));
  return out;
}

Result<StateWish> decode_state_wish(std::span<const std::byte> bytes) {
  if (bytes.size() != kStateRequestBytes || wire::load<std::uint32_t>(bytes, 0) != kWishMagic) {
    return Error{Code::kInvalid, "not a request for state"};
  }
  const StateWish wish{.step = static_cast<std::int64_t>(wire::load<std::uint64_t>(bytes, 16)),
                       .first_layer = wire::load<std::uint32_t>(bytes, 4),
                       .last_layer = wire::load<std::uint32_t>(bytes, 8),
                       .piece_bytes = wire::load<std::uint32_t>(bytes, 12)};
  if (wish.first_layer > wish.last_layer || wish.last_layer == kRefusedLayer ||
      wish.piece_bytes > kMaxChunk) {
    return invalid("a request for no layers");
  }
  return wish;
}

std::string encode_chunk_header(const ChunkHeader& header) {
  WEIR_CHECK(header.sha256.size() == kDigestBytes, "a digest in hex");
  std::string out(kDigestAt, '\0');
  wire::store<std::uint32_t>(bytes_of(out), 0, kChunkMagic);
  wire::store<std::uint32_t>(bytes_of(out), 4, header.layer);
  wire::store<std::uint32_t>(bytes_of(out), 8, header.bytes);
  wire::store<std::uint64_t>(bytes_of(out), 16, header.offset);
  return out + header.sha256;
}

Result<ChunkHeader> decode_chunk_header(std::span<const std::byte> bytes) {
  if (bytes.size() != kChunkHeaderBytes || wire::load<std::uint32_t>(bytes, 0) != kChunkMagic) {
    return Error{Code::kInvalid, "not a chunk of state"};
  }
  const auto* const digest = reinterpret_cast<const char*>(bytes.data()) + kDigestAt;
  ChunkHeader header{.layer = wire::load<std::uint32_t>(bytes, 4),
                     .bytes = wire::load<std::uint32_t>(bytes, 8),
                     .offset = wire::load<std::uint64_t>(bytes, 16),
                     .sha256 = std::string(digest, kDigestBytes)};
  const std::size_t most = header.layer == kRefusedLayer ? kMaxRefusal : kMaxChunk;
  if (header.bytes == 0 || header.bytes > most) {
    return invalid("a chunk of state of " + std::to_string(header.bytes) + " bytes");
  }
  return header;
}

}  // namespace weir::transport::tcp
