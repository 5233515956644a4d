// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/sync/search_step_time.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "operator/planner/sync/candidates.h"
#include "operator/planner/sync/family.h"
#include "operator/planner/sync/rules.h"
#include "worker/base/units.h"

namespace weir::planner {
namespace {

constexpr double kCoarse = 1.05;              // ratio of neighbouring periods
constexpr int kFineParts = 4;                 // of the coarse cells around the best
constexpr std::int64_t kStepsPerState = 100;  // of one search over counts, when steps are few
constexpr std::int64_t kPaceWork = 100'000;   // keys x ideals x options of one search over counts
constexpr std::size_t kMostIdeals = 3000;     // of the searches over periods
constexpr std::int64_t kBoundWork = 700'000;  // the same of the proof
constexpr std::size_t kMostOrders = 6;        // of classes in blocks
constexpr std::size_t kPlansOfPeriod = 6;     // the least V is not always the best step
constexpr std::size_t kPlansOfProof = 8;      // likewise
constexpr double kWideGap = 0.05;  // above it plans of single ranks are searched by themselves
constexpr int kFewChoices = 4;     // of k and cap rules
constexpr std::int64_t kSearchesPerBudget = 16;  // no search spends more than its part
constexpr double kSmallUpdate = 0.02;  // of a step: whether updates show is left to the simulator

// Gap of the best candidate over the bound.
void certify(SyncPlans& plans) {
  Certificate& certificate = plans.certificate;
  const double value = plans.candidates.front().value;
  certificate.lower_bound = std::min(certificate.lower_bound, value);
  certificate.gap = value / certificate.lower_bound - 1;
  certificate.optimal = certificate.gap <= kOptimalGap;
}

// Family of ideals that searches run over, with its indices in the caller's.
struct Scope {
  Ideals family;
  std::vector<std::size_t> chosen;
};

class PaceEngine {
 public:
  PaceEngine(const Dag& dag, const Ideals& ideals, const SyncRequest& request)
      : dag_(dag), ideals_(ideals), request_(request) {
    for (const SyncClass& device : request.classes) {
      pinned_ |= device.first_stage > 0 || device.last_stage + 1 < request.most_stages;
    }
    if (!request.caps.empty()) pinned_ = true;
  }

  Result<SyncPlans> run() {
    const SyncModel coarse(dag_, ideals_, request_, Prices::kLeast);
    counts_ = space_of_counts(coarse, kMostKeys);
    single_stages();
    Scope scope =
        scope_of(ideals_.count() > kFewIdeals ? few_ideals(coarse, kFewIdeals) : every_ideal());
    search_bounds(scope);
    scope = scope_of(useful(coarse));
    boundaries_ = scope.chosen.size();
    if (request_.certify) prove(scope);
    if (boundaries_ > kMostIdeals) scope = scope_of(few_ideals(coarse, kFewIdeals));
    search_all_paces(scope);
    if (candidates_.empty()) return nothing_fits(coarse);
    return report();
  }

 private:
  std::vector<std::size_t> every_ideal() const {
    std::vector<std::size_t> all(ideals_.count());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  Scope scope_of(std::vector<std::size_t> chosen) const {
    return {ideals_at(ideals_, chosen), std::move(chosen)};
  }

  // The first upper bounds cost nothing.
  void single_stages() {
    if (request_.least_stages > 1 || request_.use_all_devices || pinned_) return;
    const Scope ends = scope_of({0, ideals_.last()});
    const SyncModel model(dag_, ends.family, request_);
    for (std::size_t o = 0; o < model.options().size(); ++o) {
      take(model, ends, {.ideals = {0, 1}, .options = {static_cast<int>(o)}});
    }
    candidates_.decide(model, ends.chosen, Candidates::Effort::kLittle);
  }

  // Ideals that a plan with V below the best step can have as boundaries.
  std::vector<std::size_t> useful(const SyncModel& coarse) {
    if (!counts_ || candidates_.empty()) return every_ideal();
    const double below = best_step(coarse) * (1 + kRoundingOfSums);
    const Buckets buckets = buckets_of(ideals_, bucket_count(*counts_));
    const Relaxation relaxed(coarse, *counts_, buckets, below / request_.micro_batches,
                             Relaxation::Behind::kBound);
    lower_bound_ = std::max(lower_bound_, std::min(below, relaxed.least_value()));
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < ideals_.count(); ++i) {
      const bool end = i == 0 || i == ideals_.last();
      if (end || relaxed.useful(coarse, i, below)) chosen.push_back(i);
    }
    return chosen;
  }

