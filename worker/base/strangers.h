// SPDX-License-Identifier: Apache-2.0
// Connections of one listening port whose other end has not proven its identity. When there are too
// many, the oldest is dropped and never the newcomer, so nobody can keep others out by holding
// connections open. The number per address is limited, too, so that a flood from one address does
// not push out the others. Pure; not thread-safe.
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

  // Limits: connections in all, and connections of one address.
  Strangers(std::size_t most, std::size_t most_of_one) : most_(most), most_of_one_(most_of_one) {}

  // Adds a connection as the youngest. Returns the connection that must be closed to make room,
  // which is removed from this list. It is the newcomer only if no other can be removed.
  std::optional<Id> add(Id id, const std::string& address);
  void refresh(Id id);  // makes the connection the youngest again, because its peer made progress
  bool remove(Id id);   // false if `id` is not in the list
  std::optional<Id> take_oldest();  // for a process without resources, e.g. file descriptors
  void set_most(std::size_t most) { most_ = most; }  // for later calls of add
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
