// SPDX-License-Identifier: Apache-2.0
// The body of a data connection's HELLO: which connection it is to be.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "worker/base/result.h"
#include "worker/transport/communicator.h"
#include "worker/wire/handshake.h"

namespace weir::transport::tcp {

struct GenerationId {
  std::uint32_t revision = 0;
  std::uint16_t incarnation = 0;
  auto operator<=>(const GenerationId&) const = default;
  std::string text() const { return std::to_string(revision) + "." + std::to_string(incarnation); }
};

// A link goes from that stage to the acceptor's. In a replica group `replica` is the stage, and the
// stages are replicas. To fetch state the numbers only distinguish requests of one rank
// (state_wire.h). For a probe all are unused.
struct Place {
  GenerationId generation;
  std::uint32_t replica = 0, from_stage = 0, to_stage = 0;
  // This connection among those of its link; the connecting side decides how many there are.
  int lane = 0, lanes = 1;
};

std::string encode_place(const Place& place);
// kInvalid: an impossible stage, replica or connection.
Result<Place> decode_place(std::string_view body);

inline wire::Purpose purpose_of_link(Channel channel) {
  return channel == Channel::kForward ? wire::Purpose::kForwardLink : wire::Purpose::kBackwardLink;
}

}  // namespace weir::transport::tcp
