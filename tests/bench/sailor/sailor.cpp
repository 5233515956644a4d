// SPDX-License-Identifier: Apache-2.0
// The formulas are those of Sailor's planner_utils.cpp, with two differences: rates are clamped
// (model/cluster.h), and unlike devices take the slower of their curves.
#include "tests/bench/sailor/sailor.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>

#include "tests/bench/sailor/costs.h"
#include "tests/bench/sailor/tables.h"

namespace weir::planner {
namespace {

using Index = std::size_t;

constexpr double kNone = std::numeric_limits<double>::infinity();

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

double step_of(const SailorPlan& best) {
  return best.seconds > 0 ? best.seconds : kNone;
}

// What the layers in front of a partial plan take at least.
struct Rest {
  double sum = 0, straggler = 0;
};

// Partial plans with the same first layer, front option and devices used; none dominates another.
using Front = std::vector<std::int32_t>;

// Partial plans with equally many stages. Few of the slots hold any, so those are listed; the rooms
// of one search serve the next.
struct SailorLevel {
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
  SailorLevel level, next;
};

// The search for one micro-batch size and one count of replicas.
class SailorSearch {
 public:
  SailorSearch(const SailorProblem& problem, const SailorCosts& costs, const SailorTables& tables,
               int replicas)
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
    if (!(rate > 0)) return kNone;
    const double fastest = tables_.fastest.back();
    return fastest + (micro_batches_ - 1) * std::max(1 / rate, fastest / tables_.layers);
  }

  Index states() const { return states_; }

  // The same, dearer and closer; infinite: no plan is faster than `below`.
  double close_bound(double below) {
    if (slots() > kMostSlots) return lower_bound();
    fill_rests(below);
    const Rest& whole = rests_[rest_at(tables_.layers, 0)];
    return whole.sum + (micro_batches_ - 1) * whole.straggler;
  }

