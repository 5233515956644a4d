// SPDX-License-Identifier: Apache-2.0
#include "worker/app/role.h"

namespace weir::app {

RoleChange change_of(const Role& role, const std::optional<protocol::CoordinatorPlace>& named) {
  RoleChange change;
  // A replica of the operator may be behind.
  if (!named || named->term < role.term) return change;
  const bool mine = named->pod_uid == role.pod_uid;
  change.rises = named->term > role.term;
  // One that begins in a later term has neither members nor histories of the term before.
  change.stops = role.coordinates && (!mine || change.rises);
  change.keeps = role.coordinates && !change.stops;
  change.begins = mine && !change.keeps;
  change.follows = mine ? RoleChange::Follows::kItself : RoleChange::Follows::kNamed;
  return change;
}

bool coordinates_first(const std::string& pod_uid, int worker_index,
                       const std::optional<protocol::CoordinatorPlace>& named) {
  return named ? named->pod_uid == pod_uid : worker_index == 0;
}

std::string address_of(const protocol::CoordinatorPlace& named, const std::string& first) {
  return named.term == protocol::kFirstTerm || named.address.empty() ? first : named.address;
}

}  // namespace weir::app
