// SPDX-License-Identifier: Apache-2.0
// Network and devices as they were while one plan ran: the same conditions can be simulated with
// any plan, so two plans can be compared although the network has moved between them. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "operator/estimator/contention.h"
#include "operator/facts/facts.h"
#include "operator/planner/model/model.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"
#include "worker/schedule/simulator.h"

namespace weir::costing {

struct Conditions {
  struct Link {
    double bytes_per_second = 0, latency_seconds = 0;
  };
  // From node to node. A link of which less than half of the messages could be timed is fast; it
  // has its usual rate.
  std::map<std::pair<std::string, std::string>, Link> links;
  // Bytes per second of the links that exact sums over replicas used, from node to node. What is a
  // link of sums under one plan may be one between stages under another.
  std::map<std::pair<std::string, std::string>, double> sum_links;
  // Times of forward and backward over those of the profile, by pod.
  std::map<std::string, std::pair<double, double>> slowness;
};

// The steps of one plan, and the conditions while it ran them.
struct Evidence {
  int steps = 0;                            // 0 = nothing was measured
  double step_seconds = 0, step_error = 0;  // mean and its standard error
  Conditions conditions;
};

// The segment of this plan in the report: untrusted, so what cannot be is left out. Nothing without
// a segment of this plan. model: null = its profile is unknown, so the conditions stay unknown,
// too. Links of sums are not in segments: of the plan in force, the estimates tell them.
Evidence evidence_of(const facts::Facts& facts, const planner::Model* model,
                     const schedule::Plan& plan);
// Where workers send no segment: of the plan in force, from the estimates of its links and devices.
// seconds: of a step, mean of the last ones. newest: the rates of now, not their mean over the
// samples from which steps are predicted.
Evidence estimated(const facts::Facts& facts, const planner::Model* model, double seconds,
                   bool newest);

// The links of the plan in force as its segment tells them; nothing without a segment.
estimator::SegmentRates segment_rates(const facts::Facts& facts, const planner::Model& model);
// Their usual rates, as far as they are known: from earlier segments, else from the workers' probe.
estimator::UsualRates usual_rates(const facts::Facts& facts,
                                  const estimator::ContentionState& state,
                                  const estimator::SegmentRates& segment);

// Takes from `other` what `own` does not know. A link whose rate `own` knows from another use is
// known.
void complete(Conditions& own, const Conditions& other);
// Whether all links of the plan are known.
bool covers(const Conditions& conditions, const schedule::Plan& plan);

// The replicas of a plan under these conditions; empty = unknown. Links that are not known have
// their usual rates, pods the usual slowness.
struct Pipeline {
  int micro_batches = 1;
  schedule::PipelineModel model;
};
std::vector<Pipeline> pipelines_under(const Conditions& conditions, const facts::Facts& facts,
                                      const planner::Model& model, const schedule::Plan& plan);

// Seconds of a simulated step of the plan under these conditions; 0 = unknown.
double step_under(const Conditions& conditions, const facts::Facts& facts,
                  const planner::Model& model, const schedule::Plan& plan);

}  // namespace weir::costing
