// SPDX-License-Identifier: Apache-2.0
// The adaptation tick: when to ask the tuner, what to do with its answer, and whether the last
// change kept its promise (operator.md 9, scheduling.md 5.3). Tier retune; those above: tiers.h.
#include <cmath>
#include <numeric>
#include <utility>

#include "operator/controller/reconcile/pass.h"
#include "operator/controller/reconcile/ports.h"
#include "operator/controller/reconcile/tiers.h"
#include "operator/planner/plan.h"
#include "operator/tuner/tune.h"

namespace weir::reconcile {
namespace {

constexpr double kUnchangedRates =
    0.10;  // a link that moved less has not moved (scheduling.md 5.5)

bool rates_unchanged(const std::vector<double>& before, const std::vector<double>& after) {
  if (before.size() != after.size()) return false;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (std::abs(after[i] - before[i]) > kUnchangedRates * before[i]) return false;
  }
  return true;
}

tuner::Settings settings_of(const api::JobSpec& spec) {
  tuner::Settings settings;
  settings.min_gain = spec.adaptation.retune.min_gain_percent / 100.0;
  settings.cooldown = std::chrono::seconds(spec.adaptation.retune.cooldown_seconds);
  settings.k_min = spec.schedule.k_min;
  settings.k_max = spec.schedule.k_max.value_or(8);
  settings.k_fixed = spec.schedule.k_mode == "Fixed";
  settings.fixed_caps = spec.schedule.in_flight_caps;
  settings.family = family_of(spec.schedule.type);
  settings.dispatch =
      spec.schedule.dispatch == "Strict" ? schedule::Dispatch::kStrict : schedule::Dispatch::kHint;
  return settings;
}

std::vector<int> caps_by_memory(const planner::PipelineCosts& costs, int micro_batches,
                                double reserve) {
  std::vector<int> caps;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const auto limit = static_cast<double>(costs.memory_limit[s]) * (1 - reserve);
    int cap = micro_batches;
    if (costs.memory_limit[s] > 0 && costs.stash_bytes[s] > 0) {
      const double room = limit - static_cast<double>(costs.static_bytes[s]);
      cap =
          static_cast<int>(std::clamp(std::floor(room / static_cast<double>(costs.stash_bytes[s])),
                                      1.0, double(micro_batches)));
    }
    caps.push_back(caps.empty() ? cap : std::min(cap, caps.back()));
  }
  // Caps do not increase: a small stage downstream limits nobody upstream, but one upstream limits
  // those behind it.
  return caps;
}

}  // namespace

double usual_rate(const Pass& pass, const estimator::LinkEstimate& link) {
  if (link.baseline > 0) return link.baseline;
  planner::Cluster at_start;
  if (pass.snapshot.members) add_probed_links(pass.snapshot.members->body.links, at_start);
  return planner::link_between(at_start, link.from_node, link.to_node).bytes_per_second;
}

namespace {

// The link whose rate fell most against what is usual for it, for the event's text.
std::string link_text(const Pass& pass) {
  const estimator::LinkEstimate* link = nullptr;
  double worst_share = 1e300, usual = 0;
  for (const auto& candidate : pass.estimates.links) {
    if (candidate.now <= 0) continue;
    const double rate = usual_rate(pass, candidate);
    const double share = candidate.now / rate;
    if (link != nullptr && share >= worst_share) continue;
    link = &candidate;
    worst_share = share;
    usual = rate;
  }
  if (link == nullptr) return "no link measured";
  std::string text = "link " + link->from_node + "->" + link->to_node + " " +
                     bits_per_second(usual) + "->" + bits_per_second(link->now);
  if (link->since) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(pass.now() - *link->since).count();
    text += " for " + std::to_string(std::max<std::int64_t>(seconds, 0)) + " s";
  }
  return text;
}

