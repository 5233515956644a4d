// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/refine.h"

#include <algorithm>
#include <optional>

#include "operator/planner/linear.h"
#include "worker/base/units.h"
#include "worker/schedule/simulator.h"

namespace weir::planner {
namespace {

constexpr int kMostShifts = 64;
constexpr double kGain = 1 - 1e-9;
constexpr double kNever = 1e18;

schedule::PipelineModel model_of(const ChainCandidate& candidate) {
  schedule::PipelineModel model;
  const std::vector<BoundaryLink> links = links_of(*candidate.slots, candidate.devices);
  for (std::size_t s = 0; s < candidate.devices.size(); ++s) {
    const Kind& kind = candidate.slots->kinds[static_cast<std::size_t>(candidate.cut.kinds[s])];
    model.stages.push_back(stage_time(*candidate.chain, kind.device_class, candidate.cut.first[s],
                                      candidate.cut.first[s + 1]));
    if (s == links.size()) continue;
    const auto bytes = static_cast<double>(
        candidate.chain->cut[static_cast<std::size_t>(candidate.cut.first[s + 1])]);
    const auto link = [&](const LinkTime& time) {
      return schedule::LinkModel{.transfer = from_seconds(bytes * time.seconds_per_byte),
                                 .latency = from_seconds(time.latency)};
    };
    model.forward.push_back(link(links[s].forward));
    model.backward.push_back(link(links[s].backward));
  }
  return model;
}

Pipeline pipeline(const ChainCandidate& candidate) {
  return pipeline_of(*candidate.chain, *candidate.slots, candidate.cut,
                     links_of(*candidate.slots, candidate.devices));
}

bool fits(const ChainCandidate& candidate) {
  for (std::size_t s = 0; s < candidate.cut.kinds.size(); ++s) {
    const int first = candidate.cut.first[s], end = candidate.cut.first[s + 1];
    if (first >= end) return false;
    const std::int64_t usable =
        candidate.slots->kinds[static_cast<std::size_t>(candidate.cut.kinds[s])].usable_bytes;
    if (usable > 0 &&
        stage_bytes(*candidate.chain, candidate.shape, static_cast<int>(s), first, end) > usable) {
      return false;
    }
  }
  return true;
}

// Cuts whose late stages are lighter, which with k >= 2 is shorter and which the sum form does
// not see (planner.md 2.3): M t_s + pre(s) equal for all s is t_s in proportion to (1 -
// tilt/M)^s.
std::optional<ChainCandidate> tilted(const ChainCandidate& from, double tilt) {
  const std::size_t stages = from.devices.size();
  const double factor = 1 - tilt / from.shape.micro_batches;
  const auto fill = [&](double target) {  // the longest prefixes within the targets
    std::vector<int> first{0};
    for (std::size_t s = 0; s < stages; ++s, target *= factor) {
      const Kind& kind = from.slots->kinds[static_cast<std::size_t>(from.cut.kinds[s])];
      int end = first.back() + 1;
      const int most = from.chain->layers - static_cast<int>(stages - 1 - s);
      for (; end < most; ++end) {
        const schedule::StageTime time =
            stage_time(*from.chain, kind.device_class, first.back(), end + 1);
        if (to_seconds(time.forward + time.backward) > target) break;
      }
      first.push_back(std::min(end, most));
    }
    return first;
  };
  ChainCandidate result = from;
  double low = 0, high = 2 * step_seconds(pipeline(from), from.shape);
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    result.cut.first = fill(middle);
    (result.cut.first.back() == from.chain->layers ? high : low) = middle;
  }
  result.cut.first = fill(high);
  if (!fits(result)) return std::nullopt;
  result.seconds = simulated(result);
  return result;
}

// Moves one layer across one boundary while that shortens the simulated step.
void shift(ChainCandidate& candidate) {
  for (int moves = 0; moves < kMostShifts; ++moves) {
    ChainCandidate best = candidate;
    for (std::size_t b = 1; b + 1 < candidate.cut.first.size(); ++b) {
      for (const int by : {-1, 1}) {
        ChainCandidate moved = candidate;
        moved.cut.first[b] += by;
        if (!fits(moved)) continue;
        moved.seconds = simulated(moved);
        if (moved.seconds < best.seconds * kGain) best = std::move(moved);
      }
    }
    if (best.cut == candidate.cut) break;
    candidate = std::move(best);
  }
  candidate.objective = step_seconds(pipeline(candidate), candidate.shape);
  candidate.lower_bound = std::min(candidate.lower_bound, candidate.objective);
}

}  // namespace

double simulated(const ChainCandidate& candidate) {
  const auto timeline = schedule::simulate(candidate.shape.schedule, candidate.shape.micro_batches,
                                           model_of(candidate));
  if (!timeline) return kNever;
  return to_seconds(timeline->step) + update_tail(pipeline(candidate));
}

ChainCandidate refined(const ChainCandidate& candidate) {
  ChainCandidate best = candidate;
  shift(best);
  for (const double tilt : {0.5, 1.0}) {
    std::optional<ChainCandidate> other = tilted(candidate, tilt);
    if (!other) continue;
    shift(*other);
    if (other->seconds < best.seconds * kGain) best = *std::move(other);
  }
  return best;
}

}  // namespace weir::planner
