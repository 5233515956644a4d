// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/adapt.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "operator/adaptation/costing/costing_input.h"
#include "operator/adaptation/retune/memory_alarm.h"
#include "operator/adaptation/retune/propose.h"
#include "operator/adaptation/shares/propose.h"
#include "operator/adaptation/tick_parts.h"
#include "operator/facts/measured_times.h"
#include "operator/facts/planning.h"

namespace weir::adaptation {
namespace {

bool changes_plans(const facts::Facts& facts) {
  return facts.spec.adaptation.mode == api::AdaptationMode::kAuto;
}

costing::Costing costing_of(const Evaluation& evaluation) {
  return {*evaluation.model, evaluation.input, evaluation.tick.memory.retune.cost,
          evaluation.decision.current_seconds};
}

// The only one that changes plans without measurements of the network, but for the guard of memory.
Answer ask_guard(Evaluation& evaluation) {
  const facts::Facts& facts = evaluation.facts;
  std::string why_not;
  if (!facts.plan->codecs.raw()) evaluation.model = model_of(facts, why_not);
  const int number_bytes = evaluation.model ? evaluation.model->number_bytes : 0;
  return {compression::watch(facts, number_bytes, evaluation.tick.memory.compression)};
}

Answer ask_shares(Evaluation& evaluation) {
  const facts::Facts& facts = evaluation.facts;
  Memory& memory = evaluation.tick.memory;
  if (!network_known(facts) || !facts.spec.adaptation.retune.enabled) return {};
  const shares::Moments moments{.retune = memory.retune.clock,
                                .regroup = memory.repartition.clock,
                                .moment = {.now = facts.now,
                                           .step = facts.report->step,
                                           .last_change_step = memory.retune.last_change_step,
                                           .unjudged = memory.plan_change.has_value()}};
  Answer answer{shares::propose(facts, moments, evaluation.asked, memory.shares)};
  if (!answer.proposal) memory.announced.shares.clear();
  return answer;  // in mode Observe retune proposes, too
}

int percent_above(double seconds, double least) {
  return static_cast<int>(std::lround(std::clamp(100 * (seconds / least - 1), 0.0, 1e6)));
}

// The bound is costed where the plan is: if rates or times have moved, or if the tier does not cost
// anything because the order is fixed.
void show_bound(Evaluation& evaluation, bool splits) {
  const retune::Decision& decision = evaluation.decision;
  const bool costed = !decision.candidates.empty() || decision.fixed_order;
  if (!costed && !evaluation.asked) return;
  const costing::Bound bound = costing::bound_of(evaluation.input, splits);
  if (bound.least_seconds <= 0) return;
  evaluation.tick.bound_simulated = percent_above(bound.step_seconds, bound.least_seconds);
  const double measured = evaluation.input.measured_step_seconds;
  if (measured > 0) {
    evaluation.tick.bound_measured = percent_above(measured, bound.least_seconds);
  }
}

Answer ask_retune(Evaluation& evaluation) {
  const facts::Facts& facts = evaluation.facts;
  const bool fresh = network_known(facts);
  // A worker alone has no links, so no later metrics help.
  if (!fresh && facts.plan->ranks.size() > 1) {
    evaluation.lacks = std::string("no network metrics (NetworkMetricsAvailable: ") +
                       estimator::name(facts.estimates.freshness) + ")";
  }
  // The memory guard needs no network metrics.
  if (!fresh && !evaluation.memory_short) return {.last = true};
  std::string why_not;
  if (!evaluation.model) evaluation.model = model_of(facts, why_not);
  if (!evaluation.model) {
    evaluation.lacks = why_not;
    return {.last = true};
  }
  evaluation.input = costing::costing_input(facts, *evaluation.model);
  if (!fresh) evaluation.input.rates = {};
  retune::Input input = retune::input_of(facts, *evaluation.model, evaluation.input);
  if (evaluation.asked) input.settings.rules.cooldown = std::chrono::seconds(0);
  constexpr double kNever = 1e9;
  if (!facts.spec.adaptation.retune.enabled) {
    input.settings.rules.least_gain = input.settings.min_gain_size = kNever;
  }
  auto& state = evaluation.tick.memory.retune;
  auto tuned = retune::tune(input, state);
  state = std::move(tuned.state);
  evaluation.decision = std::move(tuned.decision);
  const retune::Decision& decision = evaluation.decision;
  if (fresh && !decision.unknown.empty()) evaluation.lacks = decision.unknown;
  if (!decision.candidates.empty()) {
    const bool enabled = facts.spec.adaptation.retune.enabled;
    evaluation.tick.memory.order = {facts.plan->revision, decision.best, decision.gain,
                                    enabled ? decision.answer : "no: adaptation.retune is off",
                                    decision.change.has_value()};
  }
  show_bound(evaluation, input.settings.splits);
  if (!evaluation.decision.change) return {.proposal = std::nullopt, .last = !fresh};
  return {retune::proposal_of(facts, evaluation.decision), true};
}

// The best order of the job if its links had these rates.
std::optional<compression::Order> best_order_with(const Evaluation& evaluation,
                                                  const costing::Input& costing) {
  const retune::State& own = evaluation.tick.memory.retune;
  const retune::Input input = retune::input_of(evaluation.facts, *evaluation.model, costing);
  retune::State state;
  state.cost.correction = own.cost.correction;
  state.record.quarantine = own.record.quarantine;
  state.guarded_samples = own.guarded_samples;
  auto decision = retune::tune(input, state).decision;
  if (decision.candidates.empty()) return std::nullopt;
  retune::Costed& best = decision.candidates.front();
  return compression::Order{std::move(best.schedule), best.seconds};
}

Answer ask_compression(Evaluation& evaluation) {
  const facts::Facts& facts = evaluation.facts;
  Memory& memory = evaluation.tick.memory;
  // Without news an evaluation would count the same evidence twice.
  const bool news = evaluation.decision.current_seconds > 0;
  if (!evaluation.model || memory.ranks_change || !news) return {};
  gate::Moment moment = moment_of(facts, memory);
  moment.unjudged = memory.plan_change.has_value();
  const auto backwards = facts::why_whole(facts, &*evaluation.model).empty()
                             ? schedule::Backwards::kSplit
                             : schedule::Backwards::kWhole;
  compression::Answer answer = compression::propose(
      facts, costing_of(evaluation), moment, evaluation.asked, backwards,
      [&](const costing::Input& input) { return best_order_with(evaluation, input); },
      memory.compression);
  memory.codecs = std::move(answer.considered);
  std::string& announced = memory.announced.compression;
  if (!answer.bound) announced.clear();
  if (facts.spec.adaptation.compress.enabled) return {std::move(answer.proposal), false};
  // Once while a link stays bound, whatever the codecs are.
  if (answer.proposal && announced.empty()) announce(evaluation.tick, *answer.proposal);
  return {};
}

Answer ask_retry_previous(Evaluation& evaluation) {
  const facts::Facts& facts = evaluation.facts;
  Memory& memory = evaluation.tick.memory;
  if (!tiers_above_enabled(facts.spec) || memory.ranks_change ||
      evaluation.decision.current_seconds <= 0) {
    return {.last = true};
  }
  return {repartition::retry_previous(facts, costing_of(evaluation), moment_of(facts, memory),
                                      memory.repartition)};
}

// Whether the cooldowns of both tiers last so long that a search can wait. The planner's search is
// the most expensive part of an evaluation.
bool rests(const facts::Facts& facts, const Memory& memory) {
  constexpr int kSearchesAhead = 2;  // evaluations that must favour an offer
  const auto& adaptation = facts.spec.adaptation;
  const std::chrono::seconds ahead(kSearchesAhead * adaptation.evaluation_interval_seconds);
  const auto resting = [&](const api::TierSpec& tier, const gate::Clock& clock) {
    const auto rules = gate::costly_rules(tier.min_gain_percent, tier.cooldown_seconds, false);
    return !tier.enabled || gate::cooldown_left(facts.now, rules, clock) > ahead;
  };
  return resting(adaptation.regroup, memory.repartition.clock) &&
         resting(adaptation.replace, memory.replace.clock);
}

// Whether something is wrong that retune cannot solve and is not about to.
bool wrong(const Evaluation& evaluation) {
  const retune::Escalation& escalation = evaluation.decision.escalation;
  const Memory& memory = evaluation.tick.memory;
  const bool bound = !escalation.link_bound.empty();
  const bool retunes =
      memory.retune.record.wins_in_row > 0 && evaluation.facts.spec.adaptation.retune.enabled;
  return (bound || escalation.loss_seconds > 0) && (bound || !retunes) &&
         !rests(evaluation.facts, memory);
}

Answer ask_repartition(Evaluation& evaluation) {
  const facts::Facts& facts = evaluation.facts;
  Memory& memory = evaluation.tick.memory;
  if (!evaluation.asked && !wrong(evaluation)) {
    repartition::nothing_wrong(memory.repartition);
    gate::nothing_offered(memory.replace.record);
    memory.cut = {};
    return {.last = true};
  }
  if (!facts.spec.adaptation.regroup.enabled) return {};
  const auto costing = costing_of(evaluation);
  const bool news = !evaluation.decision.candidates.empty() || evaluation.asked;
  repartition::search(facts, costing, news, memory.repartition);
  auto answer = repartition::propose(facts, costing, moment_of(facts, memory), evaluation.asked,
                                     memory.repartition);
  const auto& candidate = memory.repartition.candidate;
  memory.cut = {facts.plan->revision, candidate ? candidate->what : "", answer.gain, answer.answer,
                answer.proposal.has_value()};
  return {std::move(answer.proposal), answer.enough};
}

Answer ask_replace(Evaluation& evaluation) {
  const facts::Facts& facts = evaluation.facts;
  if (!facts.spec.adaptation.replace.enabled) return {};
  Memory& memory = evaluation.tick.memory;
  return {replace::propose(facts, costing_of(evaluation), moment_of(facts, memory),
                           evaluation.asked, memory.replace)};
}

constexpr std::array kTiers{TierEntry{"guard", ask_guard},
                            TierEntry{"shares", ask_shares},
                            TierEntry{"retune", ask_retune},
                            TierEntry{"compress", ask_compression},
                            TierEntry{"retry_previous", ask_retry_previous},
                            TierEntry{"repartition", ask_repartition},
                            TierEntry{"replace", ask_replace}};

// Asks the tiers until one makes a change. In mode Observe they only propose.
void ask_tiers(Evaluation& evaluation) {
  for (const TierEntry& tier : tiers()) {
    Answer answer = tier.ask(evaluation);
    if (answer.proposal && changes_plans(evaluation.facts)) {
      return take(evaluation.facts, evaluation.tick, *std::move(answer.proposal));
    }
    if (answer.proposal) announce(evaluation.tick, *answer.proposal);
    if (answer.last) return;
  }
}

// A new leader reads the clocks from status, before anything is judged or shown by them.
void resume_clocks(const api::JobStatus& status, Memory& memory) {
  gate::resume(memory.retune.clock, status.retune_last_change, 0);
  gate::resume(memory.repartition.clock, status.regroup_last_change,
               status.regroup_cooldown_seconds);
  gate::resume(memory.replace.clock, status.replace_last_change, status.replace_cooldown_seconds);
  gate::resume(memory.compression.clock, status.compress_last_change,
               status.compress_cooldown_seconds);
}

// The first change that the last one leads to: a rollback, or one that the spec demands.
std::optional<gate::Proposal> demanded(const facts::Facts& facts, Tick& tick) {
  if (auto back = judge_plan_change(facts, tick)) return back;
  facts::remember_links(tick.memory.history.links, carrying_links(facts), facts.now);
  if (auto back = judge_ranks_change(facts, tick)) return back;
  return shares::follow_spec(facts, tick.memory.shares);
}

// Tells once why a request waits.
void replan_waits(Tick& tick, const std::string& why) {
  std::string& told = tick.memory.announced.replan;
  if (told != why) say(tick, "Normal", "ReplanWaits", "weir.dev/replan waits: " + why);
  told = why;
}

}  // namespace

std::span<const TierEntry> tiers() {
  return kTiers;
}

bool tiers_above_enabled(const api::JobSpec& spec) {
  return spec.adaptation.regroup.enabled || spec.adaptation.replace.enabled;
}

gate::Moment moment_of(const facts::Facts& facts, const Memory& memory) {
  gate::Moment moment{.now = facts.now,
                      .step = facts.report->step,
                      .loss_seconds = memory.retune.cost.loss_seconds};
  // A proposal changes nothing.
  if (changes_plans(facts)) moment.last_change_step = memory.retune.last_change_step;
  return moment;
}

Tick tick(facts::Facts facts, Memory before, bool replan) {
  const auto& adaptation = facts.spec.adaptation;
  const auto& status = facts.status;
  Tick tick{
      .memory = std::move(before),
      .clocks = {status.retune_last_change, status.regroup_last_change, status.replace_last_change,
                 status.compress_last_change, status.regroup_cooldown_seconds,
                 status.replace_cooldown_seconds, status.compress_cooldown_seconds}};
  Memory& memory = tick.memory;
  facts.history = &memory.history;  // which grows now
  resume_clocks(status, memory);
  note_step(facts, memory.history);
  if (!replan) memory.announced.replan.clear();
  const bool memory_short = retune::memory_is_short(free_memory(facts));
  if (!memory_short) {
    Continued rollback = continue_rollback(facts, tick);
    tick.proposal = std::move(rollback.proposal);
    if (rollback.waits) return tick;
  }
  if (auto change = demanded(facts, tick)) {
    take(facts, tick, *std::move(change));
    return tick;
  }
  if (adaptation.mode == api::AdaptationMode::kOff ||
      !(adaptation.retune.enabled || adaptation.compress.enabled ||
        tiers_above_enabled(facts.spec))) {
    if (replan) replan_waits(tick, "adaptation is off");
    return tick;
  }
  // Here, because the tier itself is not asked where there is no news.
  if (replan) memory.compression.stopped = false;
  const auto interval = std::chrono::seconds(adaptation.evaluation_interval_seconds);
  // Each metrics tick wakes the job. So the pass wakes itself only for the rest of an interval if a
  // tick came too early. Without metrics only the memory guard is left, and the next pass for the
  // job's progress is soon enough for it. So thousands of idle jobs cost nothing.
  if (memory.last_evaluation && facts.now < *memory.last_evaluation + interval && !replan) {
    if (network_known(facts)) tick.wake = *memory.last_evaluation + interval;
    return tick;
  }
  memory.last_evaluation = facts.now;
  // A new rank map is judged before another change affects the step time.
  if (memory.ranks_change && !memory_short) {
    if (replan) replan_waits(tick, "the last change of ranks is not judged yet");
    return tick;
  }
  Evaluation evaluation{
      .facts = facts, .tick = tick, .asked = replan, .memory_short = memory_short};
  ask_tiers(evaluation);
  // A request counts as followed when its evaluation has been made. Without what it needs it waits,
  // between two scrapes for the next one.
  if (replan && !evaluation.lacks.empty()) replan_waits(tick, evaluation.lacks);
  tick.replan_taken = replan && evaluation.lacks.empty() && !evaluation.decision.too_soon;
  return tick;
}

void forget_ranks(Memory& memory) {
  Memory before = std::exchange(memory, {});
  auto& kept = memory.repartition;
  kept.clock = before.repartition.clock;
  // The cooldown was doubled because of rank maps of other members.
  kept.clock.cooldown = std::chrono::seconds(0);
  kept.searches = before.repartition.searches;
  kept.pause_seconds = before.repartition.pause_seconds;
  kept.candidate_revision = before.repartition.candidate_revision;
  memory.replace.clock = before.replace.clock;
  if (before.ranks_change && before.ranks_change->revision == 0) {  // the plan of a replacement
    memory.ranks_change = std::move(before.ranks_change);
  }
  memory.history.links = std::move(before.history.links);
}

}  // namespace weir::adaptation
