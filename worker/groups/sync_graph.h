// SPDX-License-Identifier: Apache-2.0
// Tracks which living replicas have had a common average since the last reset, directly or through
// others. Pure.
#pragma once

#include <vector>

namespace weir::groups {

class SyncGraph {
 public:
  explicit SyncGraph(int replicas);  // all alive, none connected

  void merge(int a, int b);
  void reset();
  void remove(int replica);  // the replica is dead and does not count
  void add(int replica);     // the replica is alive again and connected with no other

  bool living(int replica) const { return component(replica) >= 0; }
  int component(int replica) const { return components_[static_cast<std::size_t>(replica)]; }
  int components() const;  // number of components of living replicas
  bool connected() const { return components() <= 1; }

 private:
  // By replica: lowest member when the component was formed; -1 = dead.
  std::vector<int> components_;
};

}  // namespace weir::groups
