// SPDX-License-Identifier: Apache-2.0
// Makes all decisions about a job (operator/README.md "One pass"). Pure: no clock, no I/O, no log,
// no memory.
#pragma once

#include <string>
#include <vector>

#include "operator/controller/reconcile/actions.h"
#include "operator/controller/reconcile/snapshot.h"
#include "operator/estimator/estimates.h"

namespace weir::reconcile {

std::vector<Action> reconcile(const Snapshot& snapshot, const estimator::Estimates& estimates,
                              const Tunables& tunables);
// All values of `reason` in JobStatus::restart_reasons.
std::vector<std::string> restart_reasons();

}  // namespace weir::reconcile
