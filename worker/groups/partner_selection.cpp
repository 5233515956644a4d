// SPDX-License-Identifier: Apache-2.0
#include "worker/groups/partner_selection.h"

#include <algorithm>
#include <utility>

#include "worker/base/units.h"

namespace weir::groups {
namespace {

// Chosen with the simulation of experiment E9 (worker/groups/README.md).
constexpr double kMostSteps = 0.5, kLate = 0.5;

}  // namespace

std::optional<Time> wait_until(std::span<const int> here, std::vector<Running> running,
                               const Distances& distances, const Patience& patience, Time now) {
  std::ranges::sort(running, {},
                    [](const Running& one) { return std::pair(one.due, one.replica); });
  Distances then = distances;  // distances once the running steps have ended
  std::vector<int> joining;
  std::optional<Time> until;
  for (const auto& [due, replica] : running) {
    then.stepped(replica);
    joining.push_back(replica);
    const auto n = static_cast<double>(here.size()), m = static_cast<double>(joining.size());
    const double each = m / (n + m) * then.between(here, joining);
    const double allowed =
        std::min(kMostSteps * patience.step_seconds, each * patience.window_seconds);
    const Time late = due + from_seconds(kLate * allowed);
    if (now >= late) {
      joining.pop_back();
    } else if (due - now <= from_seconds(allowed)) {
      until = std::max(until.value_or(late), late);
    }
  }
  return until;
}

}  // namespace weir::groups
