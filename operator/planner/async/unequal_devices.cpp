// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/async/unequal_devices.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/base/check.h"
#include "worker/base/units.h"

namespace weir::planner {
namespace {

using Index = std::size_t;

constexpr double kSecond = 1e-9;                       // of a nanosecond
constexpr Index kAtOnce[] = {60, 200, 800, 3000};      // ideals of one search after another
constexpr std::int64_t kWorkBetweenStops = 2'000'000;  // about 10 ms

// Indices of `most` ideals with the smallest cuts, evenly spread over the work; both ends.
std::vector<Index> thinned(const Ideals& ideals, Index most) {
  std::vector<Index> kept;
  if (ideals.count() <= most) {
    for (Index i = 0; i < ideals.count(); ++i) kept.push_back(i);
    return kept;
  }
  constexpr Index kOfEach = 4;
  const Index shares = most / kOfEach;
  const double all = static_cast<double>(ideals.work(0, ideals.last())) + 1;
  std::vector<std::vector<Index>> share(shares);
  for (Index i = 1; i < ideals.last(); ++i) {
    const double part = static_cast<double>(ideals.work(0, i)) / all;
    share[static_cast<Index>(part * static_cast<double>(shares))].push_back(i);
  }
  kept = {0, ideals.last()};
  for (std::vector<Index>& one : share) {
    std::ranges::stable_sort(one, [&](Index a, Index b) { return ideals.cut[a] < ideals.cut[b]; });
    one.resize(std::min(one.size(), kOfEach));
    kept.insert(kept.end(), one.begin(), one.end());
  }
  std::ranges::sort(kept);
  return kept;
}

// By state: seconds of column 0 that the devices left do in a second, at most.
std::vector<double> rates_of(const Dag& dag, const DeviceStates& states) {
  const auto nanoseconds = [&](Index column, Index node) {
    const DagTimes& times = dag.classes[column];
    return static_cast<double>(times.forward[node] + times.backward[node]);
  };
  std::vector<double> speed(states.left.front().size(), 0);  // by class
  for (const Taking& taking : states.takings.front()) {
    double least = kInfinity;  // of any node's time to that in column 0
    for (Index node = 0; node < static_cast<Index>(dag.nodes); ++node) {
      const double first = nanoseconds(0, node);
      if (first > 0) {
        least = std::min(least, nanoseconds(static_cast<Index>(taking.column), node) / first);
      }
    }
    speed[static_cast<Index>(taking.device_class)] = 1 / least;  // infinite: it takes no time
  }
  std::vector<double> rates;
  for (const std::vector<int>& left : states.left) {
    double rate = 0;
    for (Index c = 0; c < left.size(); ++c) {
      if (left[c] > 0) rate += left[c] * speed[c];
    }
    rates.push_back(rate);
  }
  return rates;
}

class Search {
 public:
  Search(const Ideals& ideals, const DeviceStates& states, const std::vector<double>& rates,
         bool transfers, double below)
      : ideals_(ideals),
        states_(states),
        rates_(rates),
        transfers_(transfers),
        below_(below),
        keys_(states.takings.size()),
        reached_(ideals.count() * keys_),
        open_(ideals.count(), 0) {
    reached_[0].value = 0;
    open_[0] = 1;
  }

  // The best plan below the threshold; one without stages if there is none. Ends unproved beyond
  // `most` takings looked at, or when told to stop.
  UnequalPlan run(std::int64_t most, const std::function<bool()>& stop) {
    bool over = false;
    std::int64_t next_stop = kWorkBetweenStops;
    for (Index j = 1; j < ideals_.count() && !over; ++j) {
      for (Index i = 0; i < j && !over; ++i) {
        if (open_[i] == 0 || !ideals_.subset(i, j)) continue;
        extend(i, j);
        over = work_ > most;
        if (work_ < next_stop || !stop) continue;
        next_stop = work_ + kWorkBetweenStops;
        over |= stop();
      }
      open_[j] = open(j) ? 1 : 0;
    }
    UnequalPlan plan = traced();
    plan.pairs = pairs_;
    plan.proved = !over;
    return plan;
  }

 private:
  struct Reached {
    double value = kInfinity;  // the slowest stage or boundary of the prefix
    std::uint32_t from = 0, key = 0, taking = 0;
  };

  Reached& at(Index ideal, Index key) { return reached_[ideal * keys_ + key]; }
  double work(Index column, Index inner, Index outer) const {
    return static_cast<double>(ideals_.work(column, outer) - ideals_.work(column, inner)) * kSecond;
  }

  // Whether the devices left may do the rest in time.
  bool possible(double rest, Index key) const { return rest <= 0 || rest < below_ * rates_[key]; }

  // Whether some plan that is good enough may have a boundary here.
  bool open(Index i) {
    const double rest = work(0, i, ideals_.last());
    for (Index key = 0; key < keys_; ++key) {
      if (at(i, key).value < below_ && possible(rest, key)) return true;
    }
    return false;
  }

  void extend(Index i, Index j) {
    ++pairs_;
    const double rest = work(0, j, ideals_.last());
    for (Index key = 0; key < keys_; ++key) {
      const double before = at(i, key).value;
      if (before >= below_) continue;
      const std::vector<Taking>& takings = states_.takings[key];
      work_ += static_cast<std::int64_t>(takings.size());
      for (Index t = 0; t < takings.size(); ++t) {
        const Taking& taking = takings[t];
        const auto next = static_cast<Index>(taking.next);
        if (!possible(rest, next)) continue;
        const double value = std::max(before, seconds(i, j, taking));
        Reached& there = at(j, next);
        if (value >= below_ || value >= there.value) continue;
        there = {value, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(key),
                 static_cast<std::uint32_t>(t)};
        if (j == ideals_.last()) below_ = value;
      }
    }
  }

