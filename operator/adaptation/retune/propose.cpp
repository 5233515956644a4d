// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/retune/propose.h"

#include <algorithm>

#include "operator/facts/planning.h"
#include "worker/base/text.h"

namespace weir::retune {
namespace {

// Text about the link whose rate is lowest against its usual rate, for events.
std::string link_text(const facts::Facts& facts) {
  const estimator::LinkEstimate* link = nullptr;
  double worst_share = 1e300, usual = 0;
  for (const auto& candidate : facts.estimates.links) {
    if (candidate.now <= 0) continue;
    const double rate = usual_rate(facts, candidate);
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
        std::chrono::duration_cast<std::chrono::seconds>(facts.now - *link->since).count();
    text += " for " + std::to_string(std::max<std::int64_t>(seconds, 0)) + " s";
  }
  return text;
}

}  // namespace

Settings settings_of(const api::JobSpec& spec) {
  Settings settings;
  settings.rules.least_gain = spec.adaptation.retune.min_gain_percent / 100.0;
  settings.rules.cooldown = std::chrono::seconds(spec.adaptation.retune.cooldown_seconds);
  settings.k_min = spec.schedule.k_min;
  settings.k_max = spec.schedule.k_max.value_or(8);
  settings.k_fixed = spec.schedule.k_mode == api::KMode::kFixed;
  settings.fixed_caps = spec.schedule.in_flight_caps;
  settings.family = facts::family_of(spec.schedule.type);
  settings.dispatch = facts::dispatch_of(spec);
  return settings;
}

Input input_of(const facts::Facts& facts, const planner::Model& model,
               const costing::Input& costing) {
  Input input{costing};
  input.now = facts.now;
  input.settings = settings_of(facts.spec);
  input.free_memory = free_memory(facts);
  input.settings.splits = facts::why_whole(facts, &model).empty();
  return input;
}

gate::Proposal proposal_of(const facts::Facts& facts, const Decision& decision) {
  const Costed& change = *decision.change;
  const schedule::Plan& before = *facts.plan;
  schedule::Plan plan = before;
  plan.schedule = change.schedule;
  for (int& share : plan.micro_batches) {
    share = share * before.schedule.micro_batch_size / change.schedule.micro_batch_size;
  }
  plan.state = schedule::StateMove::kKeep;
  if (!decision.memory_guard) plan.predicted_step_seconds = change.seconds;
  return {.kind = decision.memory_guard ? gate::Kind::kMemoryGuard : gate::Kind::kRetune,
          .trigger = schedule::Trigger::kRetune,
          .offer = {.name = change.text,
                    .now_seconds = decision.current_seconds,
                    .then_seconds = change.seconds},
          .what = {},
          .text = decision.memory_guard
                      ? decision.reason
                      : "k " + std::to_string(before.schedule.k) + "->" +
                            std::to_string(change.schedule.k) + ", " + link_text(facts) +
                            ", predicted +" + percent(decision.gain) + " % (" + change.text + ")",
          .gain = decision.gain,
          .change = std::move(plan),
          // Caps that were lowered because of memory are not judged: a rollback is impossible.
          .judged = !decision.memory_guard};
}

}  // namespace weir::retune
