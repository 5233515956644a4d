// SPDX-License-Identifier: Apache-2.0
// Effect of one link's share on the step, by simulation: the operator's triggers.
#include <algorithm>
#include <cmath>
#include <set>

#include "operator/planner/describe.h"
#include "worker/base/gain.h"

namespace weir::planner {
namespace {

constexpr double kStep = 0.9;         // of the share, for dT/d(share)
constexpr double kLeastShare = 0.02;  // of the present rate; below it nothing helps
constexpr int kBisections = 10;       // to a thousandth of the share
constexpr int kCoarse = 8;            // geometric steps down to kLeastShare

// The same cut and ranks with the schedule of another layout.
Layout with_schedule_of(const Layout& cut, const Layout& schedule) {
  Layout result = cut;
  result.k = schedule.k;
  result.caps = schedule.caps;
  result.split = schedule.split;
  return result;
}

struct Winner {
  double gain = 0;
  const Layout* layout = nullptr;
};
Winner best_at(const Setting& setting, const Layout& chosen, const std::vector<Layout>& others,
               int boundary, double share) {
  const double now = simulated_step(setting, chosen, boundary, share);
  Winner best;
  for (const Layout& other : others) {
    const double gain = throughput_gain(now, simulated_step(setting, other, boundary, share));
    if (gain > best.gain + 1e-12) best = {gain, &other};
  }
  return best;
}

}  // namespace

std::vector<LinkSensitivity> sensitivity_of(const Setting& setting, const Layout& chosen,
                                            const std::vector<Layout>& by_k) {
  std::vector<Layout> others;
  for (const Layout& layout : by_k) {
    if (layout.caps == chosen.caps || layout.caps.size() != chosen.caps.size()) continue;
    Layout other = with_schedule_of(chosen, layout);
    if (fits(setting, other)) others.push_back(std::move(other));
  }
  const double gain = setting.request->min_gain;
  const double now = simulated_step(setting, chosen);
  std::vector<LinkSensitivity> result;
  for (int boundary = 0; boundary + 1 < static_cast<int>(chosen.stages()); ++boundary) {
    LinkSensitivity it;
    it.boundary = boundary;
    it.step_per_share = (now - simulated_step(setting, chosen, boundary, kStep)) / (1 - kStep);
    // The first share, going down, at which another wins; then between it and the one before.
    double high = 1, low = 0;
    const double ratio = std::pow(kLeastShare, 1.0 / kCoarse);
    Winner winner;
    for (int i = 1; i <= kCoarse && !others.empty(); ++i) {
      const double share = std::pow(ratio, i);
      winner = best_at(setting, chosen, others, boundary, share);
      if (winner.gain >= gain) {
        low = share;
        break;
      }
      high = share;
    }
    if (low > 0) {
      for (int i = 0; i < kBisections; ++i) {
        const double middle = (low + high) / 2;
        const Winner here = best_at(setting, chosen, others, boundary, middle);
        if (here.gain >= gain) {
          low = middle;
          winner = here;
        } else {
          high = middle;
        }
      }
      it.switch_share = low;
      it.switch_k = winner.layout->k;
      it.switch_caps = winner.layout->caps;
      it.switch_gain = winner.gain;
    }
    result.push_back(std::move(it));
  }
  return result;
}

}  // namespace weir::planner
