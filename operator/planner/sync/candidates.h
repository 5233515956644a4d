// SPDX-License-Identifier: Apache-2.0
// Plans that searches found, each with the caps that suit it; the event simulator judges the best
// of them. Inside the room only.
#pragma once

#include <limits>
#include <set>
#include <vector>

#include "operator/planner/sync/model.h"

namespace weir::planner {

struct CapChoice {
  CapRule rule = CapRule::kKfkb;
  int k = 1;
};
// The choices that the request allows: each k up to 8, then doubled values. k = 1 is the same under
// both dispatch rules. Fixed caps are one choice.
std::vector<CapChoice> cap_choices(const SyncRequest& request);

// Classes of stages from the last stage on: one class after the other, in any order of classes, at
// most `most` orders; for a fixed number of stages those that the ranges allow.
std::vector<std::vector<int>> class_orders(const SyncRequest& request, int stages,
                                           std::size_t most);

class Candidates {
 public:
  // Tries a cut with every choice of caps that fits into memory. `candidate` has ideals of the
  // model's family, `chosen` their indices in the caller's. Returns the least estimated step;
  // infinite if nothing fits or the cut is known.
  double add(const SyncModel& model, const Candidate& candidate,
             const std::vector<std::size_t>& chosen);
  // kLittle: simulates a few of what is left. kMuch: all that may be best, and moves boundaries of
  // the best while that helps.
  enum class Effort : unsigned char { kLittle, kMuch };
  void decide(const SyncModel& model, const std::vector<std::size_t>& chosen, Effort effort);

  bool empty() const { return judged_.empty(); }
  double best_seconds() const { return best_; }
  // Judged by the simulator, best first.
  std::vector<Candidate> best(std::size_t most) const;

 private:
  struct Estimate {
    Candidate candidate;  // ideals of the caller's family
    double seconds = 0;
    bool first_of_k = false;
  };

  double judge(const SyncModel& model, Candidate candidate, const std::vector<std::size_t>& chosen);
  bool shift(const SyncModel& model, const std::vector<std::size_t>& chosen, Candidate& at,
             std::int64_t end);

  std::set<std::vector<std::size_t>> known_;
  std::vector<Estimate> waiting_;
  std::vector<Candidate> judged_;
  double best_ = std::numeric_limits<double>::infinity();
  std::int64_t ops_ = 0;  // simulated
};

}  // namespace weir::planner
