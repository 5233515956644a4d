// SPDX-License-Identifier: Apache-2.0
// A dynamic program over (layers planned, free cards and cards of the last stage by server, stages)
// for each number of pipelines R. Labels are Pareto points of (longest block, sum of transfers,
// AllReduce of the stages so far).
#include "operator/planner/dapple/dapple.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "worker/base/units.h"

namespace weir::planner {
namespace {

// src/environment/{ethernet,nvlink}.rs; bytes per second.
constexpr double kBetweenServers = 1e9, kAcrossServers = 3e9, kInsideServer = 25e9;
constexpr double kNoise = 1e-12;
constexpr std::size_t kMostLabels = 1'000'000;  // of one number of pipelines; some 200 MB

using Cards = std::vector<int>;  // by server

int sum(const Cards& cards) {
  return std::accumulate(cards.begin(), cards.end(), 0);
}
bool several_servers(const Cards& cards) {
  return std::ranges::count_if(cards, [](int n) { return n > 0; }) > 1;
}

// DAPPLE's rule: a stage on several servers, one with all its senders, or senders elsewhere.
double transfer(const Cards& from, const Cards& to, double bytes) {
  if (several_servers(to)) return bytes / kAcrossServers;
  const auto server = std::ranges::find_if(to, [](int n) { return n > 0; });
  const int all = sum(from), here = from[static_cast<std::size_t>(server - to.begin())];
  return all == here ? bytes / kInsideServer : bytes * (all - here) / all / kBetweenServers;
}

double all_reduce(const Cards& cards, double bytes) {
  const int n = sum(cards);
  if (n < 2) return 0;
  const double both = 2 * bytes * (n - 1) / n;
  const int pairs = n / 2;
  return several_servers(cards) ? both / kAcrossServers : both / kInsideServer / pairs;
}

// The problem for R pipelines: a step is
//   block (m-1) + C/(R m) + sum of transfers + max over stages i of max(0, AR_i - i block).
class Costs {
 public:
  Costs(const DappleProblem& problem, int replicas)
      : replicas_(replicas),
        micro_batches_(problem.global_batch / replicas / problem.micro_batch),
        scale_(static_cast<double>(problem.global_batch) / problem.profile_batch),
        output_(&problem.output_bytes),
        parameter_(&problem.parameter_bytes) {
    work_.push_back(0);
    parameters_.push_back(0);
    for (std::size_t i = 0; i < problem.seconds.size(); ++i) {
      work_.push_back(work_.back() + problem.seconds[i] * scale_);
      parameters_.push_back(parameters_.back() + problem.parameter_bytes[i]);
    }
  }

  int micro_batches() const { return micro_batches_; }  // m; 0: none for a pipeline
  int layers() const { return static_cast<int>(work_.size()) - 1; }
  double work(int first) const { return work_.back() - work_[index(first)]; }
  double fill() const { return work_.back() / replicas_ / micro_batches_; }
  double block(double work, int ranks) const { return work / ranks / replicas_ / micro_batches_; }
  double block(int first, int end, int ranks) const {
    return block(work_[index(end)] - work_[index(first)], ranks);
  }
  // The boundary in front of a layer: both directions of the whole batch share a block; the fill
  // pays one micro-batch of one pipeline.
  double block_of_send(int first, const Cards& from, const Cards& to) const {
    return transfer(from, to, 2 * output(first)) / micro_batches_;
  }
  double send(int first, const Cards& from, const Cards& to) const {
    return transfer(from, to, output(first) / replicas_ / micro_batches_);
  }
  // All stages but the last count one layer too many.
  double update(int first, int end, const Cards& cards) const {
    const double more = end < layers() ? (*parameter_)[index(end)] : 0;
    return all_reduce(cards, parameters_[index(end)] - parameters_[index(first)] + more);
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  double output(int first) const { return (*output_)[index(first - 1)] * scale_; }

  int replicas_, micro_batches_;
  double scale_;
  const std::vector<double>* output_;
  const std::vector<double>* parameter_;
  std::vector<double> work_, parameters_;  // of the layers before
};

// Every way to take `count` cards; of servers that are alike (same free cards, same cards of the
// last stage) the first ones give most.
template <class Visit>
void each_choice(const Cards& free, const Cards& last, int count, std::size_t server, Cards& taken,
                 const Visit& visit) {
  if (server == free.size()) {
    if (count == 0) visit(taken);
    return;
  }
  int most = std::min(free[server], count);
  for (std::size_t before = server; before-- > 0;) {
    if (free[before] != free[server] || last[before] != last[server]) continue;
    most = std::min(most, taken[before]);
    break;
  }
  for (int n = most; n >= 0; --n) {
    taken[server] = n;
    each_choice(free, last, count - n, server + 1, taken, visit);
  }
  taken[server] = 0;
}

class DappleSearch {
 public:
  DappleSearch(const DappleProblem& problem, int replicas, double below, std::int64_t steps)
      : problem_(problem), costs_(problem, replicas), replicas_(replicas), best_(below) {
    left_ = steps;
    most_depth_ = std::min(costs_.layers(), sum(problem.cards) / replicas);
  }

