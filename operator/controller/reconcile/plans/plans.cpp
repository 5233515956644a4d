// SPDX-License-Identifier: Apache-2.0
// Plans that are no adaptation: for a new job, for other members, for an edited spec.
#include "operator/controller/reconcile/plans/plans.h"

#include <cmath>
#include <set>

#include "operator/adaptation/adapt.h"
#include "operator/adaptation/compression/compression.h"
#include "operator/adaptation/shares/propose.h"
#include "operator/api/names.h"
#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "operator/facts/measured_times.h"
#include "operator/facts/node_bandwidth.h"
#include "operator/facts/planning.h"
#include "operator/planner/model/profile_json.h"
#include "operator/planner/plan.h"
#include "worker/schedule/caps.h"
#include "worker/schedule/families.h"
#include "worker/schedule/search_split.h"

namespace weir::reconcile {
namespace {

using schedule::Plan;
using schedule::Trigger;

// Whether the spec still allows the codecs of a plan.
bool codecs_allowed(const api::JobSpec& spec, const Plan& plan) {
  if (plan.codecs.raw()) return true;
  const bool on =
      spec.adaptation.mode != api::AdaptationMode::kOff && spec.adaptation.compress.enabled;
  const auto fine = [&](schedule::Codec codec) { return codec <= compression::coarsest_of(spec); };
  return on && std::ranges::all_of(plan.codecs.forward, fine) &&
         std::ranges::all_of(plan.codecs.backward, fine);
}

// The field of the edited schedule that the plan in force contradicts; "" = none.
std::string contradiction(const api::JobSpec& spec, const Plan& plan) {
  const auto& schedule = plan.schedule;
  const auto& wanted = spec.schedule;
  if (schedule.family != facts::family_of(wanted.type)) return "schedule.type " + wanted.type;
  const int micro_batches = facts::least_share(plan);
  if (spec.micro_batch_size && *spec.micro_batch_size != schedule.micro_batch_size) {
    return "batch.microBatchSize " + std::to_string(*spec.micro_batch_size);
  }
  if (!wanted.in_flight_caps.empty()) {
    std::vector<int> caps = wanted.in_flight_caps;
    for (int& cap : caps) cap = std::min(cap, micro_batches);
    if (caps != schedule.caps) return "schedule.inFlightCaps";
  }
  const auto asked = facts::dispatch_of(spec);
  if (schedule.dispatch != schedule::dispatch_in_force(schedule, asked))
    return "schedule.dispatch " + wanted.dispatch;
  if (schedule.split && wanted.split == api::SplitMode::kNever) return "schedule.split Never";
  if (!codecs_allowed(spec, plan)) return "adaptation.compress";
  if (!schedule::rules_of(schedule.family).tuned || !wanted.in_flight_caps.empty()) return "";
  if (wanted.k_mode == api::KMode::kFixed &&
      schedule.k != std::min(*wanted.k_initial, micro_batches)) {
    return "schedule.k.initial " + std::to_string(*wanted.k_initial);
  }
  if (schedule.k < std::min(wanted.k_min, micro_batches))
    return "schedule.k.min " + std::to_string(wanted.k_min);
  if (wanted.k_max && schedule.k > *wanted.k_max)
    return "schedule.k.max " + std::to_string(*wanted.k_max);
  return "";
}

// The plan in force with the schedule of the edited spec; cut and ranks stay.
Plan edited_plan(const api::JobSpec& spec, const Plan& current) {
  Plan plan = current;
  if (!codecs_allowed(spec, plan)) plan.codecs = {};
  auto& schedule = plan.schedule;
  schedule.family = facts::family_of(spec.schedule.type);
  if (spec.micro_batch_size && *spec.micro_batch_size != schedule.micro_batch_size) {
    schedule.micro_batch_size = *spec.micro_batch_size;
    plan.micro_batches =
        facts::even_shares(spec.global_batch / schedule.micro_batch_size, plan.replica_count());
  }
  const int micro_batches = facts::least_share(plan);
  const int stages = plan.stage_count();
  const schedule::FamilyRules& rules = schedule::rules_of(schedule.family);
  if (rules.only_k != nullptr) {
    schedule.k = rules.only_k(micro_batches);
  } else {
    const int highest = std::min(spec.schedule.k_max.value_or(8), micro_batches);
    schedule.k = std::clamp(spec.schedule.k_initial.value_or(schedule.k),
                            std::min(spec.schedule.k_min, highest), highest);
  }
  schedule.split.reset();
  schedule.caps = rules.caps(stages, micro_batches, schedule.k);
  if (!spec.schedule.in_flight_caps.empty()) {
    schedule.caps = spec.schedule.in_flight_caps;
    for (int& cap : schedule.caps) cap = std::min(cap, micro_batches);
    schedule.k = schedule::k_of_caps(schedule.caps);
  }
  const auto asked = facts::dispatch_of(spec);
  schedule.dispatch = schedule::dispatch_in_force(schedule.caps, asked);
  plan.state = schedule::StateMove::kKeep;
  plan.predicted_step_seconds = 0;
  return plan;
}

// Plans with measurements of the last minutes, also of links that carry nothing now. Slow nodes are
// avoided only if the job may repartition later. Otherwise it would never use such a node again
// after the node recovers.
Result<planner::PlanReport> plan_on_known_links(const View& view, const Draft& draft,
                                                const facts::Facts& facts,
                                                const planner::Model& model) {
  constexpr std::chrono::minutes kHolds{5};
  const auto& adaptation = view.spec().adaptation;
  std::vector<facts::RememberedLink> seen = draft.adaptation.memory.history.links;
  std::erase_if(seen,
                [&](const facts::RememberedLink& link) { return view.now() - link.time > kHolds; });
  if (adaptation.mode != api::AdaptationMode::kAuto || !adaptation.regroup.enabled ||
      seen.empty()) {
    return plan_for_members(facts, model);
  }
  const auto clusters = on_known_links(seen, cluster_of(facts));
  const int plans = static_cast<int>(clusters.size());
  auto best = plan_for_members(facts, model, clusters.front(), plans);
  for (std::size_t i = 1; i < clusters.size(); ++i) {
    auto other = plan_for_members(facts, model, clusters[i], plans);
    if (other && other->plan.stage_count() == 1) continue;  // it has no link to measure
    const bool better =
        other && (!best || other->plan.predicted_step_seconds < best->plan.predicted_step_seconds);
    if (better) best = std::move(other);
  }
  return best;
}

// Where the workers take the state of a plan for other members from. A plan that the workers could
// not take up with the state of others, because some device lacks the memory, say, begins at the
// checkpoint instead.
schedule::StateMove state_of_new_plan(const View& view, const facts::Facts& facts,
                                      Trigger trigger) {
  using schedule::StateMove;
  if (trigger == Trigger::kResize) {
    return move_refused(view) ? StateMove::kCheckpoint : StateMove::kMove;
  }
  const bool refused =
      view.refused && view.newest != nullptr && view.newest->state == StateMove::kRecover &&
      view.snapshot.report->body.last_switch->outcome == protocol::Outcome::kRefused;
  const bool recovers = trigger == Trigger::kRestart && !refused &&
                        facts::older_than(facts, protocol::kRecoverPlanVersion) == nullptr;
  // Without a checkpoint it begins at step 0.
  return recovers ? StateMove::kRecover : StateMove::kCheckpoint;
}

// Adaptation begins anew with other members.
void forget_adaptation(Draft& draft) {
  adaptation::Memory memory = std::move(draft.adaptation.memory);
  adaptation::forget_ranks(memory);
  draft.adaptation = AdaptationState{.memory = std::move(memory)};
  draft.status.regroup_cooldown_seconds = 0;
}

// Why there is no plan, if there is one without copies.
std::string lack_of_copies(const View& view, const Draft& draft, const facts::Facts& facts) {
  if (!facts::needs_copies(facts)) return "";
  std::string why_not;
  const auto model = model_of(facts, why_not, false);
  if (!model) return "";
  const auto report = plan_on_known_links(view, draft, facts, *model);
  return report ? facts::lack_for_copies(*report, *model) : "";
}

void plan_from_scratch(const View& view, Draft& draft, Trigger trigger) {
  facts::Facts facts = facts_of(view, draft);
  facts.planned_replicas = view.wanted_replicas;
  std::string why_not;
  const auto model = model_of(facts, why_not);
  if (!model) {
    return refuse_job(view, draft, "ProfileMissing", why_not);
  }
  auto report = plan_on_known_links(view, draft, facts, *model);
  if (!report) {
    const std::string copies = lack_of_copies(view, draft, facts);
    return refuse_job(view, draft, "NoFeasiblePlan",
                      copies.empty() ? report.error().message : copies);
  }
  forget_adaptation(draft);
  Plan plan = std::move(report->plan);
  plan.state = state_of_new_plan(view, facts, trigger);
  plan.sync = shares::first_sync(view.spec(), plan.replica_count());
  limit_caps(facts, plan);
  adopt_plan(view, draft, std::move(plan), trigger, 0);
}

// If workers are lost and others are idle, these take their places. The pods that are made for the
// lost ones are idle then.
void substitute(const View& view, Draft& draft) {
  const facts::Facts facts = facts_of(view, draft);
  // The workers would refuse the same plan again.
  if (view.refused && view.newest != nullptr && members_live(facts, *view.newest)) return;
  auto plan = with_substitutes(view, draft);
  if (!plan) return;
  // The plan for an edited spec is made when all workers are there.
  const api::JobSpec& spec = view.spec();
  if (plan->replica_count() != view.wanted_replicas || !contradiction(spec, *plan).empty() ||
      plan->stage_count() != spec.stages.value_or(plan->stage_count())) {
    return;
  }
  std::string names;
  for (const auto& rank : plan->ranks) {
    const bool stays = std::ranges::any_of(
        view.plan->ranks, [&](const auto& one) { return one.pod_uid == rank.pod_uid; });
    if (!stays) {
      const auto place = &rank - plan->ranks.data();
      names += (names.empty() ? "" : ", ") + rank.pod + " takes stage " +
               std::to_string(rank.stage) + " of " +
               view.plan->ranks[static_cast<std::size_t>(place)].pod;
    }
  }
  draft.event("Normal", "SpareUsed", names, "Plan");
  forget_adaptation(draft);
  plan->state = state_of_new_plan(view, facts, Trigger::kRestart);
  limit_caps(facts, *plan);
  adopt_plan(view, draft, *std::move(plan), Trigger::kRestart, 0);
}

// True if a switch broke off after COMMIT, and pods that it needs were made again later. Then
// neither the new plan nor the one before can run. If the switch broke off earlier, steps continue.
bool stands_still_for_lost_plan(const View& view, Draft& draft) {
  constexpr std::chrono::seconds kLeast{30};
  constexpr double kSteps = 10;
  const auto& report = view.snapshot.report;
  if (!view.refused || view.newest == nullptr || !report || !report->body.last_switch ||
      report->body.last_switch->outcome != protocol::Outcome::kAborted ||
      members_live(facts_of(view, draft), *view.newest)) {
    return false;
  }
  const auto steps = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::duration<double>(kSteps * recent_step_seconds(facts_of(view, draft))));
  const Time limit =
      std::max(draft.adaptation.last_step_time, draft.status.plan.time.value_or(Time{})) +
      std::max(kLeast, steps);
  if (view.now() >= limit) return true;
  draft.wake_at(limit);
  return false;
}

// A rank of the plan goes on, but a new coordinator does not know it yet: it soon does, and the
// rank brings what it holds. True while that is awaited.
bool awaits_rank(const View& view, Draft& draft) {
  constexpr std::chrono::seconds kFindsCoordinator{10};
  if (view.plan == nullptr || !view.snapshot.members) return false;
  const bool any = std::ranges::any_of(view.slots, [&](const Slot& slot) {
    return slot.pod && slot.pod->started && !worker_ended(*slot.pod) && !slot.pod->meta.deleting &&
           in_plan(view, *slot.pod) && !registered(view, slot) &&
           !last_sign_of(view, draft, *slot.pod);
  });
  const Time limit = view.snapshot.members->received + kFindsCoordinator;
  if (!any || view.now() >= limit) return false;
  draft.wake_at(limit);
  return true;
}

}  // namespace

