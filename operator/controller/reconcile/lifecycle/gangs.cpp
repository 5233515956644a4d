// SPDX-License-Identifier: Apache-2.0
// The gang or queue provider (operator/gang/README.md): the object that a job needs, and when its
// group is closed.

#include "operator/controller/reconcile/lifecycle/lifecycle.h"

namespace weir::reconcile {
namespace {

constexpr auto kKueueGates = "kueue.x-k8s.io/";  // prefix of its gates (admission, topology)

// Group and condition of a needed pod that waits behind a gate that `counts` accepts.
template <class Counts>
std::optional<std::string> gated(const View& view, Counts&& counts) {
  for (const auto& slot : view.slots) {
    if (!slot.pod || !needed(view, slot)) continue;  // training does not wait for it
    if (!std::ranges::any_of(slot.pod->gates, counts)) continue;
    for (const auto& condition : slot.pod->conditions) {
      if (condition.type == "PodScheduled" && condition.reason == "SchedulingGated")
        return slot.group + ": " + condition.message;
    }
  }
  return std::nullopt;
}

}  // namespace

void apply_gang(const View& view, Draft& draft) {
  const auto object = gang::encode_object(view.provider, view.job(), view.wanted_replicas);
  const GangView& gang = view.snapshot.gang;
  const bool lost = gang.watched && gang.seen == nullptr;  // somebody has deleted it
  if (object && (!gang.known || gang.object != *object || lost))
    draft.ask(ApplyGangObject{*object});
}

void delete_gang(const View& view, Draft& draft) {
  const GangView& gang = view.snapshot.gang;
  const bool has_object =
      gang::encode_object(view.provider, view.job(), view.wanted_replicas).has_value();
  if (has_object && (!gang.known || !gang.object.empty())) draft.ask(DeleteGangObject{});
}

void close_group(const View& view, Draft& draft) {
  if (view.provider != gang::Provider::kKueue) return;
  if (const api::Pod* pod = gang::pod_to_close(view.snapshot.pods))
    draft.ask(ClosePodGroup{pod->meta.name, gang::encode_close()});
}

std::optional<std::string> queued(const View& view) {
  const auto& group = view.snapshot.gang.seen;
  if (view.provider == gang::Provider::kVolcano && group && group->phase == "Pending") {
    return "PodGroup " + group->meta.name + " is Pending" +
           (group->why.empty() ? "" : ": " + group->why);
  }
  if (view.provider != gang::Provider::kKueue) return std::nullopt;
  return gated(view, [](const std::string& gate) { return gate.starts_with(kKueueGates); });
}

std::optional<std::string> held_by_others(const View& view) {
  const auto ours = gates_of(view.spec());
  return gated(
      view, [&](const std::string& gate) { return std::ranges::find(ours, gate) == ours.end(); });
}

bool waits_to_be_let_in(const api::JobStatus& status) {
  const auto* scheduled = api::find_condition(status.conditions, "PodsScheduled");
  return scheduled != nullptr && scheduled->status == "False" &&
         (scheduled->reason == kWaitsForQuota || scheduled->reason == kHeldByGate);
}

void count_waiting(const View& view, Draft& draft) {
  const api::JobStatus& before = view.job().status;
  if (!waits_to_be_let_in(before) || waits_to_be_let_in(draft.status)) return;
  const Time since = api::find_condition(before.conditions, "PodsScheduled")->since;
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(view.now() - since).count();
  draft.status.suspended_seconds += std::max<std::int64_t>(waited, 0);
  draft.guarded = true;
}

}  // namespace weir::reconcile
