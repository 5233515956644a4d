// SPDX-License-Identifier: Apache-2.0
// The pass as facts for planner and adaptation.

#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "operator/controller/reconcile/plans/plans.h"
#include "operator/facts/measured_times.h"
#include "operator/facts/node_bandwidth.h"

namespace weir::reconcile {

facts::Facts facts_of(const View& view, const Draft& draft) {
  const Snapshot& snapshot = view.snapshot;
  facts::Facts facts{.now = view.now(),
                     .spec = view.spec(),
                     .status = draft.status,
                     .estimates = view.estimates,
                     .history = &draft.adaptation.memory.history,
                     .plans = snapshot.plans,
                     .nodes = *snapshot.nodes};
  if (snapshot.members) facts.members = &snapshot.members->body;
  if (snapshot.report) {
    facts.report = &snapshot.report->body;
    facts.reported = snapshot.report->received;
  }
  if (snapshot.profile) facts.profile = &snapshot.profile->text;
  facts.plan = view.plan;
  facts.newest = view.newest;
  facts.refused = view.refused;
  facts.aborted_revision = draft.adaptation.aborted_revision;
  facts.next_revision = next_revision(view, draft);
  for (const Slot& slot : view.slots) {
    if (!slot.pod || (slot.spare && !registered(view, slot))) continue;
    (slot.spare ? facts.spares : facts.workers)
        .push_back({.pod_uid = slot.pod->meta.uid,
                    .pod = slot.pod->meta.name,
                    .group = slot.group,
                    .node = slot.pod->node,
                    .replica = slot.replica,
                    .ended = worker_ended(*slot.pod),
                    .coordinates = coordinates(draft.status, slot)});
  }
  facts.fastest_link = facts::fastest_link(view.estimates);
  facts.planned_replicas = view.planned_replicas;
  facts.memo = snapshot.memo;
  return facts;
}

}  // namespace weir::reconcile
