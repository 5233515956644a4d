// SPDX-License-Identifier: Apache-2.0
// Where a step of the newest segment goes, what makes it slow, what that costs
// (operator/explain/README.md).
#include "operator/controller/reconcile/plans/explain.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "operator/explain/causes.h"
#include "operator/explain/remedies.h"
#include "operator/explain/waterfall.h"
#include "operator/facts/planning.h"
#include "worker/schedule/search_split.h"

namespace weir::reconcile {
namespace {

using estimator::UsualRates;

// Retune is asked about a segment only where no tick asks it, and not after each report.
constexpr std::chrono::seconds kOrderInterval{60};

// Links at their usual rates, where those are higher.
costing::Conditions usually(costing::Conditions conditions, const UsualRates& usual) {
  for (auto& [nodes, link] : conditions.links) {
    const auto known = usual.find(nodes);
    if (known == usual.end()) continue;
    link.bytes_per_second = std::max(link.bytes_per_second, known->second.rate);
  }
  return conditions;
}

// The replica whose ranks tell their parts; nothing if none does.
std::optional<int> telling_replica(const facts::Facts& facts) {
  std::optional<int> replica;
  for (const protocol::SegmentRank& rank : facts.report->segment->ranks) {
    const bool known = rank.replica >= 0 && rank.replica < facts.plan->replica_count() &&
                       rank.stage >= 0 && rank.stage < facts.plan->stage_count();
    if (rank.parts && known) replica = rank.replica;
  }
  return replica;
}

std::vector<protocol::SegmentRank> ranks_of(const facts::Facts& facts, int replica) {
  std::vector<protocol::SegmentRank> ranks;
  for (const protocol::SegmentRank& rank : facts.report->segment->ranks) {
    const bool known = rank.replica == replica && rank.parts && rank.stage >= 0 &&
                       rank.stage < facts.plan->stage_count();
    if (known) ranks.push_back(rank);
  }
  return ranks;
}

std::optional<explain::Waterfall> divided(const Explained& segment, const explain::Observed& seen,
                                          const std::vector<costing::Pipeline>& now) {
  const auto free = costing::pipelines_under(usually(seen.now, seen.usual), segment.facts,
                                             segment.model, seen.plan);
  const auto at = static_cast<std::size_t>(seen.replica);
  if (at >= now.size() || at >= free.size()) return std::nullopt;
  explain::Steps steps{
      .step_seconds = seen.step_seconds,
      .save_seconds = seen.save_every > 0 ? seen.save_seconds / seen.save_every : 0,
      .schedule = seen.plan.schedule,
      .micro_batches = now[at].micro_batches,
      .now = now[at].model,
      .usual = free[at].model};
  steps.parts.resize(seen.plan.stages.size());
  for (const auto& rank : seen.ranks) {
    steps.parts[static_cast<std::size_t>(rank.stage)] = *rank.parts;
  }
  const bool splits = facts::why_whole(segment.facts, &segment.model).empty() &&
                      schedule::has_weights(steps.now.stages);
  steps.backwards = splits ? schedule::Backwards::kSplit : schedule::Backwards::kWhole;
  return explain::waterfall(steps);
}

// Seconds that a simulated step lacks, over those that it usually lacks. Steps without pauses tell
// which are usual; only pauses cost such seconds, so of these steps it is 0.
double unexplained(const explain::Waterfall& waterfall, const explain::CauseInput& input,
                   const explain::StepOf& step_of, const costing::Conditions& ops,
                   std::optional<double>& usually) {
  const double lacks = waterfall.of(explain::Line::kNotExplained);
  const bool at_random = std::ranges::any_of(
      input.deviations, [](const auto& deviation) { return deviation.at_random > 0; });
  if (!at_random) {
    constexpr double kNewest = 0.2;
    const double own = lacks / input.step_seconds;
    usually = usually ? (1 - kNewest) * *usually + kNewest * own : own;
    return 0;
  }
  const double pauses = step_of(input.now) - step_of(ops);  // that the times of ops do not have
  return lacks - pauses - usually.value_or(0) * input.step_seconds;
}

// Steps of twice as many micro-batches.
double step_of_twice(const Explained& segment) {
  schedule::Plan twice = *segment.facts.plan;
  for (int& share : twice.micro_batches) share *= 2;
  return step_under(segment.evidence.conditions, segment.facts, segment.model, twice);
}

}  // namespace

void explain_step(const Explained& segment, NetworkMemory& memory) {
  const facts::Facts& facts = segment.facts;
  const schedule::Plan& plan = *facts.plan;
  explain::Observed seen{.plan = plan,
                         .now = segment.evidence.conditions,
                         .usual = segment.usual,
                         .slow = segment.slow,
                         .sum_links = facts.estimates.sync_links,
                         .step_seconds = segment.evidence.step_seconds};
  memory.waterfall.reset();
  const auto replica = telling_replica(facts);
  if (!replica || segment.evidence.steps == 0) return;
  seen.replica = *replica;
  seen.ranks = ranks_of(facts, *replica);
  seen.save_every = facts.report->segment->save_every;
  seen.save_seconds = facts.report->segment->save_seconds;
  seen.told = facts.report->segment->ranks;
  const auto now = costing::pipelines_under(seen.now, facts, segment.model, plan);
  memory.waterfall = divided(segment, seen, now);
  if (!memory.waterfall) return;
  memory.steps = segment.evidence.steps;
  memory.replica = *replica;
  memory.ranks.assign(plan.stages.size(), {});
  for (const auto& rank : seen.ranks) memory.ranks[static_cast<std::size_t>(rank.stage)] = rank;
  for (const schedule::RankPlace& rank : plan.ranks) {
    const bool slowest = rank.replica == *replica && rank.stage == memory.waterfall->slowest_stage;
    if (slowest) memory.slowest_node = rank.node;
  }

  const protocol::Segment& told = *facts.report->segment;
  explain::remember(memory.devices, explain::devices_of(seen),
                    {told.revision, told.first_step, told.steps}, facts.reported);
  const auto step_of = [&](const costing::Conditions& conditions) {
    return step_under(conditions, facts, segment.model, plan);
  };
  explain::CauseInput input{.now = explain::with_pauses(seen),
                            .deviations = explain::deviations_of(seen, memory.devices),
                            .step_seconds = seen.step_seconds,
                            .step_error = segment.evidence.step_error,
                            .order_seconds = memory.waterfall->of(explain::Line::kOrder),
                            .fill_seconds = memory.waterfall->of(explain::Line::kFillAndDrain),
                            .micro_batches = facts::least_share(plan),
                            .unsure = segment.links_unsure};
  input.unexplained_seconds =
      unexplained(*memory.waterfall, input, step_of, seen.now, memory.usually_unexplained);
  if (memory.causes.main) {
    input.before = explain::Named{memory.causes.main->kind, memory.causes.main->place};
  }
  memory.causes = explain::causes_of(input, step_of);
  memory.prospects = explain::prospects_of(plan, seen.now, now, step_of, step_of_twice(segment));
  const bool asked = memory.order && memory.order->revision == plan.revision &&
                     facts.now < memory.order_asked + kOrderInterval;
  if (facts.spec.adaptation.mode == api::AdaptationMode::kOff && !asked) {
    auto best = adaptation::best_order(facts, segment.model, seen.now);
    memory.order = std::move(best.order);
    memory.codecs = std::move(best.codecs);
    memory.order_asked = facts.now;
  }
}

}  // namespace weir::reconcile
