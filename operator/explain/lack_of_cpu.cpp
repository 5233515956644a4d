// SPDX-License-Identifier: Apache-2.0
#include "operator/explain/lack_of_cpu.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/base/text.h"

namespace weir::explain {
namespace {

constexpr double kExplains = 0.5;  // of the time that a worker loses

}  // namespace

void tell_lack_of_cpu(const Observed& observed, std::vector<Deviation>& all) {
  const double step = observed.step_seconds;
  for (const schedule::RankPlace& place : observed.plan.ranks) {
    const protocol::SegmentRank* told = told_by(observed, place);
    const auto slowness = observed.now.slowness.find(place.pod);
    if (told == nullptr || slowness == observed.now.slowness.end()) continue;
    const double throttled = std::min(told->throttled_seconds, step);
    const double lacking = std::max(throttled, std::min(told->queued_seconds, step));
    const Slowness ops = passes_of(observed, *told), own = slowness->second;
    if (lacking < kLeastPart * step || sum(ops) <= 0) continue;
    if (own.first <= 0 || own.second <= 0) continue;

    const auto may_lack = [&](const Deviation& one) {
      return one.place == place.pod && (one.kind == Kind::kDevice || one.kind == Kind::kPauses);
    };
    Deviation lack{.place = place.pod, .text = {}};
    Slowness& excess = lack.excess[place.pod];
    for (const Deviation& one : all) {
      if (!may_lack(one)) continue;
      excess.first += one.excess.at(place.pod).first;
      excess.second += one.excess.at(place.pod).second;
      lack.at_random += one.at_random;
    }
    double lost = excess.first / own.first * ops.first + excess.second / own.second * ops.second;
    if (lost > 0) {
      if (lacking < kExplains * lost) continue;
      std::erase_if(all, may_lack);
    } else {
      // Waiting for a processor may as well have come while the rank waited for others.
      lost = lack.at_random = throttled * std::min(1.0, sum(ops) / step);
      if (lost < kLeastPart * step) continue;
      excess = {own.first * lost / sum(ops), own.second * lost / sum(ops)};
    }
    const bool limited = throttled >= kExplains * lost;
    lack.kind = limited ? Kind::kLimit : Kind::kQueue;
    lack.text = rank_text(observed.plan, place) +
                (limited ? " is throttled by its CPU limit, for "
                         : " waits for processors that others use, for ") +
                number(1000 * lost, 0) + " ms a step";
    all.push_back(std::move(lack));
  }
}

}  // namespace weir::explain
