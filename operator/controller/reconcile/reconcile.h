// SPDX-License-Identifier: Apache-2.0
// The only place where the decisions meet. Pure: no clock, no I/O, no log, no memory
// (operator/README.md "One pass").
#pragma once

#include <string>
#include <vector>

#include "operator/controller/reconcile/actions.h"
#include "operator/controller/reconcile/snapshot.h"
#include "operator/estimator/estimates.h"

namespace weir::reconcile {

std::vector<Action> reconcile(const Snapshot& snapshot, const estimator::Estimates& estimates,
                              const Tunables& tunables);
// All reasons that JobStatus::restart_reasons may name.
std::vector<std::string> restart_reasons();

}  // namespace weir::reconcile
