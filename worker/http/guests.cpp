// SPDX-License-Identifier: Apache-2.0
#include "worker/http/guests.h"

#include <algorithm>

namespace weir::http {

Guests::Guests(std::size_t most, std::size_t strangers_of_one_address)
    : most_(most), strangers_(most, strangers_of_one_address) {}

Guests::Id Guests::add(const std::string& address, const std::shared_ptr<Guest>& guest) {
  Id id = 0;
  std::shared_ptr<Guest> leaves;
  {
    const std::lock_guard lock(mutex_);
    id = ++last_;
    guests_[id] = guest;
    strangers_.set_most(most_ - std::min(most_, proven_));
    leaves = forget(strangers_.add(id, address));
  }
  if (leaves) leaves->drop();
  return id;
}

void Guests::refresh(Id id) {
  const std::lock_guard lock(mutex_);
  strangers_.refresh(id);
}

void Guests::proven(Id id) {
  const std::lock_guard lock(mutex_);
  if (strangers_.remove(id)) ++proven_;
}

void Guests::gone(Id id) {
  const std::lock_guard lock(mutex_);
  if (guests_.erase(id) > 0 && !strangers_.remove(id)) --proven_;
}

void Guests::drop_oldest_stranger() {
  std::shared_ptr<Guest> leaves;
  {
    const std::lock_guard lock(mutex_);
    leaves = forget(strangers_.take_oldest());
  }
  if (leaves) leaves->drop();
}

void Guests::set_most(std::size_t most) {
  const std::lock_guard lock(mutex_);
  most_ = most;
}

std::shared_ptr<Guest> Guests::forget(std::optional<Id> id) {
  if (!id) return nullptr;
  const auto found = guests_.find(*id);
  auto guest = found->second.lock();
  guests_.erase(found);
  return guest;
}

}  // namespace weir::http
