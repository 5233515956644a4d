// SPDX-License-Identifier: Apache-2.0
// Which operations two replicas of a collective have begun with each other. All operations of one
// CollectiveTag::step are a session; both count sessions, and parts rise within one. So both can
// give up the rest of a session, whatever each has begun of it, and still mean the same ones
// afterwards. One side's view; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "worker/transport/collective.h"

namespace weir::transport::tcp {

class GroupSessions {
 public:
  // An operation with that peer begins here. The number of its session.
  std::uint32_t begin(const CollectiveTag& tag);
  // The session of that step, if it is the last that began: its operations are over here.
  std::optional<std::uint32_t> drop(std::uint64_t step);

  enum class Fate : unsigned char {
    kBegun,    // the operation is active here, or over
    kLater,    // it has not begun here
    kDropped,  // this side has given it up
  };
  Fate fate(std::uint32_t session, std::uint32_t part) const;

 private:
  std::uint32_t count_ = 0;
  CollectiveTag last_;  // when count_ > 0
  std::set<std::uint32_t> dropped_;
};

}  // namespace weir::transport::tcp
