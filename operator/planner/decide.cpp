// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/decide.h"

#include <algorithm>
#include <optional>

#include "operator/planner/engines.h"
#include "operator/planner/setting.h"
#include "worker/base/units.h"

namespace weir::planner {
namespace {

constexpr double kNoise = 1e-9;  // relative; sums in another order are no gain
constexpr int kMostShifts = 64;
constexpr std::int64_t kTriedForBest = 20'000;   // assignments of the best layout
constexpr std::int64_t kTriedForOthers = 2'000;  // and of the others
constexpr std::int64_t kLeastTried = 8;          // the constructions and some more
constexpr std::int64_t kEventsPerOp = 2;         // two ops per stage and micro-batch

std::int64_t events_of(const Setting& setting, const Layout& layout) {
  std::int64_t micro_batches = 0;
  for (const int share : setting.micro_batches) micro_batches += share;
  return 2 * kEventsPerOp * micro_batches * static_cast<std::int64_t>(layout.stages());
}

// pivot_step looks at every pair of stages of every replica.
std::int64_t work_of_score(const Setting& setting, const Layout& layout) {
  const auto stages = static_cast<std::int64_t>(layout.stages());
  return static_cast<std::int64_t>(setting.micro_batches.size()) * stages * (stages + 16);
}

// Parameter bytes that ranks of a layout do not hold in the current plan.
std::int64_t moved_bytes(const Setting& setting, const Layout& layout,
                         const placement::Assignment& assignment) {
  const schedule::Plan& plan = *setting.request->current;
  std::int64_t moved = 0;
  for (const auto& replica : assignment) {
    for (std::size_t s = 0; s < replica.size(); ++s) {
      for (const int d : replica[s]) {
        const Device& device = setting.cluster->devices[static_cast<std::size_t>(d)];
        const auto held = std::ranges::find_if(plan.ranks, [&](const schedule::RankPlace& rank) {
          return rank.pod == device.pod && rank.local == device.local;
        });
        for (int i = layout.first[s]; i < layout.first[s + 1]; ++i) {
          const auto at = static_cast<std::size_t>(i);
          if (held != plan.ranks.end() && held->stage < static_cast<int>(plan.stages.size()) &&
              held->stage >= 0) {
            const schedule::LayerRange& range = plan.stages[static_cast<std::size_t>(held->stage)];
            if (i >= range.first && i <= range.last) continue;
          }
          moved += layout.line->parameters[at + 1] - layout.line->parameters[at];
          moved += layout.line->frozen[at + 1] - layout.line->frozen[at];
        }
      }
    }
  }
  return moved;
}

// "stage 0 needs 35.1 of 28.8 GB" of the stage that misses most.
std::string what_is_missing(const Setting& setting, const Layout& layout) {
  std::string text;
  double worst = 0;
  for (std::size_t s = 0; s < layout.stages(); ++s) {
    const StageMemoryReport memory = memory_of(setting, layout, s);
    if (memory.limit_bytes == 0) continue;
    const double ratio =
        static_cast<double>(memory.total_bytes) / static_cast<double>(memory.limit_bytes);
    if (ratio <= worst) continue;
    worst = ratio;
    text = "stage " + std::to_string(s) + " needs " + gb(memory.total_bytes) + " of " +
           gb(memory.limit_bytes) + " GB";
  }
  return text;
}

// The longest prefixes whose stages take at most target, target x factor, ...
std::vector<int> filled(const Setting& setting, const Layout& from, double target, double factor) {
  const Line& line = *from.line;
  const int nodes = static_cast<int>(line.nodes.size());
  std::vector<int> first{0};
  for (std::size_t s = 0; s < from.stages(); ++s, target *= factor) {
    const SyncClass& kind = setting.classes[static_cast<std::size_t>(from.kinds[s])];
    const auto column = static_cast<std::size_t>(kind.columns.front());
    const auto busy = [&](int end) {
      const auto a = static_cast<std::size_t>(first.back()), b = static_cast<std::size_t>(end);
      return 1e-9 *
             static_cast<double>(line.forward[column][b] - line.forward[column][a] +
                                 line.backward[column][b] - line.backward[column][a]) /
             from.ranks[s];
    };
    const int most = nodes - static_cast<int>(from.stages() - 1 - s);
    int end = first.back() + 1;
    while (end < most && busy(end + 1) <= target) ++end;
    first.push_back(std::min(end, most));
  }
  return first;
}

// Cuts whose late stages are lighter, which with k >= 2 is shorter (operator/planner/README.md
// "Step time"): M t_s + pre(s) equal for all s is t_s in proportion to (1 - tilt/M)^s.
std::optional<Layout> tilted(const Setting& setting, const Layout& from, double tilt) {
  const double factor = 1 - tilt / setting.micro_batches.front();
  const int nodes = static_cast<int>(from.line->nodes.size());
  Layout result = from;
  double low = 0, high = 2 * from.seconds;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (filled(setting, from, middle, factor).back() == nodes ? high : low) = middle;
  }
  result.first = filled(setting, from, high, factor);
  if (result.first.back() != nodes || !fits(setting, result)) return std::nullopt;
  return result;
}

void shift_once(const Setting& setting, Layout& layout, EventBudget& budget) {
  for (int moves = 0; moves < kMostShifts; ++moves) {
    Layout best = layout;
    for (std::size_t b = 1; b + 1 < layout.first.size(); ++b) {
      for (const int by : {-1, 1}) {
        Layout moved = layout;
        moved.first[b] += by;
        if (!fits(setting, moved)) continue;
        if (!budget.spend(setting, moved)) break;
        moved.seconds = simulated_step(setting, moved);
        if (moved.seconds < best.seconds * (1 - kNoise)) best = std::move(moved);
      }
    }
    if (best.first == layout.first) return;
    layout = std::move(best);
  }
}

}  // namespace