  // Improves `best`; false: more than most_steps, or too many combinations of devices. kGreedy
  // keeps one partial plan of a kind, which is quick and mostly good.
  enum class Effort : unsigned char { kGreedy, kExact };
  bool run(Rooms& rooms, Effort effort, SailorPlan& best, std::int64_t& steps) {
    if (slots() > kMostSlots) return false;
    best_ = &best;
    greedy_ = effort == Effort::kGreedy;
    arena_.clear();
    fill_syncs();
    fill_rests(step_of(best));
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

  Index rest_at(int end, Index used) const { return static_cast<Index>(end) * states_ + used; }

  // By layers from the first on and devices used behind them: the least sum and the least straggler
  // of their stages, each by itself, to the best neighbours. Stages longer than the best plan
  // allows are left out; of the memory of stages behind one counts.
  void fill_rests(double below) {
    rests_.assign(rest_at(tables_.layers + 1, 0), {kNone, kNone});
    std::fill_n(rests_.begin(), states_, Rest{0, 0});
    const double longest = below / micro_batches_;
    for (Index o = 0; o < tables_.options.size(); ++o) {
      takes_.emplace_back();
      for (Index used = 0, with = 0; used < states_; with = ++used) {
        if (take(o, with)) takes_.back().push_back(static_cast<std::uint32_t>(used));
      }
    }
    for (int end = 1; end <= tables_.layers; ++end) {
      for (Index o = 0; o < tables_.options.size(); ++o) {
        const Index step = stride_[o] * static_cast<Index>(tables_.options[o].degree);
        for (int first = end - 1; first >= 0; --first) {
          if (!fits(o, first, end, end < tables_.layers ? 2 : 1)) break;
          const double seconds = tables_.ranges[tables_.range(o, first, end)].seconds;
          if (seconds > longest) break;
          const double in = tables_.in(o, first);
          const double straggler = seconds + in + tables_.out(o, end), sum = seconds + 2 * in;
          if (straggler > longest) continue;
          const Rest* before = &rests_[rest_at(first, step)];
          Rest* here = &rests_[rest_at(end, 0)];
          for (const std::uint32_t used : takes_[o]) {
            here[used].sum = std::min(here[used].sum, before[used].sum + sum);
            here[used].straggler =
                std::min(here[used].straggler, std::max(before[used].straggler, straggler));
          }
        }
      }
    }
    takes_.clear();
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
    const SailorTables::Range& it = tables_.ranges[tables_.range(option, first, end)];
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

  void start(SailorLevel& level) {
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

  bool extend(Index slot, std::int32_t index, int behind, SailorLevel& next, std::int64_t& steps) {
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
    return partial.sum + tables_.fastest[static_cast<Index>(partial.first)] +
               (micro_batches_ - 1) * std::max(partial.straggler, partial.front) + partial.sync >=
           step_of(*best_);
  }

  // Nothing that ends with these stages is faster.
  double least_step(const Partial& partial, Index used) const {
    const Rest& rest = rests_[rest_at(partial.first, used)];
    const double in = tables_.in(static_cast<Index>(partial.option), partial.first);
    const double straggler = std::max({partial.straggler, partial.front + in, rest.straggler});
    return partial.sum + 2 * in + rest.sum + (micro_batches_ - 1) * straggler + partial.sync;
  }

  bool keep(SailorLevel& level, Index slot, const Partial& partial) {
    if (partial.first == 0) {
      finish(partial);
      return false;
    }
    const double least = least_step(partial, slot % states_);
    if (least >= step_of(*best_)) return false;
    Front& front = level.at(slot);
    for (const std::int32_t other : front) {
      const Partial& known = arena_[static_cast<Index>(other)];
      if (dominates(known, partial)) return false;
      if (greedy_ && least_step(known, slot % states_) <= least) return false;
    }
    std::erase_if(front, [&](std::int32_t other) {
      return greedy_ || dominates(partial, arena_[static_cast<Index>(other)]);
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
    if (plan.seconds < step_of(*best_)) *best_ = plan;
  }

  const SailorProblem& problem_;
  const SailorCosts& costs_;
  const SailorTables& tables_;
  const int replicas_, micro_batches_;
  std::vector<int> units_;  // devices of each kind, in units of D
  std::vector<Index> stride_;
  Index states_ = 1;
  std::vector<double> syncs_;                      // by range
  std::vector<Rest> rests_;                        // by layers left and units used
  std::vector<std::vector<std::uint32_t>> takes_;  // by option: units used that leave enough for it
  std::vector<Partial> arena_;
  SailorPlan* best_ = nullptr;
  bool greedy_ = false;
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
  struct Waiting {
    double bound;
    SailorSearch search;
  };
  std::vector<Waiting> searches;
  std::deque<SailorTables> tables;  // searches refer to them
  for (const int size : sizes) {
    tables.emplace_back(problem, costs, size);
    int known = std::numeric_limits<int>::max();
    for (int replicas = 1; replicas <= devices; ++replicas) {
      const int micro_batches = sailor_micro_batches(problem, size, replicas);
      if (micro_batches >= known) continue;
      known = micro_batches;
      SailorSearch search(problem, costs, tables.back(), replicas);
      const double bound = search.lower_bound();
      if (std::isfinite(bound)) searches.push_back({bound, std::move(search)});
    }
  }
  SailorPlan best;
  std::int64_t steps = 0;
  bool finished = true;
  Rooms rooms;
  // The small ones first: quick plans by them spare the large ones most of their work.
  std::vector<Index> order(searches.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::ranges::stable_sort(order, {}, [&](Index i) { return searches[i].search.states(); });
  for (const Index i : order) {
    Waiting& it = searches[i];
    if (it.bound >= step_of(best)) continue;
    SailorSearch search = it.search;  // its memory goes with it
    it.bound = search.close_bound(step_of(best));
    if (it.bound < step_of(best)) search.run(rooms, SailorSearch::Effort::kGreedy, best, steps);
  }
  std::ranges::stable_sort(order, {}, [&](Index i) { return searches[i].bound; });
  for (const Index i : order) {
    const Waiting& it = searches[i];
    if (it.bound >= step_of(best)) break;
    SailorSearch search = it.search;
    finished &= search.run(rooms, SailorSearch::Effort::kExact, best, steps);
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
