// SPDX-License-Identifier: Apache-2.0
// Links between workers that reach the coordinator, but not each other
// (worker/coordinator/README.md "Dead links"). Training goes on without a replica, or stands still,
// so after a while one of the two is made again, if possible on another node.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "operator/controller/reconcile/lifecycle/lifecycle.h"

namespace weir::reconcile {
namespace {

const std::vector<protocol::DeadLink>* fresh_links(const View& view) {
  const auto& report = view.snapshot.report;
  const bool fresh = report && view.now() <= report->received + view.tunables.member_silent;
  return fresh && !report->body.dead_links.empty() ? &report->body.dead_links : nullptr;
}

// The worker in most of the links; of equal ones not the coordinator, and the last.
const Slot* most_cut_off(const View& view, const Draft& draft,
                         const std::vector<protocol::DeadLink>& links) {
  std::map<std::string, int> count;  // by pod
  for (const protocol::DeadLink& link : links) {
    ++count[link.from];
    ++count[link.to];
  }
  const Slot* most = nullptr;
  const auto key = [&](const Slot& slot) {
    return std::tuple(count[slot.pod->meta.name], !coordinates(draft.status, slot),
                      slot.worker_index);
  };
  for (const Slot& slot : view.slots) {
    if (!slot.pod || !count.contains(slot.pod->meta.name)) continue;
    if (most == nullptr || key(slot) > key(*most)) most = &slot;
  }
  return most;
}

// Longer after each one, because a network that is broken elsewhere stays so.
std::chrono::seconds patience(const View& view, const Draft& draft) {
  constexpr int kMostDoublings = 5;  // an hour
  const auto& counts = draft.status.restart_reasons;
  const auto before =
      std::ranges::find(counts, std::string(name(Cause::kLinkDead)), &api::RestartCount::reason);
  const int times = before == counts.end() ? 0 : before->count;
  return view.tunables.link_dead * (1 << std::min(times, kMostDoublings));
}

}  // namespace

std::optional<std::string> dead_link_text(const View& view) {
  const auto* const links = fresh_links(view);
  if (links == nullptr) return std::nullopt;
  return "pod " + links->front().from + " gets no answer from the data port of pod " +
         links->front().to + ", though both reach the coordinator";
}

std::optional<Failure> cut_off(const View& view, const Draft& draft, const api::Pod& pod) {
  const auto* const links = fresh_links(view);
  if (links == nullptr) return std::nullopt;
  const Slot* const most = most_cut_off(view, draft, *links);
  if (most == nullptr || most->pod->meta.uid != pod.meta.uid) return std::nullopt;
  const auto link = std::ranges::find_if(*links, [&](const protocol::DeadLink& one) {
    return one.from == pod.meta.name || one.to == pod.meta.name;
  });
  const auto since = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::duration<double>(std::clamp(link->seconds, 0.0, 1e9)));
  const bool recorded = leaves_its_node(draft, pod, Cause::kLinkDead);
  if (!recorded && since < patience(view, draft)) return std::nullopt;
  const std::string& other = link->from == pod.meta.name ? link->to : link->from;
  Failure failure;
  failure.cause = Cause::kLinkDead;
  failure.time = view.snapshot.report->received - since;
  failure.text = "no connection with pod " + other + " for " + std::to_string(since.count()) +
                 " s, though both reach the coordinator";
  return failure;
}

}  // namespace weir::reconcile
