// SPDX-License-Identifier: Apache-2.0
// The formulas are those of Sailor's planner_utils.cpp, with two differences: rates are clamped as
// in planner.md 1.4, and unlike devices take the slower of their curves.
#include "operator/planner/sailor.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "operator/planner/sailor_costs.h"

namespace weir::planner {
namespace {

using Index = std::size_t;

// A partial plan: stages from one boundary to the end of the model.
struct Partial {
  double sum = 0;          // stage times and both directions of the transfers between
  double straggler = 0;    // of all stages but the front one
  double front = 0;        // time of the front stage and its transfer out
  double sync = 0;         // largest AllReduce
  std::int32_t rest = -1;  // the same without the front stage: index into the arena
  std::int32_t first = 0, option = 0;
};

bool dominates(const Partial& a, const Partial& b) {
  return a.sum <= b.sum && a.straggler <= b.straggler && a.front <= b.front && a.sync <= b.sync;
}

constexpr int kMostLayers = 512;         // tables hold every range of layers
constexpr Index kMostSlots = 8'000'000;  // 24 bytes each, twice

// Partial plans with the same first layer, front option and devices used; none dominates another.
using Front = std::vector<std::int32_t>;

// Partial plans with equally many stages. Few of the slots hold any, so those are listed; the rooms
// of one search serve the next.
struct Level {
  std::vector<Front> fronts;  // by slot
  std::vector<Index> filled;

  Front& at(Index slot) {
    if (fronts[slot].empty()) filled.push_back(slot);
    return fronts[slot];
  }
  void clear(Index slots) {
    for (const Index slot : filled) fronts[slot].clear();
    filled.clear();
    if (fronts.size() < slots) fronts.resize(slots);
  }
};
struct Rooms {
  Level level, next;
};

// What does not depend on the count of replicas, for one micro-batch size.
struct Tables {
  struct Range {
    double seconds = 0, static_bytes = 0, activation_bytes = 0;
  };

  Tables(const SailorProblem& problem, const SailorCosts& costs, int size)
      : micro_batch(size), layers(costs.layers()) {
    for (Index device = 0; device < problem.devices.size(); ++device) {
      for (const auto& [key, times] : problem.devices[device].times.entries) {
        const SailorOption option{static_cast<int>(device), key.second};
        if (key.first == size && sailor_known(problem, option)) options.push_back(option);
      }
    }
    const auto side = static_cast<Index>(layers) + 1;
    ranges.resize(options.size() * side * side);
    transfers.resize(options.size() * options.size() * side);
    for (int i = 0; i <= layers; ++i) {
      fastest.push_back(options.empty() ? 0 : costs.fastest(options, size, i));
    }
    for (Index o = 0; o < options.size(); ++o) {
      whole.push_back(costs.least_whole(options, o, size));
      for (int first = 0; first < layers; ++first) {
        for (int end = first + 1; end <= layers; ++end) {
          ranges[range(o, first, end)] = {costs.stage(options[o], size, first, end),
                                          costs.static_bytes(options[o], first, end),
                                          costs.activation_bytes(options[o], size, first, end)};
        }
      }
      for (Index to = 0; to < options.size(); ++to) {
        for (int layer = 1; layer < layers; ++layer) {
          transfers[(o * options.size() + to) * side + static_cast<Index>(layer)] =
              costs.transfer(options[o], options[to], layer, size);
        }
      }
    }
  }

  Index range(Index option, int first, int end) const {
    const auto side = static_cast<Index>(layers) + 1;
    return (option * side + static_cast<Index>(first)) * side + static_cast<Index>(end);
  }
  double transfer(Index from, Index to, int layer) const {
    return transfers[(from * options.size() + to) * (static_cast<Index>(layers) + 1) +
                     static_cast<Index>(layer)];
  }

  int micro_batch, layers;
  std::vector<SailorOption> options;
  std::vector<Range> ranges;      // by option, first and end
  std::vector<double> transfers;  // by options of both sides and layer
  std::vector<double> fastest;    // of the layers before
  std::vector<double> whole;      // by option: SailorCosts::least_whole
};

// The search for one micro-batch size and one count of replicas.
class Search {
 public:
  Search(const SailorProblem& problem, const SailorCosts& costs, const Tables& tables, int replicas)
      : problem_(problem),
        costs_(costs),
        tables_(tables),
        replicas_(replicas),
        micro_batches_(sailor_micro_batches(problem, tables.micro_batch, replicas)) {
    for (const SailorDevices& devices : problem.devices) {
      units_.push_back(std::min(devices.count / replicas, tables.layers * problem.most_degree));
      states_ = std::min(states_ * (static_cast<Index>(units_.back()) + 1), kMostSlots + 1);
    }
    for (const SailorOption& option : tables.options) {
      Index stride = 1;
      for (int device = 0; device < option.device; ++device) {
        stride *= static_cast<Index>(units_[static_cast<Index>(device)]) + 1;
      }
      stride_.push_back(stride);
    }
  }

