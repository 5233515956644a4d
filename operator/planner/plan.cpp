// SPDX-License-Identifier: Apache-2.0
// The planner from input to report: step 0 here, steps 1 to 6 by the engines (engines.h), 7 and 8
// in decide.h, what is told about it in describe.h.
#include "operator/planner/plan.h"

#include <algorithm>
#include <deque>
#include <map>

#include "operator/planner/cache.h"
#include "operator/planner/decide.h"
#include "operator/planner/describe.h"
#include "operator/planner/engines.h"
#include "operator/planner/setting.h"
#include "operator/planner/split.h"
#include "worker/base/parallel.h"

namespace weir::planner {
namespace {

constexpr double kModelError = 1.25;              // T+ is at most 22 % above the step
constexpr double kAsGood = 1.03;                  // other k whose cut is worth moving, too
constexpr double kTieOfK = 1.005;                 // smallest k within 0.5 % of the best
constexpr std::size_t kPlaced = 16;               // layouts put on servers
constexpr int kPlacementRounds = 3;               // of cut and placement in turns
constexpr std::int64_t kRoundPairs = 20'000'000;  // a search above it is not repeated

Status check_input(const Model& model, const Cluster& cluster, const Request& request) {
  if (model.layers.empty()) return invalid("model.profile: no layers");
  if (const std::string edge = edge_that_runs_back(model); request.keep_order && !edge.empty()) {
    return invalid("model.profile: edge " + edge + " runs against the order of nodes");
  }
  if (cluster.devices.empty()) return invalid("workerGroups: no rank has registered");
  if (request.global_batch < 1) return invalid("batch.globalBatchSize: below 1");
  if (request.data_parallel < 1) return invalid("parallelism.dataParallel: below 1");
  const int ranks = static_cast<int>(cluster.devices.size()) / request.data_parallel;
  if (ranks == 0) {
    return invalid("parallelism.dataParallel: " + std::to_string(request.data_parallel) +
                   " needs as many ranks, " + std::to_string(cluster.devices.size()) +
                   " are there");
  }
  std::optional<int> fixed = request.stages;
  if (!request.caps.empty()) {
    const int caps = static_cast<int>(request.caps.size());
    if (fixed && *fixed != caps) {
      return invalid("schedule.inFlightCaps: " + std::to_string(caps) + " values for " +
                     std::to_string(*fixed) + " stages");
    }
    fixed = caps;
  }
  const int layers = static_cast<int>(model.layers.size());
  if (fixed && *fixed > layers) {
    return invalid("parallelism.stages: " + std::to_string(*fixed) + " is above the " +
                   std::to_string(layers) + " layers of model " + model.name);
  }
  if (fixed && *fixed > ranks) {
    return invalid("parallelism.stages: " + std::to_string(*fixed) + " needs as many ranks, " +
                   std::to_string(ranks) + " are there");
  }
  return Unit{};
}

bool one_link(const LinkTable& table) {
  for (const auto& row : table.links) {
    for (const LinkRate& link : row) {
      const LinkRate& first = table.links[0][0];
      if (link.bytes_per_second != first.bytes_per_second || link.latency != first.latency ||
          link.available_share != first.available_share || link.curve != first.curve) {
        return false;
      }
    }
  }
  return true;
}

bool same_cut(const Layout& a, const Layout& b) {
  return a.first == b.first && a.kinds == b.kinds && a.ranks == b.ranks &&
         (a.line == b.line || a.line->nodes == b.line->nodes);
}

// One micro-batch size with what the engines found.
struct Attempt {
  Setting setting;
  LinkTable table;
  std::shared_ptr<const Ideals> ideals;
  EngineAnswer answer;
};

class Planner {
 public:
  Planner(const Model& model, const Cluster& cluster, const Request& request, const Limits& limits,
          PlanCache* cache)
      : model_(model),
        cluster_(cluster),
        request_(request),
        limits_(limits),
        cache_(cache),
        topology_(cluster),
        budget_(limits),
        placements_(limits) {}

