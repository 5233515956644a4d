// SPDX-License-Identifier: Apache-2.0
// A PlanSwitch with members, without sockets: what it sends is collected, ranks answer when the
// test says so.
#pragma once

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/coordinator/plan_switch.h"

namespace weir::coordinator::test {

using namespace std::chrono_literals;

inline protocol::Member member(int index, const std::string& uid = "") {
  const std::string number = std::to_string(index);
  return {.pod = "pod-" + number,
          .pod_uid = uid.empty() ? "uid-" + number : uid,
          .worker_index = index,
          .ips = {"10.0.0." + number},
          .node = "node-" + number,
          .data_port = 7071 + index,
          .ranks = {{.device = "cpu", .memory_bytes = 1 << 30}}};
}

// One layer a stage, caps of 1F1B, M micro-batches.
inline schedule::Plan plan(std::uint32_t revision, schedule::Trigger trigger, int stages = 3,
                           int micro_batches = 8) {
  schedule::Plan result{
      .job_uid = "job", .revision = revision, .trigger = trigger, .micro_batches = {micro_batches}};
  result.schedule.dispatch = schedule::Dispatch::kStrict;
  for (int stage = 0; stage < stages; ++stage) {
    result.schedule.caps.push_back(stages - stage);
    result.stages.push_back({.first = stage, .last = stage});
    result.ranks.push_back({.pod = "pod-" + std::to_string(stage), .stage = stage});
  }
  return result;
}

using Ranks = std::vector<int>;  // by worker index

// Replicas of two stages with these micro-batches: workers 0, 1; 2, 3; ...
inline schedule::Plan replicated(std::uint32_t revision, schedule::Trigger trigger,
                                 std::vector<int> shares) {
  schedule::Plan result = plan(revision, trigger, 2);
  result.micro_batches = std::move(shares);
  result.ranks.clear();
  for (int i = 0; i < 2 * result.replica_count(); ++i) {
    result.ranks.push_back({.pod = "pod-" + std::to_string(i), .replica = i / 2, .stage = i % 2});
  }
  return result;
}

struct World {
  explicit World(int ranks = 3, std::chrono::nanoseconds progress_deadline = 1800s,
                 std::int64_t term = protocol::kFirstTerm, const std::string& lost_pod_uid = "")
      : switcher("job", -1, std::numeric_limits<std::int64_t>::max(), progress_deadline, term,
                 lost_pod_uid) {
    for (int index = 0; index < ranks; ++index) come(index);
  }

  // ---- what happens ----
  void come(int index, std::uint32_t revision = 0, int incarnation = 0, std::int64_t step = 0,
            const std::string& uid = "") {
    members.hello(++last_session,
                  {.member = member(index, uid),
                   .incarnation = incarnation,
                   .revision = revision,
                   .step = step,
                   .inventory = inventory(index, revision, step),
                   .features = {protocol::kSumsFeature}},
                  now);
    take(switcher.tick(members, now));
  }
  void lose(int index) {
    members.closed(members.find(index)->session);
    take(switcher.on_lost(index, "closed by the peer", members, now));
  }
  void offer(const schedule::Plan& wanted) { take(switcher.on_plan(wanted, members, now)); }
  void say(int index, const protocol::Message& message) {
    if (const auto* status = std::get_if<protocol::StageStatus>(&message)) {
      members.status(index, *status);
    }
    if (const auto* ready = std::get_if<protocol::ReadyState>(&message)) {
      members.ready_state(index, *ready);
      tell(index);
    }
    if (std::holds_alternative<protocol::PeerLost>(message)) tell(index);  // it has told before
    take(switcher.on_message(index, message, members, now));
  }
  void pass(std::chrono::nanoseconds time) {
    now += time;
    take(switcher.tick(members, now));
  }
  void all_ready(std::uint32_t revision, int incarnation = 0, int ranks = 3) {
    for (int index = 0; index < ranks; ++index) {
      say(index, protocol::Ready{.revision = revision, .incarnation = incarnation});
    }
  }
  void all_loaded(std::uint32_t revision, int ranks = 3) {
    for (int index = 0; index < ranks; ++index) {
      say(index, protocol::ReadyState{.revision = revision});
    }
  }
  void all_finish_step(std::uint32_t epoch, std::int64_t step, int ranks = 3) {
    for (int index = 0; index < ranks; ++index) finish_step(index, epoch, step);
  }
  void finish_step(int index, std::uint32_t epoch, std::int64_t step) {
    say(index, protocol::StageStatus{
                   .epoch = epoch, .step = step, .stage = index, .step_seconds = step_seconds});
  }
  // Revision 1, three stages, `steps` steps done.
  void train(std::int64_t steps = 5) {
    offer(plan(1, schedule::Trigger::kInitial));
    all_ready(1);
    all_loaded(1);
    for (std::int64_t step = 1; step <= steps; ++step) all_finish_step(1, step);
    forget();
  }

