// SPDX-License-Identifier: Apache-2.0
// Every allowed (micro-batch size, stages, k) gets its best cuts by the cost model; real links
// decide who runs which stage; the event simulator decides among the best few.
#include "operator/planner/plan.h"

#include <algorithm>
#include <deque>
#include <set>

#include "operator/planner/chain.h"
#include "operator/planner/cost.h"
#include "operator/planner/linear.h"
#include "operator/planner/refine.h"
#include "operator/planner/slots.h"
#include "worker/base/units.h"
#include "worker/schedule/validate.h"

namespace weir::planner {
namespace {

constexpr int kMostMicroBatches = 512;  // of sizes that the planner tries by itself
constexpr int kMostOwnK = 8;            // beyond it doubled values do (scheduling.md 5.2)
constexpr std::size_t kTasksPerK = 4;   // simulated, best by the cost model first
constexpr double kModelError = 1.25;    // T+ is at most 22 % above, 4 % below (planner.md 2.3)
constexpr std::int64_t kTableBudget = 600'000;  // of all problems: a few seconds
constexpr int kEveryStageCount = 16;            // beyond it every fourth or so is tried
constexpr int kPlacementRounds = 3;             // planner.md 3, step 7
constexpr double kTieOfK = 1.005;               // smallest k within 0.5 % of the best
constexpr double kGain = 1 - 1e-9;

Error invalid(const std::string& text) {
  return {Code::kInvalid, text};
}

// The number of stages to try after this one; ends with most.
int next_count(int stages, int most) {
  if (most <= kEveryStageCount || stages < 8) return stages + 1;
  return stages == most ? most + 1 : std::min(most, stages * 5 / 4);
}

// A (micro-batch size, shape) with its cuts on the best link that exists.
struct Task {
  const Chain* chain = nullptr;
  Shape shape;
  Solved solved;
};

std::string gib(std::int64_t bytes) {
  const auto tenths = (bytes * 10 + (std::int64_t{1} << 29)) >> 30;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

class Planner {
 public:
  Planner(const Model& model, const Cluster& cluster, const Request& request)
      : model_(model), cluster_(cluster), request_(request), slots_(slots_of(cluster)) {}

  Result<PlanReport> run() {
    WEIR_TRY(const std::vector<int> sizes, micro_batch_sizes());
    WEIR_TRY(const std::vector<int> stage_counts, stages_to_try());
    problems_ = sizes.size() * stage_counts.size() * ks(request_.global_batch).size();
    std::vector<Task> tasks;
    for (const int size : sizes) {
      chains_.push_back(chain_of(model_, slots_.classes, size));
      for (const int stages : stage_counts) {
        for (Shape& shape : shapes(stages, request_.global_batch / size, size)) {
          Task task{&chains_.back(), std::move(shape), {}};
          task.solved = solve_on_best_links(task);
          if (!task.solved.best.empty()) tasks.push_back(std::move(task));
        }
      }
    }
    if (tasks.empty()) return does_not_fit(stage_counts.back(), sizes.front());
    std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) {
      return a.solved.best.front().seconds < b.solved.best.front().seconds;
    });
    return report(choose(tasks));
  }

 private:
  Result<std::vector<int>> micro_batch_sizes() const {
    const int batch = request_.global_batch;
    if (request_.micro_batch_size) {
      const int size = *request_.micro_batch_size;
      if (size < 1 || batch % size != 0) {
        return invalid("batch.microBatchSize: " + std::to_string(size) +
                       " does not divide the global batch of " + std::to_string(batch));
      }
      return std::vector<int>{size};
    }
    std::vector<int> sizes;
    for (int size = 1; size <= batch; ++size) {
      if (batch % size == 0 && batch / size <= kMostMicroBatches) sizes.push_back(size);
    }
    return sizes;
  }

  Result<std::vector<int>> stages_to_try() const {
    const int layers = static_cast<int>(model_.layers.size());
    const int ranks = static_cast<int>(cluster_.devices.size());
    std::optional<int> fixed = request_.stages;
    if (!request_.caps.empty()) {
      const int caps = static_cast<int>(request_.caps.size());
      if (fixed && *fixed != caps) {
        return invalid("schedule.inFlightCaps: " + std::to_string(caps) + " values for " +
                       std::to_string(*fixed) + " stages");
      }
      fixed = caps;
    }
    if (fixed && *fixed > layers) {
      return invalid("parallelism.stages: " + std::to_string(*fixed) + " is above the " +
                     std::to_string(layers) + " layers of model " + model_.name);
    }
    if (fixed && *fixed > ranks) {
      return invalid("parallelism.stages: " + std::to_string(*fixed) + " needs as many ranks, " +
                     std::to_string(ranks) + " are there");
    }
    std::vector<int> result;
    int stuck = 0;
    const int most = fixed.value_or(std::min(layers, ranks));
    for (int stages = fixed.value_or(1); stages <= most; stages = next_count(stages, most)) {
      if (!first_fit_kinds(slots_, stages, &stuck).empty()) result.push_back(stages);
    }
    if (result.empty()) {
      return invalid("workerGroups: no rank is left for stage " + std::to_string(stuck) +
                     " (stageRange)");
    }
    return result;
  }

