// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/search_caps.h"

#include <algorithm>

#include "worker/base/check.h"

namespace weir::schedule {
namespace {

constexpr double kLeastGain = 0.002;  // of the step; worker/schedule/README.md "Searched caps"
constexpr int kMostAdded = 2;

double step_of(const std::vector<int>& caps, int micro_batches, const PipelineModel& model) {
  Schedule schedule;
  schedule.k = k_of_caps(caps);
  schedule.dispatch = dispatch_in_force(caps, Dispatch::kHint);
  schedule.caps = caps;
  const auto timeline = simulate(schedule, micro_batches, model);
  WEIR_CHECK(timeline.has_value(), "legal caps end");
  return static_cast<double>(timeline->step.count());
}

struct Move {
  std::vector<int> caps;
  double step = 0, gain = 0;  // gain per micro-batch added
};

class Search {
 public:
  Search(const PipelineModel& model, int micro_batches, std::span<const int> cap_max,
         std::vector<int> start)
      : model_(model),
        micro_batches_(micro_batches),
        cap_max_(cap_max),
        caps_(std::move(start)),
        step_(step_of(caps_, micro_batches, model)) {}

  std::vector<int> run() {
    for (;;) {
      best_ = Move{};
      for (std::size_t stage = 0; stage < caps_.size(); ++stage) {
        for (int added = 1; added <= kMostAdded; ++added) try_move(stage, stage, added);
        if (stage == 0) continue;  // for stage 0, both kinds of move are equal
        for (int added = 1; added <= kMostAdded; ++added) try_move(0, stage, added);
      }
      if (best_.caps.empty() || best_.gain < kLeastGain) return caps_;
      caps_ = std::move(best_.caps);
      step_ = best_.step;
    }
  }

 private:
  void try_move(std::size_t first, std::size_t last, int added) {
    std::vector<int> caps = caps_;
    int more = 0;
    for (std::size_t s = first; s <= last; ++s) {
      caps[s] = std::min(micro_batches_, caps[s] + added);
      if (caps[s] > cap_max_[s]) return;
      more += caps[s] - caps_[s];
    }
    if (more == 0 || !std::is_sorted(caps.rbegin(), caps.rend())) return;
    const double step = step_of(caps, micro_batches_, model_);
    const double gain = (step_ - step) / step_ / more;
    if (best_.caps.empty() || gain > best_.gain) best_ = {std::move(caps), step, gain};
  }

  const PipelineModel& model_;
  int micro_batches_;
  std::span<const int> cap_max_;
  std::vector<int> caps_;
  double step_;
  Move best_;
};

}  // namespace

std::vector<int> lean_caps(const PipelineModel& model, int micro_batches) {
  std::vector<std::chrono::nanoseconds> links;
  for (std::size_t b = 0; b < model.forward.size(); ++b) {
    const LinkModel &there = model.forward[b], &back = model.backward[b];
    links.push_back((there.transfer + there.latency + back.transfer + back.latency) / 2);
  }
  return lean_caps(model.stages, links, micro_batches);
}

std::vector<int> opt_caps(const PipelineModel& model, int micro_batches,
                          std::span<const int> cap_max) {
  WEIR_CHECK(cap_max.size() == model.stages.size(), "a limit per stage");
  WEIR_CHECK(std::is_sorted(cap_max.rbegin(), cap_max.rend()) && cap_max.back() >= 1,
             "limits do not increase");
  std::vector<int> start = lean_caps(model, micro_batches);
  for (std::size_t s = 0; s < start.size(); ++s) start[s] = std::min(start[s], cap_max[s]);
  return Search(model, micro_batches, cap_max, std::move(start)).run();
}

}  // namespace weir::schedule
