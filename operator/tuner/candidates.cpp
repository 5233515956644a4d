// SPDX-License-Identifier: Apache-2.0
#include "operator/tuner/candidates.h"

#include <algorithm>

namespace weir::tuner {
namespace {

constexpr int kGroups[] = {2, 3, 4, 6, 8};
constexpr int kMostSlack = 8;
constexpr double kQuantiles[] = {0.1, 0.5, 0.9};

class Collector {
 public:
  explicit Collector(const Input& input) : input_(input), result_{input.current} {}

  void add(std::vector<int> caps) {
    const bool fits = within_memory(caps);
    const int k = schedule::k_of_caps(caps);
    if (!fits || !within_k(caps, k)) return;
    schedule::Schedule schedule = input_.current;
    schedule.family = input_.settings.family;
    schedule.dispatch = schedule::dispatch_in_force(caps, input_.settings.dispatch);
    schedule.k = k;
    schedule.caps = std::move(caps);
    const bool known = std::any_of(result_.begin(), result_.end(), [&](const auto& other) {
      return other.caps == schedule.caps && other.dispatch == schedule.dispatch;
    });
    if (!known) result_.push_back(std::move(schedule));
  }

  std::vector<schedule::Schedule> take() { return std::move(result_); }

 private:
  // With Hint any caps are a plan, so memory lowers them; Strict runs kFkB's caps or none.
  bool within_memory(std::vector<int>& caps) const {
    if (input_.cap_max.size() != caps.size()) return true;
    for (std::size_t s = 0; s < caps.size(); ++s) {
      if (caps[s] <= input_.cap_max[s]) continue;
      if (input_.settings.dispatch == schedule::Dispatch::kStrict || input_.cap_max[s] < 1) {
        return false;
      }
      caps[s] = input_.cap_max[s];
    }
    // An upstream cap holds the ones behind it.
    for (std::size_t s = 1; s < caps.size(); ++s) caps[s] = std::min(caps[s], caps[s - 1]);
    return true;
  }

  bool within_k(const std::vector<int>& caps, int k) const {
    const Settings& settings = input_.settings;
    if (!settings.k_fixed) {
      const int least = std::min(settings.k_min, input_.micro_batches);
      return k >= least && k <= std::max(least, std::min(settings.k_max, input_.micro_batches));
    }
    const std::vector<int> most =
        schedule::kfkb_caps(static_cast<int>(caps.size()), input_.micro_batches, input_.current.k);
    if (k != input_.current.k) return false;
    for (std::size_t s = 0; s < caps.size(); ++s) {
      if (caps[s] > most[s]) return false;
    }
    return true;
  }

  const Input& input_;
  std::vector<schedule::Schedule> result_;
};

}  // namespace

std::vector<schedule::Schedule> candidates(const Input& input, const LinkView& view) {
  const int stages = static_cast<int>(input.stages.size());
  const int micro_batches = input.micro_batches;
  Collector collector(input);
  collector.add(schedule::kfkb_caps(stages, micro_batches, 1));
  for (const int k : kGroups) collector.add(schedule::kfkb_caps(stages, micro_batches, k));
  if (input.settings.k_fixed) {
    collector.add(schedule::kfkb_caps(stages, micro_batches, input.current.k));
  }
  if (input.settings.dispatch == schedule::Dispatch::kStrict) return collector.take();
  for (int slack = 2; slack <= kMostSlack; ++slack) {
    collector.add(schedule::slack_caps(stages, micro_batches, slack));
  }
  for (const double q : kQuantiles) {
    collector.add(
        schedule::lean_caps(input.stages, transfer_quantile(view, stages - 1, q), micro_batches));
  }
  return collector.take();
}

}  // namespace weir::tuner