  std::vector<int> ks(int micro_batches) const {
    const auto clipped = [&](int k) { return std::clamp(k, 1, micro_batches); };
    switch (request_.family) {
      case schedule::Family::kOneFOneB:
        return {1};
      case schedule::Family::kGpipe:
        return {micro_batches};
      case schedule::Family::kKfkb:
        break;
    }
    if (request_.k_initial) return {clipped(*request_.k_initial)};
    std::set<int> result{clipped(request_.k_min)};
    const int most = clipped(std::max(request_.k_max, request_.k_min));
    for (int k = clipped(request_.k_min); k <= most; k += k < kMostOwnK ? 1 : k) result.insert(k);
    return {result.begin(), result.end()};
  }

  std::vector<Shape> shapes(int stages, int micro_batches, int micro_batch_size) const {
    std::vector<Shape> result;
    const auto add = [&](std::vector<int> caps) {
      Shape shape{.stages = stages, .micro_batches = micro_batches};
      shape.k = schedule::k_of_caps(caps);
      shape.schedule = {.family = request_.family,
                        .dispatch = schedule::dispatch_in_force(caps, request_.dispatch),
                        .k = shape.k,
                        .micro_batch_size = micro_batch_size,
                        .caps = std::move(caps)};
      result.push_back(std::move(shape));
    };
    if (!request_.caps.empty()) {
      std::vector<int> caps = request_.caps;
      for (int& cap : caps) cap = std::clamp(cap, 1, micro_batches);
      add(std::move(caps));
      return result;
    }
    for (const int k : ks(micro_batches)) add(schedule::kfkb_caps(stages, micro_batches, k));
    return result;
  }

  Solved solve_on_best_links(const Task& task) const {
    const auto boundaries = static_cast<std::size_t>(task.shape.stages - 1);
    Problem problem{.chain = *task.chain,
                    .slots = slots_,
                    .shape = task.shape,
                    .links = std::vector<BoundaryLink>(boundaries, {slots_.best, slots_.best}),
                    .kinds = {}};
    // Too many kinds to count (8 ranks of 8 kinds are not): each stage takes the first rank that
    // fits, by the stages it may run and then by registration; cut and bound are about that order.
    int stuck = 0;
    const std::int64_t table = table_size(slots_, task.shape.stages, task.chain->layers);
    const bool one_kind = slots_.kinds.size() == 1;
    if (!one_kind && (table == 0 || table > kTableBudget / static_cast<int>(problems_))) {
      problem.kinds = first_fit_kinds(slots_, task.shape.stages, &stuck);
    }
    return solve(problem);
  }

  // The cuts of a task with ranks, on the links between these ranks.
  std::vector<ChainCandidate> realise(const Task& task) const {
    std::vector<ChainCandidate> result;
    const auto add = [&](const CostedCut& costed, const std::vector<int>& devices) {
      result.push_back({task.chain, &slots_, task.shape, costed.cut, devices, costed.seconds,
                        std::min(task.solved.lower_bound, costed.seconds), 0});
    };
    if (slots_.uniform) {
      for (const CostedCut& costed : task.solved.best) {
        add(costed, devices_in_order(slots_, costed.cut.kinds));
      }
      return result;
    }
    // Ranks for a cut, then the cut for these ranks, until nothing improves.
    Cut cut = task.solved.best.front().cut;
    std::vector<int> devices = devices_in_order(slots_, cut.kinds);
    double best = 0;
    for (int round = 0; round < kPlacementRounds; ++round) {
      devices = place(slots_, devices, *task.chain, task.shape, cut);
      const Solved solved = solve({.chain = *task.chain,
                                   .slots = slots_,
                                   .shape = task.shape,
                                   .links = links_of(slots_, devices),
                                   .kinds = cut.kinds});
      if (round > 0 && solved.best.front().seconds >= best * kGain) break;
      best = solved.best.front().seconds;
      for (const CostedCut& costed : solved.best) add(costed, devices);
      cut = solved.best.front().cut;
    }
    return result;
  }

  ChainCandidate best_with(int k, const std::vector<Task>& tasks) const {
    ChainCandidate best;  // k has a task, so this becomes one of its plans
    std::size_t tried = 0;
    double shortest = 0;  // by the cost model
    for (const Task& task : tasks) {
      if (task.shape.k != k || tried == kTasksPerK) continue;
      if (tried > 0 && task.solved.best.front().seconds > shortest * kModelError) break;
      ++tried;
      for (ChainCandidate& candidate : realise(task)) {
        candidate.seconds = simulated(candidate);
        if (shortest == 0 || candidate.objective < shortest) shortest = candidate.objective;
        const bool first = best.chain == nullptr;
        if (first || candidate.seconds < best.seconds * kGain) best = std::move(candidate);
      }
    }
    return refined(best);
  }

