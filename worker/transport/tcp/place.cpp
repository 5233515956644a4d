// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/place.h"

#include <algorithm>
#include <span>

#include "worker/transport/tcp/tcp_transport.h"
#include "worker/wire/little_endian.h"

namespace weir::transport::tcp {
namespace {

constexpr std::uint32_t kMaxStage = 1U << 20;
constexpr std::size_t kLaneBytes = 2;

}  // namespace

// u32 revision, u16 incarnation, u32 replica, from, to; with several connections u8 lane, lanes
std::string encode_place(const Place& place) {
  std::string out(wire::kBodyBytes, '\0');
  const auto to = std::as_writable_bytes(std::span(out));
  wire::store<std::uint32_t>(to, 0, place.generation.revision);
  wire::store<std::uint16_t>(to, 4, place.generation.incarnation);
  wire::store<std::uint32_t>(to, 6, place.replica);
  wire::store<std::uint32_t>(to, 10, place.from_stage);
  wire::store<std::uint32_t>(to, 14, place.to_stage);
  if (place.lanes > 1) {
    out += static_cast<char>(place.lane);
    out += static_cast<char>(place.lanes);
  }
  return out;
}

Result<Place> decode_place(std::string_view body) {
  const auto in = std::as_bytes(std::span(body));
  const bool several = body.size() == wire::kBodyBytes + kLaneBytes;
  const bool fits = several || body.size() == wire::kBodyBytes;
  Place place = fits ? Place{.generation = {wire::load<std::uint32_t>(in, 0),
                                            wire::load<std::uint16_t>(in, 4)},
                             .replica = wire::load<std::uint32_t>(in, 6),
                             .from_stage = wire::load<std::uint32_t>(in, 10),
                             .to_stage = wire::load<std::uint32_t>(in, 14)}
                     : Place{};
  if (!fits || std::max({place.replica, place.from_stage, place.to_stage}) > kMaxStage) {
    return Error{Code::kInvalid, "impossible stage or replica"};
  }
  if (several) {
    place.lane = wire::load<std::uint8_t>(in, wire::kBodyBytes);
    place.lanes = wire::load<std::uint8_t>(in, wire::kBodyBytes + 1);
    if (place.lanes < 2 || place.lanes > kMostConnections || place.lane >= place.lanes) {
      return Error{Code::kInvalid, "connection " + std::to_string(place.lane + 1) + " of " +
                                       std::to_string(place.lanes) + " of a link is impossible"};
    }
  }
  return place;
}

}  // namespace weir::transport::tcp
