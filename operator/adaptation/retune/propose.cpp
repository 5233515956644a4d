// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/retune/propose.h"

#include "operator/facts/planning.h"
#include "worker/base/text.h"

namespace weir::retune {
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
                            std::to_string(change.schedule.k) + ", " + worst_link_text(facts) +
                            ", predicted +" + percent(decision.gain) + " % (" + change.text + ")",
          .gain = decision.gain,
          .change = std::move(plan),
          // Caps that were lowered because of memory are not judged: a rollback is impossible.
          .judged = !decision.memory_guard};
}

}  // namespace weir::retune
