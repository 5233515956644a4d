// SPDX-License-Identifier: Apache-2.0
// Who is connected to a server, and who has to go when there are too many (base/strangers.h).
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "worker/base/strangers.h"

namespace weir::http {

class Guest {
 public:
  virtual ~Guest() = default;
  virtual void drop() = 0;  // any thread; closes it soon
};

class Guests {
 public:
  using Id = Strangers::Id;

  Guests(std::size_t most, std::size_t strangers_of_one_address);

  Id add(const std::string& address, const std::shared_ptr<Guest>& guest);
  void refresh(Id id);
  void proven(Id id);  // never dropped from now on, but it takes the place of a stranger
  void gone(Id id);
  void drop_oldest_stranger();
  void set_most(std::size_t most);

 private:
  // Nobody drops or destroys a guest while holding the mutex: the guest's end calls gone().
  std::shared_ptr<Guest> forget(std::optional<Id> id);

  std::mutex mutex_;  // guards all below
  std::size_t most_;
  Id last_ = 0;
  Strangers strangers_;
  std::map<Id, std::weak_ptr<Guest>> guests_;
  std::size_t proven_ = 0;
};

}  // namespace weir::http
