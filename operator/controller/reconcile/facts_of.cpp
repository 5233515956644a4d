// SPDX-License-Identifier: Apache-2.0
// The pass as facts for planner and adaptation.
#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {

facts::Facts facts_of(const Pass& pass) {
  const Snapshot& snapshot = pass.snapshot;
  facts::Facts facts{.now = pass.now(),
                     .spec = pass.spec(),
                     .status = pass.status,
                     .estimates = pass.estimates,
                     .history = pass.adaptation.history};
  if (snapshot.members) facts.members = &snapshot.members->body;
  if (snapshot.report) {
    facts.report = &snapshot.report->body;
    facts.reported = snapshot.report->received;
  }
  if (snapshot.profile) facts.profile = &snapshot.profile->text;
  facts.plan = pass.plan;
  for (const Slot& slot : pass.slots) {
    if (slot.pod) facts.workers.push_back({slot.pod->meta.uid, slot.group, slot.replica});
  }
  facts.fastest_link = facts::fastest_link(pass.estimates);
  facts.planned_replicas = pass.planned_replicas;
  facts.memo = snapshot.memo;
  return facts;
}

}  // namespace weir::reconcile
