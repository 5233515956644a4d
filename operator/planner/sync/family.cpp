// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/sync/family.h"

#include <algorithm>

#include "operator/planner/sync/bounds.h"

namespace weir::planner {
namespace {

std::string gib(std::int64_t bytes) {
  const std::int64_t tenths = (bytes * 10 + (std::int64_t{1} << 29)) >> 30;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

// Whether an ideal holds exactly the first nodes.
bool is_prefix(const Ideals& ideals, std::size_t ideal) {
  const int size = ideals.size[ideal];
  for (int word = 0; word < size / 64; ++word) {
    if (~ideals.set(ideal)[word] != 0) return false;
  }
  return size % 64 == 0 || ideals.set(ideal)[size / 64] == (std::uint64_t{1} << (size % 64)) - 1;
}

}  // namespace

std::vector<std::size_t> few_ideals(const SyncModel& model, std::size_t most) {
  const Ideals& ideals = model.ideals();
  std::vector<char> taken(ideals.count(), 0);
  const Buckets buckets = buckets_of(ideals, most / 4);
  std::vector<std::vector<std::size_t>> members(buckets.count());
  for (std::size_t i = 0; i < ideals.count(); ++i) {
    members[static_cast<std::size_t>(buckets.of[i])].push_back(i);
  }
  constexpr std::size_t kOfEach = 2;
  for (std::vector<std::size_t>& bucket : members) {
    const std::size_t some = std::min(kOfEach, bucket.size());
    std::partial_sort(bucket.begin(), bucket.begin() + static_cast<std::ptrdiff_t>(some),
                      bucket.end(), [&](std::size_t a, std::size_t b) {
                        const double x = model.least_send(a), y = model.least_send(b);
                        return x != y ? x < y : a < b;
                      });
    for (std::size_t m = 0; m < some; ++m) taken[bucket[m]] = 1;
  }
  const std::size_t every =
      std::max<std::size_t>(1, static_cast<std::size_t>(ideals.nodes) / (most / 2));
  for (std::size_t i = 0; i < ideals.count(); ++i) {
    if (static_cast<std::size_t>(ideals.size[i]) % every == 0 && is_prefix(ideals, i)) taken[i] = 1;
  }
  taken.front() = taken.back() = 1;
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (taken[i] != 0) chosen.push_back(i);
  }
  return chosen;
}

Candidate candidate_of(const SyncModel& model, const FoundPlan& plan,
                       const std::vector<std::size_t>& chosen) {
  Candidate candidate;
  for (const std::size_t i : plan.ideals) {
    candidate.ideals.push_back(chosen.empty() ? i : chosen[i]);
  }
  for (const int o : plan.options) {
    const SyncOption& option = model.options()[static_cast<std::size_t>(o)];
    candidate.classes.push_back(option.device_class);
    candidate.ranks.push_back(option.ranks);
  }
  return candidate;
}

double longest_step(const SyncModel& model, int most_stages) {
  const Ideals& ideals = model.ideals();
  const SyncRequest& request = model.request();
  const std::size_t last = ideals.last();
  double slowest = 0, update = 0, widest = 0;
  for (const SyncOption& option : model.options()) {
    slowest = std::max(slowest, model.busy(option, 0, last));
    update = std::max(update, model.update(option, 0, last));
  }
  const std::int64_t most = *std::ranges::max_element(ideals.cut);
  for (const auto& row : request.links) {
    for (const LinkRate& link : row) widest = std::max(widest, transfer_seconds(link, most));
  }
  // Every stage and both directions of every boundary, one micro-batch after the other.
  // A moment more: searches want plans that are shorter, also of a model without any work.
  constexpr double kMoment = 1e-9;
  return 2.0 * request.micro_batches * most_stages * (slowest + 2 * widest) + update + kMoment;
}

Error does_not_fit(const Dag& dag, const SyncModel& model, int cap, int k) {
  const Ideals& ideals = model.ideals();
  const SyncRequest& request = model.request();
  std::int64_t largest = 0, all = 0, state = 0;
  int most_ranks = 1;
  for (const SyncClass& device : request.classes) {
    largest = std::max(largest, device.usable_bytes);
    all += device.usable_bytes * device.count;
  }
  for (const SyncOption& option : model.options()) most_ranks = std::max(most_ranks, option.ranks);
  const double factor = model.plain() ? 4 : dag.state_factor;
  for (std::size_t v = 0; v < dag.parameters.size(); ++v) {
    const std::int64_t held = state_bytes(factor, dag.parameters[v], dag.frozen[v]);
    const std::int64_t needs =
        held + cap * dag.stash[v] / most_ranks + (model.plain() ? 0 : dag.transient[v]);
    if (largest > 0 && needs > largest) {
      return {Code::kInvalid, "layer " + std::to_string(dag.layer[v]) + " alone needs " +
                                  gib(needs) + ", a device has " + gib(largest) + " usable"};
    }
    state += held;
  }
  return {Code::kInvalid,
          "no cut into stages fits with k=" + std::to_string(k) + ": weights and optimizer need " +
              gib(state) + ", activations of one micro-batch " + gib(ideals.stash[ideals.last()]) +
              ", all devices have " + gib(all) + " usable"};
}

}  // namespace weir::planner
