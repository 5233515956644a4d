// SPDX-License-Identifier: Apache-2.0
// The gang or queue provider (operator/gang/README.md): the object that a job needs, and when its
// group is closed.
#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {
namespace {

constexpr auto kKueueGates = "kueue.x-k8s.io/";  // prefix of its gates (admission, topology)

// Group and condition of a needed pod that waits behind a gate that `counts` accepts.
template <class Counts>
std::optional<std::string> gated(const Pass& pass, Counts&& counts) {
  for (const auto& slot : pass.slots) {
    if (!slot.pod || !needed(pass, slot)) continue;  // training does not wait for it
    if (!std::ranges::any_of(slot.pod->gates, counts)) continue;
    for (const auto& condition : slot.pod->conditions) {
      if (condition.type == "PodScheduled" && condition.reason == "SchedulingGated")
        return slot.group + ": " + condition.message;
    }
  }
  return std::nullopt;
}

}  // namespace

void apply_gang(Pass& pass) {
  const auto object = gang::encode_object(pass.provider, pass.job(), pass.wanted_replicas);
  const GangView& gang = pass.snapshot.gang;
  const bool lost = gang.watched && gang.seen == nullptr;  // somebody has deleted it
  if (object && (!gang.known || gang.object != *object || lost)) pass.ask(ApplyGangObject{*object});
}

void delete_gang(Pass& pass) {
  const GangView& gang = pass.snapshot.gang;
  const bool has_object =
      gang::encode_object(pass.provider, pass.job(), pass.wanted_replicas).has_value();
  if (has_object && (!gang.known || !gang.object.empty())) pass.ask(DeleteGangObject{});
}

void close_group(Pass& pass) {
  if (pass.provider != gang::Provider::kKueue) return;
  if (const api::Pod* pod = gang::pod_to_close(pass.snapshot.pods))
    pass.ask(ClosePodGroup{pod->meta.name, gang::encode_close()});
}

std::optional<std::string> queued(const Pass& pass) {
  const auto& group = pass.snapshot.gang.seen;
  if (pass.provider == gang::Provider::kVolcano && group && group->phase == "Pending") {
    return "PodGroup " + group->meta.name + " is Pending" +
           (group->why.empty() ? "" : ": " + group->why);
  }
  if (pass.provider != gang::Provider::kKueue) return std::nullopt;
  return gated(pass, [](const std::string& gate) { return gate.starts_with(kKueueGates); });
}

std::optional<std::string> held_by_others(const Pass& pass) {
  const auto ours = gates_of(pass.spec());
  return gated(
      pass, [&](const std::string& gate) { return std::ranges::find(ours, gate) == ours.end(); });
}

bool waits_to_be_let_in(const api::JobStatus& status) {
  const auto* scheduled = api::find_condition(status.conditions, "PodsScheduled");
  return scheduled != nullptr && scheduled->status == "False" &&
         (scheduled->reason == kWaitsForQuota || scheduled->reason == kHeldByGate);
}

void count_waiting(Pass& pass) {
  const api::JobStatus& before = pass.job().status;
  if (!waits_to_be_let_in(before) || waits_to_be_let_in(pass.status)) return;
  const Time since = api::find_condition(before.conditions, "PodsScheduled")->since;
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(pass.now() - since).count();
  pass.status.suspended_seconds += std::max<std::int64_t>(waited, 0);
  pass.guarded = true;
}

}  // namespace weir::reconcile
