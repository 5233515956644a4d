// SPDX-License-Identifier: Apache-2.0
// Makes all decisions about a job (operator/README.md "One pass"). Pure: no clock, no I/O, no log,
// no memory.
#pragma once

#include "operator/controller/reconcile/pass/outcome.h"
#include "operator/controller/reconcile/pass/snapshot.h"
#include "operator/estimator/estimates.h"

namespace weir::reconcile {

Outcome reconcile(const Snapshot& snapshot, const estimator::Estimates& estimates,
                  const Tunables& tunables);
}  // namespace weir::reconcile
