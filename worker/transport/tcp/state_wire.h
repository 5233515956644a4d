// SPDX-License-Identifier: Apache-2.0
// Messages on a data connection that was opened to fetch state, after its handshake:
//   connector: REQUEST (layers first..last of the state after `step` steps); if it names the size
//   of pieces, one byte before each but the first
//   acceptor: for each layer in rising order its memory in chunks, each a header, then its bytes;
//   or one refusal: a header whose layer is kRefusedLayer, then the reason.
// Little-endian. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "worker/base/result.h"

namespace weir::transport::tcp {

constexpr std::size_t kStateRequestBytes = 24;
constexpr std::size_t kChunkHeaderBytes = 88;
constexpr std::size_t kMaxChunk = 1024 * 1024;
constexpr std::size_t kMaxRefusal = 300;
constexpr std::uint32_t kRefusedLayer = 0xFFFFFFFF;

struct StateWish {
  std::int64_t step = 0;
  std::uint32_t first_layer = 0, last_layer = 0;
  std::uint32_t piece_bytes = 0;  // at most so many in a chunk, on demand; 0: kMaxChunk, at once
};

constexpr char kNextPiece = '+';

struct ChunkHeader {
  std::uint32_t layer = 0;
  std::uint32_t bytes = 0;   // number of bytes that follow
  std::uint64_t offset = 0;  // of the first byte in the layer's memory
  std::string sha256;        // of the bytes, in hex
};

std::string encode_state_wish(const StateWish& wish);
Result<StateWish> decode_state_wish(std::span<const std::byte> bytes);
std::string encode_chunk_header(const ChunkHeader& header);
Result<ChunkHeader> decode_chunk_header(std::span<const std::byte> bytes);

}  // namespace weir::transport::tcp
