// SPDX-License-Identifier: Apache-2.0
// Which micro-batches of a step each replica computes. Ids count over all replicas of the step, so
// a micro-batch is the same samples whoever computes it. Pure.
#pragma once

#include <vector>

namespace weir::schedule {

struct IdRange {
  int first = 0, count = 0;
  bool operator==(const IdRange&) const = default;
};
// Rising, with a gap between two ranges, none of them empty.
using Ids = std::vector<IdRange>;

// True if `ids` are as said above and lie in [0, total).
bool are_legal(const Ids& ids, int total);
int count_of(const Ids& ids);
std::vector<int> listed(const Ids& ids);
Ids ids_of(std::vector<int> list);  // in any order, each once
bool overlap(const Ids& a, const Ids& b);
Ids united(const Ids& a, const Ids& b);  // that do not overlap

// Parts of `total` in proportion to the weights, of which one is above 0: what is left over goes to
// the largest remainders, of equal ones to the first.
std::vector<int> apportioned(int total, const std::vector<int>& weights);

// The ids that each replica has to compute of a step with these shares, of which the sums of `kept`
// (per replica; empty: of none) are already there. All other ids, in rising order, are cut in
// proportion to the shares; without `kept`, replica r has those that follow the ones of r-1, as
// many as its share.
std::vector<Ids> ids_to_compute(const std::vector<int>& shares, const std::vector<Ids>& kept);

}  // namespace weir::schedule
