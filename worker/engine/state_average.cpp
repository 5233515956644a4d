// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/state_average.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "worker/base/check.h"

namespace weir::engine {
namespace {

constexpr std::size_t kAverageBucket = std::size_t{2} << 20U;  // floats of one all-reduce, 8 MB
constexpr double kRounding = 1e-6;                             // of the sum of the weights
// Rounds and exact steps are counted separately and share a collective. This bit keeps their tags
// apart.
constexpr std::uint64_t kRounds = std::uint64_t{1} << 63U;

}  // namespace

std::string objection(const protocol::Grant& grant, int replica, int replicas) {
  const auto& members = grant.members;
  const bool rising = std::ranges::adjacent_find(members, std::greater_equal()) == members.end();
  if (members.empty() || !rising || members.front() < 0 || members.back() >= replicas) {
    return "its members are not replicas in rising order";
  }
  if (!std::ranges::binary_search(members, replica)) return "this replica is not a member";
  if (grant.weights.size() != members.size()) return "there is not one weight for each member";
  double sum = 0;
  for (const double weight : grant.weights) {
    if (!(weight >= 0)) return "a weight is below 0";
    sum += weight;
  }
  if (!(std::abs(sum - 1) < kRounding)) return "its weights do not sum to 1";
  if (grant.next_step < grant.step) return "it goes back to a step before";
  return "";
}

StateAverage::StateAverage(transport::Collective& collective, stage::Stage& stage,
                           device::Device& device, protocol::Grant grant, device::Buffer own)
    : collective_(collective), device_(device), grant_(std::move(grant)), own_(std::move(own)) {
  if (grant_.members.size() < 2) return;
  parts_ = grant_.all ? 3 : 1;
  std::size_t used = 0;  // number of floats used in own_
  for (const stage::Parameter& p : stage.parameters()) {
    if (p.frozen()) continue;  // equal on all replicas
    const auto state = p.state();
    const std::span<float> scratch =
        own_ ? std::span(own_.as<float>() + used, p.value.size()) : p.gradient;
    used += p.value.size();
    const auto follows = [](std::span<float> before, std::span<float> after) {
      return before.data() + before.size() == after.data();
    };
    const bool joins = !runs_.empty() && follows(runs_.back().scratch, scratch) &&
                       std::ranges::equal(runs_.back().parts, state, follows);
    if (!joins) {
      runs_.push_back({.parts = state, .scratch = scratch});
      continue;
    }
    const auto longer = [&](std::span<float>& span) {
      span = {span.data(), span.size() + p.value.size()};
    };
    std::ranges::for_each(runs_.back().parts, longer);
    longer(runs_.back().scratch);
  }
}

std::size_t StateAverage::bytes(stage::Stage& stage) {
  std::size_t floats = 0;
  for (const stage::Parameter& p : stage.parameters()) floats += p.gradient.size();
  return floats * sizeof(float);
}

bool StateAverage::post_next() {
  if (part_ == parts_) return false;
  for (const Run& run : runs_) {
    for (std::size_t first = 0; first < run.scratch.size(); first += kAverageBucket) {
      const std::size_t count = std::min(kAverageBucket, run.scratch.size() - first);
      const bool last = &run == &runs_.back() && first + count == run.scratch.size();
      collective_.all_reduce({.tag = {.step = tag(), .part = operations_++},
                              .members = grant_.members,
                              .count = count,
                              .in = std::as_bytes(run.parts[part_].subspan(first, count)),
                              .out = std::as_writable_bytes(run.scratch.subspan(first, count)),
                              .combine = transport::mean_of_floats(grant_.weights),
                              .on_device = true,
                              .weights = grant_.weights,
                              .background = true,
                              .more = !last});
    }
  }
  return true;
}

std::uint64_t StateAverage::tag() const {
  return kRounds | static_cast<std::uint64_t>(grant_.round);
}

Result<int> StateAverage::abandon() {
  return collective_.abandon(tag());
}

// The device copies, because it has both buffers.
Status StateAverage::take() {
  WEIR_CHECK(part_ < parts_, "a part is under way");
  for (const Run& run : runs_) {
    const std::span<float> to = run.parts[part_];
    WEIR_OK(device_.copy(to.data(), run.scratch.data(), to.size_bytes()));
  }
  ++part_;
  return device_.synchronize();
}

}  // namespace weir::engine
