// SPDX-License-Identifier: Apache-2.0
// Finds where the steps of a segment differ from what is usual: links, devices, sums, loading of
// data, pauses (README "Causes"). Each deviation says what the steps would have met without it.
// Pure.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "operator/adaptation/costing/conditions.h"
#include "operator/estimator/contention.h"
#include "operator/estimator/estimates.h"
#include "operator/explain/device_history.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::explain {

enum class Kind : unsigned char {
  kLink,     // between two nodes, in one direction or both
  kPort,     // of a node, more than one of whose links are slow
  kDevice,   // one worker computes slower than usual
  kDevices,  // all workers do
  kSums,     // links of sums over replicas
  kData,     // a worker loads its data
  kPauses,   // a worker does nothing for a while, between ops
  kSave,     // a worker copies its state for longer than the others
  kLimit,    // a worker is throttled by its CPU limit
  kQueue,    // a worker waits for processors that others use
  kOrder,    // no deviation: another order of the same ops would hide more
  kFill,     // no deviation: filling and draining the pipeline
};
// Names in status and of metrics, in the order of the enumerators.
inline constexpr std::array kKindNames{"SlowLink", "SlowPort", "SlowDevice", "SlowDevices",
                                       "SlowSums", "Data",     "Pauses",     "SlowSave",
                                       "CpuLimit", "BusyCpu",  "Order",      "FillAndDrain"};
static_assert(static_cast<std::size_t>(Kind::kFill) + 1 == kKindNames.size());
constexpr const char* name(Kind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

// A deviation that costs less of a step is not worth a line.
inline constexpr double kLeastPart = 0.005;

struct Deviation {
  Kind kind = Kind::kLink;
  std::string place;  // with the kind it tells one deviation from another
  std::string text;   // where it is and how it differs, for users
  // Links as they usually are; by how much the times of devices exceed what they usually are.
  std::map<estimator::NodePair, costing::Conditions::Link> links = {};
  std::map<estimator::NodePair, double> sum_links = {};
  std::map<std::string, Slowness> excess = {};
  // Seconds of a step that come at random times, which means tell too little of: simulated steps
  // with the same means take less. 0 = nothing is at random.
  double at_random = 0;
  // Seconds of a step that it costs, where they were measured; 0 = simulated steps tell.
  double measured = 0;
};

// A segment, as it was observed with the plan in force.
struct Observed {
  const schedule::Plan& plan;
  costing::Conditions now = {};
  estimator::UsualRates usual = {};
  std::set<estimator::NodePair> slow = {};              // links, estimator::slow_links
  std::vector<estimator::LinkEstimate> sum_links = {};  // between replicas
  double step_seconds = 0;
  double save_every = 0, save_seconds = 0;        // as in protocol::Segment
  std::vector<protocol::SegmentRank> told = {};   // of all replicas
  int replica = 0;                                // that tells its ranks, by stage:
  std::vector<protocol::SegmentRank> ranks = {};  // with their parts
};

// The times of ops over the profile, without loading data, as the history keeps them.
std::map<std::string, Slowness> devices_of(const Observed& observed);

// The conditions, with what the times of ops do not tell: a rank's pauses between its ops, as if
// they belonged to its forwards.
costing::Conditions with_pauses(const Observed& observed);
std::vector<Deviation> deviations_of(const Observed& observed, const DeviceHistory& history);

// The figures of the rank at that place; null if it has told none.
const protocol::SegmentRank* told_by(const Observed& observed, const schedule::RankPlace& place);
// Seconds of a step that all forwards and all backwards of a rank of the plan take.
Slowness passes_of(const Observed& observed, const protocol::SegmentRank& rank);

// A rank in sentences: "rank 3 (stage 1 of replica 1) on node-7".
std::string rank_text(const schedule::Plan& plan, const schedule::RankPlace& rank);

// The conditions that the steps would have met without it. now: as with_pauses tells.
costing::Conditions without(costing::Conditions now, const Deviation& deviation);

}  // namespace weir::explain
