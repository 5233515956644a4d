// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/sync/candidates.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "worker/base/units.h"
#include "worker/schedule/caps.h"

namespace weir::planner {
namespace {

constexpr int kOwnK = 8;                     // beyond it doubled values do
constexpr double kWorthSimulating = 1.12;    // T~ is at most 11 % below the simulated step
constexpr std::int64_t kLittleOps = 15'000;  // simulated in one decision; an op is ~150 ns
constexpr std::int64_t kMuchOps = 80'000;
constexpr std::size_t kMostWaiting = 4096;
constexpr int kMostShifts = 32;
constexpr double kGain = 1 - 1e-9;
constexpr double kNearly = 1.02;  // estimates above the best step that are simulated all the same

// The plan with these caps, or nothing if it does not fit.
std::optional<Candidate> with_caps(const SyncModel& model, const Candidate& cut,
                                   std::vector<int> caps) {
  Candidate candidate = cut;
  candidate.k = schedule::k_of_caps(caps);
  candidate.dispatch = schedule::dispatch_in_force(caps, model.request().dispatch);
  candidate.caps = std::move(caps);
  for (std::size_t s = 0; s < candidate.stages(); ++s) {
    const int option = model.option_of(candidate.classes[s], candidate.ranks[s]);
    if (!model.fits(model.options()[static_cast<std::size_t>(option)], candidate.ideals[s],
                    candidate.ideals[s + 1], candidate.caps[s], candidate.k)) {
      return std::nullopt;
    }
  }
  return candidate;
}

std::vector<int> caps_of(const SyncRequest& request, const CapChoice& choice, std::size_t stages) {
  std::vector<int> caps = request.caps;
  if (!caps.empty()) {
    for (int& cap : caps) cap = std::clamp(cap, 1, request.micro_batches);
    return caps;
  }
  for (std::size_t s = 0; s < stages; ++s) {
    caps.push_back(
        cap_behind(choice.rule, request.micro_batches, choice.k, static_cast<int>(stages - 1 - s)));
  }
  return caps;
}

std::vector<std::size_t> key_of(const Candidate& cut, const std::vector<std::size_t>& chosen) {
  std::vector<std::size_t> key;
  for (const std::size_t i : cut.ideals) key.push_back(chosen[i]);
  for (const int c : cut.classes) key.push_back(static_cast<std::size_t>(c));
  for (const int r : cut.ranks) key.push_back(static_cast<std::size_t>(r));
  return key;
}

std::int64_t ops_of(const SyncModel& model, const Candidate& candidate) {
  return 2 * static_cast<std::int64_t>(candidate.stages()) * model.request().micro_batches;
}

// Rounded, so that equal steps are equal whatever the order of additions.
auto rank_of(const Candidate& candidate) {
  const int devices = std::accumulate(candidate.ranks.begin(), candidate.ranks.end(), 0);
  return std::make_tuple(static_cast<std::int64_t>(std::min(candidate.value, 1e9) * 1e9), devices,
                         candidate.stages(), candidate.k, candidate.ideals, candidate.classes);
}

// With the indices of a smaller family; nothing if an ideal is not in it.
std::optional<Candidate> in_family(Candidate candidate, const std::vector<std::size_t>& chosen) {
  for (std::size_t& i : candidate.ideals) {
    const auto found = std::ranges::lower_bound(chosen, i);
    if (found == chosen.end() || *found != i) return std::nullopt;
    i = static_cast<std::size_t>(found - chosen.begin());
  }
  return candidate;
}

// As given, reversed, by memory both ways (the first stage holds most micro-batches), then others;
// last the one that finds a class for every stage if ranges allow any (an interval matching from
// the last stage on).
std::vector<std::vector<int>> orders_of_classes(const SyncRequest& request, std::size_t most) {
  std::vector<int> order(request.classes.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::vector<int>> orders{order, {order.rbegin(), order.rend()}};
  const auto memory = [&](int c) {
    const std::int64_t bytes = request.classes[static_cast<std::size_t>(c)].usable_bytes;
    return bytes == 0 ? std::numeric_limits<std::int64_t>::max() : bytes;
  };
  std::ranges::stable_sort(order, [&](int a, int b) { return memory(a) < memory(b); });
  orders.push_back(order);
  orders.emplace_back(order.rbegin(), order.rend());
  std::ranges::sort(order);
  do {
    orders.push_back(order);
  } while (orders.size() < most && std::next_permutation(order.begin(), order.end()));
  const auto first_stage = [&](int c) {
    return request.classes[static_cast<std::size_t>(c)].first_stage;
  };
  std::ranges::sort(order);
  std::ranges::stable_sort(order, [&](int a, int b) { return first_stage(a) > first_stage(b); });
  orders.push_back(order);
  return orders;
}

}  // namespace

std::vector<CapChoice> cap_choices(const SyncRequest& request) {
  if (!request.caps.empty()) return {{CapRule::kKfkb, schedule::k_of_caps(request.caps)}};
  const int least = std::clamp(request.k_min, 1, request.micro_batches);
  const int most = std::clamp(std::max(request.k_min, request.k_max), least, request.micro_batches);
  std::vector<int> ks;
  for (int k = least; k <= most; k += k < kOwnK ? 1 : k) ks.push_back(k);
  if (ks.back() != most) ks.push_back(most);
  std::vector<CapChoice> choices;
  for (const int k : ks) {
    if (request.kfkb || (request.slack && k == 1)) choices.push_back({CapRule::kKfkb, k});
    if (request.slack && k > 1) choices.push_back({CapRule::kSlack, k});
  }
  return choices;
}

std::vector<std::vector<int>> class_orders(const SyncRequest& request, int stages,
                                           std::size_t most) {
  std::vector<std::vector<int>> result;
  for (const std::vector<int>& order : orders_of_classes(request, most)) {
    std::vector<int> behind;
    const int wanted = stages > 0 ? stages : request.most_stages;
    std::vector<int> left;
    for (const SyncClass& device : request.classes) left.push_back(device.count);
    for (int d = 0; d < wanted; ++d) {
      const auto next = std::ranges::find_if(order, [&](int c) {
        const SyncClass& device = request.classes[static_cast<std::size_t>(c)];
        const int stage = wanted - 1 - d;
        const bool allowed =
            stages == 0 || (stage >= device.first_stage && stage <= device.last_stage);
        return allowed && left[static_cast<std::size_t>(c)] > 0;
      });
      if (next == order.end()) break;
      --left[static_cast<std::size_t>(*next)];
      behind.push_back(*next);
    }
    const bool enough = stages == 0 ? !behind.empty() : static_cast<int>(behind.size()) == stages;
    if (enough && std::ranges::find(result, behind) == result.end()) {
      result.push_back(behind);
    }
  }
  return result;
}

double Candidates::judge(const SyncModel& model, Candidate candidate,
                         const std::vector<std::size_t>& chosen) {
  candidate.value = model.value(candidate);
  ops_ += ops_of(model, candidate);
  for (std::size_t& i : candidate.ideals) i = chosen[i];
  best_ = std::min(best_, candidate.value);
  judged_.push_back(std::move(candidate));
  return judged_.back().value;
}

double Candidates::add(const SyncModel& model, const Candidate& cut,
                       const std::vector<std::size_t>& chosen) {
  if (!known_.insert(key_of(cut, chosen)).second) return kInfinity;
  const SyncRequest& request = model.request();
  const Pipeline costs = model.pipeline(cut);
  std::optional<Estimate> best;
  for (const CapChoice& choice : cap_choices(request)) {
    std::optional<Candidate> candidate =
        with_caps(model, cut, caps_of(request, choice, cut.stages()));
    if (!candidate) continue;
    const StepForms forms =
        step_forms(costs, request.micro_batches, choice.k, choice.rule == CapRule::kSlack);
    Estimate estimate{*std::move(candidate), forms.pivot};
    if (!best || estimate.seconds < best->seconds) best = estimate;
    if (waiting_.size() >= kMostWaiting) continue;
    for (std::size_t& i : estimate.candidate.ideals) i = chosen[i];
    waiting_.push_back(std::move(estimate));
  }
  if (!best) return kInfinity;
  // The incumbent of all searches; known at once.
  if (best->seconds < best_) judge(model, best->candidate, chosen);
  return best->seconds;
}

void Candidates::decide(const SyncModel& model, const std::vector<std::size_t>& chosen,
                        Effort effort) {
  if (judged_.empty()) return;
  // The best of each k first, then by estimate.
  std::ranges::stable_sort(waiting_, {}, &Estimate::seconds);
  std::map<int, int> of_k;
  for (Estimate& estimate : waiting_) {
    estimate.first_of_k = of_k[estimate.candidate.k]++ == 0;
  }
  std::ranges::stable_sort(
      waiting_, [](const Estimate& a, const Estimate& b) { return a.first_of_k && !b.first_of_k; });
  const bool much = effort == Effort::kMuch;
  const std::int64_t until = ops_ + (much ? kMuchOps : kLittleOps);
  std::vector<Estimate> left;
  for (Estimate& estimate : waiting_) {
    const bool needed = much && estimate.first_of_k;  // every k is judged
    const bool hopeful = ops_ <= until && estimate.seconds <= best_ * kWorthSimulating;
    std::optional<Candidate> here = in_family(estimate.candidate, chosen);
    if (here && (needed || hopeful)) {
      judge(model, *std::move(here), chosen);
    } else {
      left.push_back(std::move(estimate));
    }
  }
  waiting_ = std::move(left);
  if (!much) return;

  std::optional<Candidate> winner = in_family(best(1).front(), chosen);
  if (!winner) return;
  Candidate at = *std::move(winner);
  const std::int64_t end = ops_ + kMuchOps;
  for (int moves = 0; moves < kMostShifts && ops_ < end; ++moves) {
    if (!shift(model, chosen, at, end)) break;
  }
}

// Moves one node across one boundary, the best such move; false when none shortens the step.
bool Candidates::shift(const SyncModel& model, const std::vector<std::size_t>& chosen,
                       Candidate& at, std::int64_t end) {
  const Ideals& ideals = model.ideals();
  std::optional<Candidate> best;
  for (std::size_t b = 1; b < at.stages(); ++b) {
    const std::size_t here = at.ideals[b];
    for (std::size_t i = at.ideals[b - 1] + 1; i < at.ideals[b + 1]; ++i) {
      const int by = ideals.size[i] - ideals.size[here];
      if (by < -1) continue;
      if (by > 1) break;
      if (i == here || by == 0) continue;
      if (by < 0 ? !ideals.subset(i, here) : !ideals.subset(here, i)) continue;
      if (!ideals.subset(at.ideals[b - 1], i) || !ideals.subset(i, at.ideals[b + 1])) continue;
      Candidate moved = at;
      moved.ideals[b] = i;
      if (!known_.insert(key_of(moved, chosen)).second) continue;
      std::optional<Candidate> candidate = with_caps(model, moved, at.caps);
      if (!candidate) continue;
      const StepForms forms =
          step_forms(model.pipeline(*candidate), model.request().micro_batches, at.k);
      if (forms.bound >= best_ || forms.pivot >= best_ * kNearly || ops_ > end) continue;
      const double before = best_;
      candidate->value = judge(model, *candidate, chosen);
      if (candidate->value < before * kGain) best = std::move(candidate);
    }
  }
  if (!best) return false;
  at = *std::move(best);
  return true;
}

std::vector<Candidate> Candidates::best(std::size_t most) const {
  std::vector<Candidate> result = judged_;
  std::ranges::sort(result,
                    [](const Candidate& a, const Candidate& b) { return rank_of(a) < rank_of(b); });
  result.erase(std::unique(result.begin(), result.end()), result.end());
  if (result.size() > most) result.resize(most);
  return result;
}

}  // namespace weir::planner