// Time limit of PREPARE. A worker answers between two ops, and no op takes longer than a step.
int prepare_seconds(const View& view, const Draft& draft, const Plan& plan) {
  constexpr double kLeast = 10, kSteps = 2;
  const double step =
      std::max(recent_step_seconds(facts_of(view, draft)), plan.predicted_step_seconds);
  const double most = std::max<double>(kLeast, view.spec().progress_deadline_seconds);
  return static_cast<int>(std::clamp(std::ceil(kLeast + kSteps * step), kLeast, most));
}

std::uint32_t next_revision(const View& view, const Draft& draft) {
  std::int64_t highest = draft.status.plan.revision;
  for (const auto& old : view.snapshot.plans) {
    highest = std::max<std::int64_t>(highest, old.revision);
  }
  return static_cast<std::uint32_t>(highest + 1);
}

void adopt_plan(const View& view, Draft& draft, Plan plan, Trigger trigger, double predicted_gain) {
  plan.revision = next_revision(view, draft);
  plan.parent = static_cast<std::uint32_t>(draft.status.plan.revision);
  plan.trigger = trigger;
  plan.job_uid = view.job().meta.uid;
  plan.predicted_gain = predicted_gain;
  plan.prepare_timeout_seconds = prepare_seconds(view, draft, plan);
  auto& status = draft.status.plan;
  status.revision = plan.revision;
  status.trigger = schedule::name(trigger);
  status.config_map = api::plan_config_map(view.job().meta.name, plan.revision);
  status.predicted_step_seconds =
      plan.predicted_step_seconds > 0 ? number(plan.predicted_step_seconds, 3) : "";
  status.predicted_gain_percent = predicted_gain > 0 ? percent(predicted_gain) : "";
  status.predicted_gain_interval = status.measured_gain_percent = status.measured_gain_error = "";
  status.bound_percent_simulated.reset();
  status.bound_percent_measured.reset();
  // Times in status have whole seconds. A plan must be later than the restart before it, because
  // failures.cpp compares the two.
  const auto& restart = draft.status.last_restart_time;
  status.time = restart ? std::max(view.now(), *restart + std::chrono::seconds(1)) : view.now();
  show_plan(view, draft, plan);
  draft.guarded = true;
  if (trigger != Trigger::kInitial && trigger != Trigger::kRestart) {
    for (auto& limit : draft.status.memory_limits) limit.plan_changed = true;
  }
  if (trigger != Trigger::kRetune) {
    draft.event(
        "Normal", "PlanCreated",
        "revision " + std::to_string(plan.revision) + " (" + schedule::name(trigger) +
            "): " + std::to_string(plan.stage_count()) + " stages" +
            (plan.replica_count() > 1 ? " x " + std::to_string(plan.replica_count()) + " replicas, "
                                      : ", ") +
            schedule::name(plan.schedule.family) + " k=" + std::to_string(plan.schedule.k) +
            (plan.schedule.split ? ", backwards split: " + schedule::describe(*plan.schedule.split)
                                 : "") +
            ", " + std::to_string(plan.micro_batches.front()) + " micro-batches of " +
            std::to_string(plan.schedule.micro_batch_size),
        "Plan");
  }
  if (trigger == Trigger::kInitial && !plan.idle.empty())
    draft.event("Warning", "IdleWorkers", idle_text(view, plan), "Plan");
  draft.ask(CreatePlan{plan});
  // The last 5 plans are kept for users, and the applied one, which is older after refusals.
  constexpr std::size_t kKept = 5;
  const auto& plans = view.snapshot.plans;
  for (std::size_t i = 0; i + kKept - 1 < plans.size(); ++i) {
    if (plans[i].revision != draft.status.plan.applied_revision)
      draft.ask(DeletePlan{plans[i].revision});
  }
}

