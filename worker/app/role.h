// SPDX-License-Identifier: Apache-2.0
// The role of this worker (worker/protocol/README.md "Terms"), decided from the operator's answer
// to the question who coordinates. Pure: coordination.h acts on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker/protocol/messages.h"

namespace weir::app {

struct Role {
  std::string pod_uid;
  std::int64_t term = protocol::kFirstTerm;  // that this worker follows
  bool coordinates = false;
};

// The order of the fields is that of the actions.
struct RoleChange {
  bool rises = false;   // follows the answer's term from now on, which is a later one
  bool stops = false;   // coordinates no more, at least not as before
  bool keeps = false;   // goes on to coordinate
  bool begins = false;  // to coordinate
  enum class Follows : unsigned char { kAsBefore, kItself, kNamed } follows = Follows::kAsBefore;
  bool operator==(const RoleChange&) const = default;
};
RoleChange change_of(const Role& role, const std::optional<protocol::CoordinatorPlace>& named);

// Whether this worker coordinates at its start. Nobody is named without an operator, or by one of
// an older release.
bool coordinates_first(const std::string& pod_uid, int worker_index,
                       const std::optional<protocol::CoordinatorPlace>& named);

// first: address of the first coordinator, whose name outlives its pod's address.
std::string address_of(const protocol::CoordinatorPlace& named, const std::string& first);

}  // namespace weir::app
