// SPDX-License-Identifier: Apache-2.0
// Explains the steps of a segment. Only this room includes it.
#pragma once

#include <set>

#include "operator/adaptation/adapt.h"
#include "operator/adaptation/costing/conditions.h"
#include "operator/controller/reconcile/pass/snapshot.h"
#include "operator/facts/facts.h"

namespace weir::reconcile {

struct Explained {  // of the plan in force; the facts have its report
  const facts::Facts& facts;
  const planner::Model& model;
  const costing::Evidence& evidence;
  const estimator::UsualRates& usual;
  const std::set<estimator::NodePair>& slow;
  bool links_unsure = false;  // one may be slow
};
// If no replica tells the parts of its steps, nothing is known.
void explain_step(const Explained& segment, NetworkMemory& memory);

}  // namespace weir::reconcile
