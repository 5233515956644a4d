// SPDX-License-Identifier: Apache-2.0
#include "worker/control/peer_id.h"

#include <algorithm>
#include <span>

#include "worker/wire/handshake.h"
#include "worker/wire/little_endian.h"

namespace weir::control {
namespace {

constexpr std::uint32_t kMostWorkers = 1 << 20;  // far above 4096 ranks

}  // namespace

// u32 worker index, zeros, pod uid
std::string encode_peer(const PeerId& peer) {
  std::string body(wire::kBodyBytes, '\0');
  wire::store(std::as_writable_bytes(std::span(body)), 0,
              static_cast<std::uint32_t>(peer.worker_index));
  return body + peer.pod_uid.substr(0, wire::kBodyTail);
}

Result<PeerId> decode_peer(std::string_view body) {
  if (body.size() <= wire::kBodyBytes) return Error{Code::kInvalid, "no pod uid"};
  const auto index = wire::load<std::uint32_t>(std::as_bytes(std::span(body)), 0);
  if (index >= kMostWorkers) return Error{Code::kInvalid, "worker index out of range"};
  const std::string_view uid = body.substr(wire::kBodyBytes);
  if (!std::ranges::all_of(uid, [](char c) { return c > ' ' && c < 0x7F; })) {
    return Error{Code::kInvalid, "pod uid: not one word"};
  }
  return PeerId{static_cast<int>(index), std::string(uid)};
}

}  // namespace weir::control
