// SPDX-License-Identifier: Apache-2.0
// For a fixed period P the loops of cost.h close stage by stage (planner.md 3, step 5c), with
// psi_q the most that a loop ending at or behind q needs beyond its allowance:
//   open  = F_q + (k-1) max(F_q, c_{q-1}) + B_q - kP
//   psi_q = max(open, F_q + B_q - kP + both transfers behind q + psi_{q+1})
//   closing, for every s: B_s + (k-1) max(B_s, c_s) + F_s - kP + both transfers + psi_{s+1} <= 0
// So a suffix of stages is its (sum of times, psi), and the Pareto front of suffixes at (stage,
// first layer, kinds used) is all there is to know. P runs over a geometric grid, refined around
// the best: a step with period in (lo, hi] takes at least sum(hi) + (M-1) lo.
#include "operator/planner/linear.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "worker/base/check.h"
#include "worker/base/units.h"
#include "worker/schedule/validate.h"

namespace weir::planner {
namespace {

constexpr double kCoarse = 1.02;           // planner.md 3, step 5
constexpr int kFineParts = 8;              // of one coarse cell: 0.25 %
constexpr double kShortest = 1e-9;         // seconds; periods of 0 need a first cell
constexpr std::size_t kMostStates = 4096;  // of used kinds
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-11;  // relative; sums in another order

struct Entry {
  double sum = 0, psi = -kInfinity;
  int end = 0;    // of this stage
  int kind = -1;  // of this stage
  int next = -1;  // entry in the front of the following stage
};
using Front = std::vector<Entry>;

void insert(Front& front, const Entry& entry) {
  for (const Entry& other : front) {
    if (other.sum <= entry.sum && other.psi <= entry.psi) return;
  }
  // Entries stay where they are: others point at them. Dominated ones only cost time.
  front.push_back(entry);
}

// Mixed-radix counts of the kinds that could run out.
struct Counts {
  std::vector<int> stride, limit;  // per kind; stride 0 = not counted
  int states = 1;
};
Counts counts_of(const Slots& slots, int stages) {
  Counts counts;
  for (const Kind& kind : slots.kinds) {
    const int limit = static_cast<int>(std::min<std::size_t>(kind.devices.size(), 1U << 20));
    const bool scarce = limit < stages;
    counts.stride.push_back(scarce ? counts.states : 0);
    counts.limit.push_back(limit);
    if (scarce && counts.states <= static_cast<int>(kMostStates)) counts.states *= limit + 1;
  }
  return counts;
}

class Search {
 public:
  explicit Search(const Problem& problem)
      : p_(problem),
        stages_(problem.shape.stages),
        layers_(problem.chain.layers),
        counts_(problem.kinds.empty() ? counts_of(problem.slots, stages_) : Counts{}) {
    // Fastest time of every prefix, for bounds.
    fastest_.assign(static_cast<std::size_t>(layers_) + 1, 0);
    for (int i = 0; i < layers_; ++i) {
      double least = kInfinity;
      for (const Kind& kind : p_.slots.kinds) least = std::min(least, busy(kind, i, i + 1));
      fastest_[static_cast<std::size_t>(i) + 1] = fastest_[static_cast<std::size_t>(i)] + least;
      heaviest_ = std::max(heaviest_, least);
    }
  }

  Solved run() {
    Solved solved;
    const std::optional<Found> free = least_sum(unbounded());
    if (!free) return solved;
    keep(solved, free->cut);
    const double more = p_.shape.micro_batches - 1;
    std::vector<Cell> cells;
    for (double low = lowest_period(), high = 0;; low = high) {
      high = std::max(low * kCoarse, kShortest);
      if (const auto found = least_sum(high)) {
        cells.push_back({low, high, found->sum + more * low});
        keep(solved, found->cut);
      }
      const double rest = free->sum + more * high;  // of cuts with a longer period
      if (rest >= solved.best.front().seconds * (1 - kRounding) || high > unbounded()) break;
    }
    solved.lower_bound = solved.best.front().seconds;
    for (const Cell& cell : cells) {
      if (cell.bound >= solved.best.front().seconds) continue;
      double low = cell.low;
      const double width = (cell.high - cell.low) / kFineParts;
      for (int part = 0; part < kFineParts; ++part) {
        const double high = part + 1 == kFineParts ? cell.high : low + width;
        if (const auto found = least_sum(high)) {
          keep(solved, found->cut);
          solved.lower_bound = std::min(solved.lower_bound, found->sum + more * low);
        }
        low = high;
      }
    }
    solved.lower_bound = std::min(solved.lower_bound, solved.best.front().seconds);
    return solved;
  }

