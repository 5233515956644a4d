// SPDX-License-Identifier: Apache-2.0
// The exact search of the formula of compat sync0, and the door to both. Upper bounds
// come first, from few ideals with cheap boundaries; they and the relaxation of bounds.h say which
// ideals can be in a better plan; the suffix search runs over those only.
#include "operator/planner/sync/engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "operator/planner/sync/family.h"
#include "operator/planner/sync/rules.h"
#include "operator/planner/sync/search_step_time.h"
#include "worker/base/check.h"

namespace weir::planner {
namespace {

constexpr std::int64_t kStepsPerPair = 10;  // a label costs about ten subset tests

class SumEngine {
 public:
  SumEngine(const Dag& dag, const Ideals& ideals, const SyncRequest& request)
      : dag_(dag), ideals_(ideals), request_(request) {
    shape_ = shape_of(request, CapRule::kKfkb, request.k_min);
    shape_.most_plans = 1;
    shape_.most_steps = request.most_pairs / kStepsPerPair;
  }

  Result<SyncPlans> run() {
    const SyncModel coarse(dag_, ideals_, request_, Prices::kLeast);
    const auto space = space_of_counts(coarse, kMostKeys);
    if (!space) return invalid("too many different devices for an exact plan");
    std::vector<std::size_t> chosen;
    if (ideals_.count() > kFewIdeals) {
      search(*space, few_ideals(coarse, kFewIdeals), 0);
      chosen = useful(coarse, *space);
    } else {
      chosen.resize(ideals_.count());
      std::iota(chosen.begin(), chosen.end(), 0);
    }
    plans_.boundaries = chosen.size();
    const bool proved = search(*space, chosen, lower_bound_);
    if (!best_) return does_not_fit(dag_, coarse, shape_.caps.front(), shape_.k);
    certify(proved);
    return std::move(plans_);
  }

 private:
  // Ideals that a plan better than the best can have as boundaries.
  std::vector<std::size_t> useful(const SyncModel& coarse, const SyncSpace& space) {
    const double below =
        best_ ? best_->value * (1 + kRoundingOfSums) : longest_step(coarse, shape_.most_stages);
    const Buckets buckets = buckets_of(ideals_, bucket_count(space));
    const PeriodGrid grid(coarse, space, buckets, below);
    lower_bound_ = grid.all();
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < ideals_.count(); ++i) {
      if (i == 0 || i == ideals_.last() || grid.useful(coarse, i, below)) chosen.push_back(i);
    }
    return chosen;
  }

  // True when no better plan exists over these ideals than best_ is afterwards.
  bool search(const SyncSpace& space, const std::vector<std::size_t>& chosen, double known) {
    const Ideals family = ideals_at(ideals_, chosen);
    const SyncModel model(dag_, family, request_);
    double below = best_ ? best_->value : single_stage(model, shape_);
    below =
        std::isinf(below) ? longest_step(model, shape_.most_stages) : below * (1 + kRoundingOfSums);
    if (best_ && request_.stop) shape_.stop = &request_.stop;
    const Buckets buckets = buckets_of(family, bucket_count(space));
    const PeriodGrid grid(model, space, buckets, below);
    lower_bound_ = std::max(known, std::min(grid.all(), below));
    SyncSearch<SumRule> search(model, space, shape_, {&model, &grid, request_.micro_batches - 1.0},
                               below);
    const std::vector<FoundPlan> plans = search.run();
    plans_.pairs += search.pairs();
    if (!plans.empty() && (!best_ || plans.front().value < best_->value)) {
      best_ = candidate_of(model, plans.front(), chosen);
      best_->k = shape_.k;
      const auto stages = static_cast<std::ptrdiff_t>(best_->stages());
      best_->caps.assign(shape_.caps.rend() - stages, shape_.caps.rend());
      best_->value = plans.front().value;
    }
    return !search.exhausted();
  }

  void certify(bool proved) {
    plans_.candidates = {*best_};
    Certificate& certificate = plans_.certificate;
    certificate.formula = "sync0";
    certificate.complete = ideals_.complete;
    certificate.lower_bound = proved ? best_->value : std::min(lower_bound_, best_->value);
    certificate.gap = best_->value / certificate.lower_bound - 1;
    certificate.optimal = certificate.gap <= kOptimalGap;
  }

  const Dag& dag_;
  const Ideals& ideals_;
  const SyncRequest& request_;
  SearchShape shape_;
  std::optional<Candidate> best_;
  double lower_bound_ = 0;
  SyncPlans plans_;
};

}  // namespace

Result<SyncPlans> plan_sync(const Dag& dag, const Ideals& ideals, const SyncRequest& request) {
  WEIR_CHECK(request.micro_batches >= 1 && request.most_stages >= 1, "a step has work");
  if (request.formula == SyncFormula::kSync0) return SumEngine(dag, ideals, request).run();
  return search_step_time(dag, ideals, request);
}

}  // namespace weir::planner
