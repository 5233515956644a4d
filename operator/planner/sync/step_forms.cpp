// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/sync/step_forms.h"

#include <algorithm>

namespace weir::planner {
namespace {

double busy(const StageCost& stage) {
  return stage.forward + stage.backward;
}

double held_forward(const Pipeline& pipeline, std::size_t s) {
  return pipeline.hold_forward.empty() ? pipeline.send_forward[s] : pipeline.hold_forward[s];
}
double held_backward(const Pipeline& pipeline, std::size_t s) {
  return pipeline.hold_backward.empty() ? pipeline.send_backward[s] : pipeline.hold_backward[s];
}

// Calls visit(s, q, latency of one micro-batch around s..q without the bursts).
template <class Visit>
void for_each_loop(const Pipeline& pipeline, Visit visit) {
  const std::vector<StageCost>& stages = pipeline.stages;
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
    double loop = busy(stages[s]);
    for (std::size_t q = s + 1; q < stages.size(); ++q) {
      loop += pipeline.send_forward[q - 1] + pipeline.send_backward[q - 1] + busy(stages[q]);
      visit(s, q, loop);
    }
  }
}

double local_bursts(const Pipeline& pipeline, std::size_t s, std::size_t q) {
  return std::max(pipeline.stages[q].forward, held_forward(pipeline, q - 1)) +
         std::max(pipeline.stages[s].backward, held_backward(pipeline, s));
}

double slowest_part(const Pipeline& pipeline) {
  double result = 0;
  for (const StageCost& stage : pipeline.stages) result = std::max(result, busy(stage));
  for (std::size_t s = 0; s < pipeline.send_forward.size(); ++s) {
    result = std::max({result, held_forward(pipeline, s), held_backward(pipeline, s)});
  }
  return result;
}

// Period of a loop in the local form.
double loop_period(const Pipeline& pipeline, std::size_t s, std::size_t q, double loop, int k,
                   bool slack) {
  if (slack) return loop / (k * static_cast<double>(q - s) + 1);
  return (loop + (k - 1) * local_bursts(pipeline, s, q)) / (k * static_cast<double>(q - s + 1));
}

// Both transfers and the work of all stages before each, and of all at the end.
std::vector<double> before(const Pipeline& pipeline) {
  std::vector<double> result{0};
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    double next = result.back() + busy(pipeline.stages[s]);
    if (s < pipeline.send_forward.size()) {
      next += pipeline.send_forward[s] + pipeline.send_backward[s];
    }
    result.push_back(next);
  }
  return result;
}

}  // namespace

double period(const Pipeline& pipeline, int k, bool slack) {
  double result = slowest_part(pipeline);
  for_each_loop(pipeline, [&](std::size_t s, std::size_t q, double loop) {
    result = std::max(result, loop_period(pipeline, s, q, loop, k, slack));
  });
  return result;
}

double update_tail(const Pipeline& pipeline) {
  double tail = 0, behind = 0;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    tail = std::max(tail, pipeline.stages[s].update - behind);
    behind += pipeline.stages[s].backward;
    if (s < pipeline.send_backward.size()) behind += pipeline.send_backward[s];
  }
  return tail;
}

// Every loop of every candidate passes here: plain arrays, no division inside.
StepForms step_forms(const Pipeline& pipeline, int micro_batches, int k, bool slack) {
  const std::size_t count = pipeline.stages.size();
  const std::vector<double> pre = before(pipeline);
  const double tail = update_tail(pipeline);
  const double more = micro_batches - 1;
  StepForms forms;
  double slowest = slowest_part(pipeline);
  double longest = 0;  // op or transfer of one micro-batch
  // Contribution of stage q to a loop, its bursts at both ends of one, and 1 / (micro-batches in a
  // loop of n stages).
  std::vector<double> adds(count), arrives(count), leaves(count), share(count + 1);
  const double bursts = slack ? 0 : k - 1;
  for (std::size_t s = 0; s < count; ++s) {
    const double t = busy(pipeline.stages[s]);
    adds[s] = t;
    share[s + 1] = 1 / (slack ? k * static_cast<double>(s) + 1 : k * static_cast<double>(s + 1));
    forms.pivot = std::max(forms.pivot, pre[s] + micro_batches * t);
    forms.bound = std::max(forms.bound, pre[s] + micro_batches * t);
    longest = std::max({longest, pipeline.stages[s].forward, pipeline.stages[s].backward});
    if (s > 0) {
      adds[s] += pipeline.send_forward[s - 1] + pipeline.send_backward[s - 1];
      arrives[s] = bursts * std::max(pipeline.stages[s].forward, held_forward(pipeline, s - 1));
    }
    if (s + 1 == count) break;
    leaves[s] = bursts * std::max(pipeline.stages[s].backward, held_backward(pipeline, s));
    const double slower = std::max(held_forward(pipeline, s), held_backward(pipeline, s));
    const double next = busy(pipeline.stages[s + 1]);
    forms.pivot = std::max(forms.pivot, pre[s + 1] + next + more * slower);
    longest = std::max(longest, slower);
  }
  forms.bound = std::max(forms.bound, pre.back() + more * longest);
  double pivot = forms.pivot;
  for (std::size_t s = 0; s + 1 < count; ++s) {
    double loop = busy(pipeline.stages[s]);
    for (std::size_t q = s + 1; q < count; ++q) {
      loop += adds[q];
      const double pace = (loop + arrives[q] + leaves[s]) * share[q - s + 1];
      slowest = std::max(slowest, pace);
      pivot = std::max(pivot, pre[s] + loop + more * pace);
    }
  }
  forms.sum = pre.back() + more * slowest + tail;
  forms.pivot = pivot + tail;
  return forms;
}

}  // namespace weir::planner