  double best_step(const SyncModel& model) const {
    return candidates_.empty() ? longest_step(model, request_.most_stages)
                               : candidates_.best_seconds();
  }

  std::vector<int> stage_counts() const {
    if (!request_.caps.empty()) return {static_cast<int>(request_.caps.size())};
    if (!pinned_) return {0};  // any
    std::vector<int> counts(
        static_cast<std::size_t>(request_.most_stages - request_.least_stages + 1));
    std::iota(counts.begin(), counts.end(), request_.least_stages);
    return counts;
  }

  // 5a with the smallest caps: the plans of least V. True if nothing was left out. The first
  // plans are found without the whole way: from those found with it, later searches reached a plan
  // of resnet18 that is 5 % slower.
  bool search_bound(const SyncModel& model, const Scope& scope, const SyncSpace& space, int stages,
                    bool whole_way, double* least) {
    SearchShape shape = smallest_caps(stages);
    if (proof_steps_ >= request_.proof_steps) return false;
    shape.most_steps = request_.proof_steps - proof_steps_;
    if (whole_way) shape.most_plans = kPlansOfProof;
    const double below = best_step(model) * (1 + kRoundingOfSums);
    const Buckets buckets = buckets_of(scope.family, bucket_count(space));
    const Relaxation relaxed(model, space, buckets, below / request_.micro_batches,
                             Relaxation::Behind::kBound);
    SyncSearch<BoundRule> search(
        model, space, shape, {&model, &relaxed, request_.micro_batches - 1.0, whole_way}, below);
    for (const FoundPlan& plan : search.run()) {
      *least = std::min(*least, plan.value);
      take(model, scope, plan);
    }
    pairs_ += search.pairs();
    proof_steps_ += search.steps();
    return !search.exhausted();
  }

  // First plans over few ideals.
  void search_bounds(const Scope& scope) {
    const SyncModel model(dag_, scope.family, request_);
    double least = kInfinity;
    for (const int stages : stage_counts()) {
      for (const SyncSpace& space : spaces(model, stages)) {
        if (stopped()) break;
        search_bound(model, scope, space, stages, false, &least);
      }
    }
    candidates_.decide(model, scope.chosen, Candidates::Effort::kLittle);
  }

  // No plan of the family is faster than the least V; nor is one faster than the best step.
  void prove(const Scope& scope) {
    const SyncModel model(dag_, scope.family, request_);
    lower_bound_ = std::max(lower_bound_, least_step(model));
    if (!counts_) return;
    const auto work =
        static_cast<std::int64_t>(scope.family.count()) * counts_->keys * counts_->options;
    if (work > kBoundWork) return;
    double least = kInfinity;
    bool proved = true;
    for (const int stages : stage_counts()) {
      proved = !stopped() && search_bound(model, scope, *counts_, stages, true, &least) && proved;
    }
    candidates_.decide(model, scope.chosen, Candidates::Effort::kLittle);
    if (!candidates_.empty()) least = std::min(least, candidates_.best_seconds());
    if (proved && !std::isinf(least)) lower_bound_ = std::max(lower_bound_, least);
  }

  SearchShape smallest_caps(int stages) const {
    SearchShape shape =
        shape_of(request_, request_.kfkb ? CapRule::kKfkb : CapRule::kSlack, request_.k_min);
    if (request_.kfkb && request_.slack) {
      for (int d = 0; d < request_.most_stages; ++d) {
        int& cap = shape.caps[static_cast<std::size_t>(d)];
        cap = std::min(cap, cap_behind(CapRule::kSlack, request_.micro_batches, shape.k, d));
      }
    }
    fix(shape, stages);
    return shape;
  }

  // Only with a plan in hand.
  bool stopped() const { return request_.stop && !candidates_.empty() && request_.stop(); }

  void fix(SearchShape& shape, int stages) const {
    if (request_.stop && !candidates_.empty()) shape.stop = &request_.stop;
    shape.stages = stages;
    if (stages > 0) shape.least_stages = shape.most_stages = stages;
    if (!request_.caps.empty()) {
      shape.caps.assign(request_.caps.rbegin(), request_.caps.rend());
      for (int& cap : shape.caps) cap = std::clamp(cap, 1, request_.micro_batches);
    }
  }

