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
                     .history = &pass.adaptation.memory.history,
                     .plans = snapshot.plans,
                     .nodes = *snapshot.nodes};
  if (snapshot.members) facts.members = &snapshot.members->body;
  if (snapshot.report) {
    facts.report = &snapshot.report->body;
    facts.reported = snapshot.report->received;
  }
  if (snapshot.profile) facts.profile = &snapshot.profile->text;
  facts.plan = pass.plan;
  facts.newest = pass.newest;
  facts.refused = pass.refused;
  facts.aborted_revision = pass.adaptation.aborted_revision;
  facts.next_revision = next_revision(pass);
  for (const Slot& slot : pass.slots) {
    if (!slot.pod) continue;
    facts.workers.push_back({.pod_uid = slot.pod->meta.uid,
                             .pod = slot.pod->meta.name,
                             .group = slot.group,
                             .node = slot.pod->node,
                             .replica = slot.replica,
                             .ended = worker_ended(*slot.pod)});
  }
  facts.fastest_link = facts::fastest_link(pass.estimates);
  facts.planned_replicas = pass.planned_replicas;
  facts.memo = snapshot.memo;
  return facts;
}

}  // namespace weir::reconcile
