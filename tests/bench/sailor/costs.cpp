// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/sailor/costs.h"

#include <algorithm>
#include <limits>

namespace weir::planner {
namespace {

using Index = std::size_t;

constexpr double kFloatBytes = 4;
constexpr double kParameterBytes = 24;  // weights, gradients, Adam, two copies for communication
constexpr double kFrameworkBytes = 2e9;
constexpr double kTensorParallelBytes = 3e9;
constexpr double kBucketBytes = 500e6;

// The device of replica r in a stage: groups one after the other.
SailorOption option_of(const SailorStage& stage, int replica) {
  for (const SailorGroup& group : stage.groups) {
    if (replica < group.replicas) return {group.device, group.degree};
    replica -= group.replicas;
  }
  return {};
}

}  // namespace

bool sailor_known(const SailorProblem& problem, const SailorOption& option) {
  const SailorDevices& devices = problem.devices[static_cast<Index>(option.device)];
  return option.degree <= problem.most_degree && problem.sizes.contains(option.degree) &&
         problem.sizes.at(option.degree).size() == devices.times.layers &&
         problem.network.between.contains({devices.name, option.degree});
}

int sailor_micro_batches(const SailorProblem& problem, int micro_batch, int replicas) {
  const int samples = micro_batch * replicas;
  return (problem.global_batch + samples - 1) / samples;
}

SailorCosts::SailorCosts(const SailorProblem& problem) : problem_(problem) {
  if (!problem.sizes.empty()) layers_ = static_cast<int>(problem.sizes.begin()->second.size());
  for (const SailorDevices& devices : problem.devices) {
    std::map<int, LinkRate> links;
    for (const auto& [key, curve] : problem.network.between) {
      if (key.first != devices.name) continue;
      LinkRate& link = links[key.second];
      link.latency = std::chrono::nanoseconds(0);
      link.curve = curve;
    }
    links_.push_back(std::move(links));
  }
}

const std::vector<std::array<double, 3>>& SailorCosts::times(const SailorOption& option,
                                                             int micro_batch) const {
  return problem_.devices[static_cast<Index>(option.device)].times.entries.at(
      {micro_batch, option.degree});
}

double SailorCosts::layer_seconds(const SailorOption& option, int micro_batch, int layer) const {
  const std::array<double, 3>& time = times(option, micro_batch)[static_cast<Index>(layer)];
  return time[0] + time[1];
}

double SailorCosts::stage(const SailorOption& option, int micro_batch, int first, int end) const {
  double sum = 0;
  for (int i = first; i < end; ++i) sum += layer_seconds(option, micro_batch, i);
  return sum;
}

double SailorCosts::static_bytes(const SailorOption& option, int first, int end) const {
  const auto& sizes = problem_.sizes.at(option.degree);
  double floats = 0;
  for (int i = first; i < end; ++i) floats += sizes[static_cast<Index>(i)].parameter_floats;
  return floats * kParameterBytes + (option.degree == 1 ? kFrameworkBytes : kTensorParallelBytes);
}

double SailorCosts::activation_bytes(const SailorOption& option, int micro_batch, int first,
                                     int end) const {
  const auto& sizes = problem_.sizes.at(option.degree);
  double floats = 0;
  for (int i = first; i < end; ++i) floats += sizes[static_cast<Index>(i)].activation_floats;
  return floats * micro_batch * kFloatBytes;
}

double SailorCosts::send(const SailorOption& option, double bytes) const {
  const LinkRate& link = links_[static_cast<Index>(option.device)].at(option.degree);
  return bytes / effective_rate(link, static_cast<std::int64_t>(bytes));
}

double SailorCosts::transfer(const SailorOption& from, const SailorOption& to, int layer,
                             int micro_batch) const {
  // Sailor sends the output of degree 1, whatever the degrees are.
  const double bytes = problem_.sizes.begin()->second[static_cast<Index>(layer) - 1].output_floats *
                       kFloatBytes * micro_batch;
  return bytes > 0 ? std::max(send(from, bytes), send(to, bytes)) : 0;
}

double SailorCosts::sync(const SailorOption& option, int first, int end, int replicas) const {
  if (replicas == 1) return 0;
  const auto& sizes = problem_.sizes.begin()->second;
  double floats = 0;
  for (int i = first; i < end; ++i) floats += sizes[static_cast<Index>(i)].parameter_floats;
  const auto part = [&](double bytes) {
    return bytes > 0 ? 2 * (replicas - 1) * send(option, bytes / replicas) : 0;
  };
  const double bytes = floats * kFloatBytes;
  const auto buckets = static_cast<double>(static_cast<std::int64_t>(bytes / kBucketBytes));
  return (buckets > 0 ? buckets * part(kBucketBytes) : 0) + part(bytes - buckets * kBucketBytes);
}

double SailorCosts::fastest(const std::vector<SailorOption>& options, int micro_batch,
                            int end) const {
  double sum = 0;
  for (int i = 0; i < end; ++i) {
    double least = std::numeric_limits<double>::infinity();
    for (const SailorOption& option : options) {
      least = std::min(least, layer_seconds(option, micro_batch, i));
    }
    sum += least;
  }
  return sum;
}

double SailorCosts::least_whole(const std::vector<SailorOption>& options, Index option,
                                int micro_batch) const {
  double ratio = std::numeric_limits<double>::infinity();
  for (int i = 0; i < layers_; ++i) {
    const double least = fastest(options, micro_batch, i + 1) - fastest(options, micro_batch, i);
    if (least <= 0) continue;
    ratio = std::min(ratio, layer_seconds(options[option], micro_batch, i) / least);
  }
  // Differences of sums round: stay below.
  constexpr double kBelow = 1 - 1e-9;
  return ratio * fastest(options, micro_batch, layers_) * kBelow;
}

double SailorCosts::seconds(const SailorPlan& plan) const {
  const int mb = plan.micro_batch_size;
  const Index stages = plan.stages.size();
  std::vector<double> time(stages, 0);
  std::vector<double> out(stages, 0);
  double sync = 0;
  double update = 0;
  for (Index s = 0; s < stages; ++s) {
    const SailorStage& stage_s = plan.stages[s];
    double slowest_sync = 0;
    for (const SailorGroup& group : stage_s.groups) {
      const SailorOption option{group.device, group.degree};
      time[s] = std::max(time[s], stage(option, mb, stage_s.first, stage_s.end));
      slowest_sync =
          std::max(slowest_sync, this->sync(option, stage_s.first, stage_s.end, plan.replicas));
      for (const auto& layer : times(option, mb)) {
        update = std::max(update, layer[2] * (stage_s.end - stage_s.first));
      }
    }
    sync = std::max(sync, slowest_sync);
    for (int r = 0; s + 1 < stages && r < plan.replicas; ++r) {
      out[s] = std::max(out[s], transfer(option_of(stage_s, r), option_of(plan.stages[s + 1], r),
                                         stage_s.end, mb));
    }
  }
  const int micro_batches = sailor_micro_batches(problem_, mb, plan.replicas);
  if (stages == 1) return micro_batches * time[0] + sync + update;
  double sum = 0;
  double straggler = 0;
  for (Index s = 0; s < stages; ++s) {
    sum += time[s] + 2 * out[s];
    straggler = std::max(straggler, time[s] + out[s] + (s > 0 ? out[s - 1] : 0));
  }
  return sum + (micro_batches - 1) * straggler + sync;
}

namespace {

Error bad_problem(const std::string& reason) {
  return {Code::kInvalid, "sailor: " + reason};
}

Status check(const SailorProblem& problem, const SailorCosts& costs, const SailorPlan& plan) {
  std::vector<int> used(problem.devices.size(), 0);
  int layer = 0;
  for (Index s = 0; s < plan.stages.size(); ++s) {
    const SailorStage& stage = plan.stages[s];
    const std::string name = "stage " + std::to_string(s);
    int replicas = 0;
    if (stage.first != layer || stage.end <= layer)
      return bad_problem(name + ": layers not in a row");
    layer = stage.end;
    for (const SailorGroup& group : stage.groups) {
      if (group.device < 0 || group.device >= static_cast<int>(problem.devices.size())) {
        return bad_problem(name + ": no such device");
      }
      const SailorDevices& devices = problem.devices[static_cast<Index>(group.device)];
      const SailorOption option{group.device, group.degree};
      if (!devices.times.entries.contains({plan.micro_batch_size, group.degree}) ||
          !sailor_known(problem, option) || stage.end > costs.layers()) {
        return bad_problem(name + ": no profile of " + devices.name + " with " +
                           std::to_string(plan.micro_batch_size) + " samples, degree " +
                           std::to_string(group.degree));
      }
      const auto behind = static_cast<double>(plan.stages.size() - s);
      const double bytes =
          costs.static_bytes(option, stage.first, stage.end) +
          behind * costs.activation_bytes(option, plan.micro_batch_size, stage.first, stage.end);
      if (bytes > devices.memory_bytes)
        return bad_problem(name + ": does not fit into " + devices.name);
      replicas += group.replicas;
      used[static_cast<Index>(group.device)] += group.replicas * group.degree;
    }
    if (replicas != plan.replicas) return bad_problem(name + ": not one group for each replica");
  }
  if (layer != costs.layers()) return bad_problem("layers are missing");
  for (Index i = 0; i < used.size(); ++i) {
    if (used[i] > problem.devices[i].count) {
      return bad_problem(std::to_string(used[i]) + " of " +
                         std::to_string(problem.devices[i].count) + " " + problem.devices[i].name);
    }
  }
  return Unit{};
}

}  // namespace

Result<double> sailor_seconds(const SailorProblem& problem, const SailorPlan& plan) {
  const SailorCosts costs(problem);
  WEIR_OK(check(problem, costs, plan));
  return costs.seconds(plan);
}

}  // namespace weir::planner