  // The best plan below the bound.
  std::optional<DapplePlan> run() {
    if (costs_.micro_batches() < 1 || most_depth_ < 1) return std::nullopt;
    states_.resize(static_cast<std::size_t>(costs_.layers()));
    const Cards none(problem_.cards.size(), 0);
    arena_.push_back({});
    states_[0][{problem_.cards, none}] = {0};
    for (int first = 0; first < costs_.layers() && left_ > 0; ++first) {
      for (const auto& [key, labels] : states_[static_cast<std::size_t>(first)]) {
        for (const std::int32_t label : labels) extend(first, key, label);
      }
    }
    if (final_ < 0) return std::nullopt;
    return trace();
  }
  std::int64_t left() const { return left_; }
  bool exact() const { return left_ > 0 && most_depth_ <= costs_.micro_batches(); }

 private:
  struct Label {
    double block = 0, sends = 0;
    std::vector<std::pair<double, int>> updates;  // AllReduce, stage: those that may be seen
    int depth = 0;                                // stages
    std::int32_t parent = -1;
    DappleStage stage;
  };
  using Key = std::pair<Cards, Cards>;  // free cards; those of the last stage

  double seconds(const Label& label, double block) const {
    double tail = 0;
    for (const auto& [update, stage] : label.updates) tail = std::max(tail, update - stage * block);
    return block * (costs_.micro_batches() - 1) + costs_.fill() + label.sends + tail;
  }
  // No plan that starts so is faster: all free cards work at the same pace on the rest. A longer
  // block hides more AllReduce, so only that of stage 0 is sure to be seen.
  double least(const Label& label, int end, int free) const {
    double block = label.block;
    const int ranks = free / replicas_;
    if (end < costs_.layers()) {
      if (ranks == 0) return kInfinity;
      block = std::max(block, costs_.block(costs_.work(end), ranks));
    }
    double tail = 0;
    for (const auto& [update, stage] : label.updates) {
      if (stage == 0) tail = std::max(tail, update);
    }
    return block * (costs_.micro_batches() - 1) + costs_.fill() + label.sends + tail;
  }

  void extend(int first, const Key& key, std::int32_t at) {
    const Label from = arena_[static_cast<std::size_t>(at)];
    const auto& [free, last] = key;
    const int most = sum(free) / replicas_;
    if (least(from, first, sum(free)) >= best_) return;
    for (int end = first + 1; end <= costs_.layers() && left_ > 0; ++end) {
      for (int ranks = 1; ranks <= most; ++ranks) {
        const double block = std::max(from.block, costs_.block(first, end, ranks));
        if (block * (costs_.micro_batches() - 1) + costs_.fill() + from.sends >= best_) continue;
        Cards taken(free.size(), 0);
        each_choice(free, last, ranks * replicas_, 0, taken, [&](const Cards& cards) {
          if (--left_ <= 0) return;
          Label label = from;
          label.block = block;
          label.parent = at;
          label.stage = {first, end, ranks, cards};
          if (first > 0) {
            label.block = std::max(label.block, costs_.block_of_send(first, last, cards));
            label.sends += costs_.send(first, last, cards);
          }
          label.updates.emplace_back(costs_.update(first, end, cards), label.depth);
          ++label.depth;
          std::erase_if(label.updates,
                        [&](const auto& it) { return it.first <= it.second * label.block; });
          keep(end, free, std::move(label));
        });
      }
    }
  }

  void keep(int end, Cards free, Label label) {
    for (std::size_t s = 0; s < free.size(); ++s) free[s] -= label.stage.cards[s];
    if (least(label, end, sum(free)) >= best_) return;
    if (end == costs_.layers()) {
      const double value = seconds(label, label.block);
      if (value >= best_) return;
      best_ = value;
      arena_.push_back(std::move(label));
      final_ = static_cast<std::int32_t>(arena_.size()) - 1;
      return;
    }
    std::vector<std::int32_t>& labels =
        states_[static_cast<std::size_t>(end)][{std::move(free), label.stage.cards}];
    const auto other = [&](std::int32_t i) -> const Label& {
      return arena_[static_cast<std::size_t>(i)];
    };
    for (const std::int32_t i : labels) {
      if (as_good(other(i), label)) return;
    }
    std::erase_if(labels, [&](std::int32_t i) { return as_good(label, other(i)); });
    labels.push_back(static_cast<std::int32_t>(arena_.size()));
    arena_.push_back(std::move(label));
    if (arena_.size() > kMostLabels) left_ = 0;  // what comes is not all
  }

