// SPDX-License-Identifier: Apache-2.0
// Tracks which operations two replicas of a collective have begun with each other. All operations
// of one CollectiveTag::step are a session. Both sides count sessions, and parts rise within a
// session. So both can abandon the rest of a session, however much each has begun of it, and still
// agree on later ones. The view of one side; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "worker/transport/collective.h"

namespace weir::transport::tcp {

class ReplicaGroupSessions {
 public:
  // An operation with that peer begins here. Returns the number of its session.
  std::uint32_t begin(const CollectiveTag& tag);
  // Abandons the session of that step and returns its number, if it is the last one that began.
  std::optional<std::uint32_t> drop(std::uint64_t step);

  enum class Fate : unsigned char {
    kBegun,    // the operation is active here or over
    kLater,    // the operation has not begun here
    kDropped,  // this side has abandoned the session
  };
  Fate fate(std::uint32_t session, std::uint32_t part) const;

 private:
  std::uint32_t count_ = 0;
  CollectiveTag last_;  // valid if count_ > 0
  std::set<std::uint32_t> dropped_;
};

}  // namespace weir::transport::tcp
