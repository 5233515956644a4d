// SPDX-License-Identifier: Apache-2.0
// Upper bounds on small families of ideals first, then one question over all ideals: "is there
// anything better?". The answer is mostly no, and the search ends there.
#include "operator/planner/async/engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "operator/planner/async/feasible_cut.h"
#include "operator/planner/graph/orders.h"
#include "operator/planner/graph/promising_ideals.h"
#include "worker/base/check.h"

namespace weir::planner {
namespace {

using Index = std::size_t;

constexpr Index kSmallFamily = 3000;  // bisected directly, a question takes < 5 ms
constexpr Index kThinFamily = 4000;   // for the upper bound of larger ones
constexpr Index kThinWideFamily = 2000;
constexpr int kBoundQuestions = 8;
constexpr int kMostChains = 32;          // more: sets of bits are as fast
constexpr int kNearQuestions = 3;        // before halving the interval
constexpr double kThinTolerance = 1e-4;  // of upper bounds
constexpr double kWideTolerance = 1e-3;
constexpr std::int64_t kPairsOfUpperBound = 100'000'000;  // about 0.3 s
constexpr double kExact = 1e-12;                          // "just below the best value known"

struct Interval {
  double low = 0;  // no plan is below
  IdealChain best;
  double high = std::numeric_limits<double>::infinity();
};

// One stage on as many devices as pay off.
IdealChain one_stage(const Ideals& ideals, const BottleneckCosts& costs) {
  IdealChain best;
  double least = std::numeric_limits<double>::infinity();
  for (int ranks = 1; ranks <= costs.devices; ++ranks) {
    const IdealChain chain{{ideals.last()}, {ranks}};
    const double value = value_of(ideals, costs, chain);
    if (value < least) {
      least = value;
      best = chain;
    }
  }
  return best;
}

enum class Strategy : unsigned char {
  kHalve,      // the interval, down to the tolerance
  kBestFirst,  // ask at once for anything better than the best plan known
};

struct BottleneckSearch {
  const BottleneckProblem& problem;
  const BottleneckCosts costs;
  const std::vector<int> chains;
  FeasibleCut::Effort effort{};

  // Narrows the interval over one family, looking at no more than about `most_pairs`; true: down to
  // the tolerance.
  bool narrow(const Ideals& ideals, Strategy strategy, double tolerance, std::int64_t most_pairs,
              Interval& interval) {
    FeasibleCut feasible(ideals, costs, chains, interval.high);
    bool done = true;
    for (int asked = 0; done && interval.low < interval.high * (1 - tolerance); ++asked) {
      const bool halve = strategy == Strategy::kHalve
                             ? interval.low < interval.high * (1 - kThinTolerance)
                             : asked >= kNearQuestions && asked % 2 == 1;
      const double step = tolerance < kThinTolerance ? kExact : tolerance;
      const double threshold =
          halve ? (interval.low + interval.high) / 2 : interval.high * (1 - step);
      done = ask(feasible, ideals, threshold, most_pairs - feasible.effort().pairs, interval);
    }
    if (!done && strategy == Strategy::kBestFirst) {
      raise_bound(feasible, ideals, most_pairs / kBoundQuestions, interval);
    }
    effort.boundaries = std::max(effort.boundaries, feasible.effort().boundaries);
    effort.pairs += feasible.effort().pairs;
    return done;
  }

 private:
  // False: given up.
  bool ask(FeasibleCut& feasible, const Ideals& ideals, double threshold, std::int64_t most_pairs,
           Interval& interval) const {
    IdealChain plan;
    switch (feasible.ask(threshold, most_pairs, problem.stop, &plan)) {
      case FeasibleCut::Outcome::kGaveUp:
        return false;
      case FeasibleCut::Outcome::kNo:
        interval.low = threshold;
        break;
      case FeasibleCut::Outcome::kYes:
        interval.high = value_of(ideals, costs, plan);
        interval.best = std::move(plan);
        break;
    }
    return true;
  }