  Result<PlanReport> run() {
    WEIR_TRY(const std::vector<int> sizes, micro_batch_sizes(request_));
    std::vector<Attempt> to_try;
    for (const int size : sizes) {
      Attempt attempt;
      WEIR_TRY(attempt.setting, setting_of(model_, cluster_, request_, topology_, size));
      if (stage_counts(attempt.setting).empty()) return no_rank_left(attempt.setting);
      attempt.table = best_links(attempt.setting);
      if (!bottleneck()) attempt.ideals = ideals_for(attempt.setting, limits_, cache_);
      to_try.push_back(std::move(attempt));
    }
    // Sizes do not know of each other. After a stop one plan is enough.
    std::vector<std::optional<Result<Attempt>>> tried(to_try.size());
    for_each_index(to_try.size(), limits_.threads, [&](std::size_t i) {
      if (i == 0 || !stopped()) tried[i] = searched(to_try[i]);
    });
    std::optional<Error> why_not;
    for (std::size_t i = 0; i < tried.size(); ++i) {
      if (!tried[i] && attempts_.empty()) tried[i] = searched(to_try[i]);
      if (!tried[i]) continue;
      if (*tried[i]) {
        attempts_.push_back(**std::move(tried[i]));
      } else if (!why_not) {
        why_not = tried[i]->error();
      }
    }
    if (attempts_.empty()) return *why_not;
    std::ranges::stable_sort(attempts_, [](const Attempt& a, const Attempt& b) {
      return a.answer.value < b.answer.value;
    });
    return decide();
  }

 private:
  bool stopped() const { return limits_.stop && limits_.stop(); }
  bool bottleneck() const {
    return request_.objective == Objective::kAsync || request_.compat == Compat::kPipedream ||
           request_.compat == Compat::kPipedreamNoTransfer;
  }

  Error no_rank_left(const Setting& setting) const {
    return invalid("workerGroups: no rank is left for stage " +
                   std::to_string(stage_without_rank(setting)) + " (stageRange)");
  }

  Result<Attempt> searched(Attempt attempt) const {
    const Setting& it = attempt.setting;
    if (bottleneck()) {
      WEIR_TRY(attempt.answer, bottleneck_layouts(it, limits_));
      return attempt;
    }
    auto answer = sync_layouts(it, attempt.table, *attempt.ideals, limits_);
    if (!answer) return does_not_fit(it);
    attempt.answer = *std::move(answer);
    if (!attempt.answer.complete && !request_.keep_order) {
      // The engine's bound is about the ideals that it was given.
      attempt.answer.lower_bound = std::min(attempt.answer.lower_bound, simple_bound(it));
      attempt.answer.formula += " over a family of ideals, bound by fair share and heaviest layer";
    }
    if (!attempt.answer.complete && request_.keep_order) {
      attempt.answer.formula += " over ranges of the model's order";
    }
    attempt.answer.search.complete = attempt.answer.complete;
    attempt.answer.complete = true;
    return attempt;
  }

  // The layouts of an attempt on servers: each cut once; with the bandwidths that the best one got,
  // the engine is asked again.
  std::vector<Layout> placed(Attempt& attempt) {
    const Setting& setting = attempt.setting;
    std::vector<Layout> result;
    const auto take = [&](const std::vector<Layout>& layouts) {
      std::size_t taken = 0;
      for (const Layout& from : layouts) {
        if (taken == kPlaced) break;
        if ((stopped() || placements_.empty()) && !result.empty()) break;
        if (std::ranges::any_of(result,
                                [&](const Layout& other) { return same_cut(from, other); })) {
          continue;
        }
        Layout layout = from;
        ++taken;
        if (!place(setting, layout, result.empty(), placements_)) continue;
        layout.seconds = pivot_step(setting, layout);
        result.push_back(std::move(layout));
      }
    };
    take(attempt.answer.layouts);
    if (attempt.ideals == nullptr || request_.compat == Compat::kSync0) return result;
    LinkTable table = attempt.table;
    for (int round = 1; round < kPlacementRounds && !result.empty(); ++round) {
      if (attempt.answer.search.pairs > kRoundPairs || stopped() || placements_.empty()) break;
      const auto best = std::ranges::min_element(result, {}, &Layout::seconds);
      LinkTable next = achieved_links(setting, *best, table);
      if (one_link(table) && one_link(next)) {
        if (next.links[0][0].bytes_per_second == table.links[0][0].bytes_per_second) break;
      }
      table = std::move(next);
      // The first search has proved what holds for any placement.
      const auto again = sync_layouts(setting, table, *attempt.ideals, limits_, false);
      if (!again) break;
      const std::size_t before = result.size();
      take(again->layouts);
      if (result.size() == before) break;
    }
    return result;
  }

