// SPDX-License-Identifier: Apache-2.0
// Finds what would make a step shorter, and by how much (README "Remedies"). Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/api/enums.h"
#include "operator/explain/causes.h"
#include "worker/schedule/plan.h"

namespace weir::explain {

// Two steps that need a simulation each; 0 = unknown. They are told for a segment, like causes.
struct Prospects {
  double even_cut_saves = 0;  // if all stages of a replica computed equally long: no cut saves more
  double twice_saves = 0;     // of a step, if a step had twice as many micro-batches
};
// twice: a step with twice as many micro-batches; 0 = unknown.
Prospects prospects_of(const schedule::Plan& plan, const costing::Conditions& now,
                       const std::vector<costing::Pipeline>& pipelines, const StepOf& step_of,
                       double twice);

// The best change that a tier knows.
struct Offer {
  std::string what;
  double gain = 0;     // of throughput
  std::string answer;  // of the gate
  bool acts = false;   // the gate lets it pass
};

struct Remedy {
  std::string text;
  double saves_seconds = 0;
  std::string answer;  // what the operator does about it
};

struct RemedyInput {
  const Causes& causes;
  Prospects prospects = {};
  double step_seconds = 0;                  // measured
  std::optional<Offer> order, codecs, cut;  // of retune, compress and regroup
  api::AdaptationMode mode = api::AdaptationMode::kAuto;
  bool regroups = true;            // adaptation.regroup.enabled
  int least_regroup_percent = 10;  // adaptation.regroup.minGainPercent
  int global_batch = 0;            // samples
};

// The remedies that save 0.5 % of the step or more, the best first, at most six.
std::vector<Remedy> remedies_of(const RemedyInput& input);

}  // namespace weir::explain
