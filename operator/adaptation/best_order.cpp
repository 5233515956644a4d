// SPDX-License-Identifier: Apache-2.0
// Asks retune and compress about a segment, without Prometheus and without changing anything.
#include "operator/adaptation/adapt.h"
#include "operator/adaptation/costing/costing_input.h"
#include "operator/adaptation/retune/propose.h"
#include "operator/facts/measured_times.h"
#include "operator/facts/planning.h"

namespace weir::adaptation {
namespace {

constexpr int kScrapes = 4;  // the fewest that retune takes, all alike

// Nothing if a link of the plan is not known.
std::optional<estimator::RateVectors> rates_of(const facts::Facts& facts,
                                               const costing::Conditions& conditions) {
  estimator::RateVectors rates;
  for (int i = 0; i < kScrapes; ++i) rates.times.push_back(facts.now + std::chrono::seconds(i));
  for (int r = 0; r < facts.plan->replica_count(); ++r) {
    std::map<int, std::string> nodes;
    for (const auto& rank : facts::of_replica(*facts.plan, r).ranks) nodes[rank.stage] = rank.node;
    for (int b = 0; b + 1 < facts.plan->stage_count(); ++b) {
      using estimator::Direction;
      for (const auto direction : {Direction::kForward, Direction::kBackward}) {
        const bool forward = direction == Direction::kForward;
        const auto link =
            conditions.links.find({nodes[forward ? b : b + 1], nodes[forward ? b + 1 : b]});
        if (link == conditions.links.end()) return std::nullopt;
        const estimator::LinkKey key{r, b, direction};
        rates.rates[key].assign(kScrapes, link->second.bytes_per_second);
        rates.rtt_seconds[key] = 2 * link->second.latency_seconds;
      }
    }
  }
  return rates;
}

std::optional<retune::Decision> decided(const facts::Facts& facts, const planner::Model& model,
                                        const costing::Input& costing) {
  auto decision = retune::tune(retune::input_of(facts, model, costing), {}).decision;
  if (decision.candidates.empty()) return std::nullopt;
  return decision;
}

gate::Considered best_codecs(const facts::Facts& facts, const planner::Model& model,
                             const costing::Input& input, double current_seconds) {
  const costing::State nothing;
  const auto backwards = facts::why_whole(facts, &model).empty() ? schedule::Backwards::kSplit
                                                                 : schedule::Backwards::kWhole;
  const auto best = [&](const costing::Input& with) -> std::optional<compression::Order> {
    const auto decision = decided(facts, model, with);
    if (!decision) return std::nullopt;
    return compression::Order{decision->candidates.front().schedule,
                              decision->candidates.front().seconds};
  };
  compression::Memory memory;
  return compression::propose(facts, {model, input, nothing, current_seconds},
                              {.now = facts.now, .step = facts.report->step}, false, backwards,
                              best, memory)
      .considered;
}

}  // namespace

Best best_order(const facts::Facts& facts, const planner::Model& model,
                const costing::Conditions& conditions) {
  auto rates = rates_of(facts, conditions);
  const auto pipelines = costing::pipelines_under(conditions, facts, model, *facts.plan);
  if (!rates || pipelines.empty()) return {};
  costing::Input costing = costing::costing_input(facts, model);
  costing::by_raw_bytes(*facts.plan, model, costing.boundary_bytes, *rates);
  costing.rates = *std::move(rates);
  costing.replicas.clear();
  for (const auto& [micro_batches, pipeline] : pipelines) {
    costing.replicas.push_back({micro_batches, pipeline.stages});
  }
  costing.stages = costing::slowest_stages(costing.replicas);
  const auto decision = decided(facts, model, costing);
  if (!decision) return {};
  const std::uint32_t revision = facts.plan->revision;
  return {gate::Considered{revision, decision->best, decision->gain, decision->answer, false},
          best_codecs(facts, model, costing, decision->current_seconds)};
}

}  // namespace weir::adaptation
