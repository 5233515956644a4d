// SPDX-License-Identifier: Apache-2.0
// Event simulator of one step of one replica (worker/schedule/README.md "Event simulator"). Pure;
// orders ops by the same next_op as the engine. Cost: about 2 events per op, 32 us for S=8, M=32.
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

// Piecewise constant share in (0, 1] of a link's rate: (from, share), sorted; the share before the
// first entry is 1.
using RateTrace = std::vector<std::pair<std::chrono::nanoseconds, double>>;

struct LinkModel {                       // one direction of one boundary
  std::chrono::nanoseconds transfer{0};  // of one micro-batch at share 1; occupies the link
  std::chrono::nanoseconds latency{0};   // does not occupy it
  RateTrace trace;                       // empty: share 1 for ever
};

struct PipelineModel {
  std::vector<StageTime> stages;             // S
  std::vector<LinkModel> forward, backward;  // S-1 each
  std::optional<int>
      window;  // head-of-line study: outstanding sends that block the whole stage; unset: none
  std::chrono::nanoseconds start{0};  // t0, where traces go on
  bool record = false;                // fill Timeline::ops and sends
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
  std::chrono::nanoseconds step{0};                                // last end - t0
  std::vector<int> peak_in_flight;                                 // S
  std::vector<int> receive_queue_forward, receive_queue_backward;  // S, peaks
  std::vector<std::chrono::nanoseconds> busy;                      // S
  std::vector<Idle> idle;                                          // S
  std::vector<TimedOp> ops;      // if recorded: F and B in the order of their starts
  std::vector<TimedSend> sends;  // if recorded: in the order in which they were handed over
};

// Nothing if some op never ran (an illegal schedule).
std::optional<Timeline> simulate(const Schedule& schedule, int micro_batches,
                                 const PipelineModel& model);
// The same for given orders, dispatched Strict: the baselines that are no plan (tests).
std::optional<Timeline> simulate_orders(const std::vector<Order>& orders,
                                        const PipelineModel& model);

// Backward split in B (gradient of the input, sent on) and W (gradient of the weights, which frees
// the activation): a study of what it would gain, no plan of the product. model.stages[s].backward
// is B alone.
struct SplitBackward {
  enum class Rule : unsigned char {
    kZeroBubble,  // warm_up forwards, then B, else F below held_caps, else W
    kHint         // F below both caps, else B, else W
  };
  Rule rule = Rule::kHint;
  std::vector<int> warm_up;                       // kZeroBubble
  std::vector<int> caps;                          // kHint: in flight from F to B
  std::vector<int> held_caps;                     // activations held from F to W
  std::vector<std::chrono::nanoseconds> weights;  // time of W
};
// Peaks are activations held from F to W.
std::optional<Timeline> simulate_split(const SplitBackward& split, int micro_batches,
                                       const PipelineModel& model);

}  // namespace weir::schedule
