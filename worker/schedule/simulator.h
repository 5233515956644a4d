// SPDX-License-Identifier: Apache-2.0
// Event simulator of one step of one replica (worker/schedule/README.md "Event simulator"). Pure.
// Uses the same next_op as the engine. Cost: about 2 events per op, 32 us for S=8, M=32.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "worker/schedule/caps.h"
#include "worker/schedule/dispatch.h"
#include "worker/schedule/plan.h"

namespace weir::schedule {

// Share in (0, 1] of a link's rate over time, piecewise constant: sorted entries (from, share). The
// share before the first entry is 1.
using RateTrace = std::vector<std::pair<std::chrono::nanoseconds, double>>;

struct LinkModel {                       // one direction of one boundary
  std::chrono::nanoseconds transfer{0};  // one micro-batch at share 1; occupies the link
  std::chrono::nanoseconds latency{0};   // does not occupy the link
  RateTrace trace;                       // empty: the share is always 1
};

struct PipelineModel {
  std::vector<StageTime> stages;             // S
  std::vector<LinkModel> forward, backward;  // S-1 each
  // Outstanding sends above which the whole stage blocks; unset: no limit.
  std::optional<int> window;
  std::chrono::nanoseconds start{0};  // start time of the step on the time axis of the traces
  bool record = false;                // whether to fill Timeline::ops and sends
};

struct TimedOp {
  int stage = 0;
  Op op;
  std::chrono::nanoseconds start{0}, end{0};
};
struct TimedSend {  // occupies the link from start to end
  int boundary = 0;
  bool forward = true;
  int micro_batch = 0;
  std::chrono::nanoseconds start{0}, end{0}, arrival{0};
};

struct Idle {
  std::chrono::nanoseconds wait_forward{0}, wait_backward{0};
};

struct Timeline {
  std::chrono::nanoseconds step{0};  // from the start to the last end of an op
  // Per stage. With a split backward micro-batches count from F to W, else from F to B.
  std::vector<int> peak_in_flight;
  std::vector<int> receive_queue_forward, receive_queue_backward;  // per stage: peak
  std::vector<std::chrono::nanoseconds> busy;                      // per stage
  std::vector<Idle> idle;                                          // per stage
  std::vector<TimedOp> ops;                                        // if recorded: by time of start
  std::vector<TimedSend> sends;  // if recorded: in the order in which they were sent
};

// The end of a stage's last op: its busy and idle time.
std::chrono::nanoseconds end_of(const Timeline& timeline, std::size_t stage);

// Time from a step to the next equal one where nothing joins the stages in between: a stage begins
// when its own last step is done, while stages behind it may still make weight gradients. `step` if
// backwards are whole, less if they are split. The timeline must be recorded.
std::chrono::nanoseconds period_of(const Timeline& timeline);

// Returns nothing if some op never ran because the schedule is illegal.
std::optional<Timeline> simulate(const Schedule& schedule, int micro_batches,
                                 const PipelineModel& model);
// The same for given orders with Strict dispatch: baselines of tests that are not plans.
std::optional<Timeline> simulate_orders(const std::vector<Order>& orders,
                                        const PipelineModel& model);

// The orders of a schedule with a split backward: those in which Hint runs it on that pipeline.
std::vector<Order> split_orders(const Schedule& schedule, int micro_batches,
                                const PipelineModel& model);

// Zero bubble, another rule for a split backward: warm_up forwards, then B, else F below held_caps,
// else W. A study; no plan uses it. model.stages[s].backward is the time of B alone.
struct ZeroBubble {
  std::vector<int> warm_up;
  std::vector<int> held_caps;                     // maximum of activations held from F to W
  std::vector<std::chrono::nanoseconds> weights;  // time of W
};
std::optional<Timeline> simulate_zero_bubble(const ZeroBubble& rule, int micro_batches,
                                             const PipelineModel& model);

}  // namespace weir::schedule
