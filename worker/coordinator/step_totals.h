// SPDX-License-Identifier: Apache-2.0
// Steps as the training log tells them: the loss and the time of a step of all replicas, from the
// STATUS of their first and last stages. No clock, no socket. Used only on the coordinator's
// thread.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::coordinator {

struct StepTotal {
  std::int64_t step = 0;                                   // completed steps after it
  double loss = std::numeric_limits<double>::quiet_NaN();  // mean over replicas
  double seconds = 0;                                      // of the slowest replica
  std::int64_t samples = 0;
  int k = 1;
  std::uint32_t revision = 0;
};

class StepTotals {
 public:
  // The plan that the ranks train with; null: none. lost: replicas that do not train.
  void follow(const schedule::Plan* plan, int incarnation, const std::set<int>& lost);
  // Steps that are complete now, in their order. A step of which a replica does not tell is given
  // up for what the others have told once they are kPatience steps further.
  std::vector<StepTotal> on_status(const protocol::StageStatus& status);

 private:
  static constexpr std::int64_t kPatience = 8;
  struct Open {
    StepTotal total;
    double loss_sum = 0;
    int losses = 0;
    std::set<int> first, last;  // replicas whose first and last stage have told it
  };
  bool complete(const Open& open, int replicas) const;
  static StepTotal close(Open& open);

  std::optional<schedule::Plan> plan_;
  std::map<std::uint32_t, int> k_of_;  // by revision: after COMMIT some steps still have the old k
  int incarnation_ = 0;
  std::set<int> lost_;
  std::map<std::int64_t, Open> open_;
  std::int64_t told_ = -1;  // highest step that was returned in this generation
};

}  // namespace weir::coordinator
