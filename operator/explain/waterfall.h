// SPDX-License-Identifier: Apache-2.0
// Divides a step into lines that add up to it, from what any order needs to what this one wastes
// (operator/explain/README.md). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "worker/protocol/messages.h"
#include "worker/schedule/bounds.h"
#include "worker/schedule/caps.h"
#include "worker/schedule/simulator.h"

namespace weir::explain {

enum class Line : unsigned char {
  kCompute,        // ops of the slowest stage, without loading its data
  kData,           // loading it
  kFillAndDrain,   // what no order can overlap, even without links
  kUsualLinks,     // what the links add to that at their usual rates
  kSlowLinks,      // what they add because they are slower than usual
  kOrder,          // what this order does not hide, and another one could
  kUpdate,         // behind the last op: sums, averages, norm, verdict, optimizer
  kInterruptions,  // saves, validations, changes of plans
  kNotExplained,   // the rest; may be negative
};
// Names in status, in the order of the enumerators.
inline constexpr std::array kLineNames{"Compute",    "Data",          "FillAndDrain",
                                       "UsualLinks", "SlowLinks",     "Order",
                                       "Update",     "Interruptions", "NotExplained"};
inline constexpr std::size_t kLines = kLineNames.size();
static_assert(static_cast<std::size_t>(Line::kNotExplained) + 1 == kLines);

// The steps of a segment, of the replica that waits least for the others.
struct Steps {
  double step_seconds = 0;
  double save_seconds = 0;  // that saves add to it, on average over steps; not contained in it
  schedule::Schedule schedule = {};
  int micro_batches = 1;
  schedule::PipelineModel now = {},
                          usual = {};  // as they were, and with links at their usual rates
  schedule::Backwards backwards = schedule::Backwards::kWhole;  // that another order may have
  std::vector<protocol::PartSeconds> parts = {};                // by stage
};

struct Waterfall {
  double step_seconds = 0;
  int slowest_stage = 0;
  std::array<double, kLines> seconds{};  // add up to step_seconds
  double of(Line line) const { return seconds[static_cast<std::size_t>(line)]; }
};

// Parts of a step that a rank spends on this, in percent of it. Rounded, so they need not add up to
// 100; throttling comes at any time, so it is in the others, too.
struct RankShares {
  int busy = 0;                       // ops, norm, optimizer, loading data
  int late = 0;                       // waits for inputs that their senders have not handed over
  int link = 0;                       // waits for inputs that are on their way
  int full = 0;                       // waits for a slot of the receiver
  int replicas = 0;                   // waits for other replicas
  int update = 0;                     // waits for the gradients of other stages at the end
  std::optional<int> throttled = {};  // by its CPU limit; nothing: its worker tells of none
};
// All 0 of a rank that does not tell its parts.
RankShares shares_of(const protocol::SegmentRank& rank);

// Nothing if stages, links and parts do not fit together, or the order cannot be simulated.
std::optional<Waterfall> waterfall(const Steps& steps);

}  // namespace weir::explain