// A link whose messages all arrive in one piece is too fast to be timed (measuring.md 4) and has no
// series: it counts as the probe or the default says, like a link before its first message
// (operator.md 5).
void fill_untimed_links(const Pass& pass, const planner::Cluster& cluster,
                        estimator::RateVectors& rates) {
  std::map<std::pair<int, int>, std::string> nodes;  // by replica and stage
  for (const auto& rank : pass.plan->ranks) nodes[{rank.replica, rank.stage}] = rank.node;
  for (const auto& [place, node] : nodes) {
    const auto& [replica, stage] = place;
    const auto next = nodes.find({replica, stage + 1});
    if (next == nodes.end()) continue;
    for (const auto direction : {estimator::Direction::kForward, estimator::Direction::kBackward}) {
      auto& known = rates.rates[{replica, stage, direction}];
      if (std::any_of(known.begin(), known.end(), [](double rate) { return rate > 0; })) continue;
      const bool forward = direction == estimator::Direction::kForward;
      const auto link = planner::link_between(cluster, forward ? node : next->second,
                                              forward ? next->second : node);
      known.assign(rates.times.size(), link.bytes_per_second);
    }
  }
}

bool measured(const planner::Model& model, int micro_batch_size) {
  return std::ranges::all_of(model.layers, [&](const auto& layer) {
    return std::ranges::any_of(layer.times, [&](const auto& entry) {
      return std::ranges::any_of(entry.second, [&](const planner::LayerTime& time) {
        return time.samples == micro_batch_size;
      });
    });
  });
}

// The sizes near the current one, when the user left it open. Times follow the measured ones of the
// current size: in the ratio of the profile where it knows both, else by (mb+b0)/(mb0+b0)
// (scheduling.md 5.2).
std::vector<tuner::Size> other_sizes(const Pass& pass, const planner::Model& model,
                                     const planner::Cluster& cluster,
                                     const planner::PipelineCosts& costs,
                                     const tuner::Input& input) {
  constexpr double kOverhead = 0.5;  // samples
  std::vector<tuner::Size> sizes;
  const int now = input.current.micro_batch_size;
  if (pass.spec().micro_batch_size) return sizes;
  const int samples = now * input.micro_batches;  // of the least share; all must divide
  const auto divides = [&](int size) {
    return std::ranges::all_of(pass.plan->micro_batches,
                               [&](int share) { return share * now % size == 0; });
  };
  for (const int size : {now / 4, now / 2, 2 * now, 4 * now}) {
    if (size < 1 || size == now || !divides(size) || samples / size < pass.plan->stage_count())
      continue;
    schedule::Plan plan = *pass.plan;
    plan.schedule.micro_batch_size = size;
    const auto other = planner::costs_of(model, cluster, plan);
    const bool known = measured(model, size) && measured(model, now);
    tuner::Size result{.micro_batch_size = size,
                       .micro_batches = samples / size,
                       .boundary_bytes = other.boundary_bytes};
    const auto scaled = [&](auto time, auto profiled, auto profiled_now) {
      const double by_profile = static_cast<double>(profiled.count()) /
                                std::max(1.0, static_cast<double>(profiled_now.count()));
      const double factor = known ? by_profile : (size + kOverhead) / (now + kOverhead);
      return std::chrono::nanoseconds(std::llround(static_cast<double>(time.count()) * factor));
    };
    for (std::size_t s = 0; s < input.stages.size(); ++s) {
      result.stages.push_back(
          {scaled(input.stages[s].forward, other.stages[s].forward, costs.stages[s].forward),
           scaled(input.stages[s].backward, other.stages[s].backward, costs.stages[s].backward)});
    }
    result.cap_max = caps_by_memory(other, result.micro_batches, cluster.memory_reserve);
    sizes.push_back(std::move(result));
  }
  return sizes;
}

