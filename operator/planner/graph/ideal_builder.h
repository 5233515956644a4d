// SPDX-License-Identifier: Apache-2.0
// Builders of families of ideals. Inside the room only.
#pragma once

#include "operator/planner/graph/dag.h"
#include "operator/planner/graph/ideals.h"

namespace weir::planner {

// Appends ideals one by one, each as one that is there and a node more. Sums are incremental.
class IdealBuilder {
 public:
  IdealBuilder(const Dag& dag, std::size_t expected);

  void add_empty();
  // The index of the new ideal.
  std::size_t add(std::size_t parent, int node);
  // For a family that walks one path: only the new ideal is kept, at index 0.
  void step(int node);

  Ideals& ideals() { return ideals_; }

 private:
  std::int64_t cut_after(const std::uint64_t* bits, std::int64_t cut, std::size_t node) const;

  const Dag* dag_;
  Ideals ideals_;
};

// Copies ideals of the same graph one by one into a new family.
class Picker {
 public:
  explicit Picker(const Ideals& like);

  void pick(const Ideals& from, std::size_t ideal);
  const Ideals& ideals() const { return to_; }
  Ideals finish(bool complete) {
    to_.complete = complete;
    return std::move(to_);
  }

 private:
  Ideals to_;
};

// Both families' ideals, equal ones once.
Ideals union_of(const Ideals& a, const Ideals& b);

}  // namespace weir::planner
