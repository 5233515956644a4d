// SPDX-License-Identifier: Apache-2.0
// User rules, the table of exit codes, the restart budget (operator/controller/reconcile/README.md
// "What a failure leads to"). This part only records; the next pass acts.
#include <set>

#include "operator/controller/reconcile/lifecycle/lifecycle.h"

namespace weir::reconcile {
namespace {

constexpr std::size_t kMostAvoidedNodes = 16;  // each pod has all of them in its affinity
constexpr std::chrono::hours kAvoided{1};
constexpr double kCapLowered = 0.75;  // factor on the cap of a stage that ran out of memory

// A worker that is lost again before so many steps are done keeps the job from its work.
constexpr std::int64_t kStepsBetweenLosses = 10;

// A kubelet tells whole seconds. Losses that are less apart may both be after a recovery that seems
// to be between them.
constexpr std::chrono::seconds kApart{2};

bool avoids_node(Reaction reaction) {
  return reaction == Reaction::kAvoidNode || reaction == Reaction::kAvoidNodeIgnoreMax;
}

struct Verdict {
  Reaction reaction = Reaction::kRestart;
  std::string rule;  // name of the user's rule; "" = the built-in table
  bool uses_budget = false;
};

bool matches(const api::FailureRule& rule, const Failure& failure) {
  if (failure.exit_code &&
      std::ranges::find(rule.exit_codes, *failure.exit_code) != rule.exit_codes.end())
    return true;
  if (failure.slot == nullptr || !failure.slot->pod) return false;
  const auto& conditions = failure.slot->pod->conditions;
  return std::ranges::any_of(conditions, [&](const auto& condition) {
    return condition.status == "True" &&
           std::ranges::find(rule.pod_conditions, condition.type) != rule.pod_conditions.end();
  });
}

std::int64_t steps_done(const View& view) {
  return view.snapshot.report ? view.snapshot.report->body.step : view.job().report.step;
}

// Whether Recoverable was True when this worker was lost. Its loss may have changed that since.
bool was_recoverable(const Draft& draft, Time lost) {
  const auto& until = draft.status.recovery.recoverable_until;
  return draft.is("Recoverable", "True") ||
         (until && *until >= std::chrono::floor<std::chrono::seconds>(lost));
}

// The other workers hold what the lost one had, and training has gone on well since it was lost
// before.
bool is_cheap(const View& view, const Draft& draft, const Failure& failure) {
  if (failure.slot == nullptr || !was_recoverable(draft, failure.time.value_or(view.now())))
    return false;
  const auto& losses = draft.status.recovery.losses;
  const auto last =
      std::ranges::find(losses, first_pod_name(view, *failure.slot), &api::WorkerLoss::worker);
  return last == losses.end() || steps_done(view) - last->step >= kStepsBetweenLosses;
}

Verdict judge(const View& view, const Draft& draft, const Failure& failure) {
  Verdict verdict{.reaction = row(failure.cause).reaction};
  for (const auto& rule : view.spec().failure_rules) {
    if (!rule.action.known() || !matches(rule, failure)) continue;
    verdict = {.reaction = static_cast<Reaction>(rule.action.value()), .rule = rule.name};
    break;
  }
  const bool counts =
      verdict.reaction == Reaction::kRestart || verdict.reaction == Reaction::kAvoidNode;
  verdict.uses_budget = counts && !is_cheap(view, draft, failure);
  return verdict;
}

// Whether a step was completed after the last restart.
bool has_stepped(const View& view, const Draft& draft) {
  const auto& plan = draft.status.plan;
  if (plan.revision == 0 || plan.applied_revision == 0) return false;
  const auto& last = draft.status.last_restart_time;
  if (last && (!plan.time || *plan.time <= *last)) return false;
  if (plan.trigger != "Initial" && plan.trigger != "Restart") return true;
  if (plan.applied_revision != plan.revision) return false;
  const auto& report = view.snapshot.report;
  if (report && report->body.plan_revision == plan.revision)
    return report->body.step > plan.applied_step;
  const auto& seen = view.job().report;  // a former leader may have written it
  return seen.last_report_time && plan.time && *seen.last_report_time > *plan.time &&
         seen.step > plan.applied_step;
}

void avoid_node(const View& view, Draft& draft, const Failure& failure) {
  if (failure.slot == nullptr || !failure.slot->pod || failure.slot->pod->node.empty()) return;
  const std::string& node = failure.slot->pod->node;
  auto& avoided = draft.status.avoided_nodes;
  std::erase_if(avoided, [&](const auto& each) { return each.node == node; });
  if (avoided.size() == kMostAvoidedNodes) {
    avoided.erase(std::ranges::min_element(avoided, {}, &api::AvoidedNode::until));
  }
  const std::string reason = failure.exit_code ? "exit code " + std::to_string(*failure.exit_code)
                                               : std::string(name(failure.cause));
  avoided.push_back({node, reason, view.now() + kAvoided});
  draft.event("Warning", "NodeAvoided",
              "node " + node + " is avoided for 1 h" +
                  (is_last_resort(avoided.back()) ? ", where another one has room: " : ": ") +
                  failure.text,
              "Restart");
}

// Remembers that a group ran out of memory. True if it did so before, without a change of plan in
// between.
bool out_of_memory_again(const View& view, Draft& draft, const Failure& failure) {
  if (failure.slot == nullptr) return false;
  api::MemoryLimit limit;
  limit.group = failure.slot->group;
  if (view.plan != nullptr) {
    for (const auto& rank : view.plan->ranks) {
      if (failure.slot->pod && rank.pod_uid == failure.slot->pod->meta.uid)
        limit.stage = rank.stage;
    }
  }
  if (limit.stage >= 0) {
    const auto& schedule = view.plan->schedule;
    const int cap = (schedule.split ? schedule.split->held
                                    : schedule.caps)[static_cast<std::size_t>(limit.stage)];
    limit.in_flight_cap = std::max(1, static_cast<int>(cap * kCapLowered));
  }
  auto& limits = draft.status.memory_limits;
  const auto known =
      std::ranges::find_if(limits, [&](const auto& each) { return each.group == limit.group; });
  if (known == limits.end()) {
    limits.push_back(limit);
    return false;
  }
  if (!known->plan_changed) return true;
  *known = limit;
  return false;
}

void count(Draft& draft, Cause cause) {
  auto& counts = draft.status.restart_reasons;
  const auto known =
      std::ranges::find_if(counts, [&](const auto& each) { return each.reason == name(cause); });
  if (known == counts.end()) {
    counts.push_back({name(cause), 1});
  } else {
    known->count += 1;
  }
}

// Fails the job if a rule, repeated lack of memory or a used-up budget demands it.
bool ends_job(const View& view, Draft& draft, const Failure& failure, const Verdict& verdict) {
  if (verdict.reaction == Reaction::kFailJob) {
    const bool by_rule = !verdict.rule.empty();
    fail_job(view, draft, by_rule ? "FailJobRule" : name(failure.cause),
             (by_rule ? "rule " + verdict.rule + ": " : "") + failure.text);
    return true;
  }
  if (failure.cause == Cause::kOutOfMemory && verdict.rule.empty() &&
      out_of_memory_again(view, draft, failure)) {
    fail_job(
        view, draft, "OutOfMemory",
        "group " + failure.slot->group +
            " ran out of memory twice without a change of plan in between; give it more memory, "
            "or lower batch.microBatchSize or schedule.k.max; last: " +
            failure.text);
    return true;
  }
  const bool model_again = failure.cause == Cause::kModelFailed && verdict.rule.empty() &&
                           draft.status.last_restart_reason == name(failure.cause);
  if (model_again && !has_stepped(view, draft)) {
    fail_job(view, draft, name(failure.cause),
             "the model failed twice without a completed step in between; last: " + failure.text);
    return true;
  }
  if (!verdict.uses_budget || draft.status.restart_budget_used < view.spec().max_restarts)
    return false;
  fail_job(view, draft, failure.cause == Cause::kNoProgress ? "NoProgress" : "RestartLimitExceeded",
           "failurePolicy.maxRestarts " + std::to_string(view.spec().max_restarts) +
               " is used up; last cause: " + failure.text);
  return true;
}

std::string restarting_text(const View& view, const Draft& draft, const Failure& failure,
                            const Verdict& verdict) {
  const auto& status = draft.status;
  return "restart " + std::to_string(status.restarts) + " (" + name(failure.cause) +
         ", budget used " + std::to_string(status.restart_budget_used) + " of " +
         std::to_string(view.spec().max_restarts) +
         (verdict.rule.empty() ? "" : ", rule " + verdict.rule) + "): " + failure.text;
}

void remember_loss(const View& view, Draft& draft, const Slot& slot) {
  auto& losses = draft.status.recovery.losses;
  const std::int64_t now = steps_done(view);
  const std::string worker = first_pod_name(view, slot);
  std::erase_if(losses, [&](const api::WorkerLoss& loss) {
    return loss.worker == worker || now - loss.step >= kStepsBetweenLosses;
  });
  losses.push_back({worker, now});
}

// Counts a restart, with its cause and its use of the budget.
void count_restart(const View& view, Draft& draft, const Failure& failure, const Verdict& verdict) {
  draft.status.restarts += 1;
  if (verdict.uses_budget) draft.status.restart_budget_used += 1;
  count(draft, failure.cause);
  if (failure.slot != nullptr) remember_loss(view, draft, *failure.slot);
  draft.status.last_restart_reason = name(failure.cause);
}

// When a plan was applied that was made after this time and is in force still.
std::optional<Time> applied_after(const Draft& draft, Time time) {
  const auto& plan = draft.status.plan;
  const auto* replan = api::find_condition(draft.status.conditions, "ReplanInProgress");
  const bool in_force = plan.revision > 0 && plan.applied_revision == plan.revision && plan.time &&
                        *plan.time >= time && replan != nullptr && replan->status == "False";
  return in_force ? std::optional(replan->since) : std::nullopt;
}

// Whether a failure of this time belongs to the episode of a restart, in which training has not
// gone on yet. The last recovery may be that of this failure already: a coordinator that reports is
// quicker than a kubelet.
bool in_episode(const Draft& draft, const std::optional<Time>& restart, Time time) {
  if (!restart || time > *restart + kEpisode) return false;
  const auto trained = [&](const std::optional<Time>& again) {
    return again && *again >= *restart && time >= *again && time >= *restart + kApart;
  };
  const auto& recovered = draft.status.recovery.last;
  return !(recovered && trained(recovered->time)) && !trained(applied_after(draft, *restart));
}

bool counted(const Draft& draft, Time time) {
  return in_episode(draft, draft.status.recovery.last_container_end, time) ||
         in_episode(draft, draft.status.last_restart_time, time);
}

// Whether the loss is counted already, as an end after which its kubelet starts the trainer again:
// the same end, or the silence of a process that has not joined again since.
bool counted_in_place(const Draft& draft, const Failure& failure) {
  const auto& counted_end = draft.status.recovery.last_container_end;
  if (failure.slot == nullptr || !failure.time || !counted_end) return false;
  const auto second = [](Time time) { return std::chrono::floor<std::chrono::seconds>(time); };
  if (second(*failure.time) == second(*counted_end)) return true;
  const auto& restarts = draft.status.recovery.container_restarts;
  return failure.cause == Cause::kWorkerSilent && failure.slot->pod &&
         std::ranges::find(restarts, failure.slot->pod->meta.uid,
                           &api::ContainerRestarts::pod_uid) != restarts.end() &&
         in_episode(draft, counted_end, *failure.time);
}

}  // namespace

void fail_job(const View& view, Draft& draft, const std::string& reason,
              const std::string& message) {
  draft.set("Failed", "True", reason, message);
  draft.set("Finished", "True", reason, message);
  draft.set("Stalled", "True", reason, message);  // tells tools that Ready will not become True
  draft.set("Ready", "False", "Failed", message);
  draft.status.completion_time = view.now();
  draft.guarded = true;
  draft.event("Warning", "Failed", reason + ": " + message, "Fail");
}

bool is_last_resort(const api::AvoidedNode& avoided) {
  return avoided.reason == name(Cause::kLinkDead);
}

void begin_generation(Draft& draft, Time time) {
  draft.status.pod_generation += 1;
  // The time must not be before that of the plan in force, whose pods are replaced.
  draft.status.last_restart_time = std::max(time, draft.status.plan.time.value_or(time));
  draft.guarded = true;
}

void record_replacement(const View& view, Draft& draft, const Slot& slot, const std::string& why) {
  Failure move;
  move.slot = &slot;
  move.cause = Cause::kReplaced;
  move.text = why;
  auto& status = draft.status;
  status.restarts += 1;
  count(draft, move.cause);
  status.last_restart_reason = name(move.cause);
  status.last_restart_scope = "Worker";
  begin_generation(draft, view.now());
  draft.set("Ready", "False", "Restarting", why);
  avoid_node(view, draft, move);
  draft.event("Normal", "WorkerReplaced", why, "Adapt");
}

void record_failure(const View& view, Draft& draft, const Failure& failure,
                    const std::string& scope, Time episode_end) {
  const Verdict verdict = judge(view, draft, failure);
  auto& status = draft.status;
  if (!counted_in_place(draft, failure)) {
    if (ends_job(view, draft, failure, verdict)) return;
    count_restart(view, draft, failure, verdict);
  }
  status.restart_streak = has_stepped(view, draft) ? 0 : status.restart_streak + 1;
  status.last_restart_scope = scope;
  begin_generation(draft, episode_end);
  draft.set("Ready", "False", "Restarting", failure.text);
  draft.set("WorkersReady", "False", "WorkerLost", failure.text);
  if (failure.slot != nullptr) draft.event("Warning", "WorkerLost", failure.text, "Restart");
  if (avoids_node(verdict.reaction)) avoid_node(view, draft, failure);
  draft.event("Warning", "Restarting", restarting_text(view, draft, failure, verdict), "Restart");
}

bool record_restarts_in_place(const View& view, Draft& draft) {
  auto& recovery = draft.status.recovery;
  std::vector<api::ContainerRestarts> seen;
  for (const Slot& slot : view.slots) {
    if (!slot.pod || worker_failed(*slot.pod)) continue;
    const bool made_again = std::ranges::any_of(
        view.failures, [&](const Failure& failure) { return failure.slot == &slot; });
    if (made_again) continue;
    const std::string& uid = slot.pod->meta.uid;
    const auto known =
        std::ranges::find(recovery.container_restarts, uid, &api::ContainerRestarts::pod_uid);
    const int before = known == recovery.container_restarts.end() ? 0 : known->count;
    const int ends = std::max(ends_in_place(*slot.pod), before);
    if (ends > 0) seen.push_back({uid, ends});
    if (ends == before || !needed(view, slot)) continue;
    Failure failure = failed_worker(*slot.pod);
    failure.slot = &slot;
    failure.text =
        "pod " + slot.pod->meta.name + ": " + failure.text + "; its container is started again";
    draft.guarded = true;
    draft.event("Warning", "WorkerLost", failure.text, "Restart");
    const Time time = failure.time.value_or(view.now());
    if (counted(draft, time)) continue;
    const Verdict verdict = judge(view, draft, failure);
    if (ends_job(view, draft, failure, verdict)) return true;
    count_restart(view, draft, failure, verdict);
    recovery.last_container_end = time;
    draft.event("Warning", "Restarting", restarting_text(view, draft, failure, verdict), "Restart");
  }
  recovery.container_restarts = std::move(seen);
  return false;
}

}  // namespace weir::reconcile
