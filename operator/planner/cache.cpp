// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/cache.h"

#include <list>
#include <numeric>
#include <utility>

#include "operator/planner/graph/promising_ideals.h"

namespace weir::planner {

constexpr std::size_t kKept = 16;  // graphs: one per model and micro-batch size

struct PlanCache::Contents {
  struct Entry {
    Dag dag;  // what the ideals are of, compared in full
    bool kept_order = false;
    std::int64_t most = 0;
    std::shared_ptr<const Ideals> ideals;
  };
  std::list<Entry> entries;  // the last used first
};

PlanCache::PlanCache() : contents_(std::make_unique<Contents>()) {}
PlanCache::~PlanCache() = default;
PlanCache::PlanCache(PlanCache&&) noexcept = default;
PlanCache& PlanCache::operator=(PlanCache&&) noexcept = default;

namespace {

bool same_graph(const Dag& a, const Dag& b) {
  if (a.nodes != b.nodes || a.classes.size() != b.classes.size()) return false;
  for (std::size_t c = 0; c < a.classes.size(); ++c) {
    if (a.classes[c].forward != b.classes[c].forward ||
        a.classes[c].backward != b.classes[c].backward ||
        a.classes[c].update != b.classes[c].update) {
      return false;
    }
  }
  return a.parameters == b.parameters && a.frozen == b.frozen && a.output == b.output &&
         a.stash == b.stash && a.successors == b.successors;
}

Ideals ideals_of(const Dag& dag, bool keep_order, const Limits& limits) {
  if (keep_order && !dag.chain()) {
    std::vector<std::vector<int>> orders(1, std::vector<int>(static_cast<std::size_t>(dag.nodes)));
    std::iota(orders[0].begin(), orders[0].end(), 0);
    return ideals_of_orders(dag, orders, static_cast<std::size_t>(dag.nodes) + 1);
  }
  auto all = enumerate_ideals(dag, {.most = static_cast<std::size_t>(limits.ideals),
                                    .most_bytes = static_cast<std::size_t>(limits.memory_bytes)});
  return all ? *std::move(all) : promising_ideals(dag);
}

}  // namespace

std::shared_ptr<const Ideals> ideals_for(const Setting& setting, const Limits& limits,
                                         PlanCache* cache) {
  const bool keep = setting.request->keep_order;
  if (cache == nullptr) {
    return std::make_shared<const Ideals>(ideals_of(setting.dag, keep, limits));
  }
  auto& entries = cache->contents().entries;
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    if (entry->kept_order != keep || entry->most != limits.ideals ||
        !same_graph(entry->dag, setting.dag)) {
      continue;
    }
    entries.splice(entries.begin(), entries, entry);
    return entries.front().ideals;
  }
  auto ideals = std::make_shared<const Ideals>(ideals_of(setting.dag, keep, limits));
  entries.push_front({setting.dag, keep, limits.ideals, ideals});
  if (entries.size() > kKept) entries.pop_back();
  return ideals;
}

}  // namespace weir::planner