  // Lower thresholds leave fewer boundaries: they can be refuted where the best value cannot.
  void raise_bound(FeasibleCut& feasible, const Ideals& ideals, std::int64_t most_pairs,
                   Interval& interval) const {
    double hard = interval.high;
    for (int asked = 0; asked < kBoundQuestions; ++asked) {
      hard = std::min(hard, interval.high);
      const double threshold = (interval.low + hard) / 2;
      if (!ask(feasible, ideals, threshold, most_pairs, interval)) hard = threshold;
    }
  }
};

// Thins out a large family: keeps the ideals with the smallest cuts in each of many equal shares of
// the work.
std::vector<Index> thin(const Ideals& ideals, Index most) {
  constexpr Index kShares = 400;
  const double all = static_cast<double>(ideals.work(0, ideals.last())) + 1;
  std::vector<std::vector<Index>> shares(kShares);
  for (Index i = 1; i < ideals.last(); ++i) {
    const double part = static_cast<double>(ideals.work(0, i)) / all;
    shares[static_cast<Index>(part * static_cast<double>(kShares))].push_back(i);
  }
  std::vector<Index> kept{0, ideals.last()};
  for (std::vector<Index>& share : shares) {
    const Index count = std::min(share.size(), most / kShares);
    std::partial_sort(share.begin(), share.begin() + static_cast<std::ptrdiff_t>(count),
                      share.end(), [&](Index a, Index b) {
                        return ideals.cut[a] != ideals.cut[b] ? ideals.cut[a] < ideals.cut[b]
                                                              : a < b;
                      });
    kept.insert(kept.end(), share.begin(), share.begin() + static_cast<std::ptrdiff_t>(count));
  }
  std::ranges::sort(kept);
  return kept;
}

// Moves one boundary of the best plan at a time to the best place among all ideals, ranks of its
// two stages included, until that helps no more.
class Polish {
 public:
  Polish(const Ideals& ideals, const BottleneckCosts& costs) : ideals_(ideals), costs_(costs) {}

  void run(Interval& interval) const {
    for (bool better = true; better;) {
      better = false;
      for (Index s = 0; s + 1 < interval.best.ends.size(); ++s) better |= move(interval.best, s);
    }
    interval.high = value_of(ideals_, costs_, interval.best);
  }

 private:
  // The largest of the two stages around a boundary and their three boundaries.
  double local(Index from, Index middle, Index to, int first, int second) const {
    return std::max({costs_.stage(ideals_.work(0, middle) - ideals_.work(0, from),
                                  ideals_.parameters[middle] - ideals_.parameters[from], first),
                     costs_.stage(ideals_.work(0, to) - ideals_.work(0, middle),
                                  ideals_.parameters[to] - ideals_.parameters[middle], second),
                     costs_.boundary(ideals_.cut[from], first),
                     costs_.boundary(ideals_.cut[middle], std::min(first, second)),
                     costs_.boundary(ideals_.cut[to], second)});
  }

  bool move(IdealChain& chain, Index s) const {
    const Index from = s == 0 ? 0 : chain.ends[s - 1];
    const Index to = chain.ends[s + 1];
    const int both = chain.ranks[s] + chain.ranks[s + 1];
    double best = local(from, chain.ends[s], to, chain.ranks[s], chain.ranks[s + 1]);
    bool moved = false;
    for (Index i = from + 1; i < to; ++i) {
      if (costs_.boundary(ideals_.cut[i], both / 2) >= best) continue;
      bool tested = false;
      for (int first = 1; first < both; ++first) {
        if (local(from, i, to, first, both - first) >= best) continue;
        if (!tested && !(ideals_.subset(from, i) && ideals_.subset(i, to))) break;
        tested = true;
        best = local(from, i, to, first, both - first);
        chain.ends[s] = i;
        chain.ranks[s] = first;
        chain.ranks[s + 1] = both - first;
        moved = true;
      }
    }
    return moved;
  }