  // No plan of this shape is faster.
  double lower_bound() const {
    const double rate = rate_of(units_);
    if (!(rate > 0)) return std::numeric_limits<double>::infinity();
    const double fastest = tables_.fastest.back();
    return fastest + (micro_batches_ - 1) * std::max(1 / rate, fastest / tables_.layers);
  }

  // Improves `best`; false: more than most_steps, or too many combinations of devices.
  bool run(Rooms& rooms, SailorPlan& best, std::int64_t& steps) {
    if (slots() > kMostSlots) return false;
    best_ = &best;
    fill_syncs();
    fill_rates();
    rooms.level.clear(slots());
    start(rooms.level);
    for (int behind = 0; behind + 1 < tables_.layers; ++behind) {
      rooms.next.clear(slots());
      bool any = false;
      std::sort(rooms.level.filled.begin(), rooms.level.filled.end());
      for (const Index slot : rooms.level.filled) {
        for (const std::int32_t partial : rooms.level.fronts[slot]) {
          any |= extend(slot, partial, behind + 1, rooms.next, steps);
          if (steps > problem_.most_steps) return false;
        }
      }
      if (!any) break;
      std::swap(rooms.level, rooms.next);
    }
    return true;
  }

 private:
  Index slots() const {
    return static_cast<Index>(tables_.layers) * tables_.options.size() * states_;
  }
  Index slot_of(int first, Index option, Index used) const {
    return (static_cast<Index>(first) * tables_.options.size() + option) * states_ + used;
  }

  // Models that so many units can do per second of the straggler, at most: a stage does no more
  // than (straggler / time of the whole model on its option) of the work.
  double rate_of(const std::vector<int>& units) const {
    double rate = 0;
    for (Index device = 0; device < units.size(); ++device) {
      double best = 0;
      for (Index o = 0; o < tables_.options.size(); ++o) {
        const SailorOption& option = tables_.options[o];
        if (option.device != static_cast<int>(device)) continue;
        best = std::max(best, units[device] / option.degree / tables_.whole[o]);
      }
      rate += best;
    }
    return rate;
  }

  void fill_rates() {
    rates_.clear();
    for (Index used = 0; used < states_; ++used) {
      std::vector<int> left = units_;
      Index rest = used;
      for (int& units : left) {
        const Index all = static_cast<Index>(units) + 1;
        units -= static_cast<int>(rest % all);
        rest /= all;
      }
      rates_.push_back(rate_of(left));
    }
  }

  void fill_syncs() {
    syncs_.assign(tables_.ranges.size(), 0);
    for (Index o = 0; o < tables_.options.size(); ++o) {
      for (int first = 0; first < tables_.layers; ++first) {
        for (int end = first + 1; end <= tables_.layers; ++end) {
          syncs_[tables_.range(o, first, end)] =
              costs_.sync(tables_.options[o], first, end, replicas_);
        }
      }
    }
  }

  bool fits(Index option, int first, int end, int stages) const {
    const Tables::Range& it = tables_.ranges[tables_.range(option, first, end)];
    const SailorOption& on = tables_.options[option];
    return it.static_bytes + it.activation_bytes * stages <=
           problem_.devices[static_cast<Index>(on.device)].memory_bytes;
  }

  // Whether the option's devices are left next to the `used` ones; then `used` with them.
  bool take(Index option, Index& used) const {
    const SailorOption& it = tables_.options[option];
    const auto units = static_cast<Index>(units_[static_cast<Index>(it.device)]) + 1;
    const Index mine = used / stride_[option] % units;
    if (mine + static_cast<Index>(it.degree) >= units) return false;
    used += stride_[option] * static_cast<Index>(it.degree);
    return true;
  }

  void start(Level& level) {
    for (Index o = 0; o < tables_.options.size(); ++o) {
      Index used = 0;
      if (!take(o, used)) continue;
      for (int first = tables_.layers - 1; first >= 0; --first) {
        if (!fits(o, first, tables_.layers, 1)) break;
        const Index it = tables_.range(o, first, tables_.layers);
        Partial partial;
        partial.sum = partial.front = tables_.ranges[it].seconds;
        partial.sync = syncs_[it];
        partial.first = first;
        partial.option = static_cast<std::int32_t>(o);
        keep(level, slot_of(first, o, used), partial);
      }
    }
  }

  bool extend(Index slot, std::int32_t index, int behind, Level& next, std::int64_t& steps) {
    const Partial rest = arena_[static_cast<Index>(index)];
    bool any = false;
    for (Index o = 0; o < tables_.options.size() && rest.first > 0; ++o) {
      Index used = slot % states_;
      if (!take(o, used)) continue;
      const double transfer = tables_.transfer(o, static_cast<Index>(rest.option), rest.first);
      for (int first = rest.first - 1; first >= 0; --first) {
        if (!fits(o, first, rest.first, behind + 1)) break;
        ++steps;
        const Index it = tables_.range(o, first, rest.first);
        const double seconds = tables_.ranges[it].seconds;
        Partial partial;
        partial.sum = rest.sum + seconds + 2 * transfer;
        partial.straggler = std::max(rest.straggler, rest.front + transfer);
        partial.front = seconds + transfer;
        partial.sync = std::max(rest.sync, syncs_[it]);
        partial.rest = index;
        partial.first = first;
        partial.option = static_cast<std::int32_t>(o);
        if (too_long(partial)) break;
        any |= keep(next, slot_of(first, o, used), partial);
      }
    }
    return any;
  }