// The least free part of a device per stage, over its replicas; < 0 = unknown.
std::vector<double> free_memory(const Pass& pass) {
  std::vector<double> free(static_cast<std::size_t>(pass.plan->stage_count()), -1);
  for (const auto& rank : pass.plan->ranks) {
    for (const auto& member : pass.snapshot.report->body.members) {
      if (member.pod != rank.pod || member.memory_free_bytes < 0 || member.memory_limit_bytes <= 0)
        continue;
      const double part = static_cast<double>(member.memory_free_bytes) /
                          static_cast<double>(member.memory_limit_bytes);
      double& least = free[static_cast<std::size_t>(rank.stage)];
      least = least < 0 ? part : std::min(least, part);
    }
  }
  return free;
}

tuner::Input input_of(const Pass& pass, const planner::Model& model) {
  const auto cluster = cluster_of(pass);
  const auto costs = planner::costs_of(model, cluster, *pass.plan);
  tuner::Input input;
  input.current = pass.plan->schedule;
  input.revision = pass.plan->revision;
  input.micro_batches = least_share(*pass.plan);
  input.boundary_bytes = costs.boundary_bytes;
  for (int r = 0; r < pass.plan->replica_count(); ++r) {
    const auto one = of_replica(*pass.plan, r);
    const auto own = planner::costs_of(model, cluster, one);
    input.replicas.push_back(
        {pass.plan->micro_batches[static_cast<std::size_t>(r)], stage_times(pass, one, own)});
    const auto caps = caps_by_memory(own, input.micro_batches, cluster.memory_reserve);
    if (r == 0) input.cap_max = caps;
    for (std::size_t s = 0; s < caps.size(); ++s)
      input.cap_max[s] = std::min(input.cap_max[s], caps[s]);
  }
  input.stages = tuner::slowest_stages(input.replicas);
  input.sync_seconds = sync_tail_seconds(pass);
  for (const auto& limit : pass.status.memory_limits) {
    const auto stage = static_cast<std::size_t>(limit.stage);
    if (limit.stage < 0 || stage >= input.cap_max.size() || limit.in_flight_cap <= 0) continue;
    for (auto s = stage; s < input.cap_max.size(); ++s)
      input.cap_max[s] = std::min(input.cap_max[s], limit.in_flight_cap);
  }
  input.rates = pass.estimates.rates;
  fill_untimed_links(pass, cluster, input.rates);
  input.other_sizes = other_sizes(pass, model, cluster, costs, input);
  for (const auto& link : pass.estimates.links) input.baseline[link.link] = usual_rate(pass, link);
  for (const auto& [link, rates] : input.rates.rates) {  // too fast to be timed: as usual
    if (!rates.empty()) input.baseline.try_emplace(link, rates.back());
  }
  input.step = pass.snapshot.report->body.step;
  input.measured_step_seconds = recent_step_seconds(pass);
  input.now = pass.now();
  input.settings = settings_of(pass.spec());
  input.free_memory = free_memory(pass);
  return input;
}