 private:
  struct Found {
    Cut cut;
    double sum;
  };
  struct Cell {
    double low, high, bound;
  };

  // No cut has a shorter period: heaviest layer, fair share, narrowest cut of every boundary.
  double lowest_period() const {
    double lowest = std::max(heaviest_, fastest_.back() / stages_);
    for (const BoundaryLink& link : p_.links) {
      double least = kInfinity;
      for (int i = 1; i < layers_; ++i) {
        const std::int64_t bytes = p_.chain.cut[static_cast<std::size_t>(i)];
        least = std::min(least, std::max(link.forward.of(bytes), link.backward.of(bytes)));
      }
      lowest = std::max(lowest, least);
    }
    return lowest;
  }

  double busy(const Kind& kind, int first, int end) const {
    const schedule::StageTime time = stage_time(p_.chain, kind.device_class, first, end);
    return to_seconds(time.forward + time.backward);
  }

  // A period that no loop exceeds.
  double unbounded() const {
    double all = 1e-9;
    for (const Kind& kind : p_.slots.kinds) all = std::max(all, busy(kind, 0, layers_));
    for (const BoundaryLink& link : p_.links) {
      const std::int64_t bytes = *std::max_element(p_.chain.cut.begin(), p_.chain.cut.end());
      all += link.forward.of(bytes) + link.backward.of(bytes);
    }
    return 2 * all;
  }

  void keep(Solved& solved, const Cut& cut) const {
    for (const CostedCut& kept : solved.best) {
      if (kept.cut == cut) return;
    }
    const double seconds = step_seconds(pipeline_of(p_.chain, p_.slots, cut, p_.links), p_.shape);
    const auto after =
        std::upper_bound(solved.best.begin(), solved.best.end(), seconds,
                         [](double value, const CostedCut& kept) { return value < kept.seconds; });
    solved.best.insert(after, {cut, seconds});
    if (solved.best.size() > kKeptCuts) solved.best.pop_back();
  }

  Front& front(int stage, int first, int used) {
    return fronts_[(static_cast<std::size_t>(stage) * (static_cast<std::size_t>(layers_) + 1) +
                    static_cast<std::size_t>(first)) *
                       static_cast<std::size_t>(counts_.states) +
                   static_cast<std::size_t>(used)];
  }

  bool may_use(int kind, int stage, int used) const {
    const Kind& it = p_.slots.kinds[static_cast<std::size_t>(kind)];
    if (stage < it.first_stage || stage > it.last_stage) return false;
    if (!p_.kinds.empty()) return p_.kinds[static_cast<std::size_t>(stage)] == kind;
    const int stride = counts_.stride[static_cast<std::size_t>(kind)];
    if (stride == 0) return true;
    const int limit = counts_.limit[static_cast<std::size_t>(kind)];
    return used / stride % (limit + 1) < limit;
  }

  // The cut of least sum of times among those with period <= period.
  std::optional<Found> least_sum(double period) {
    fronts_.assign((static_cast<std::size_t>(stages_) + 1) *
                       (static_cast<std::size_t>(layers_) + 1) *
                       static_cast<std::size_t>(counts_.states),
                   {});
    period *= 1 + kRounding;
    front(stages_, layers_, 0).push_back({});
    for (int s = stages_ - 1; s >= 0; --s) {
      for (int end = s + 1; end <= layers_ - (stages_ - 1 - s); ++end) {
        for (int used = 0; used < counts_.states; ++used) {
          if (front(s + 1, end, used).empty()) continue;
          for (int kind = 0; kind < static_cast<int>(p_.slots.kinds.size()); ++kind) {
            if (may_use(kind, s, used)) extend(s, end, used, kind, period);
          }
        }
      }
    }
    return trace();
  }

