// SPDX-License-Identifier: Apache-2.0
#include "worker/groups/sync_graph.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "worker/base/check.h"

namespace weir::groups {

SyncGraph::SyncGraph(int replicas) {
  for (int p = 0; p < replicas; ++p) components_.push_back(p);
}

void SyncGraph::merge(int a, int b) {
  const int first = component(a), second = component(b);
  WEIR_CHECK(first >= 0 && second >= 0, "only the living average");
  std::replace(components_.begin(), components_.end(), second, first);
}

void SyncGraph::reset() {
  for (std::size_t p = 0; p < components_.size(); ++p) {
    if (components_[p] >= 0) components_[p] = static_cast<int>(p);
  }
}

void SyncGraph::remove(int replica) {
  // The replica's number may name its component, so the remaining members get another name.
  const int old = component(replica);
  components_[static_cast<std::size_t>(replica)] = -1;
  if (old < 0) return;
  const auto heir = std::ranges::find(components_, old);
  if (heir == components_.end()) return;
  const int fresh = static_cast<int>(heir - components_.begin());
  std::ranges::replace(components_, old, fresh);
}

void SyncGraph::add(int replica) {
  components_[static_cast<std::size_t>(replica)] = replica;
}

int SyncGraph::components() const {
  std::set<int> names(components_.begin(), components_.end());
  names.erase(-1);
  return static_cast<int>(names.size());
}

}  // namespace weir::groups
