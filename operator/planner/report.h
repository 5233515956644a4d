// SPDX-License-Identifier: Apache-2.0
// The costs that a plan is said to have and how good they are: weir.dev/planreport/v1. Plain data.
// Seconds and bytes of one micro-batch unless said; boundary s lies between stage s and s+1.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/schedule/caps.h"
#include "worker/schedule/plan.h"

namespace weir::planner {

struct StageReport {
  std::vector<int> nodes;  // layer indices of the profile, rising
  std::string device_class;
  int ranks = 1;                     // of one replica: r
  std::vector<std::string> servers;  // of replica 0, in the order of its ranks
  double forward = 0, backward = 0;  // of one micro-batch, split over the ranks
  double update = 0, sync = 0;       // optimizer; AllReduce of one step
  std::int64_t cut_bytes = 0;        // to the next stage; 0 on the last
  double send_forward = 0, send_backward = 0;
};

struct StageMemoryReport {
  std::int64_t static_bytes = 0, stash_bytes = 0;  // stash: x cap
  std::int64_t transient_bytes = 0, buffer_bytes = 0;
  std::int64_t total_bytes = 0, limit_bytes = 0;  // limit 0 = unknown
};

struct StageTimeline {  // of one step
  double warm_up = 0, steady = 0, drain = 0;
  double busy = 0, idle_input = 0, idle_gradient = 0, idle_sync = 0;
};

struct KCandidate {  // the best plan with this k
  int k = 1;
  double step_seconds = 0;  // 0: does not fit
  std::vector<int> caps;
  std::optional<schedule::Split> split;
  std::int64_t memory_bytes = 0;  // of the fullest stage
  std::string why_not;
};

struct LinkSensitivity {
  int boundary = 0;
  double step_per_share = 0;           // dT / d(share), seconds; <= 0
  std::optional<double> switch_share;  // below it another candidate is better by minGainPercent
  int switch_k = 0;                    // of that candidate
  std::vector<int> switch_caps;
  double switch_gain = 0;  // fraction, at switch_share
};

// The cost of another planner's cut in this model (tool/compare.h).
struct Comparison {
  std::string name;
  double step_seconds = 0;  // 0: see why_not
  int k = 1;
  std::vector<schedule::LayerRange> stages;  // positions in that planner's own order
  std::vector<int> ranks;
  std::string why_not;
};

struct Optimality {
  std::string status;   // "optimal", "gap" (certified) or "heuristic"
  double gap = 0;       // value / lower bound - 1
  std::string formula;  // the cost model that the statement is about, and the tolerance
  double lower_bound = 0, upper_bound = 0;  // seconds
};

struct SearchReport {
  std::int64_t ideals = 0, boundaries = 0, pairs = 0;
  bool complete = true;                         // no limit was reached
  std::map<std::string, std::int64_t> details;  // pruning counts, only with --explain
};

// The planner's part of a plan (schedule, micro_batches, stages, ranks, idle,
// predicted_step_seconds; revision, parent, trigger, uid and state are the caller's), and the
// report.
struct PlanReport {
  schedule::Plan plan;
  // Per stage, of one micro-batch.
  std::vector<schedule::StageTime> stage_times;
  std::vector<std::int64_t> boundary_bytes;               // per boundary, of one micro-batch
  std::vector<std::int64_t> memory_bytes;                 // per stage
  double objective_seconds = 0, lower_bound_seconds = 0;  // of the cost model; equal when exact

  std::string objective = "sync";
  std::vector<int> order;  // topological: stage s has layers order[first_s .. last_s]
  std::vector<StageReport> stages;
  std::vector<StageMemoryReport> memory;
  std::vector<StageTimeline> timeline;
  double period_seconds = 0;
  std::string period_cause;  // "stage 0", "link 0-1" or "loop 0-2"
  double sum_seconds = 0, pivot_seconds = 0, bound_seconds = 0;  // T+, T~, V
  double split_bound_seconds = 0;  // no order of split backwards is faster; 0: no layer splits
  double whole_step_seconds = 0;   // of the plan if its backwards were whole; 0: they are
  double tie_seconds = 0;          // of the step: exchange of the sums of tied tables
  std::int64_t tied_bytes = 0;     // of these tables; 0: none, or both ends on one stage
  std::vector<KCandidate> candidates;
  std::vector<LinkSensitivity> sensitivity;
  Optimality optimality;
  SearchReport search;
  int idle_devices = 0;
  std::string idle_reason;
  std::vector<std::string> warnings;
  std::vector<Comparison> comparisons;  // filled by who asked for them
};

}  // namespace weir::planner