  // As BottleneckCosts, with rates of its own on either side.
  double seconds(Index i, Index j, const Taking& taking) const {
    const double ranks = taking.ranks;
    const auto bytes = static_cast<double>(ideals_.parameters[j] - ideals_.parameters[i]);
    const double sync = 4 * (ranks - 1) * bytes / (taking.ring * ranks);
    const double stage = (work(static_cast<Index>(taking.column), i, j) + sync) / ranks;
    if (!transfers_) return stage;
    return std::max({stage, 2 * static_cast<double>(ideals_.cut[i]) / (taking.in * ranks),
                     2 * static_cast<double>(ideals_.cut[j]) / (taking.out * ranks)});
  }

  UnequalPlan traced() {
    UnequalPlan plan;
    plan.value = kInfinity;
    Index key = 0;
    for (Index k = 0; k < keys_; ++k) {
      const double value = at(ideals_.last(), k).value;
      if (value >= plan.value) continue;
      plan.value = value;
      key = k;
    }
    for (Index j = std::isinf(plan.value) ? 0 : ideals_.last(); j != 0;) {
      const Reached& here = at(j, key);
      plan.ends.push_back(j);
      plan.stages.push_back(states_.takings[here.key][here.taking]);
      j = here.from;
      key = here.key;
    }
    std::ranges::reverse(plan.ends);
    std::ranges::reverse(plan.stages);
    return plan;
  }

  const Ideals& ideals_;
  const DeviceStates& states_;
  const std::vector<double>& rates_;
  const bool transfers_;
  double below_;
  const Index keys_;
  std::vector<Reached> reached_;  // [ideal][state]
  std::vector<char> open_;        // by ideal that is complete: open() then
  std::int64_t pairs_ = 0, work_ = 0;
};

}  // namespace

std::optional<DeviceStates> states_of_counts(const std::vector<int>& counts,
                                             const std::vector<int>& columns, double rate,
                                             int most) {
  DeviceStates states;
  std::vector<int> used(counts.size(), 0);
  std::int64_t all = 1;
  std::vector<int> stride;
  for (const int count : counts) {
    stride.push_back(static_cast<int>(all));
    all *= count + 1;
    if (all > most) return std::nullopt;
  }
  for (int key = 0; key < all; ++key) {
    std::vector<int> left;
    std::vector<Taking> takings;
    for (Index c = 0; c < counts.size(); ++c) {
      left.push_back(counts[c] - key / stride[c] % (counts[c] + 1));
      for (int ranks = 1; ranks <= left[c]; ++ranks) {
        takings.push_back({.next = key + ranks * stride[c],
                           .device_class = static_cast<int>(c),
                           .column = columns[c],
                           .ranks = ranks,
                           .ring = rate,
                           .in = rate,
                           .out = rate});
      }
    }
    states.left.push_back(std::move(left));
    states.takings.push_back(std::move(takings));
  }
  return states;
}

DeviceStates states_of_servers(int servers, int devices_each, double inside, double between) {
  DeviceStates states;
  const int slots = servers * devices_each;
  for (int used = 0; used <= slots; ++used) {
    std::vector<Taking> takings;
    const int next_server = (used + devices_each - 1) / devices_each * devices_each;
    for (const int first : {used, next_server}) {
      if (first == next_server && first == used && !takings.empty()) break;  // looked at
      for (int ranks = 1; first + ranks <= slots; ++ranks) {
        const int end = first + ranks;
        const bool one = first / devices_each == (end - 1) / devices_each;
        takings.push_back({.next = end,
                           .ranks = ranks,
                           .ring = one ? inside : between,
                           .in = one && first % devices_each != 0 ? inside : between,
                           .out = one && end % devices_each != 0 ? inside : between});
      }
    }
    states.left.push_back({slots - used});
    states.takings.push_back(std::move(takings));
  }
  return states;
}

UnequalPlan plan_unequal(const Dag& dag, const Ideals& ideals, const DeviceStates& states,
                         bool transfers, const std::function<bool()>& stop,
                         std::int64_t most_work) {
  WEIR_CHECK(ideals.count() >= 2 && !states.takings.front().empty(), "a model and a device");
  const std::vector<double> rates = rates_of(dag, states);
  UnequalPlan best;
  best.value = kInfinity;
  std::int64_t pairs = 0;
  bool proved = false;
  // Few ideals for a first bound, then all, or as many as one search can take. A stop and the limit
  // of work hold once there is a plan.
  for (const Index most : kAtOnce) {
    const std::vector<Index> kept = thinned(ideals, most);
    const bool nothing = best.stages.empty();
    const std::int64_t work = nothing ? std::numeric_limits<std::int64_t>::max() : most_work;
    UnequalPlan found = Search(ideals_at(ideals, kept), states, rates, transfers, best.value)
                            .run(work, nothing ? std::function<bool()>() : stop);
    pairs += found.pairs;
    proved = found.proved && ideals.complete && kept.size() == ideals.count();
    if (!found.stages.empty()) {
      for (Index& end : found.ends) end = kept[end];
      best = std::move(found);
    }
    if (kept.size() == ideals.count()) break;  // larger ones would look at the same
  }
  best.pairs = pairs;
  best.proved = proved;
  const auto all = static_cast<double>(ideals.work(0, ideals.last())) * kSecond;
  best.lower_bound = proved ? best.value : std::min(best.value, all / rates.front());
  return best;
}

}  // namespace weir::planner
