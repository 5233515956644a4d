// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/costing/codec_seconds.h"

#include <algorithm>
#include <cmath>

#include "operator/facts/planning.h"
#include "operator/planner/model/stage_costs.h"
#include "worker/base/units.h"

namespace weir::costing {
namespace {

using protocol::StepPart;

// Until a segment tells it: a core that encodes and decodes 8 GB/s of float32, and a
// GPU that does 200.
constexpr double kAssumedOnCpu = 0.5e-9, kAssumedOnGpu = 0.02e-9;
constexpr double kMost = 1e-6;  // a segment that tells more is wrong

double assumed(const facts::Facts& facts) {
  if (facts.members == nullptr) return kAssumedOnGpu;
  const auto computes_on_cpu = [](const protocol::Member& member) {
    return std::ranges::any_of(
        member.ranks, [](const protocol::RankDevice& rank) { return rank.device == "cpu"; });
  };
  return std::ranges::any_of(facts.members->members, computes_on_cpu) ? kAssumedOnCpu
                                                                      : kAssumedOnGpu;
}

// The largest that a rank of this segment tells; 0 = none does.
double told_by(const protocol::Segment& segment, const schedule::Plan& plan,
               const facts::Facts& facts, const planner::Model& model) {
  const auto costs = planner::costs_of(model, cluster_of(facts), plan);
  const auto numbers = codec_numbers(plan.codecs, costs.boundary_bytes, model.number_bytes);
  double most = 0;
  for (const protocol::SegmentRank& rank : segment.ranks) {
    const auto stage = static_cast<std::size_t>(rank.stage);
    const bool known = rank.parts && rank.stage >= 0 && stage < numbers.size() &&
                       rank.replica >= 0 && rank.replica < plan.replica_count();
    if (!known) continue;
    const double all = (numbers[stage].forward + numbers[stage].backward) *
                       plan.micro_batches[static_cast<std::size_t>(rank.replica)];
    const double seconds = rank.parts->of(StepPart::kCodec);
    if (all > 0 && std::isfinite(seconds)) most = std::max(most, seconds / all);
  }
  return std::min(most, kMost);
}

}  // namespace

CodecSeconds codec_seconds(const facts::Facts& facts, const planner::Model& model) {
  if (facts.report != nullptr && model.number_bytes > 0) {
    for (const auto* segment : {&facts.report->segment, &facts.report->previous_segment}) {
      if (!*segment) continue;
      const auto plan =
          std::ranges::find(facts.plans, (*segment)->revision, &schedule::Plan::revision);
      if (plan == facts.plans.end() || plan->codecs.raw()) continue;
      const double told = told_by(**segment, *plan, facts, model);
      if (told > 0) return {told, true};
    }
  }
  return {assumed(facts), false};
}

std::vector<CodecNumbers> codec_numbers(const schedule::Codecs& codecs,
                                        const std::vector<std::int64_t>& boundary_bytes,
                                        int number_bytes) {
  std::vector<CodecNumbers> numbers(boundary_bytes.size() + 1);
  if (number_bytes <= 0) return numbers;
  for (std::size_t b = 0; b < boundary_bytes.size(); ++b) {
    const int boundary = static_cast<int>(b);
    const double count = static_cast<double>(boundary_bytes[b]) / number_bytes;
    if (codec_of(codecs.forward, boundary) != schedule::Codec::kRaw) {
      numbers[b].forward += count;  // encoded
      numbers[b + 1].forward += count;
    }
    if (codec_of(codecs.backward, boundary) != schedule::Codec::kRaw) {
      numbers[b + 1].backward += count;
      numbers[b].backward += count;
    }
  }
  return numbers;
}

void add_codec_seconds(const std::vector<CodecNumbers>& numbers, double per_number,
                       std::vector<schedule::StageTime>& stages) {
  const auto add = [](double seconds, std::chrono::nanoseconds& time) {
    if (time.count() == 0) return;  // unknown, or of a backward that does not split
    time = std::max(std::chrono::nanoseconds(1), time + from_seconds(seconds));
  };
  for (std::size_t s = 0; s < std::min(numbers.size(), stages.size()); ++s) {
    add(numbers[s].forward * per_number, stages[s].forward);
    add(numbers[s].backward * per_number, stages[s].backward);
    add(numbers[s].backward * per_number, stages[s].backward_input);
  }
}

}  // namespace weir::costing
