// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/segment_saves.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "worker/base/median.h"

namespace weir::coordinator {
namespace {

constexpr std::size_t kNewest = 3;  // a single slow save is no median
constexpr double kOverdue = 2;      // intervals

double rounded(double seconds) {
  return std::round(seconds * 1e6) / 1e6;
}

}  // namespace

// A rank copies behind a step, or in the middle of the next one if the order comes late. Ranks tell
// an interruption of the step that may have waited for it, which is the next one in both cases.
void SegmentSaves::add(StepWithSaves step, std::optional<double> usual) {
  const std::optional<StepWithSaves> before = std::exchange(before_, step);
  const bool follows = before && before->step + 1 == step.step && !before->interrupted &&
                       !step.copies.empty() && before->copies.size() == step.copies.size();
  if (!follows || !step.interrupted || step.otherwise || !usual) return;
  Save save{.step = step.step,
            .longer = std::max(0.0, before->copy_behind + step.seconds - *usual),
            .copies = std::move(step.copies)};
  for (std::size_t i = 0; i < save.copies.size(); ++i) save.copies[i] += before->copies[i];
  if (std::ranges::all_of(save.copies, [](double seconds) { return seconds <= 0; })) return;
  newest_.push_back(std::move(save));
  if (newest_.size() > kNewest) newest_.pop_front();
}

void SegmentSaves::tell(protocol::Segment& segment) const {
  if (newest_.size() < 2) return;
  const std::int64_t last = newest_.back().step;
  const double every =
      static_cast<double>(last - newest_.front().step) / static_cast<double>(newest_.size() - 1);
  if (static_cast<double>(before_->step - last) > kOverdue * every) return;
  const auto usual = [&](auto&& seconds_of) {
    std::vector<double> all;
    for (const Save& save : newest_) all.push_back(seconds_of(save));
    return rounded(median(all));
  };
  segment.save_every = every;
  segment.save_seconds = usual([](const Save& save) { return save.longer; });
  for (std::size_t i = 0; i < segment.ranks.size(); ++i) {
    if (i >= newest_.back().copies.size()) return;
    segment.ranks[i].save_seconds = usual([i](const Save& save) { return save.copies[i]; });
  }
}

}  // namespace weir::coordinator