  const Ideals& ideals_;
  const BottleneckCosts& costs_;
};

// No plan is faster: perfect division of the work, the heaviest node alone, and "one stage, or a
// boundary of at least the smallest cut".
double lower_bound(const Dag& dag, const BottleneckCosts& costs, const Ideals* all) {
  const DagTimes& times = dag.classes.front();
  std::int64_t work = 0;
  std::int64_t parameters = 0;
  double heaviest = 0;
  const auto best_stage = [&](std::int64_t of, std::int64_t sync) {
    double least = std::numeric_limits<double>::infinity();
    for (int ranks = 1; ranks <= costs.devices; ++ranks) {
      least = std::min(least, costs.stage(of, sync, ranks));
    }
    return least;
  };
  for (Index i = 0; i < static_cast<Index>(dag.nodes); ++i) {
    const std::int64_t own = times.forward[i] + times.backward[i];
    heaviest = std::max(heaviest, best_stage(own, dag.parameters[i]));
    work += own;
    parameters += dag.parameters[i];
  }
  const double divided = static_cast<double>(work) * 1e-9 / costs.devices;
  double cut_or_one = best_stage(work, parameters);
  if (costs.devices >= 2) {
    std::int64_t cut = 0;
    if (all == nullptr) {
      cut = smallest_cut(dag);
    } else if (all->count() > 2) {
      cut = *std::min_element(all->cut.begin() + 1, all->cut.end() - 1);
    }
    cut_or_one = std::min(cut_or_one, costs.boundary(cut, costs.devices / 2));
  }
  return std::max({divided, heaviest, cut_or_one});
}

}  // namespace

BottleneckPlan plan_bottleneck(const Dag& dag, const BottleneckProblem& problem,
                               const Ideals* given) {
  WEIR_CHECK(dag.nodes > 0 && problem.devices > 0, "a model and a device");
  std::optional<Ideals> all;
  if (given == nullptr) {
    all = enumerate_ideals(dag, problem.limits);
    given = all ? &*all : nullptr;
  }
  const bool exact = given != nullptr;
  BottleneckSearch search{.problem = problem,
                          .costs = {problem.devices, problem.bytes_per_second, problem.transfers},
                          .chains = chains_of(dag, kMostChains)};
  Interval interval;
  interval.low = lower_bound(dag, search.costs, given);
  const double proved = interval.low;
  const bool small = exact && given->count() <= kSmallFamily;
  std::vector<Index> kept;
  std::optional<Ideals> family;
  std::optional<Ideals> promising;
  if (!small) {
    if (!exact) given = &promising.emplace(promising_ideals(dag));
    kept = thin(*given, exact ? kThinFamily : kThinWideFamily);
    family = ideals_at(*given, kept);
  }
  const Ideals& first = small ? *given : *family;
  interval.best = one_stage(first, search.costs);
  interval.high = value_of(first, search.costs, interval.best);
  const auto budget = [&](std::int64_t most) { return std::min(most, problem.most_pairs); };
  bool done = false;
  if (small) {
    done = search.narrow(first, Strategy::kHalve, problem.tolerance, problem.most_pairs, interval);
  } else {
    search.narrow(first, Strategy::kHalve, exact ? kThinTolerance : kWideTolerance,
                  budget(kPairsOfUpperBound), interval);
    for (Index& end : interval.best.ends) end = kept[end];
    interval.low = proved;  // what a part of the ideals cannot do, others may
    Polish(*given, search.costs).run(interval);
    if (exact) {
      done = search.narrow(*given, Strategy::kBestFirst, problem.tolerance, problem.most_pairs,
                           interval);
    }
  }
  const Ideals& ideals = *given;
  BottleneckPlan plan;
  Index from = 0;
  for (Index s = 0; s < interval.best.ends.size(); ++s) {
    plan.stages.push_back({ideals.difference(from, interval.best.ends[s]), interval.best.ranks[s]});
    from = interval.best.ends[s];
  }
  plan.value = interval.high;
  plan.lower_bound = std::min(interval.low, interval.high);
  plan.certainty = exact && done ? Certainty::kOptimal : Certainty::kGap;
  plan.ideals = ideals.count() - 1;
  plan.boundaries = search.effort.boundaries;
  plan.pairs = search.effort.pairs;
  return plan;
}

}  // namespace weir::planner