  // Whatever follows, a plan with `a` is no slower: the block is at least b's, and for any such
  // block some AllReduce of b is seen as long as each of a's. With fewer micro-batches than stages
  // a longer block may pay, so nothing is compared across blocks.
  bool as_good(const Label& a, const Label& b) const {
    if (a.depth != b.depth || a.block > b.block || a.sends > b.sends) return false;
    if (most_depth_ > costs_.micro_batches() && a.block < b.block) return false;
    return std::ranges::all_of(a.updates, [&](const auto& mine) {
      const double seen = mine.first - mine.second * b.block;
      return seen <= 0 || std::ranges::any_of(b.updates, [&](const auto& other) {
               return other.second <= mine.second && other.first - other.second * b.block >= seen;
             });
    });
  }

  DapplePlan trace() const {
    DapplePlan plan;
    plan.replicas = replicas_;
    plan.seconds = best_;
    plan.score = best_ > 0 ? costs_.work(0) / best_ : 0;
    for (std::int32_t at = final_; at > 0; at = arena_[static_cast<std::size_t>(at)].parent) {
      plan.stages.insert(plan.stages.begin(), arena_[static_cast<std::size_t>(at)].stage);
    }
    return plan;
  }

  const DappleProblem& problem_;
  const Costs costs_;
  const int replicas_;
  double best_;
  std::int64_t left_;
  int most_depth_ = 0;
  std::vector<Label> arena_;
  std::vector<std::map<Key, std::vector<std::int32_t>>> states_;  // by layers planned
  std::int32_t final_ = -1;
};

std::optional<Error> objection(const DappleProblem& problem) {
  if (problem.seconds.empty()) return invalid("dapple: no layers");
  if (problem.output_bytes.size() != problem.seconds.size() ||
      problem.parameter_bytes.size() != problem.seconds.size()) {
    return invalid("dapple: layers without sizes");
  }
  if (sum(problem.cards) < 1) return invalid("dapple: no cards");
  if (problem.profile_batch < 1 || problem.micro_batch < 1 ||
      problem.global_batch < problem.micro_batch) {
    return invalid("dapple: no micro-batch in the global batch");
  }
  return std::nullopt;
}

}  // namespace

Result<double> dapple_seconds(const DappleProblem& problem, const DapplePlan& plan) {
  if (const auto error = objection(problem)) return *error;
  if (plan.replicas < 1) return invalid("dapple: no pipeline");
  const Costs costs(problem, plan.replicas);
  if (costs.micro_batches() < 1) return invalid("dapple: no micro-batch for every pipeline");
  Cards free = problem.cards;
  double block = 0, sends = 0;
  int next = 0;
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const DappleStage& stage = plan.stages[i];
    if (stage.first != next || stage.end <= stage.first || stage.end > costs.layers()) {
      return invalid("dapple: stages do not follow each other");
    }
    next = stage.end;
    if (stage.ranks < 1 || stage.cards.size() != free.size() ||
        sum(stage.cards) != stage.ranks * plan.replicas) {
      return invalid("dapple: a stage has other cards than ranks");
    }
    for (std::size_t s = 0; s < free.size(); ++s) {
      free[s] -= stage.cards[s];
      if (stage.cards[s] < 0 || free[s] < 0) return invalid("dapple: too many cards of a server");
    }
    block = std::max(block, costs.block(stage.first, stage.end, stage.ranks));
    if (i == 0) continue;
    const Cards& before = plan.stages[i - 1].cards;
    block = std::max(block, costs.block_of_send(stage.first, before, stage.cards));
    sends += costs.send(stage.first, before, stage.cards);
  }
  if (next != costs.layers()) return invalid("dapple: layers are left out");
  double tail = 0;
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const DappleStage& stage = plan.stages[i];
    const double update = costs.update(stage.first, stage.end, stage.cards);
    tail = std::max(tail, update - static_cast<double>(i) * block);
  }
  return block * (costs.micro_batches() - 1) + costs.fill() + sends + tail;
}

Result<DapplePlan> plan_dapple(const DappleProblem& problem) {
  if (const auto error = objection(problem)) return *error;
  std::optional<DapplePlan> best;
  bool finished = true;
  std::int64_t left = problem.most_steps;
  for (int replicas = sum(problem.cards); replicas >= 1; --replicas) {
    const double below = best ? best->seconds * (1 - kNoise) : kInfinity;
    DappleSearch search(problem, replicas, below, left);
    if (std::optional<DapplePlan> plan = search.run()) best = std::move(plan);
    left = std::max<std::int64_t>(search.left(), 1);
    finished = finished && search.exact();
  }
  if (!best) return invalid("dapple: no micro-batch for any pipeline");
  best->finished = finished;
  return *best;
}

}  // namespace weir::planner
