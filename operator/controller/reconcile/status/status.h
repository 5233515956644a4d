// SPDX-License-Identifier: Apache-2.0
// Conditions, counts and reports for users. Private to the rooms of reconcile.
#pragma once

#include <string>

#include "operator/controller/reconcile/pass/draft.h"
#include "operator/controller/reconcile/pass/view.h"

namespace weir::reconcile {

void show_acceptance(Draft& draft);
void show_conditions(const View& view, Draft& draft);
void show_model(const View& view, Draft& draft);
void show_network(const View& view, Draft& draft);
void show_report(const View& view, Draft& draft);
// Only of the plan in force: what was measured of another one does not describe it.
void show_performance(const View& view, const Draft& draft, api::ReportStatus& shown);
// The cost of a failure, once its workers train again: with a plan that follows it, or with the
// plan in force. Call it before that plan is noted as applied.
void show_recovery(const View& view, Draft& draft, const protocol::LastSwitch& last);
// Events ReplicasReduced and ReplicasRestored. Call it after show_recovery.
void show_replicas(const View& view, Draft& draft);
// Event TraceRefused, once for each wish that cannot be fulfilled.
void show_trace(const View& view, Draft& draft);
// Condition Recoverable, while training advances. A loss leaves it as it was.
void show_recoverable(const View& view, Draft& draft);

// The cost of the loss of a worker, for that condition. copies: protocol::Report::snapshots;
// checkpoint: there is one; whole_job: a restart makes all pods again. Pure.
struct Recoverability {
  std::string status, reason, message;
};
Recoverability recoverability(const schedule::Plan& plan, const std::string& copies,
                              bool checkpoint, bool whole_job);

}  // namespace weir::reconcile
