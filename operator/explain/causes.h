// SPDX-License-Identifier: Apache-2.0
// Names what makes a step slow, and what it costs (README "Causes"). Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "operator/explain/deviations.h"

namespace weir::explain {

// Seconds of a simulated step of the plan in force; 0 = unknown.
using StepOf = std::function<double(const costing::Conditions&)>;

struct Cause {
  Kind kind = Kind::kOrder;
  std::string place, text;
  double seconds = 0;     // that a step would save without it
  bool together = false;  // with the next one: each alone hides what the other one costs
};

struct Causes {
  std::optional<Cause> main;
  std::vector<Cause> also;  // dearest first
};

// The cause of the last explanation. It stays until another one is clearly dearer.
struct Named {
  Kind kind = Kind::kOrder;
  std::string place;
};

struct CauseInput {
  costing::Conditions now = {};  // with_pauses
  std::vector<Deviation> deviations = {};
  double step_seconds = 0, step_error = 0;  // measured
  double order_seconds = 0;                 // what this order does not hide
  double fill_seconds = 0;                  // filling and draining the pipeline
  // That a simulated step under these conditions lacks, over what it usually does; 0 without
  // pauses.
  double unexplained_seconds = 0;
  int micro_batches = 1;
  bool unsure = false;  // something may deviate: then the schedule itself is not named
  std::optional<Named> before = {};
};

// Nothing is named that costs less than 2 % of the step or two standard errors.
Causes causes_of(const CauseInput& input, const StepOf& step_of);

}  // namespace weir::explain
