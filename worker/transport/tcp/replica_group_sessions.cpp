// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/replica_group_sessions.h"

namespace weir::transport::tcp {

std::uint32_t ReplicaGroupSessions::begin(const CollectiveTag& tag) {
  if (count_ == 0 || tag.step != last_.step) ++count_;
  last_ = tag;
  return count_ - 1;
}

std::optional<std::uint32_t> ReplicaGroupSessions::drop(std::uint64_t step) {
  if (count_ == 0 || last_.step != step) return std::nullopt;
  dropped_.insert(count_ - 1);
  return count_ - 1;
}

ReplicaGroupSessions::Fate ReplicaGroupSessions::fate(std::uint32_t session,
                                                      std::uint32_t part) const {
  if (session >= count_) return Fate::kLater;
  if (dropped_.contains(session)) return Fate::kDropped;
  return session + 1 == count_ && part > last_.part ? Fate::kLater : Fate::kBegun;
}

}  // namespace weir::transport::tcp
