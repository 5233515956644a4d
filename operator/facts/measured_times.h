// SPDX-License-Identifier: Apache-2.0
// Measured times of steps, stages and replicas.
#pragma once

#include <vector>

#include "operator/facts/facts.h"
#include "operator/planner/model/stage_costs.h"
#include "worker/schedule/simulator.h"

namespace weir::facts {

// Steps after a change until it is judged; at most as many before.
constexpr int kOutcomeSteps = 10;
constexpr int kUsedScrapes = 16;  // newest scrapes from which predictions are made

// Step times in seconds; 0 = unknown.
// Mean of the last kOutcomeSteps steps as the coordinator measured them. kOutcomeSteps after a
// change it contains no step before the change.
double recent_step_seconds(const Facts& facts);
// Mean of the steps that ran while the link rates were sampled from which predictions are made.
// After a change of the network, older steps cannot be compared with predictions.
double sampled_step_seconds(const Facts& facts);
// Keeps the newest reported step for sampled_step_seconds.
void note_step(const Facts& facts, History& history);

// Measurements of replicas under the plan in force. Those of an older plan do not count.
const estimator::ReplicaEstimates& replicas_measured(const Facts& facts);
bool replicas_known(const Facts& facts);  // their own step times are measured under this plan
// Measured seconds of exposed sync per step, after the slowest replica has ended; 0 = unknown.
double measured_exposed_sync(const Facts& facts);
// A plan of one replica's ranks, with replica number 0.
schedule::Plan of_replica(const schedule::Plan& plan, int replica);
// Stage times as measured on this replica's workers, else on any replica's, else from the profile.
// The parts of a backward are in the profile's proportion: what is measured holds both parts, and
// may be of whole and of split backwards.
std::vector<schedule::StageTime> stage_times(const Facts& facts, const schedule::Plan& of_replica,
                                             const planner::PipelineCosts& costs);

}  // namespace weir::facts
