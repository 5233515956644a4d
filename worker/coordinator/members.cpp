// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/members.h"

#include <algorithm>

#include "worker/base/units.h"
#include "worker/base/worker_index.h"

namespace weir::coordinator {
namespace {

constexpr double kLongestStepSeconds = 1e7;  // limit for a duration that a rank reports

bool same_place(const protocol::Member& a, const protocol::Member& b) {
  return a.pod == b.pod && a.pod_uid == b.pod_uid && a.ips == b.ips && a.node == b.node &&
         a.data_port == b.data_port && a.plan_version == b.plan_version &&
         a.ranks.size() == b.ranks.size() &&
         std::ranges::equal(a.ranks, b.ranks, [](const auto& x, const auto& y) {
           return x.device == y.device && x.memory_bytes == y.memory_bytes;
         });
}

}  // namespace

std::string Members::refusal(const control::PeerId& proven, const protocol::Hello& hello) const {
  const protocol::Member& member = hello.member;
  if (member.worker_index != proven.worker_index || member.pod_uid != proven.pod_uid) {
    return "HELLO names another worker than the handshake";
  }
  const MemberState* held = find(member.worker_index);
  if (held != nullptr && held->connected() && held->member.pod_uid != member.pod_uid) {
    if (displaced_.contains(member.pod_uid)) {
      return "a newer pod holds worker index " + std::to_string(member.worker_index);
    }
    if (held->leaving && !held->finished) {
      return "pod " + held->member.pod + " still leaves: its state comes first";
    }
    if (hello.leaving) return "pod " + held->member.pod + " has its place";
  }
  const auto* same_name = by_pod(member.pod);
  if (same_name != nullptr && same_name->member.worker_index != member.worker_index) {
    return "pod " + member.pod + " is worker " + std::to_string(same_name->member.worker_index) +
           " already";
  }
  return "";
}

std::string Members::disagreement(const Settings& worker_0, const protocol::Hello& hello) {
  const std::string found = describe(differences(hello.settings, worker_0), "worker 0");
  if (found.empty()) return "";
  return "worker " + std::to_string(hello.member.worker_index) +
         " does not train what worker 0 trains: " + found;
}

void Members::hello(control::SessionId session, const protocol::Hello& hello, SteadyTime now) {
  const protocol::Member& member = hello.member;
  MemberState& state = members_[member.worker_index];
  const bool known = !state.member.pod_uid.empty();
  displaced_.erase(member.pod_uid);
  if (known && state.member.pod_uid != member.pod_uid) displaced_.insert(state.member.pod_uid);
  if (!known || !same_place(state.member, member)) {
    ++version_;
    last_change_ = now;
  }
  state = MemberState{.member = member,
                      .session = session,
                      .revision = hello.revision,
                      .incarnation = hello.incarnation,
                      .step = hello.step,
                      .inventory = hello.inventory,
                      .told = state.told + 1,
                      .tells_steps = hello.has(protocol::kStepsFeature),
                      .keeps_sums = hello.has(protocol::kSumsFeature),
                      .leaving = hello.leaving};
}

std::optional<int> Members::closed(control::SessionId session,
                                   std::optional<SteadyTime> silent_since) {
  const auto index = index_of(session);
  if (!index) return index;
  MemberState& state = members_.at(*index);
  state.session = 0;
  state.silent_since = silent_since;
  return index;
}

void Members::status(int index, const protocol::StageStatus& status) {
  const auto found = members_.find(index);
  if (found == members_.end()) return;
  double& seconds = found->second.step_seconds;
  seconds = status.interrupted ? std::max(seconds, status.step_seconds) : status.step_seconds;
  found->second.status = status;
  found->second.revision = status.epoch;
  found->second.step = status.step;
}

void Members::inventory(int index, const protocol::Inventory& inventory) {
  const auto found = members_.find(index);
  if (found == members_.end()) return;
  found->second.inventory = inventory;
  ++found->second.told;
}

void Members::leave(int index, const std::string& reason) {
  const auto found = members_.find(index);
  if (found == members_.end()) return;
  found->second.leaving = true;
  found->second.finished = reason == "finished";
}

void Members::ready_state(int index, const protocol::ReadyState& ready) {
  const auto found = members_.find(index);
  if (found == members_.end()) return;
  const bool holds = ready.error.empty() || ready.holds;
  found->second.revision = holds ? ready.revision : 0;
  found->second.step = holds ? ready.step : 0;
}

const MemberState* Members::find(int index) const {
  const auto found = members_.find(index);
  return found == members_.end() ? nullptr : &found->second;
}

const MemberState* Members::by_pod(const std::string& pod) const {
  const auto found =
      std::ranges::find_if(members_, [&](const auto& m) { return m.second.member.pod == pod; });
  return found == members_.end() ? nullptr : &found->second;
}

std::optional<int> Members::index_of(control::SessionId session) const {
  for (const auto& [index, state] : members_) {
    if (session != 0 && state.session == session) return index;
  }
  return std::nullopt;
}

std::chrono::nanoseconds longest_step(const schedule::Plan& plan, const Members& members) {
  std::chrono::nanoseconds longest{0};
  for (const schedule::RankPlace& rank : plan.ranks) {
    const MemberState* const state = members.by_pod(rank.pod);
    if (state == nullptr) continue;
    const double seconds = state->step_seconds;
    if (!(seconds > 0)) return std::chrono::nanoseconds{0};
    longest = std::max(longest, from_seconds(std::min(seconds, kLongestStepSeconds)));
  }
  return longest;
}

bool Members::complete(int workers) const {
  return std::ranges::count_if(members_,
                               [](const auto& entry) { return !is_spare(entry.first); }) >= workers;
}

}  // namespace weir::coordinator