// Judges the last change once it has run for long enough. Whether the network is the one of before
// must be known: steps that another network made slow are no reason to go back.
void check_outcome(Pass& pass) {
  auto& pending = pass.adaptation.pending;
  if (!pending || pending->revision != pass.plan->revision || !pass.snapshot.report) return;
  if (pending->applied_step < 0) pending->applied_step = pass.status.plan.applied_step;
  const auto step = pass.snapshot.report->body.step;
  if (step < pending->applied_step + kOutcomeSteps || !network_known(pass)) return;
  tuner::Outcome outcome;
  outcome.before_seconds = pending->before_seconds;
  outcome.after_seconds = recent_step_seconds(pass);
  outcome.predicted_gain = pending->predicted_gain;
  outcome.rates_unchanged = rates_unchanged(pending->rates_before, link_rates(pass));
  if (outcome.before_seconds <= 0 || outcome.after_seconds <= 0) {
    pending.reset();
    return;
  }
  auto judged = tuner::judge(outcome, pending->schedule, step, settings_of(pass.spec()),
                             pass.adaptation.tuner);
  pass.adaptation.tuner = judged.state;
  pass.status.plan.measured_gain_percent = percent(judged.measured_gain);
  const std::string sign = judged.measured_gain >= 0 ? "+" : "";
  pass.event("Normal", "PlanOutcome",
             "revision " + std::to_string(pending->revision) + ": measured " + sign +
                 percent(judged.measured_gain) + " % over " +
                 std::to_string(step - pending->applied_step) + " steps (predicted +" +
                 percent(pending->predicted_gain) + " %), step " +
                 number(outcome.before_seconds, 2) + " s -> " + number(outcome.after_seconds, 2) +
                 " s",
             "Adapt");
  if (judged.verdict == tuner::Verdict::kMissed) {
    pass.set("Degraded", "True", "PredictedGainMissed",
             "measured gain " + percent(judged.measured_gain) + " %, predicted " +
                 percent(pending->predicted_gain) + " %");
  }
  const auto previous = pending->previous;
  const auto micro_batches = pending->previous_micro_batches;
  const auto sync = pending->previous_sync;
  const bool of_shares = changes_shares(pass, *pending);
  if (of_shares && judged.verdict == tuner::Verdict::kRollBack)
    keep_shares_out(pass, *pending, step);
  pending.reset();
  if (judged.verdict != tuner::Verdict::kRollBack) return;
  schedule::Plan plan = *pass.plan;
  plan.schedule = previous;
  if (!micro_batches.empty()) plan.micro_batches = micro_batches;
  if (sync) plan.sync = *sync;
  plan.state = schedule::StateMove::kKeep;
  pass.event("Warning", "PlanRolledBack",
             (of_shares ? "back to shares " + shares_text(plan.micro_batches)
                        : "back to k=" + std::to_string(previous.k)) +
                 ": the new plan was slower at unchanged link rates",
             "Adapt");
  adopt_plan(pass, std::move(plan), schedule::Trigger::kRetune, 0);
}

void apply(Pass& pass, const tuner::Decision& decision) {
  const auto& change = *decision.change;
  const std::string note = decision.memory_guard
                               ? decision.reason
                               : "k " + std::to_string(pass.plan->schedule.k) + "->" +
                                     std::to_string(change.schedule.k) + ", " + link_text(pass) +
                                     ", predicted +" + percent(decision.gain) + " % (" +
                                     change.text + ")";
  if (pass.spec().adaptation.mode == "Observe") {
    if (pass.adaptation.last_proposal != change.text)
      pass.event("Normal", "PlanProposed", note, "Adapt");
    pass.adaptation.last_proposal = change.text;
    return;
  }
  AdaptationState::Pending pending;
  pending.schedule = change.schedule;
  pending.text = change.text;
  pending.previous = pass.plan->schedule;
  pending.previous_micro_batches = pass.plan->micro_batches;
  pending.before_seconds = sampled_step_seconds(pass);
  pending.predicted_gain = decision.gain;
  pending.rates_before = link_rates(pass);
  schedule::Plan plan = *pass.plan;
  plan.schedule = change.schedule;
  for (int& share : plan.micro_batches)
    share = share * pass.plan->schedule.micro_batch_size / change.schedule.micro_batch_size;
  plan.state = schedule::StateMove::kKeep;
  if (!decision.memory_guard) plan.predicted_step_seconds = change.seconds;
  adopt_plan(pass, std::move(plan), schedule::Trigger::kRetune, decision.gain);
  pending.revision = static_cast<std::uint32_t>(pass.status.plan.revision);
  // Caps lowered for want of memory are not judged: there is no way back.
  if (!decision.memory_guard) pass.adaptation.pending = std::move(pending);
  pass.status.retune_last_change = pass.now();
  pass.event("Normal", "PlanRetuned", note, "Adapt");
}

