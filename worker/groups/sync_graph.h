// SPDX-License-Identifier: Apache-2.0
// Which living replicas have a common average, directly or through others, since the last reset.
// Pure.
#pragma once

#include <vector>

namespace weir::groups {

class SyncGraph {
 public:
  explicit SyncGraph(int replicas);  // all living, none connected

  void merge(int a, int b);
  void reset();
  void remove(int replica);  // dead: counts no more
  void add(int replica);     // living again, connected with nobody

  bool living(int replica) const { return component(replica) >= 0; }
  int component(int replica) const { return components_[static_cast<std::size_t>(replica)]; }
  int components() const;  // of the living
  bool connected() const { return components() <= 1; }

 private:
  std::vector<int> components_;  // the lowest member when it was formed; -1 = dead
};

}  // namespace weir::groups