  Result<PlanReport> decide() {
    const double shortest = attempts_.front().answer.value;
    const Attempt* chosen_from = nullptr;
    Scored scored;
    double best = 0;
    for (Attempt& attempt : attempts_) {
      if (attempt.answer.value > shortest * kModelError && chosen_from != nullptr) break;
      Scored here;
      const std::vector<Layout> layouts = placed(attempt);
      if (layouts.empty()) continue;
      simulate_all(attempt.setting, layouts, budget_, here);
      if (here.by_k.empty()) continue;
      move_boundaries(attempt.setting, here);
      const double seconds = fastest(here).seconds;
      if (chosen_from != nullptr && seconds >= best * (1 - 1e-9)) continue;
      chosen_from = &attempt;
      scored = std::move(here);
      best = seconds;
    }
    if (chosen_from == nullptr) return does_not_fit(attempts_.front().setting);
    // Cut, servers and caps are chosen for whole backwards, which is what the bound is about.
    if (!bottleneck() && request_.compat == Compat::kNone) {
      for (Layout& layout : scored.by_k) {
        layout = with_best_split(chosen_from->setting, layout, budget_);
      }
      best = fastest(scored).seconds;
    }
    const auto chosen = std::ranges::find_if(scored.by_k, [&](const Layout& layout) {
      return layout.seconds <= best * (1 + request_.tie_of_k + 1e-9);
    });
    double bound = chosen_from->answer.lower_bound;
    for (const Attempt& attempt : attempts_) {
      bound = std::min(bound, attempt.answer.lower_bound);
    }
    PlanReport report = describe({.setting = chosen_from->setting,
                                  .chosen = *chosen,
                                  .scored = scored,
                                  .answer = chosen_from->answer,
                                  .lower_bound = bound,
                                  .stopped = stopped()});
    report.search.details["simulatedEvents"] = limits_.simulated_events - budget_.left();
    report.search.details["placementWork"] = limits_.placement_work - placements_.left();
    return report;
  }

  static const Layout& fastest(const Scored& scored) {
    return *std::ranges::min_element(scored.by_k, {}, &Layout::seconds);
  }

  // Not where the cut itself is the answer to an earlier planner's question.
  void move_boundaries(const Setting& setting, Scored& scored) {
    if (bottleneck() || request_.compat != Compat::kNone) return;
    const double best = fastest(scored).seconds;
    for (Layout& layout : scored.by_k) {
      if (layout.seconds <= best * kAsGood && !stopped()) shift(setting, layout, budget_);
    }
  }

  const Model& model_;
  const Cluster& cluster_;
  const Request& request_;
  const Limits& limits_;
  PlanCache* cache_;
  const placement::Topology topology_;
  EventBudget budget_;
  PlacementBudget placements_;
  std::deque<Attempt> attempts_;  // layouts point into their settings
};

}  // namespace

Limits operator_limits(int plans) {
  Limits limits;
  limits.simulated_events = 200'000 / plans;
  limits.search_steps = 400'000 / plans;
  limits.proof_steps = 1'000'000 / plans;
  limits.placement_work = 6'000'000 / plans;
  return limits;
}

Result<PlanReport> plan(const Model& model, const Cluster& cluster, const Request& request) {
  return plan(model, cluster, request, Limits{}, nullptr);
}

Result<PlanReport> plan(const Model& model, const Cluster& cluster, const Request& request,
                        const Limits& limits, PlanCache* cache) {
  WEIR_OK(check_input(model, cluster, request));
  if (request.compat == Compat::kDapple) return plan_by_dapple(model, cluster, request);
  return Planner(model, cluster, request, limits, cache).run();
}

}  // namespace weir::planner