  void search_all_paces(const Scope& scope) {
    const SyncModel model(dag_, scope.family, request_);
    for (const int stages : stage_counts()) {
      for (const SyncSpace& space : spaces(model, stages)) {
        if (!stopped()) search_paces(model, scope, space, stages);
      }
    }
    candidates_.decide(model, scope.chosen,
                       stopped() ? Candidates::Effort::kLittle : Candidates::Effort::kMuch);
  }

  // The exact space where it is small; else classes in blocks, in any order of classes. A search
  // that is cut short may end without any good plan: with few steps blocks come first.
  std::vector<SyncSpace> spaces(const SyncModel& model, int stages) const {
    const auto family = static_cast<std::int64_t>(model.ideals().count());
    const bool few = request_.proof_steps / kStepsPerState < kPaceWork;
    const std::int64_t most = few ? request_.proof_steps / kStepsPerState : kPaceWork;
    const bool exact = counts_ && counts_->keys * family * counts_->options <= most;
    if (exact && !few) return {*counts_};
    std::vector<SyncSpace> result;
    for (const std::vector<int>& order : class_orders(request_, stages, kMostOrders)) {
      result.push_back(space_of_sequence(model, order));
    }
    if ((result.empty() && counts_) || exact) result.push_back(*counts_);
    return result;
  }

  // Down from the period of the best plan while there are plans, up while they are new, then finer
  // around the best.
  void search_paces(const SyncModel& model, const Scope& scope, const SyncSpace& space,
                    int stages) {
    const double more = request_.micro_batches - 1;
    const Buckets buckets = buckets_of(scope.family, bucket_count(space));
    const std::vector<CapChoice> choices = choices_to_search(model);
    double best_at = 0, best = kInfinity;
    const auto visit = [&](double period) {
      const Visit seen = search_pace(model, scope, space, buckets, stages, choices, period);
      if (seen.least < best) {
        best = seen.least;
        best_at = period;
      }
      return seen.any;
    };
    const double start = best_step(model) / (request_.micro_batches + 1);
    const double lowest = least_period(model);
    for (double period = start; period * kCoarse > lowest; period /= kCoarse) {
      if (!visit(period)) break;
    }
    // With one micro-batch no period is too long by itself.
    const auto short_enough = [&](double period) {
      return more * period < best_step(model) && period < best_step(model);
    };
    for (double period = start * kCoarse; short_enough(period); period *= kCoarse) visit(period);
    const double centre = best_at, width = centre * (kCoarse - 1) / kFineParts;
    for (int part = 1 - kFineParts; part < kFineParts && !std::isinf(best); ++part) {
      if (part != 0) visit(centre + part * width);
    }
  }

  // Where memory is no limit, plans for some k are plans for every larger one, and every plan is
  // priced with every k: a few are enough.
  std::vector<CapChoice> choices_to_search(const SyncModel& model) const {
    const std::vector<CapChoice> all = cap_choices(request_);
    bool tight = false;
    for (const SyncOption& option : model.options()) {
      const std::size_t last = model.ideals().last();
      tight |= !model.fits(option, 0, last, request_.micro_batches, all.back().k);
    }
    if (tight || all.size() <= kFewChoices) return all;
    std::vector<CapChoice> few(all.begin(), all.begin() + kFewChoices - 1);
    few.push_back(all.back());
    return few;
  }

  struct Visit {
    double least = kInfinity;  // estimate of the new plans
    bool any = false;          // plans, new or not
  };

