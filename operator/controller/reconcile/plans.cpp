// SPDX-License-Identifier: Apache-2.0
// Plans that are no adaptation: for a new job, for other members, for an edited spec.
#include <cmath>
#include <set>

#include "operator/controller/reconcile/pass.h"
#include "operator/controller/reconcile/plan_view.h"
#include "operator/controller/reconcile/restarts.h"
#include "operator/controller/reconcile/tiers.h"
#include "operator/facts/node_bandwidth.h"
#include "operator/planner/model/profile_json.h"
#include "operator/planner/plan.h"
#include "worker/schedule/caps.h"
#include "worker/schedule/families.h"

namespace weir::reconcile {
namespace {

using schedule::Plan;
using schedule::Trigger;

const Slot* slot_of_pod(const Pass& pass, const std::string& uid) {
  for (const auto& slot : pass.slots) {
    if (slot.pod && slot.pod->meta.uid == uid) return &slot;
  }
  return nullptr;
}

planner::Request request_of(const Pass& pass) {
  const auto& spec = pass.spec();
  planner::Request request;
  request.data_parallel = pass.planned_replicas;
  request.global_batch = spec.global_batch;
  request.micro_batch_size = spec.micro_batch_size;
  request.stages = spec.stages;
  request.family = family_of(spec.schedule.type);
  request.dispatch =
      spec.schedule.dispatch == "Strict" ? schedule::Dispatch::kStrict : schedule::Dispatch::kHint;
  request.k_min = spec.schedule.k_min;
  request.k_max = spec.schedule.k_max.value_or(8);
  request.k_initial = spec.schedule.k_initial;
  request.caps = spec.schedule.in_flight_caps;
  return request;
}

bool has_members(const Pass& pass, const Plan& plan) {
  std::set<std::string> live;
  for (const auto& member : pass.snapshot.members->body.members) live.insert(member.pod_uid);
  return std::all_of(plan.ranks.begin(), plan.ranks.end(),
                     [&](const auto& rank) { return live.contains(rank.pod_uid); });
}

// The field of the edited schedule that the plan in force contradicts; "" = none.
std::string contradiction(const api::JobSpec& spec, const Plan& plan) {
  const auto& schedule = plan.schedule;
  const auto& wanted = spec.schedule;
  if (schedule.family != family_of(wanted.type)) return "schedule.type " + wanted.type;
  const int micro_batches = least_share(plan);
  if (spec.micro_batch_size && *spec.micro_batch_size != schedule.micro_batch_size) {
    return "batch.microBatchSize " + std::to_string(*spec.micro_batch_size);
  }
  if (!wanted.in_flight_caps.empty()) {
    std::vector<int> caps = wanted.in_flight_caps;
    for (int& cap : caps) cap = std::min(cap, micro_batches);
    if (caps != schedule.caps) return "schedule.inFlightCaps";
  }
  const auto asked =
      wanted.dispatch == "Strict" ? schedule::Dispatch::kStrict : schedule::Dispatch::kHint;
  if (schedule.dispatch != schedule::dispatch_in_force(schedule.caps, asked))
    return "schedule.dispatch " + wanted.dispatch;
  if (!schedule::rules_of(schedule.family).tuned || !wanted.in_flight_caps.empty()) return "";
  if (wanted.k_mode == "Fixed" && schedule.k != std::min(*wanted.k_initial, micro_batches)) {
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
  auto& schedule = plan.schedule;
  schedule.family = family_of(spec.schedule.type);
  if (spec.micro_batch_size && *spec.micro_batch_size != schedule.micro_batch_size) {
    schedule.micro_batch_size = *spec.micro_batch_size;
    plan.micro_batches =
        even_shares(spec.global_batch / schedule.micro_batch_size, plan.replica_count());
  }
  const int micro_batches = least_share(plan);
  const int stages = plan.stage_count();
  const schedule::FamilyRules& rules = schedule::rules_of(schedule.family);
  if (rules.only_k != nullptr) {
    schedule.k = rules.only_k(micro_batches);
  } else {
    const int highest = std::min(spec.schedule.k_max.value_or(8), micro_batches);
    schedule.k = std::clamp(spec.schedule.k_initial.value_or(schedule.k),
                            std::min(spec.schedule.k_min, highest), highest);
  }
  schedule.caps = rules.caps(stages, micro_batches, schedule.k);
  if (!spec.schedule.in_flight_caps.empty()) {
    schedule.caps = spec.schedule.in_flight_caps;
    for (int& cap : schedule.caps) cap = std::min(cap, micro_batches);
    schedule.k = schedule::k_of_caps(schedule.caps);
  }
  const auto asked =
      spec.schedule.dispatch == "Strict" ? schedule::Dispatch::kStrict : schedule::Dispatch::kHint;
  schedule.dispatch = schedule::dispatch_in_force(schedule.caps, asked);
  plan.state = schedule::StateMove::kKeep;
  plan.predicted_step_seconds = 0;
  return plan;
}

// Decodes a profile, or takes it from the memo. A profile of thousands of layers takes longer to
// decode than to plan with.
Result<planner::Model> decoded(const std::string& text, Memo* memo) {
  if (memo == nullptr) return planner::decode_profile(text);
  if (!memo->model || memo->profile != text) {
    WEIR_TRY(memo->model, planner::decode_profile(text));
    memo->profile = text;
  }
  return *memo->model;
}

// Plans with measurements of the last minutes, also of links that carry nothing now. Slow nodes are
// avoided only if the job may repartition later. Otherwise it would never use such a node again
// after the node recovers.
Result<planner::PlanReport> plan_on_known_links(const Pass& pass, const planner::Model& model) {
  constexpr std::chrono::minutes kHolds{5};
  const auto& adaptation = pass.spec().adaptation;
  std::vector<facts::RememberedLink> seen = pass.adaptation.tiers.seen;
  std::erase_if(seen,
                [&](const facts::RememberedLink& link) { return pass.now() - link.time > kHolds; });
  if (adaptation.mode != "Auto" || !adaptation.regroup.enabled || seen.empty()) {
    return plan_for_members(pass, model);
  }
  const auto clusters = on_known_links(seen, cluster_of(pass));
  const int plans = static_cast<int>(clusters.size());
  auto best = plan_for_members(pass, model, clusters.front(), plans);
  for (std::size_t i = 1; i < clusters.size(); ++i) {
    auto other = plan_for_members(pass, model, clusters[i], plans);
    if (other && other->plan.stage_count() == 1) continue;  // it has no link to measure
    const bool better =
        other && (!best || other->plan.predicted_step_seconds < best->plan.predicted_step_seconds);
    if (better) best = std::move(other);
  }
  return best;
}

void plan_from_scratch(Pass& pass, Trigger trigger) {
  pass.planned_replicas = pass.wanted_replicas;
  std::string why_not;
  const auto model = model_of(pass, why_not);
  if (!model) {
    return refuse_job(pass, "ProfileMissing", why_not);
  }
  auto report = plan_on_known_links(pass, *model);
  if (!report) {
    return refuse_job(pass, "NoFeasiblePlan", report.error().message);
  }
  forget_ranks(pass);
  Plan plan = std::move(report->plan);
  plan.state = schedule::StateMove::kCheckpoint;  // without a checkpoint it begins at step 0
  if (trigger == Trigger::kResize && !move_refused(pass)) plan.state = schedule::StateMove::kMove;
  plan.sync = first_sync(pass.spec(), plan.replica_count());
  limit_caps(pass, plan);
  adopt_plan(pass, std::move(plan), trigger, 0);
}

// True if a switch broke off after COMMIT, and pods that it needs were made again later. Then
// neither the new plan nor the one before can run. If the switch broke off earlier, steps continue.
bool stands_still_for_lost_plan(Pass& pass) {
  constexpr std::chrono::seconds kLeast{30};
  constexpr double kSteps = 10;
  const auto& report = pass.snapshot.report;
  if (!pass.refused || pass.newest == nullptr || !report || !report->body.last_switch ||
      report->body.last_switch->outcome != protocol::Outcome::kAborted ||
      has_members(pass, *pass.newest)) {
    return false;
  }
  const auto steps = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::duration<double>(kSteps * recent_step_seconds(pass)));
  const Time limit =
      std::max(pass.adaptation.last_step_time, pass.status.plan.time.value_or(Time{})) +
      std::max(kLeast, steps);
  if (pass.now() >= limit) return true;
  pass.wake_at(limit);
  return false;
}

}  // namespace

schedule::Family family_of(const std::string& type) {
  return schedule::family_of(type).value_or(schedule::Family::kKfkb);
}

int least_share(const Plan& plan) {
  const auto least = std::min_element(plan.micro_batches.begin(), plan.micro_batches.end());
  return least == plan.micro_batches.end() ? 1 : *least;
}

// The first replicas get the remainder.
std::vector<int> even_shares(int micro_batches, int replicas) {
  std::vector<int> shares(static_cast<std::size_t>(replicas), micro_batches / replicas);
  for (int r = 0; r < micro_batches % replicas; ++r) ++shares[static_cast<std::size_t>(r)];
  return shares;
}

std::optional<planner::Model> model_of(const Pass& pass, std::string& why_not) {
  const bool from_config_map = pass.spec().profile.source == "ConfigMap";
  const std::string where = from_config_map ? "ConfigMap " + pass.spec().profile.config_map +
                                                  ", key " + pass.spec().profile.key
                                            : "the profile that the workers measured";
  const std::string* text = nullptr;
  if (from_config_map && pass.snapshot.profile) text = &pass.snapshot.profile->text;
  if (!from_config_map && pass.snapshot.members) text = &pass.snapshot.members->body.profile_json;
  if (text == nullptr || text->empty()) {
    why_not = where + ": missing";
    return std::nullopt;
  }
  auto model = decoded(*text, pass.snapshot.memo);
  if (!model) {
    why_not = where + ": " + model.error().message;
    return std::nullopt;
  }
  const int layers = pass.snapshot.members ? pass.snapshot.members->body.model.layers : 0;
  if (layers > 0 && static_cast<int>(model->layers.size()) != layers) {
    why_not = where + ": has " + std::to_string(model->layers.size()) +
              " layers, the workers' model " + pass.snapshot.members->body.model.name + " has " +
              std::to_string(layers);
    return std::nullopt;
  }
  return std::move(*model);
}

Result<planner::PlanReport> plan_for_members(const Pass& pass, const planner::Model& model) {
  return plan_for_members(pass, model, cluster_of(pass));
}

Result<planner::PlanReport> plan_for_members(const Pass& pass, const planner::Model& model,
                                             const planner::Cluster& cluster, int plans) {
  planner::Request request = request_of(pass);
  request.current = pass.plan;
  Memo* memo = pass.snapshot.memo;
  return planner::plan(model, cluster, request, planner::operator_limits(plans),
                       memo == nullptr ? nullptr : &memo->plans);
}

planner::Cluster cluster_of(const Pass& pass) {
  planner::Cluster cluster;
  if (!pass.snapshot.members) return cluster;
  auto members = pass.snapshot.members->body.members;
  std::sort(members.begin(), members.end(),
            [](const auto& a, const auto& b) { return a.worker_index < b.worker_index; });
  for (const auto& member : members) {
    const Slot* slot = slot_of_pod(pass, member.pod_uid);
    if (slot == nullptr || slot->replica >= pass.planned_replicas) continue;
    planner::Device device;
    device.pod = member.pod;
    device.pod_uid = member.pod_uid;
    device.ip = member.ips.empty() ? "" : member.ips.front();
    device.node = member.node;
    device.data_port = member.data_port;
    device.worker_group = slot->group;
    if (!member.ranks.empty()) {
      device.device_class = member.ranks.front().device;
      device.memory_bytes = member.ranks.front().memory_bytes;
    }
    for (const auto& group : pass.spec().worker_groups) {
      if (group.name != device.worker_group || !group.stage_range) continue;
      device.first_stage = group.stage_range->first;
      device.last_stage = group.stage_range->last;
    }
    cluster.devices.push_back(std::move(device));
  }
  level_devices(cluster, pass.planned_replicas);
  facts::add_probed_links(pass.snapshot.members->body.links, cluster);
  // Rates of Prometheus are newer than the probe at the start, and later entries win.
  for (const auto* links : {&pass.estimates.sync_links, &pass.estimates.links}) {
    for (const auto& link : *links) {
      if (link.now > 0)
        cluster.links.push_back({link.from_node, link.to_node, link.now, cluster.default_latency});
    }
  }
  return cluster;
}

void limit_caps(const Pass& pass, Plan& plan) {
  auto& schedule = plan.schedule;
  const auto& wanted = pass.spec().schedule;
  if (pass.status.memory_limits.empty() || !schedule::rules_of(schedule.family).tuned ||
      !wanted.in_flight_caps.empty())
    return;
  for (const auto& limit : pass.status.memory_limits) {
    if (limit.stage < 0 || limit.stage >= plan.stage_count() || limit.in_flight_cap <= 0) continue;
    int& cap = schedule.caps[static_cast<std::size_t>(limit.stage)];
    cap = std::min(cap, limit.in_flight_cap);
  }
  for (std::size_t s = 1; s < schedule.caps.size(); ++s)
    schedule.caps[s] = std::min(schedule.caps[s], schedule.caps[s - 1]);
  if (wanted.k_mode != "Fixed") {
    schedule.k = std::min(schedule.k, std::max(schedule::k_of_caps(schedule.caps), wanted.k_min));
  }
  const auto asked =
      wanted.dispatch == "Strict" ? schedule::Dispatch::kStrict : schedule::Dispatch::kHint;
  schedule.dispatch = schedule::dispatch_in_force(schedule.caps, asked);
}

// Time limit of PREPARE. A worker answers between two ops, and no op takes longer than a step.
int prepare_seconds(const Pass& pass, const Plan& plan) {
  constexpr double kLeast = 10, kSteps = 2;
  const double step = std::max(recent_step_seconds(pass), plan.predicted_step_seconds);
  const double most = std::max<double>(kLeast, pass.spec().progress_deadline_seconds);
  return static_cast<int>(std::clamp(std::ceil(kLeast + kSteps * step), kLeast, most));
}

void adopt_plan(Pass& pass, Plan plan, Trigger trigger, double predicted_gain) {
  std::int64_t highest = pass.status.plan.revision;
  for (const auto& old : pass.snapshot.plans)
    highest = std::max<std::int64_t>(highest, old.revision);
  plan.revision = static_cast<std::uint32_t>(highest + 1);
  plan.parent = static_cast<std::uint32_t>(pass.status.plan.revision);
  plan.trigger = trigger;
  plan.job_uid = pass.job().meta.uid;
  plan.predicted_gain = predicted_gain;
  plan.prepare_timeout_seconds = prepare_seconds(pass, plan);
  auto& status = pass.status.plan;
  status.revision = plan.revision;
  status.trigger = schedule::name(trigger);
  status.config_map = pass.job().meta.name + "-plan-" + std::to_string(plan.revision);
  status.predicted_step_seconds =
      plan.predicted_step_seconds > 0 ? number(plan.predicted_step_seconds, 3) : "";
  status.predicted_gain_percent = predicted_gain > 0 ? percent(predicted_gain) : "";
  status.measured_gain_percent = "";
  // Times in status have whole seconds. A plan must be later than the restart before it, because
  // failures.cpp compares the two.
  const auto& restart = pass.status.last_restart_time;
  status.time = restart ? std::max(pass.now(), *restart + std::chrono::seconds(1)) : pass.now();
  show_plan(pass, plan);
  pass.guarded = true;
  if (trigger != Trigger::kInitial && trigger != Trigger::kRestart) {
    for (auto& limit : pass.status.memory_limits) limit.plan_changed = true;
  }
  if (trigger != Trigger::kRetune) {
    pass.event(
        "Normal", "PlanCreated",
        "revision " + std::to_string(plan.revision) + " (" + schedule::name(trigger) +
            "): " + std::to_string(plan.stage_count()) + " stages" +
            (plan.replica_count() > 1 ? " x " + std::to_string(plan.replica_count()) + " replicas, "
                                      : ", ") +
            schedule::name(plan.schedule.family) + " k=" + std::to_string(plan.schedule.k) + ", " +
            std::to_string(plan.micro_batches.front()) + " micro-batches of " +
            std::to_string(plan.schedule.micro_batch_size),
        "Plan");
  }
  if (trigger == Trigger::kInitial && !plan.idle.empty())
    pass.event("Warning", "IdleWorkers", idle_text(pass, plan), "Plan");
  pass.act(CreatePlan{plan});
  // The last 5 plans are kept for users, and the applied one, which is older after refusals.
  constexpr std::size_t kKept = 5;
  const auto& plans = pass.snapshot.plans;
  for (std::size_t i = 0; i + kKept - 1 < plans.size(); ++i) {
    if (plans[i].revision != pass.status.plan.applied_revision)
      pass.act(DeletePlan{plans[i].revision});
  }
}

void make_plans(Pass& pass) {
  const bool goes = std::ranges::any_of(pass.slots, [&](const Slot& slot) {
    return slot.pod && replaced_by_restart(pass, *slot.pod);
  });
  if (goes || !members_complete(pass)) return;
  // A plan for the same members would be refused again, so the next one waits.
  if (pass.refused && pass.newest != nullptr && has_members(pass, *pass.newest) &&
      (pass.plan == nullptr || !has_members(pass, *pass.plan))) {
    constexpr std::chrono::seconds kRetry{30};
    const Time next = pass.status.plan.time.value_or(pass.now()) + kRetry;
    if (pass.now() < next) {
      refuse_job(pass, "NoFeasiblePlan",
                 "the workers refused it: " + pass.snapshot.report->body.last_switch->reason);
      return pass.wake_at(next);
    }
  }
  if (pass.plan == nullptr) {
    return plan_from_scratch(
        pass, pass.status.plan.applied_revision == 0 ? Trigger::kInitial : Trigger::kRestart);
  }
  if (!has_members(pass, *pass.plan) || !pass.plan_lives || stands_still_for_lost_plan(pass))
    return plan_from_scratch(pass, Trigger::kRestart);
  if (!pass.refused && pass.status.plan.applied_revision != pass.status.plan.revision) return;
  if (resize_due(pass)) return plan_from_scratch(pass, Trigger::kResize);
  if (pass.refused && pass.newest != nullptr && contradiction(pass.spec(), *pass.newest).empty() &&
      pass.newest->trigger == Trigger::kManual) {
    return;  // the workers refused this edit; another edit makes a new plan
  }
  if (!contradiction(pass.spec(), *pass.plan).empty()) {
    pass.adaptation.pending.reset();
    Plan edited = edited_plan(pass.spec(), *pass.plan);
    limit_caps(pass, edited);
    adopt_plan(pass, std::move(edited), Trigger::kManual, 0);
  }
}

}  // namespace weir::reconcile
