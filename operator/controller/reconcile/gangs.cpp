// SPDX-License-Identifier: Apache-2.0
// What a job has to do with its gang or queue provider (operator.md 8): the object that it needs,
// and when it is over.
#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {

void apply_gang(Pass& pass) {
  const auto object = gang::encode_object(pass.provider, pass.job(), pass.wanted_replicas);
  const GangView& gang = pass.snapshot.gang;
  const bool lost = gang.watched && gang.seen == nullptr;  // deleted by somebody
  if (object && (!gang.known || gang.object != *object || lost)) pass.act(ApplyGangObject{*object});
}

void delete_gang(Pass& pass) {
  const GangView& gang = pass.snapshot.gang;
  const bool has_object =
      gang::encode_object(pass.provider, pass.job(), pass.wanted_replicas).has_value();
  if (has_object && (!gang.known || !gang.object.empty())) pass.act(DeleteGangObject{});
}

void close_group(Pass& pass) {
  if (pass.provider != gang::Provider::kKueue) return;
  if (const api::Pod* pod = gang::pod_to_close(pass.snapshot.pods))
    pass.act(ClosePodGroup{pod->meta.name, gang::encode_close()});
}

std::optional<std::string> queued(const Pass& pass) {
  const auto& group = pass.snapshot.gang.seen;
  if (pass.provider == gang::Provider::kVolcano && group && group->phase == "Pending") {
    return "PodGroup " + group->meta.name + " is Pending" +
           (group->why.empty() ? "" : ": " + group->why);
  }
  for (const auto& slot : pass.slots) {
    if (!slot.pod || !needed(pass, slot)) continue;  // training does not wait for it
    for (const auto& condition : slot.pod->conditions) {
      if (condition.type == "PodScheduled" && condition.reason == "SchedulingGated")
        return slot.group + ": " + condition.message;
    }
  }
  return std::nullopt;
}

}  // namespace weir::reconcile
