// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/graph/ideal_builder.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weir::planner {
namespace {

using Index = std::size_t;
using Values = std::vector<std::int64_t>;

template <class Action>
void for_all_values(Ideals& ideals, const Action& action) {
  for (auto* sums : {&ideals.forward, &ideals.backward, &ideals.update}) {
    for (Values& values : *sums) action(values);
  }
  for (auto* values : {&ideals.parameters, &ideals.frozen, &ideals.stash, &ideals.cut})
    action(*values);
}

}  // namespace

IdealBuilder::IdealBuilder(const Dag& dag, Index expected) : dag_(&dag) {
  ideals_.nodes = dag.nodes;
  ideals_.words = (dag.nodes + 63) / 64;
  for (auto* sums : {&ideals_.forward, &ideals_.backward, &ideals_.update}) {
    sums->resize(dag.classes.size());
  }
  ideals_.bits.reserve(expected * static_cast<Index>(ideals_.words));
  ideals_.size.reserve(expected);
  for_all_values(ideals_, [&](Values& values) { values.reserve(expected); });
}

void IdealBuilder::add_empty() {
  ideals_.bits.resize(static_cast<Index>(ideals_.words), 0);
  ideals_.size.push_back(0);
  for_all_values(ideals_, [](Values& values) { values.push_back(0); });
}

Index IdealBuilder::add(Index parent, int added) {
  const auto node = static_cast<Index>(added);
  const auto words = static_cast<Index>(ideals_.words);
  const Index at = ideals_.bits.size();
  ideals_.bits.resize(at + words);
  std::memcpy(&ideals_.bits[at], &ideals_.bits[parent * words], words * 8);
  ideals_.bits[at + node / 64] |= std::uint64_t{1} << (node % 64);
  ideals_.size.push_back(ideals_.size[parent] + 1);
  for (Index c = 0; c < dag_->classes.size(); ++c) {
    const DagTimes& times = dag_->classes[c];
    ideals_.forward[c].push_back(ideals_.forward[c][parent] + times.forward[node]);
    ideals_.backward[c].push_back(ideals_.backward[c][parent] + times.backward[node]);
    ideals_.update[c].push_back(ideals_.update[c][parent] + times.update[node]);
  }
  ideals_.parameters.push_back(ideals_.parameters[parent] + dag_->parameters[node]);
  ideals_.frozen.push_back(ideals_.frozen[parent] + dag_->frozen[node]);
  ideals_.stash.push_back(ideals_.stash[parent] + dag_->stash[node]);
  ideals_.cut.push_back(cut_after(&ideals_.bits[at], ideals_.cut[parent], node));
  return ideals_.count() - 1;
}

void IdealBuilder::step(int node) {
  add(0, node);
  ideals_.bits.erase(ideals_.bits.begin(), ideals_.bits.begin() + ideals_.words);
  ideals_.size.erase(ideals_.size.begin());
  for_all_values(ideals_, [](Values& values) { values.erase(values.begin()); });
}

// True cut: a node counts once while a consumer of it is outside.
std::int64_t IdealBuilder::cut_after(const std::uint64_t* bits, std::int64_t cut,
                                     Index node) const {
  if (!dag_->successors[node].empty()) cut += dag_->output[node];
  for (const int before : dag_->predecessors[node]) {
    const auto& consumers = dag_->successors[static_cast<Index>(before)];
    const bool done = std::ranges::all_of(consumers, [&](int consumer) {
      return ((bits[consumer / 64] >> (consumer % 64)) & 1U) != 0;
    });
    if (done) cut -= dag_->output[static_cast<Index>(before)];
  }
  return cut;
}

Picker::Picker(const Ideals& like) {
  to_.nodes = like.nodes;
  to_.words = like.words;
  to_.forward.resize(like.forward.size());
  to_.backward.resize(like.backward.size());
  to_.update.resize(like.update.size());
}

void Picker::pick(const Ideals& from, Index i) {
  to_.bits.insert(to_.bits.end(), from.set(i), from.set(i) + from.words);
  to_.size.push_back(from.size[i]);
  for (Index c = 0; c < to_.forward.size(); ++c) {
    to_.forward[c].push_back(from.forward[c][i]);
    to_.backward[c].push_back(from.backward[c][i]);
    to_.update[c].push_back(from.update[c][i]);
  }
  to_.parameters.push_back(from.parameters[i]);
  to_.frozen.push_back(from.frozen[i]);
  to_.stash.push_back(from.stash[i]);
  to_.cut.push_back(from.cut[i]);
}

Ideals union_of(const Ideals& a, const Ideals& b) {
  Picker family(a);
  const Ideals& ideals = family.ideals();
  Index next = 0;
  for (Index i = 0; i < a.count();) {
    const std::int32_t size = a.size[i];
    for (; next < b.count() && b.size[next] < size; ++next) family.pick(b, next);
    const Index same = ideals.count();
    for (; i < a.count() && a.size[i] == size; ++i) family.pick(a, i);
    const Index end = ideals.count();
    for (; next < b.count() && b.size[next] == size; ++next) {
      bool known = false;
      for (Index other = same; other < end && !known; ++other) {
        known = std::equal(b.set(next), b.set(next) + b.words, ideals.set(other));
      }
      if (!known) family.pick(b, next);
    }
  }
  return family.finish(a.complete || b.complete);
}

}  // namespace weir::planner