  // So is every longer front stage, however the rest runs.
  bool too_long(const Partial& partial) const {
    return best_->seconds > 0 &&
           partial.sum + tables_.fastest[static_cast<Index>(partial.first)] +
                   (micro_batches_ - 1) * std::max(partial.straggler, partial.front) +
                   partial.sync >=
               best_->seconds;
  }

  // Nothing that starts with these stages is better than the best plan known. What is left of the
  // model takes its fastest options, and the straggler that the units left allow.
  bool hopeless(const Partial& partial, Index used) const {
    if (best_->seconds == 0) return false;
    const double rest = tables_.fastest[static_cast<Index>(partial.first)];
    double straggler = std::max(partial.straggler, partial.front);
    if (rest > 0) straggler = std::max(straggler, rest / tables_.fastest.back() / rates_[used]);
    return partial.sum + rest + (micro_batches_ - 1) * straggler + partial.sync >= best_->seconds;
  }

  bool keep(Level& level, Index slot, const Partial& partial) {
    if (partial.first == 0) {
      finish(partial);
      return false;
    }
    if (hopeless(partial, slot % states_)) return false;
    Front& front = level.at(slot);
    for (const std::int32_t other : front) {
      if (dominates(arena_[static_cast<Index>(other)], partial)) return false;
    }
    std::erase_if(front, [&](std::int32_t other) {
      return dominates(partial, arena_[static_cast<Index>(other)]);
    });
    front.push_back(static_cast<std::int32_t>(arena_.size()));
    arena_.push_back(partial);
    return true;
  }

  void finish(const Partial& partial) {
    SailorPlan plan;
    plan.replicas = replicas_;
    plan.micro_batch_size = tables_.micro_batch;
    for (const Partial* at = &partial;; at = &arena_[static_cast<Index>(at->rest)]) {
      const SailorOption& option = tables_.options[static_cast<Index>(at->option)];
      const int end = at->rest < 0 ? tables_.layers : arena_[static_cast<Index>(at->rest)].first;
      plan.stages.push_back({at->first, end, {{option.device, option.degree, replicas_}}});
      if (at->rest < 0) break;
    }
    plan.seconds = costs_.seconds(plan);  // one stage pays its update, too
    if (best_->seconds == 0 || plan.seconds < best_->seconds) *best_ = plan;
  }

  const SailorProblem& problem_;
  const SailorCosts& costs_;
  const Tables& tables_;
  const int replicas_, micro_batches_;
  std::vector<int> units_;  // devices of each kind, in units of D
  std::vector<Index> stride_;
  Index states_ = 1;
  std::vector<double> syncs_;  // by range
  std::vector<double> rates_;  // by units used: rate_of those left
  std::vector<Partial> arena_;
  SailorPlan* best_ = nullptr;
};

}  // namespace

Result<SailorPlan> plan_sailor(const SailorProblem& problem) {
  const SailorCosts costs(problem);
  if (costs.layers() < 1 || costs.layers() > kMostLayers) {
    return Error{Code::kInvalid, "sailor: not 1 .. 512 layers"};
  }
  std::vector<int> sizes;
  int devices = 0;
  for (const SailorDevices& kind : problem.devices) {
    devices += kind.count;
    for (const auto& [key, layers] : kind.times.entries) sizes.push_back(key.first);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());

  // Of the counts of replicas with equal micro-batches the smallest: it leaves the most devices to
  // each.
  std::vector<std::pair<double, Search>> searches;
  std::deque<Tables> tables;  // searches refer to them
  for (const int size : sizes) {
    tables.emplace_back(problem, costs, size);
    int known = std::numeric_limits<int>::max();
    for (int replicas = 1; replicas <= devices; ++replicas) {
      const int micro_batches = sailor_micro_batches(problem, size, replicas);
      if (micro_batches >= known) continue;
      known = micro_batches;
      Search search(problem, costs, tables.back(), replicas);
      const double bound = search.lower_bound();
      if (std::isfinite(bound)) searches.emplace_back(bound, std::move(search));
    }
  }
  std::vector<Index> order;
  for (Index i = 0; i < searches.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](Index a, Index b) { return searches[a].first < searches[b].first; });
  SailorPlan best;
  std::int64_t steps = 0;
  bool finished = true;
  Rooms rooms;
  for (const Index i : order) {
    if (best.seconds > 0 && searches[i].first >= best.seconds) break;
    Search search = searches[i].second;  // its memory goes with it
    finished &= search.run(rooms, best, steps);
    if (steps > problem.most_steps) break;
  }
  best.finished = finished;
  best.steps = steps;
  if (best.seconds == 0) {
    return Error{Code::kInvalid, "sailor: no plan fits into the devices' memory"};
  }
  return best;
}

}  // namespace weir::planner