  // Adds stage s = [first, end) on `kind` in front of every suffix at (s+1, end, used).
  void extend(int s, int end, int used, int kind, double period) {
    const Kind& device = p_.slots.kinds[static_cast<std::size_t>(kind)];
    const auto b = static_cast<std::size_t>(s);
    const bool last = s + 1 == stages_;
    const std::int64_t out = p_.chain.cut[static_cast<std::size_t>(end)];
    const double out_forward = last ? 0 : p_.links[b].forward.of(out);
    const double out_backward = last ? 0 : p_.links[b].backward.of(out);
    if (std::max(out_forward, out_backward) > period) return;
    const int k = p_.shape.k;
    const int stride = p_.kinds.empty() ? counts_.stride[static_cast<std::size_t>(kind)] : 0;
    for (int first = end - 1; first >= s; --first) {
      if (s == 0 && first > 0) first = 0;
      const schedule::StageTime time = stage_time(p_.chain, device.device_class, first, end);
      const double forward = to_seconds(time.forward), backward = to_seconds(time.backward);
      if (forward + backward > period) return;  // and so does every longer stage
      if (fastest_[static_cast<std::size_t>(first)] > s * period) continue;
      if (device.usable_bytes > 0 &&
          stage_bytes(p_.chain, p_.shape, s, first, end) > device.usable_bytes) {
        continue;
      }
      const double in_forward =
          s == 0 ? 0 : p_.links[b - 1].forward.of(p_.chain.cut[static_cast<std::size_t>(first)]);
      const double closing = backward + (k - 1) * std::max(backward, out_backward) + forward -
                             k * period + out_forward + out_backward;
      const double open = forward + (k - 1) * std::max(forward, in_forward) + backward - k * period;
      const Front& suffixes = front(s + 1, end, used);
      Front& fresh = front(s, first, used + stride);
      for (std::size_t i = 0; i < suffixes.size(); ++i) {
        const Entry& suffix = suffixes[i];
        if (!last && closing + suffix.psi > 0) continue;
        insert(fresh, {.sum = suffix.sum + forward + backward + out_forward + out_backward,
                       .psi = std::max(open, forward + backward - k * period + out_forward +
                                                 out_backward + suffix.psi),
                       .end = end,
                       .kind = kind,
                       .next = static_cast<int>(i)});
      }
    }
  }

  std::optional<Found> trace() {
    const Entry* best = nullptr;
    int used = 0;
    for (int u = 0; u < counts_.states; ++u) {
      for (const Entry& entry : front(0, 0, u)) {
        if (best != nullptr && entry.sum >= best->sum) continue;
        best = &entry;
        used = u;
      }
    }
    if (best == nullptr) return std::nullopt;
    Found found{.cut = {.first = {0}, .kinds = {}}, .sum = best->sum};
    for (int s = 0; s < stages_; ++s) {
      found.cut.first.push_back(best->end);
      found.cut.kinds.push_back(best->kind);
      if (p_.kinds.empty()) used -= counts_.stride[static_cast<std::size_t>(best->kind)];
      best = &front(s + 1, best->end, used)[static_cast<std::size_t>(best->next)];
    }
    return found;
  }

  const Problem& p_;
  const int stages_, layers_;
  const Counts counts_;
  std::vector<double> fastest_;
  double heaviest_ = 0;
  std::vector<Front> fronts_;  // by (stage, first layer, used kinds)
};

}  // namespace

std::int64_t table_size(const Slots& slots, int stages, int layers) {
  const std::int64_t states = counts_of(slots, stages).states;
  if (states > static_cast<std::int64_t>(kMostStates)) return 0;
  return states * stages * layers;
}

Solved solve(const Problem& problem) {
  WEIR_CHECK(problem.shape.stages >= 1 && problem.shape.stages <= problem.chain.layers,
             "every stage has a layer");
  return Search(problem).run();
}

Pipeline pipeline_of(const Chain& chain, const Slots& slots, const Cut& cut,
                     const std::vector<BoundaryLink>& links) {
  Pipeline pipeline;
  for (std::size_t s = 0; s < cut.kinds.size(); ++s) {
    const ClassIndex device_class =
        slots.kinds[static_cast<std::size_t>(cut.kinds[s])].device_class;
    const schedule::StageTime time =
        stage_time(chain, device_class, cut.first[s], cut.first[s + 1]);
    const std::vector<std::int64_t>& update = chain.classes[device_class].update;
    pipeline.stages.push_back({.forward = to_seconds(time.forward),
                               .backward = to_seconds(time.backward),
                               .update = to_seconds(std::chrono::nanoseconds(
                                   update[static_cast<std::size_t>(cut.first[s + 1])] -
                                   update[static_cast<std::size_t>(cut.first[s])]))});
    if (s == links.size()) continue;
    const std::int64_t bytes = chain.cut[static_cast<std::size_t>(cut.first[s + 1])];
    pipeline.send_forward.push_back(links[s].forward.of(bytes));
    pipeline.send_backward.push_back(links[s].backward.of(bytes));
  }
  return pipeline;
}

std::int64_t stage_bytes(const Chain& chain, const Shape& shape, int stage, int first, int end) {
  return schedule::memory_bytes({.stash_bytes = stash_bytes(chain, first, end),
                                 .input_bytes = chain.cut[static_cast<std::size_t>(first)],
                                 .output_bytes = chain.cut[static_cast<std::size_t>(end)],
                                 .static_bytes = static_bytes(chain, first, end)},
                                shape.schedule, stage);
}

}  // namespace weir::planner
