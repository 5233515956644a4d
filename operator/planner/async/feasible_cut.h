// SPDX-License-Identifier: Apache-2.0
// "Is there a cut whose every stage and boundary takes at most T?": the decision inside the search
// for the smallest bottleneck. Inside the room only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "operator/planner/async/ideal_subsets.h"
#include "operator/planner/graph/ideals.h"

namespace weir::planner {

struct BottleneckCosts {
  int devices = 1;
  double bytes_per_second = 1e9;
  bool transfers = true;

  // (W + 4 (r-1) P / (bw r)) / r
  double stage(std::int64_t work, std::int64_t parameters, int ranks) const;
  // 2 cut / (bw r)
  double boundary(std::int64_t cut, int ranks) const;
};

// A chain of ideals of one family: ends[s] is the prefix up to and with stage s.
struct IdealChain {
  std::vector<std::size_t> ends;
  std::vector<int> ranks;
};

double value_of(const Ideals& ideals, const BottleneckCosts& costs, const IdealChain& chain);

// Answers for one family and thresholds that do not rise above `most_seconds`.
class FeasibleCut {
 public:
  struct Effort {
    std::size_t boundaries = 0;  // of the hardest question
    std::int64_t pairs = 0;      // of all
  };

  // chains: from chains_of, or empty for sets of bits.
  FeasibleCut(const Ideals& ideals, const BottleneckCosts& costs, const std::vector<int>& chains,
              double most_seconds);

  enum class Outcome : unsigned char { kYes, kNo, kGaveUp };
  // kYes fills `plan`. Gives up when more than most_pairs pairs were looked at in this question, or
  // when stop says so (asked about every 10 ms; may be empty).
  Outcome ask(double seconds, std::int64_t most_pairs, const std::function<bool()>& stop,
              IdealChain* plan);
  const Effort& effort() const { return effort_; }

 private:
  struct Question;
  template <class Bucket, class Set>
  Outcome run(Question& question, const Bucket& empty, const Set& set);
  int ranks_between(const Question& question, std::size_t i, std::size_t j, int most) const;

  const Ideals& ideals_;
  const BottleneckCosts costs_;
  std::vector<std::size_t> candidates_;  // by work, then size: a subset never comes later
  std::vector<Lanes> lanes_;             // of the candidates
  int blocks_ = 0;                       // 0: sets of bits
  Effort effort_;
};

}  // namespace weir::planner