bool EventBudget::spend(const Setting& setting, const Layout& layout) {
  if (left_ > 0 && stop_ && stop_()) left_ = 0;
  if (left_ <= 0) return false;
  left_ -= events_of(setting, layout);
  return true;
}

bool better(const Layout& a, const Layout& b) {
  if (a.seconds < b.seconds * (1 - kNoise)) return true;
  if (b.seconds < a.seconds * (1 - kNoise)) return false;
  if (a.device_count() != b.device_count()) return a.device_count() < b.device_count();
  if (a.stages() != b.stages()) return a.stages() < b.stages();
  if (a.k != b.k) return a.k < b.k;
  return a.first < b.first;
}

int PlacementBudget::most_tried(const Setting& setting, const Layout& layout, bool first) const {
  const std::int64_t tries = left_ / work_of_score(setting, layout);
  const std::int64_t most = first ? kTriedForBest : kTriedForOthers;
  return static_cast<int>(std::clamp(tries / (first ? 2 : 8), kLeastTried, most));
}

void PlacementBudget::spend(const Setting& setting, const Layout& layout, std::int64_t tried) {
  left_ -= tried * work_of_score(setting, layout);
}

bool place(const Setting& setting, Layout& layout, bool first, PlacementBudget& budget) {
  placement::Task task;
  task.kind_of = setting.kind_of;
  task.kinds = layout.kinds;
  task.ranks = layout.ranks;
  task.replicas = static_cast<int>(setting.micro_batches.size());
  task.most_tried = budget.most_tried(setting, layout, first);
  Layout scored = layout;
  std::int64_t tried = 0;
  const placement::Score score = [&](const placement::Assignment& assignment) {
    ++tried;
    scored.devices = assignment;
    return pivot_step(setting, scored);
  };
  placement::MovedBytes moved;
  if (setting.request->current != nullptr && setting.request->keep_order) {
    moved = [&](const placement::Assignment& assignment) {
      return moved_bytes(setting, layout, assignment);
    };
  }
  std::optional<placement::Assigned> assigned =
      placement::assign(*setting.topology, task, score, moved);
  budget.spend(setting, layout, tried);
  if (!assigned) return false;
  layout.devices = std::move(assigned->assignment);
  return true;
}

void simulate_all(const Setting& setting, const std::vector<Layout>& layouts, EventBudget& budget,
                  Scored& scored) {
  const Request& request = *setting.request;
  const int least = *std::ranges::min_element(setting.micro_batches);
  std::map<int, Layout> best;
  for (Layout& layout : scored.by_k) best.emplace(layout.k, std::move(layout));
  scored.by_k.clear();
  for (const Layout& from : layouts) {
    for (const int k : ks_of(request, least)) {
      for (const CapRules rule : {CapRules::kKfkb, CapRules::kSlack}) {
        if (request.cap_rules != CapRules::kBoth && rule != request.cap_rules) continue;
        Layout layout = from;
        layout.caps = caps_of(request, rule, static_cast<int>(layout.stages()), least, k);
        layout.k = schedule::k_of_caps(layout.caps);
        if (!fits(setting, layout)) {
          scored.why_not.emplace(layout.k, what_is_missing(setting, layout));
          continue;
        }
        if (!best.empty() && !budget.spend(setting, layout)) break;
        layout.seconds = simulated_step(setting, layout);
        const auto found = best.find(layout.k);
        if (found == best.end()) {
          best.emplace(layout.k, std::move(layout));
        } else if (better(layout, found->second)) {
          scored.others.push_back(std::move(found->second));
          found->second = std::move(layout);
        } else {
          scored.others.push_back(std::move(layout));
        }
      }
    }
  }
  for (auto& [k, layout] : best) {
    scored.why_not.erase(k);
    scored.by_k.push_back(std::move(layout));
  }
}

void shift(const Setting& setting, Layout& layout, EventBudget& budget) {
  Layout best = layout;
  shift_once(setting, best, budget);
  for (const double tilt : {0.5, 1.0}) {
    std::optional<Layout> other = tilted(setting, layout, tilt);
    if (!other || !budget.spend(setting, *other)) continue;
    other->seconds = simulated_step(setting, *other);
    shift_once(setting, *other, budget);
    if (better(*other, best)) best = *std::move(other);
  }
  layout = std::move(best);
}

}  // namespace weir::planner
