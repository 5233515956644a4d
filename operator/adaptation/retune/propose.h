// SPDX-License-Identifier: Apache-2.0
// A decision of tier retune as a proposal.
#pragma once

#include "operator/adaptation/gate/proposal.h"
#include "operator/adaptation/retune/tune.h"
#include "operator/facts/facts.h"

namespace weir::retune {

Settings settings_of(const api::JobSpec& spec);
// costing: of these facts, with the rates that count.
Input input_of(const facts::Facts& facts, const planner::Model& model,
               const costing::Input& costing);
// The decision must have a change.
gate::Proposal proposal_of(const facts::Facts& facts, const Decision& decision);

}  // namespace weir::retune