  // ---- what came out since the last forget() ----
  void forget() {
    sent.clear();
    finished.clear();
  }
  template <class T>
  std::vector<int> receivers() const {
    std::vector<int> result;
    for (const auto& [index, message] : sent) {
      if (std::holds_alternative<T>(message)) result.push_back(index);
    }
    std::ranges::sort(result);
    return result;
  }
  template <class T>
  T last() const {
    for (auto entry = sent.rbegin(); entry != sent.rend(); ++entry) {
      if (const auto* message = std::get_if<T>(&entry->second)) return *message;
    }
    return {};
  }

  // Ranks tell what they hold when they drop a step or a plan.
  void take(const Effects& effects) {
    sent.insert(sent.end(), effects.send.begin(), effects.send.end());
    finished.insert(finished.end(), effects.finished.begin(), effects.finished.end());
    bool any = false;
    for (const auto& [index, message] : effects.send) {
      if (const auto* prepare = std::get_if<protocol::Prepare>(&message)) prepared = prepare->plan;
      const bool drops = std::holds_alternative<protocol::PeerLost>(message) ||
                         std::holds_alternative<protocol::Abort>(message);
      const std::string pod = "pod-" + std::to_string(index);
      const bool idle =
          std::holds_alternative<protocol::Go>(message) &&
          std::ranges::find(prepared.ranks, pod, &schedule::RankPlace::pod) == prepared.ranks.end();
      if ((!(drops && tells) && !idle) || hangs.contains(index)) continue;
      tell(index);
      any = true;
    }
    if (any) take(switcher.tick(members, now));
  }
  void tell(int index) {
    const MemberState& state = *members.find(index);
    members.inventory(index, inventory(index, state.revision, state.step));
  }
  // A stage of the plan that its ranks run, or of the plan of three stages.
  const schedule::LayerRange* layers_of(int index) const {
    static const std::vector<schedule::LayerRange> three{{0, 0}, {1, 1}, {2, 2}};
    const schedule::Plan* const plan = switcher.plan();
    if (plan == nullptr) {
      const bool has = index < static_cast<int>(three.size());
      return has ? &three[static_cast<std::size_t>(index)] : nullptr;
    }
    for (const schedule::RankPlace& rank : plan->ranks) {
      if (rank.pod != "pod-" + std::to_string(index)) continue;
      return &plan->stages[static_cast<std::size_t>(rank.stage)];
    }
    return nullptr;
  }
  protocol::Inventory inventory(int index, std::uint32_t revision, std::int64_t step) const {
    const schedule::LayerRange* const layers = layers_of(index);
    if (revision == 0 || layers == nullptr) return {};
    const auto kept = sums.find(index);
    return {.history = 1,
            .held = {{.first = layers->first,
                      .last = layers->last,
                      .step = step,
                      .history = 1,
                      .summed = summed.contains(index),
                      .sums = kept == sums.end() ? std::nullopt : std::optional(kept->second)}},
            .verdict = protocol::Verdict{.squares = 1, .loss = 0.5}};
  }

  bool tells = true;                       // ranks tell what they hold
  std::set<int> hangs;                     // but for these
  schedule::Plan prepared;                 // the last plan that was prepared
  std::set<int> summed;                    // those that lack only the update of their step
  std::map<int, protocol::KeptSums> sums;  // what they have kept of the next step

  double step_seconds = 1;  // that ranks report
  Members members;
  PlanSwitch switcher;
  SteadyTime now = SteadyTime(1h);
  control::SessionId last_session = 0;
  Outgoing sent;
  std::vector<protocol::LastSwitch> finished;
};

}  // namespace weir::coordinator::test