// When a switch breaks off after COMMIT there is no way back to the plan before: the ranks come
// again with the new one, from the checkpoint. Ten steps of the plan before say that they do not.
bool may_come_yet(Pass& pass) {
  const auto& report = pass.snapshot.report->body;
  if (!pass.refused || report.last_switch->outcome != protocol::Outcome::kAborted) return false;
  auto& memory = pass.adaptation;
  if (std::exchange(memory.aborted_revision, report.last_switch->revision) !=
      report.last_switch->revision) {
    memory.aborted_step = report.step;
  }
  return report.step < memory.aborted_step + kOutcomeSteps;
}

bool may_adapt(Pass& pass) {
  const bool settled =
      pass.refused || pass.status.plan.applied_revision == pass.status.plan.revision;
  // A pod that is made again has not failed, but the plan in force is not there.
  return pass.plan != nullptr && pass.plan_lives && pass.snapshot.report && settled &&
         pass.snapshot.report->body.plan_revision == pass.plan->revision && pass.failures.empty() &&
         pass.now() - pass.snapshot.report->received <= pass.tunables.member_silent &&
         !pass.job().meta.annotations.contains("weir.dev/freeze-plan") && !may_come_yet(pass);
}

// A changed value of weir.dev/replan forces one evaluation without cooldown.
bool replan_requested(Pass& pass) {
  const auto found = pass.job().meta.annotations.find("weir.dev/replan");
  if (found == pass.job().meta.annotations.end() ||
      found->second == pass.status.last_replan_request)
    return false;
  pass.status.last_replan_request = found->second;
  pass.guarded = true;
  return true;
}

}  // namespace

std::vector<double> link_rates(const Pass& pass) {
  std::vector<double> rates;
  for (const auto& link : pass.estimates.links) rates.push_back(link.now);
  return rates;
}

void adapt(Pass& pass) {
  const auto interval = std::chrono::seconds(pass.spec().adaptation.evaluation_interval_seconds);
  if (!may_adapt(pass)) return;
  note_step(pass);
  const auto revision_before = pass.status.plan.revision;
  check_outcome(pass);
  if (pass.status.plan.revision != revision_before || judge_tiers(pass)) return;
  if (follow_sync_spec(pass)) return;
  const bool retunes = pass.spec().adaptation.retune.enabled;
  if (pass.spec().adaptation.mode == "Off" || !(retunes || tiers_enabled(pass.spec()))) return;

  const auto& last = pass.adaptation.last_evaluation;
  const bool asked = replan_requested(pass);
  const bool fresh = network_known(pass);
  // Each tick of the metrics wakes the job, so nothing is asked for here but the rest of an
  // interval that a tick came too early for. Without metrics there is only the guard of memory, and
  // the next pass for the job's progress is soon enough for it: thousands of idle jobs cost
  // nothing.
  if (last && pass.now() < *last + interval && !asked) {
    if (fresh) pass.wake_at(*last + interval);
    return;
  }
  pass.adaptation.last_evaluation = pass.now();
  const bool memory_short = tuner::memory_is_short(free_memory(pass));
  // A new rank map is judged before anything else changes what a step takes.
  if (pass.adaptation.tiers.pending && !memory_short) return;
  if (fresh && retunes && rebalance(pass, asked)) return;
  // The guard of memory needs no network.
  if (!fresh && !memory_short) return;

  std::string why_not;
  const auto model = model_of(pass, why_not);
  if (!model) return;
  auto input = input_of(pass, *model);
  auto& state = pass.adaptation.tuner;
  if (!fresh) input.rates = {};
  if (asked) input.settings.cooldown = std::chrono::seconds(0);
  constexpr double kNever = 1e9;
  if (!retunes) input.settings.min_gain = input.settings.min_gain_size = kNever;
  // The cooldown's clock comes from status after a change of leader.
  if (!state.last_change) state.last_change = pass.status.retune_last_change;
  auto tuned = tuner::tune(input, state);
  state = std::move(tuned.state);
  if (tuned.decision.change) return apply(pass, tuned.decision);
  if (fresh) escalate(pass, *model, input, tuned.decision, asked);
}

}  // namespace weir::reconcile