void make_plans(const View& view, Draft& draft) {
  const bool goes = std::ranges::any_of(view.slots, [&](const Slot& slot) {
    return slot.pod && replaced_by_restart(draft, *slot.pod);
  });
  if (goes || awaits_rank(view, draft)) return;
  if (!members_complete(view)) return substitute(view, draft);
  // A plan for the same members would be refused again, so the next one waits.
  const facts::Facts facts = facts_of(view, draft);
  if (view.refused && view.newest != nullptr && members_live(facts, *view.newest) &&
      (view.plan == nullptr || !members_live(facts, *view.plan))) {
    constexpr std::chrono::seconds kRetry{30};
    const Time next = draft.status.plan.time.value_or(view.now()) + kRetry;
    if (view.now() < next) {
      const auto& last = *view.snapshot.report->body.last_switch;
      if (last.outcome == protocol::Outcome::kRefused) {  // else they try it again
        refuse_job(view, draft, "NoFeasiblePlan", "the workers refused it: " + last.reason);
      }
      return draft.wake_at(next);
    }
  }
  if (view.plan == nullptr) {
    return plan_from_scratch(
        view, draft,
        draft.status.plan.applied_revision == 0 ? Trigger::kInitial : Trigger::kRestart);
  }
  if (!members_live(facts, *view.plan) || !view.plan_lives ||
      stands_still_for_lost_plan(view, draft))
    return plan_from_scratch(view, draft, Trigger::kRestart);
  if (!view.refused && draft.status.plan.applied_revision != draft.status.plan.revision) return;
  if (resize_due(view)) return plan_from_scratch(view, draft, Trigger::kResize);
  if (view.refused && view.newest != nullptr && contradiction(view.spec(), *view.newest).empty() &&
      view.newest->trigger == Trigger::kManual) {
    return;  // the workers refused this edit; another edit makes a new plan
  }
  if (!contradiction(view.spec(), *view.plan).empty()) {
    draft.adaptation.memory.plan_change.reset();
    Plan edited = edited_plan(view.spec(), *view.plan);
    limit_caps(facts, edited);
    adopt_plan(view, draft, std::move(edited), Trigger::kManual, 0);
  }
}

}  // namespace weir::reconcile