  // Large k first: what is too slow with it is too slow with a smaller one.
  Visit search_pace(const SyncModel& model, const Scope& scope, const SyncSpace& space,
                    const Buckets& buckets, int stages, const std::vector<CapChoice>& choices,
                    double period) {
    Visit visit;
    const double below = best_step(model);
    const Relaxation relaxed(model, space, buckets,
                             std::min(period, below / request_.micro_batches),
                             Relaxation::Behind::kBound);
    if (relaxed.least_value() >= below || steps_ > request_.most_steps || stopped()) return visit;
    const SyncOption& widest = model.options().back();
    const bool flat = model.update(widest, 0, model.ideals().last()) < kSmallUpdate * below;
    for (std::size_t c = choices.size(); c-- > 0 && steps_ <= request_.most_steps;) {
      SearchShape shape = shape_of(request_, choices[c].rule, choices[c].k);
      fix(shape, stages);
      shape.most_plans = kPlansOfPeriod;
      shape.most_steps = request_.most_steps / kSearchesPerBudget;
      const PaceRule rule{.bound = {.model = &model,
                                    .before = &relaxed,
                                    .more = request_.micro_batches - 1.0,
                                    .whole_way = false},
                          .k = choices[c].k,
                          .slack = choices[c].rule == CapRule::kSlack,
                          .flat = flat,
                          .period = period};
      SyncSearch<PaceRule> search(model, space, shape, rule, best_step(model));
      for (const FoundPlan& plan : search.run()) {
        visit.any = true;
        visit.least = std::min(visit.least, take(model, scope, plan));
      }
      pairs_ += search.pairs();
      steps_ += search.steps();
    }
    return visit;
  }

  double take(const SyncModel& model, const Scope& scope, const FoundPlan& plan) {
    return candidates_.add(model, candidate_of(model, plan, {}), scope.chosen);
  }

  Result<SyncPlans> nothing_fits(const SyncModel& coarse) const {
    const SearchShape shape = smallest_caps(0);
    return does_not_fit(dag_, coarse, shape.caps.front(), shape.k);
  }

  SyncPlans report() const {
    SyncPlans plans;
    plans.candidates = candidates_.best(request_.most_candidates);
    plans.boundaries = boundaries_;
    plans.pairs = pairs_;
    plans.certificate.formula = "sync (bound V)";
    plans.certificate.complete = ideals_.complete;
    plans.certificate.lower_bound = lower_bound_;
    certify(plans);
    return plans;
  }

  const Dag& dag_;
  const Ideals& ideals_;
  const SyncRequest& request_;
  bool pinned_ = false;  // ranges of stages or caps hold: S is fixed in every search
  std::optional<SyncSpace> counts_;
  Candidates candidates_;
  double lower_bound_ = 0;
  std::size_t boundaries_ = 0;
  std::int64_t pairs_ = 0, steps_ = 0, proof_steps_ = 0;
};

}  // namespace

std::size_t bucket_count(const SyncSpace& space) {
  const double per_pair = static_cast<double>(space.keys) * space.options;
  return static_cast<std::size_t>(std::clamp(std::sqrt(kRelaxationWork / per_pair), 24.0, 400.0));
}

SearchShape shape_of(const SyncRequest& request, CapRule rule, int k) {
  SearchShape shape;
  shape.k = std::clamp(k, 1, request.micro_batches);
  for (int d = 0; d < request.most_stages; ++d) {
    shape.caps.push_back(cap_behind(rule, request.micro_batches, shape.k, d));
  }
  shape.least_stages = request.least_stages;
  shape.most_stages = request.most_stages;
  shape.most_pairs = request.most_pairs;
  return shape;
}

double single_stage(const SyncModel& model, const SearchShape& shape) {
  double least = kInfinity;
  if (shape.least_stages > 1 || model.request().use_all_devices) return least;
  const std::size_t last = model.ideals().last();
  for (const SyncOption& option : model.options()) {
    if (!model.fits(option, 0, last, shape.caps.front(), shape.k)) continue;
    least = std::min(least, model.request().micro_batches * model.busy(option, 0, last) +
                                model.update(option, 0, last));
  }
  return least;
}

// Replication multiplies the labels, and a budget then ends before the best plans of single ranks.
Result<SyncPlans> search_step_time(const Dag& dag, const Ideals& ideals,
                                   const SyncRequest& request) {
  WEIR_TRY(SyncPlans plans, PaceEngine(dag, ideals, request).run());
  if (request.most_ranks == 1 || plans.certificate.gap <= kWideGap) return plans;
  SyncRequest single = request;
  single.most_ranks = 1;
  single.most_steps = request.most_steps / 2;
  if (request.stop && request.stop()) return plans;
  const Result<SyncPlans> more = PaceEngine(dag, ideals, single).run();
  if (!more) return plans;
  std::vector<Candidate>& all = plans.candidates;
  all.insert(all.end(), more->candidates.begin(), more->candidates.end());
  std::ranges::stable_sort(all, {}, &Candidate::value);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all.size() > request.most_candidates) all.resize(request.most_candidates);
  certify(plans);
  plans.pairs += more->pairs;
  return plans;
}

}  // namespace weir::planner
