// SPDX-License-Identifier: Apache-2.0
// The connections of a server, and which of them is dropped if there are too many
// (base/strangers.h). Thread-safe.
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
  virtual void drop() = 0;  // closes the connection soon; any thread
};

class Guests {
 public:
  using Id = Strangers::Id;

  Guests(std::size_t most, std::size_t strangers_of_one_address);

  Id add(const std::string& address, const std::shared_ptr<Guest>& guest);
  void refresh(Id id);
  void proven(Id id);  // the guest is never dropped from now on; it takes the place of a stranger
  void gone(Id id);
  void drop_oldest_stranger();
  void set_most(std::size_t most);

 private:
  // Guests must be dropped or destroyed without the mutex, because the end of a guest calls gone().
  std::shared_ptr<Guest> forget(std::optional<Id> id);

  std::mutex mutex_;  // guards the fields below
  std::size_t most_;
  Id last_ = 0;
  Strangers strangers_;
  std::map<Id, std::weak_ptr<Guest>> guests_;
  std::size_t proven_ = 0;
};

}  // namespace weir::http