  ChainCandidate choose(const std::vector<Task>& tasks) const {
    std::set<int> ks_that_fit;
    for (const Task& task : tasks) ks_that_fit.insert(task.shape.k);
    std::vector<ChainCandidate> by_k;
    double shortest = 0;
    for (const int k : ks_that_fit) {
      by_k.push_back(best_with(k, tasks));
      if (shortest == 0 || by_k.back().seconds < shortest) shortest = by_k.back().seconds;
    }
    return *std::find_if(by_k.begin(), by_k.end(), [&](const ChainCandidate& candidate) {
      return candidate.seconds <= shortest * kTieOfK;
    });
  }

  PlanReport report(const ChainCandidate& chosen) const {
    PlanReport result;
    schedule::Plan& plan = result.plan;
    plan.schedule = chosen.shape.schedule;
    plan.micro_batches = {chosen.shape.micro_batches};
    plan.predicted_step_seconds = chosen.seconds;
    plan.profile_digest = model_.digest;
    std::set<std::string> busy;
    for (std::size_t s = 0; s < chosen.devices.size(); ++s) {
      const int first = chosen.cut.first[s], end = chosen.cut.first[s + 1];
      const Device& device = cluster_.devices[static_cast<std::size_t>(chosen.devices[s])];
      plan.stages.push_back({first, end - 1});
      plan.ranks.push_back({device.pod, device.pod_uid, device.ip, device.node, device.local, 0,
                            static_cast<int>(s), device.data_port});
      busy.insert(device.pod);
      const Kind& kind = slots_.kinds[static_cast<std::size_t>(chosen.cut.kinds[s])];
      result.stage_times.push_back(stage_time(*chosen.chain, kind.device_class, first, end));
      result.memory_bytes.push_back(
          stage_bytes(*chosen.chain, chosen.shape, static_cast<int>(s), first, end));
      if (s + 1 < chosen.devices.size()) {
        result.boundary_bytes.push_back(chosen.chain->cut[static_cast<std::size_t>(end)]);
      }
    }
    for (const Device& device : cluster_.devices) {
      if (busy.insert(device.pod).second) plan.idle.push_back(device.pod);
    }
    result.objective_seconds = chosen.objective;
    result.lower_bound_seconds = chosen.lower_bound;
    return result;
  }

  // Says what is too large with the least demanding plan: most stages, smallest micro-batch, k_min.
  Error does_not_fit(int stages, int micro_batch_size) const {
    const Chain chain = chain_of(model_, slots_.classes, micro_batch_size);
    const Shape shape =
        shapes(stages, request_.global_batch / micro_batch_size, micro_batch_size).front();
    std::int64_t largest = 0, all = 0;
    for (const Kind& kind : slots_.kinds) {
      largest = std::max(largest, kind.usable_bytes);
      all += kind.usable_bytes * static_cast<std::int64_t>(kind.devices.size());
    }
    for (int i = 0; i < chain.layers; ++i) {
      const std::int64_t alone = stage_bytes(chain, shape, stages - 1, i, i + 1);
      if (alone <= largest) continue;
      return invalid("memory: layer " + model_.layers[static_cast<std::size_t>(i)].id +
                     " alone needs " + gib(alone) + ", a rank has " + gib(largest) + " usable");
    }
    return invalid("memory: no cut of " + model_.name + " into " + std::to_string(stages) +
                   " stages fits with k=" + std::to_string(shape.k) +
                   ": weights and optimizer need " + gib(static_bytes(chain, 0, chain.layers)) +
                   ", activations of one micro-batch " + gib(stash_bytes(chain, 0, chain.layers)) +
                   ", all ranks have " + gib(all) + " usable");
  }

  const Model& model_;
  const Cluster& cluster_;
  const Request& request_;
  const Slots slots_;
  std::size_t problems_ = 1;  // (size, stages, k) to solve
  std::deque<Chain> chains_;  // by micro-batch size; tasks point into it
};

}  // namespace

Result<PlanReport> plan(const Model& model, const Cluster& cluster, const Request& request) {
  if (model.layers.empty()) return invalid("model.profile: no layers");
  if (const std::string edge = edge_that_runs_back(model); !edge.empty()) {
    return invalid("model.profile: edge " + edge + " runs against the order of nodes");
  }
  if (cluster.devices.empty()) return invalid("workerGroups: no rank has registered");
  if (request.global_batch < 1) return invalid("batch.globalBatchSize: below 1");
  return Planner(model, cluster, request).run();
}

}  // namespace weir::planner
