// SPDX-License-Identifier: Apache-2.0
// All that Facts refer to, with defaults.
#pragma once

#include <vector>

#include "operator/facts/facts.h"

namespace weir::facts::test {

struct BareJob {
  api::JobSpec spec;
  api::JobStatus status;
  estimator::Estimates estimates;
  History history;
  std::vector<schedule::Plan> plans;
  api::NodeTable nodes;

  Facts facts() const {
    return {.spec = spec,
            .status = status,
            .estimates = estimates,
            .history = &history,
            .plans = plans,
            .nodes = nodes};
  }
};

}  // namespace weir::facts::test
