// SPDX-License-Identifier: Apache-2.0
// Prices of the synchronous engine: what a stage between two ideals costs on r devices of a class,
// and a boundary (operator/planner/README.md "Stage and boundary costs"). Inside the room only.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/planner/sync/engine.h"
#include "operator/planner/sync/step_forms.h"
#include "worker/schedule/simulator.h"

namespace weir::planner {

struct SyncOption {  // a stage on `ranks` devices of a class
  int device_class = 0, ranks = 1, column = 0;
  double seconds = 1e-9;   // per nanosecond of the column
  int type = 0;            // of its boundaries: options of one type pay the same
  double least_ratio = 0;  // its time of any nodes >= this x column 0 in nanoseconds
};

struct SyncSend {                              // one micro-batch over a boundary
  double forward = 0, backward = 0;            // under way
  double hold_forward = 0, hold_backward = 0;  // on the link: without the latency
  double both() const { return forward + backward; }
  double hold() const { return hold_forward > hold_backward ? hold_forward : hold_backward; }
};

enum class Prices : unsigned char { kAll, kLeast };  // kLeast: no send(), for very many ideals

class SyncModel {
 public:
  // All are kept by reference.
  SyncModel(const Dag& dag, const Ideals& ideals, const SyncRequest& request,
            Prices prices = Prices::kAll);

  const Ideals& ideals() const { return *ideals_; }
  const SyncRequest& request() const { return *request_; }
  const std::vector<SyncOption>& options() const { return options_; }
  int option_of(int device_class, int ranks) const;  // -1: there is none
  bool plain() const { return request_->formula == SyncFormula::kSync0; }

  // The stage outer \ inner on an option.
  double forward(const SyncOption& option, std::size_t inner, std::size_t outer) const {
    const auto& sums = ideals_->forward[static_cast<std::size_t>(option.column)];
    return static_cast<double>(sums[outer] - sums[inner]) * option.seconds;
  }
  double backward(const SyncOption& option, std::size_t inner, std::size_t outer) const {
    const auto& sums = ideals_->backward[static_cast<std::size_t>(option.column)];
    return static_cast<double>(sums[outer] - sums[inner]) * option.seconds;
  }
  double busy(const SyncOption& option, std::size_t inner, std::size_t outer) const {
    return forward(option, inner, outer) + backward(option, inner, outer) + request_->overhead;
  }
  // Once a step: AllReduce over all ranks of all replicas, and the optimizer.
  double update(const SyncOption& option, std::size_t inner, std::size_t outer) const;

  // The boundary at an ideal between a stage of type `front` and the next of type `behind`.
  int types() const { return types_; }
  const SyncSend& send(std::size_t ideal, int front, int behind) const {
    const auto pair =
        static_cast<std::size_t>(pair_[static_cast<std::size_t>(front * types_ + behind)]);
    return sends_[ideal * pairs_ + pair];
  }
  // Over the cheapest pair of types: both directions, and the time it holds the link.
  double least_send(std::size_t ideal) const { return least_send_[ideal]; }
  double least_hold(std::size_t ideal) const { return least_hold_[ideal]; }

  // Bytes of a stage with `cap` micro-batches in flight and the buffers of k.
  std::int64_t memory(const SyncOption& option, std::size_t inner, std::size_t outer, int cap,
                      int k) const;
  bool fits(const SyncOption& option, std::size_t inner, std::size_t outer, int cap, int k) const {
    const std::int64_t usable =
        request_->classes[static_cast<std::size_t>(option.device_class)].usable_bytes;
    return usable == 0 || memory(option, inner, outer, cap, k) <= usable;
  }

  Pipeline pipeline(const Candidate& candidate) const;
  // For the event simulator; transfers without the latency, which it takes apart.
  schedule::PipelineModel simulated_model(const Candidate& candidate) const;
  // Value by the request's formula: for kSync by simulation. Huge if the schedule cannot run.
  double value(const Candidate& candidate) const;

 private:
  void add_options();
  void add_pairs();
  void price_boundaries(bool all);
  double ratio_of(const SyncOption& option) const;
  std::int64_t transient(std::size_t inner, std::size_t outer) const;

  const Dag* dag_;
  const Ideals* ideals_;
  const SyncRequest* request_;
  std::vector<SyncOption> options_;
  std::vector<int> type_class_, type_ranks_;  // by type
  int types_ = 1;
  struct Pair {  // of stages around a boundary
    const LinkRate* forward;
    const LinkRate* backward;
    int ranks;
  };
  std::vector<Pair> kinds_;  // different ones
  std::vector<int> pair_;    // [front type][behind type] -> kinds_
  std::size_t pairs_ = 1;
  std::vector<SyncSend> sends_;
  std::vector<double> least_send_, least_hold_;
  bool transients_ = false;
};

// Caps of S stages under a rule: min(M, k(S-s)), or min(M, 1 + k(S-1-s)).
enum class CapRule : unsigned char { kKfkb, kSlack };
int cap_behind(CapRule rule, int micro_batches, int k, int stages_behind);

}  // namespace weir::planner
