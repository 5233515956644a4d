// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/caps.h"

#include <algorithm>

#include "worker/base/check.h"

namespace weir::schedule {
namespace {

using std::chrono::nanoseconds;

nanoseconds busy(const StageTime& stage) {
  return stage.forward + stage.backward;
}
int ceil_div(nanoseconds a, nanoseconds b) {
  return static_cast<int>((a + b - nanoseconds(1)) / b);
}

}  // namespace

std::vector<int> kfkb_caps(int stages, int micro_batches, int k) {
  std::vector<int> caps;
  caps.reserve(static_cast<std::size_t>(stages));
  for (int s = 0; s < stages; ++s) caps.push_back(std::min(micro_batches, k * (stages - s)));
  return caps;
}

std::vector<int> slack_caps(int stages, int micro_batches, int slack) {
  std::vector<int> caps;
  caps.reserve(static_cast<std::size_t>(stages));
  for (int s = 0; s < stages; ++s) {
    caps.push_back(std::min(micro_batches, 1 + slack * (stages - 1 - s)));
  }
  return caps;
}

int k_of_caps(std::span<const int> caps) {
  const int stages = static_cast<int>(caps.size());
  int k = 1;
  for (int s = 0; s < stages; ++s) {
    const int behind = stages - s;
    k = std::max(k, (caps[static_cast<std::size_t>(s)] + behind - 1) / behind);
  }
  return k;
}

Dispatch dispatch_in_force(std::span<const int> caps, Dispatch wanted) {
  return k_of_caps(caps) == 1 ? Dispatch::kStrict : wanted;
}

Dispatch dispatch_in_force(const Schedule& schedule, Dispatch wanted) {
  return schedule.split ? wanted : dispatch_in_force(schedule.caps, wanted);
}

std::vector<int> lean_caps(std::span<const StageTime> stages, std::span<const nanoseconds> links,
                           int micro_batches) {
  WEIR_CHECK(!stages.empty() && links.size() + 1 == stages.size(), "one link between two stages");
  nanoseconds period{1};
  for (const StageTime& stage : stages) period = std::max(period, busy(stage));

  std::vector<int> caps(stages.size(), 1);
  for (std::size_t i = stages.size() - 1; i-- > 0;) {
    nanoseconds loop = busy(stages[i]);
    caps[i] = caps[i + 1];
    for (std::size_t j = i + 1; j < stages.size(); ++j) {
      loop += busy(stages[j]) + 2 * links[j - 1];
      caps[i] = std::max(caps[i], caps[j] - 1 + ceil_div(loop, period));
    }
    caps[i] = std::min(caps[i], micro_batches);
  }
  return caps;
}

std::vector<int> most_postponed(std::span<const StageTime> stages,
                                std::span<const nanoseconds> backward_links,
                                std::span<const int> caps, std::span<const int> held,
                                std::span<const nanoseconds> sums) {
  WEIR_CHECK(caps.size() == stages.size() && held.size() == stages.size(), "caps of every stage");
  WEIR_CHECK(backward_links.size() + 1 == stages.size(), "one link between two stages");
  WEIR_CHECK(sums.empty() || sums.size() == stages.size(), "sums of every stage, or of none");
  std::vector<int> postponed(stages.size(), 0);
  nanoseconds behind = stages.front().backward_weights;
  for (std::size_t s = 1; s < stages.size(); ++s) {
    behind += stages[s - 1].backward_input + backward_links[s - 1];
    const nanoseconds time = stages[s].backward_weights;
    if (time <= nanoseconds(0)) continue;
    const nanoseconds room = behind - (sums.empty() ? nanoseconds(0) : sums[s]);
    const auto fit = std::max(nanoseconds::rep{0}, room / time);
    const nanoseconds::rep memory = std::max(0, held[s] - caps[s]);
    postponed[s] = static_cast<int>(std::min(fit, memory));
  }
  return postponed;
}

Credits credits_of(const Schedule& schedule) {
  constexpr int kLeastGroup = 2;  // worker/schedule/README.md "Memory of a stage"
  // 2 are enough; a third hides the time that the credit takes to return
  constexpr int kReceiveBackward = 3;
  const int n = std::max(kLeastGroup, k_of_caps(schedule.caps));
  return {.send_window = n + 1, .receive_forward = n + 1, .receive_backward = kReceiveBackward};
}

}  // namespace weir::schedule
