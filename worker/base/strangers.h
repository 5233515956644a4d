// SPDX-License-Identifier: Apache-2.0
// The connections of one port whose other end has not shown who it is. One too many drops the
// oldest of them, never the newcomer: whoever only holds connections open keeps nobody out. Each
// address has a share, so that one flood does not take the place of the others. Pure; not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>

namespace weir {

class Strangers {
 public:
  using Id = std::uint64_t;

  // Most in all, and most of one address.
  Strangers(std::size_t most, std::size_t most_of_one) : most_(most), most_of_one_(most_of_one) {}

  // Takes it in as the youngest. Returns the one that has to go for it, no longer a stranger: the
  // newcomer only where no other is left.
  std::optional<Id> add(Id id, const std::string& address);
  void refresh(Id id);              // it has done what it should: the youngest again
  bool remove(Id id);               // it has gone or proven itself; false: was none
  std::optional<Id> take_oldest();  // there is no room at all, e.g. no file descriptor is left
  void set_most(std::size_t most) { most_ = most; }  // of later calls
  std::size_t size() const { return places_.size(); }

 private:
  struct One {
    Id id;
    std::string address;
  };
  using Place = std::list<One>::iterator;
  Id take(Place place);

  std::size_t most_, most_of_one_;
  std::list<One> by_age_;  // oldest first
  std::map<Id, Place> places_;
  std::map<std::string, std::size_t> of_address_;
};

}  // namespace weir
