// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/compression/compression.h"

#include <algorithm>
#include <string>
#include <utility>

#include "operator/adaptation/compression/choose.h"
#include "operator/adaptation/costing/costing_input.h"
#include "operator/facts/planning.h"
#include "worker/base/gain.h"
#include "worker/base/text.h"
#include "worker/base/units.h"

namespace weir::compression {
namespace {

using schedule::Codecs;

double codec_seconds_of(const costing::Costing& costing, const Memory& memory) {
  const costing::CodecSeconds& known = costing.input.codec_seconds;
  return known.measured || memory.codec_seconds <= 0 ? known.per_number : memory.codec_seconds;
}

// The job as it would be with other codecs, in the micro-batch size of now.
costing::Input with(const facts::Facts& facts, const costing::Costing& costing,
                    const Codecs& codecs, const Memory& memory) {
  costing::Input input = costing.input;
  schedule::Plan then = *facts.plan;
  then.codecs = codecs;
  const auto saves = [&](const schedule::Plan& plan, const estimator::LinkKey& link) {
    return costing::raw_over_wire(plan, costing.model, input.boundary_bytes, link);
  };
  for (auto& [link, rates] : input.rates.rates) {
    const double faster = saves(then, link) / saves(*facts.plan, link);
    for (double& rate : rates) rate *= faster;
  }
  const auto numbers = [&](const Codecs& some) {
    return costing::codec_numbers(some, input.boundary_bytes, costing.model.number_bytes);
  };
  const auto change = [&](std::vector<schedule::StageTime>& stages) {
    add_codec_seconds(numbers(facts.plan->codecs), -input.codec_seconds.per_number, stages);
    add_codec_seconds(numbers(codecs), codec_seconds_of(costing, memory), stages);
  };
  change(input.stages);
  for (costing::Replica& replica : input.replicas) change(replica.stages);
  input.other_sizes.clear();
  input.measured_step_seconds = 0;  // of the codecs in force
  return input;
}

// The slowest stages and links over all replicas, raw, at the median rates.
std::optional<Raw> raw_of(const facts::Facts& facts, const costing::Costing& costing,
                          const Memory& memory) {
  const costing::Input input = with(facts, costing, {}, memory);
  const costing::LinkView view = view_links(input);
  if (!view.unknown.empty() || input.stages.size() != input.boundary_bytes.size() + 1) return {};
  Raw raw{.micro_batches = input.micro_batches,
          .boundary_bytes = input.boundary_bytes,
          .samples = input.current.micro_batch_size,
          .number_bytes = costing.model.number_bytes,
          .codec_seconds = codec_seconds_of(costing, memory)};
  raw.model.stages = input.stages;
  raw.model.forward.resize(input.boundary_bytes.size());
  raw.model.backward = raw.model.forward;
  const std::vector<double> seconds = link_quantile(view, costing::kMedian);
  for (std::size_t i = 0; i < view.links.size(); ++i) {
    const bool forward = view.links[i].direction == estimator::Direction::kForward;
    auto& links = forward ? raw.model.forward : raw.model.backward;
    schedule::LinkModel& link = links[static_cast<std::size_t>(view.links[i].boundary)];
    link.transfer = std::max(link.transfer, from_seconds(seconds[i]));
    link.latency = std::max(link.latency, from_seconds(view.latency[i]));
  }
  return raw;
}

// now_seconds: of a step of the plan in force; 0 = unknown.
gate::Proposal proposal_of(const facts::Facts& facts, double now_seconds, gate::Kind kind,
                           const Codecs& codecs, const Order& order) {
  schedule::Plan plan = *facts.plan;
  plan.codecs = codecs;
  plan.schedule = order.schedule;
  plan.state = schedule::StateMove::kKeep;
  plan.predicted_step_seconds = order.seconds;
  const std::string now = describe(facts.plan->codecs), then = describe(codecs);
  return {.kind = kind,
          .trigger = schedule::Trigger::kCompress,
          .offer = {.name = then, .now_seconds = now_seconds, .then_seconds = order.seconds},
          .what = "codecs " + (now.empty() ? "Raw" : now) + " -> " + (then.empty() ? "Raw" : then),
          .gain = now_seconds > 0 ? throughput_gain(now_seconds, order.seconds) : 0,
          .change = std::move(plan)};
}

std::string k_text(const facts::Facts& facts, const Order& order) {
  return "k " + std::to_string(facts.plan->schedule.k) + " -> " + std::to_string(order.schedule.k);
}

// A link that is slow now and then would otherwise be followed at each turn. Codecs cost little
// where they are not needed, so they stay.
constexpr std::int64_t kBetweenReturns = 200;  // steps

// Codecs that came and went in fewer steps wait until then before they come again.
constexpr std::int64_t kTwoChanges = 100;  // steps

// Least steps since the last change of any tier before coarser codecs may come.
int steps_to_wait(const gate::Moment& moment, const Memory& memory) {
  if (!memory.change_before) return gate::kStepsBetween;
  const std::int64_t steps = *memory.change_before + kTwoChanges - moment.last_change_step;
  return std::max(gate::kStepsBetween, static_cast<int>(std::min(steps, kTwoChanges)));
}

// Finer codecs that take at most half of the least gain in time. They need no cooldown, and nobody
// judges them: a network that has recovered explains the change.
std::optional<gate::Proposal> propose_finer(const facts::Facts& facts,
                                            const costing::Costing& costing,
                                            const gate::Moment& moment, const Codecs& codecs,
                                            const Order& order, Memory& memory) {
  const double most = 1 + rules_of(facts.spec).least_gain / 2;
  gate::Rules rules = rules_of(facts.spec);
  rules.least_gain = 1 / most - 1;
  rules.cooldown = std::chrono::seconds(0);
  gate::Proposal proposal =
      proposal_of(facts, costing.current_seconds, gate::Kind::kDecompress, codecs, order);
  proposal.offer.name = "finer: " + proposal.offer.name;
  const auto weighed = gate::weigh(proposal.offer, moment, rules, memory.clock, memory.finer);
  memory.finer = weighed.record;
  if (!weighed.act) return std::nullopt;
  memory.finer.quarantine[proposal.offer.name] = moment.step + kBetweenReturns;
  proposal.judged = false;
  proposal.text = proposal.what + ": a step takes " + number(order.seconds, 2) + " s, " +
                  number(costing.current_seconds, 2) + " s with the codecs of now";
  return proposal;
}

// Why no codec may be used, whatever it gains; "" = one may.
std::string why_impossible(const facts::Facts& facts, const Memory& memory) {
  if (const auto* old = facts::older_than(facts, protocol::kCodecPlanVersion)) {
    return "waits: worker " + old->pod + " reads no plan with codecs";
  }
  if (memory.stopped) return "no: codecs did damage, none is tried until weir.dev/replan";
  return "";
}

// Codecs, their best order and that of raw tensors.
struct Coarser {
  Codecs codecs;
  Order with, without;
};
Answer propose_coarser(const facts::Facts& facts, const costing::Costing& costing,
                       const gate::Moment& moment, bool asked, const Coarser& coarser,
                       Memory& memory) {
  const Order& order = coarser.with;
  const double without = coarser.without.seconds, now = costing.current_seconds;
  gate::Rules rules = rules_of(facts.spec);
  if (asked) {
    rules.cooldown = std::chrono::seconds(0);
  } else {
    rules.steps_between = steps_to_wait(moment, memory);
  }
  gate::Proposal proposal = proposal_of(facts, now, gate::Kind::kCompress, coarser.codecs, order);
  // Never where an order would do.
  proposal.offer.now_seconds = facts.plan->codecs.raw() ? without : std::min(without, now);
  const auto weighed = gate::weigh(proposal.offer, moment, rules, memory.clock, memory.coarser);
  memory.coarser = weighed.record;
  const bool enabled = facts.spec.adaptation.compress.enabled;
  Answer answer{
      .proposal = std::nullopt,
      .bound = weighed.enough,
      .considered = {.revision = facts.plan->revision,
                     .what = "compress link " + describe(coarser.codecs),
                     .gain = throughput_gain(now, order.seconds),
                     .answer = enabled || !weighed.enough
                                   ? weighed.answer
                                   : "no: adaptation.compress.enabled is false, for it changes "
                                     "the mathematics slightly",
                     .acts = weighed.act && enabled}};
  if (!weighed.act) return answer;
  const std::string gain = "+" + percent(weighed.gain) + " %";
  proposal.text =
      enabled ? proposal.what + ", " + k_text(facts, order) + ", " + worst_link_text(facts) +
                    ", predicted " + gain + " over the best order of raw tensors"
              : "compress link " + describe(coarser.codecs) + ": a step would take " +
                    number(order.seconds, 2) + " s instead of " +
                    number(proposal.offer.now_seconds, 2) + " s (" + gain +
                    "); no order of micro-batches can hide this link. It changes the mathematics "
                    "slightly and is off: set adaptation.compress.enabled to true to allow it";
  answer.proposal = std::move(proposal);
  return answer;
}

}  // namespace

void note_change(std::int64_t step, Memory& memory) {
  memory.change_before = std::exchange(memory.last_change, step);
}

schedule::Codec coarsest_of(const api::JobSpec& spec) {
  switch (spec.adaptation.compress.coarsest.value()) {
    case api::Coarsest::kBf16:
      return schedule::Codec::kBf16;
    case api::Coarsest::kInt8:
      return schedule::Codec::kInt8;
    case api::Coarsest::kInt6:
      return schedule::Codec::kInt6;
  }
  return schedule::Codec::kInt8;
}

gate::Rules rules_of(const api::JobSpec& spec) {
  const api::CompressSpec& compress = spec.adaptation.compress;
  return {.least_gain = compress.min_gain_percent / 100.0,
          .or_equal = true,
          .wins_needed = 2,
          .same_offer = true,
          .cooldown = std::chrono::seconds(compress.cooldown_seconds),
          .steps_between = gate::kStepsBetween,
          .must_repay = false};
}

std::optional<gate::Proposal> watch(const facts::Facts& facts, int number_bytes, Memory& memory) {
  constexpr std::int64_t kOutSteps = 1000;
  const Codecs& now = facts.plan->codecs;
  note(facts.report->validation, now.raw(), memory.validations);
  note(facts.report->loss, facts.report->step, now.raw(), memory.losses);
  const auto& segment = facts.report->segment;
  const bool own = segment && segment->revision == facts.plan->revision;
  const auto reverted = guard(*facts.plan, number_bytes, own ? &*segment : nullptr,
                              memory.validations, memory.losses);
  if (!reverted) return std::nullopt;
  // Codecs that are out for good come back when somebody asks, not a thousand steps later.
  if (!reverted->for_good) {
    memory.coarser.quarantine[describe(now)] = facts.report->step + kOutSteps;
  }
  memory.stopped = reverted->for_good;
  memory.validations.worse_in_row = 0;
  memory.losses.coded.clear();
  const double seconds = own ? segment->step_seconds : 0;
  gate::Proposal proposal = proposal_of(facts, seconds, gate::Kind::kRevertCodecs, reverted->codecs,
                                        {.schedule = facts.plan->schedule, .seconds = seconds});
  proposal.judged = false;
  proposal.text = reverted->why;
  return proposal;
}

Answer propose(const facts::Facts& facts, const costing::Costing& costing,
               const gate::Moment& moment, bool asked, schedule::Backwards backwards,
               const BestOrder& best, Memory& memory) {
  const auto nothing = [&memory](gate::Considered considered = {}) -> Answer {
    gate::nothing_offered(memory.coarser);
    return {.considered = std::move(considered)};
  };
  gate::end_quarantine(memory.coarser, moment.step);
  const bool known = costing.model.number_bytes > 0 && facts.plan->stage_count() > 1 &&
                     costing.current_seconds > 0;
  const Codecs& now = facts.plan->codecs;
  if (costing.input.codec_seconds.measured) {
    memory.codec_seconds = costing.input.codec_seconds.per_number;
  }
  const auto raw = known ? raw_of(facts, costing, memory) : std::nullopt;
  if (!raw || (now.raw() && !has_slow_links(*raw))) return nothing();

  const Codecs wanted = choose(*raw, coarsest_of(facts.spec), backwards);
  const auto bytes = [&](const Codecs& codecs) { return bytes_of(*raw, codecs); };
  const auto without = best(with(facts, costing, {}, memory));
  if (!without) return nothing();
  std::optional<Order> order = without;
  if (!wanted.raw()) order = best(with(facts, costing, wanted, memory));
  if (!order) return nothing();

  const std::string impossible = why_impossible(facts, memory);
  if (!now.raw() && impossible.empty()) {
    gate::nothing_offered(memory.coarser);
    const double most = (1 + rules_of(facts.spec).least_gain / 2) * costing.current_seconds;
    if (without->seconds <= most) {
      return {propose_finer(facts, costing, moment, {}, *without, memory)};
    }
    if (bytes(wanted) > bytes(now) && order->seconds <= most) {
      return {propose_finer(facts, costing, moment, wanted, *order, memory)};
    }
    gate::nothing_offered(memory.finer);
  }
  if (bytes(wanted) >= bytes(now)) return nothing();
  if (!impossible.empty()) {
    return nothing({.revision = facts.plan->revision,
                    .what = "compress link " + describe(wanted),
                    .gain = throughput_gain(costing.current_seconds, order->seconds),
                    .answer = impossible});
  }
  return propose_coarser(facts, costing, moment, asked, {wanted, *order, *without}, memory);
}

}  // namespace weir::compression
