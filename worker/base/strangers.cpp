// SPDX-License-Identifier: Apache-2.0
#include "worker/base/strangers.h"

#include <algorithm>

namespace weir {

std::optional<Strangers::Id> Strangers::add(Id id, const std::string& address) {
  places_[id] = by_age_.insert(by_age_.end(), {id, address});
  if (++of_address_[address] > most_of_one_) {
    return take(std::ranges::find(by_age_, address, &One::address));
  }
  return places_.size() > most_ ? take_oldest() : std::nullopt;
}

void Strangers::refresh(Id id) {
  const auto found = places_.find(id);
  if (found != places_.end()) by_age_.splice(by_age_.end(), by_age_, found->second);
}

bool Strangers::remove(Id id) {
  const auto found = places_.find(id);
  if (found == places_.end()) return false;
  take(found->second);
  return true;
}

std::optional<Strangers::Id> Strangers::take_oldest() {
  if (by_age_.empty()) return std::nullopt;
  return take(by_age_.begin());
}

Strangers::Id Strangers::take(Place place) {
  const Id id = place->id;
  const auto share = of_address_.find(place->address);
  if (--share->second == 0) of_address_.erase(share);
  places_.erase(id);
  by_age_.erase(place);
  return id;
}

}  // namespace weir
