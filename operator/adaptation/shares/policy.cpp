// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/shares/policy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "operator/adaptation/shares/shares.h"
#include "operator/adaptation/shares/step_times.h"
#include "worker/base/check.h"
#include "worker/base/gain.h"
#include "worker/base/text.h"

namespace weir::shares {
namespace {

// operator/adaptation/shares/README.md "Shares" and "Sync mode".
constexpr std::int64_t kUnevenSteps = 16;   // in a row, before shares change
constexpr std::int64_t kPartialSteps = 32;  // window for the change to Partial
constexpr std::int64_t kEvenSteps = 50;     // window for the return to Exact
constexpr double kEvenVariation = 0.05;     // standard deviation / mean of T_p
constexpr double kWideTail = 2;             // p95 / median of T_p
constexpr double kStaleness = 6, kWideStaleness = 12;
// Limits of ShareCost, in steps. If the current shares have cost the first, even ones follow at
// once. If all shares have cost the second, no replica gets fewer micro-batches. Even with one late
// change, 1,000 steps lose less than 3 % (tests/sim).
constexpr double kMostOfCurrent = 4, kMostOfAll = 12;

std::string with_sign(double fraction) {
  return percent(fraction) + " %";
}

groups::Settings settings_for(const Spec& spec, int replicas, double staleness) {
  groups::Settings settings;
  settings.group_size_max =
      std::clamp(spec.group_size_max.value_or(groups::usual_group_size_max(replicas)),
                 settings.group_size_min, std::max(settings.group_size_min, replicas));
  settings.max_staleness = spec.max_staleness.value_or(staleness);
  return settings;
}

bool even(const std::vector<int>& shares) {
  const auto [least, most] = std::ranges::minmax(shares);
  return most - least <= 1;
}

// Applies what the spec demands, independent of measurements. True if that is a change.
bool follow_spec(const Input& input, Decision& decision) {
  const auto replicas = static_cast<int>(input.shares.size());
  Policy wanted = input.current;
  if (replicas < 2 || input.spec.mode == Allowed::kExact) {
    wanted.mode = Mode::kExact;
  } else if (input.spec.mode == Allowed::kPartial) {
    wanted.mode = Mode::kPartial;
  }
  if (wanted.mode == Mode::kPartial) {
    // If the spec has no staleness, the one that measurements have chosen stays.
    const bool wide = input.current.mode == Mode::kPartial &&
                      input.current.groups.max_staleness == kWideStaleness;
    wanted.groups = settings_for(input.spec, replicas, wide ? kWideStaleness : kStaleness);
  }
  if (wanted != input.current) {
    decision.policy = wanted;
    decision.reason = "sync." +
                      std::string(wanted.mode == input.current.mode ? "groups: " : "mode: ") +
                      name(input.current.mode) + " -> " + name(wanted.mode);
    if (wanted.mode == Mode::kPartial) {
      decision.reason += ", groups of up to " + std::to_string(wanted.groups.group_size_max) +
                         ", staleness " + number(wanted.groups.max_staleness, 0);
    }
    decision.reason += ", because the spec demands it";
  }
  // With Partial the groups handle slow replicas, and uneven shares would only slow them down.
  const bool partial = wanted.mode == Mode::kPartial;
  if ((!input.spec.rebalance || partial) && !even(input.shares)) {
    decision.shares = even_shares(input.shares);
    decision.reason += (decision.reason.empty() ? "" : "; ") + std::string("shares ") +
                       joined(input.shares) + " -> " + joined(*decision.shares) +
                       (partial ? ", because Partial needs even ones" : ", sync.rebalance is off");
  }
  decision.by_spec = decision.policy || decision.shares;
  return decision.by_spec;
}

std::string slower_text(const Uneven& found) {
  return "replica " + std::to_string(found.replica) + " takes " + number(found.seconds, 3) +
         " s, median of the others " + number(found.others, 3) + " s for " +
         std::to_string(kUnevenSteps) + " steps";
}

// Seconds of each replica in the steps to come. A replica that does not stand out during the whole
// window gets the median of such replicas, because a slow spell in the window will not last.
std::vector<double> lasting_seconds(Intervals window, const std::vector<Uneven>& found,
                                    std::size_t replicas) {
  std::vector<double> seconds, typical;
  std::vector<bool> own(replicas, false);
  for (const Uneven& one : found) own[static_cast<std::size_t>(one.replica)] = true;
  for (std::size_t p = 0; p < replicas; ++p) {
    seconds.push_back(mean_seconds(window, static_cast<int>(p)));
    if (!own[p]) typical.push_back(seconds.back());
  }
  if (typical.empty()) return seconds;
  const auto middle = typical.begin() + static_cast<std::ptrdiff_t>(typical.size() / 2);
  std::nth_element(typical.begin(), middle, typical.end());
  for (std::size_t p = 0; p < replicas; ++p) {
    if (!own[p]) seconds[p] = *middle;
  }
  return seconds;
}

// Mean over the window of the slowest T_p with these shares. The slowest one of each interval
// counts, not the slowest of the means: if times vary, some replica is slow in most steps.
double mean_slowest(const Input& input, Intervals window, const std::vector<int>& shares) {
  double sum = 0, steps = 0;
  SharesInput times{.seconds = {}, .shares = input.shares, .stages = input.stages};
  for (const estimator::ReplicaInterval& interval : window) {
    times.seconds.clear();
    for (const auto& [replica, time] : interval.replicas) times.seconds.push_back(time.seconds);
    const auto weight = static_cast<double>(interval.replicas.begin()->second.steps);
    sum += weight * slowest_seconds(times, shares);
    steps += weight;
  }
  return sum / steps;
}

// New shares, and the time that they save.
struct Candidate {
  std::vector<int> shares;
  double now = 0, saved = 0;  // seconds of the slowest replica's step
  bool back = false;          // the shares become more even
  std::string why;
};
Candidate costed(const Input& input, Intervals window, std::vector<int> shares) {
  Candidate candidate{.shares = std::move(shares)};
  candidate.now = mean_slowest(input, window, input.shares);
  candidate.saved = candidate.now - mean_slowest(input, window, candidate.shares);
  return candidate;
}
// Seconds of a step now: the measured step of the job, but at least the slowest replica's own time.
double step_now(const Input& input, const Candidate& candidate) {
  return std::max(input.step_seconds, candidate.now);
}
double gain_of(const Input& input, const Candidate& candidate) {
  const double now = step_now(input, candidate);
  return throughput_gain(now, now - candidate.saved);
}
// Predicted seconds of a step; 0 = unknown.
double predicted_step(const Input& input, const Candidate& candidate) {
  return input.step_seconds > 0 ? step_now(input, candidate) - candidate.saved : 0;
}

SharesInput shares_input(const Input& input, std::vector<double> seconds) {
  return {.seconds = std::move(seconds),
          .shares = input.shares,
          .stages = input.stages,
          .least_share = input.least_share};
}

// If a replica stands out, the shares that suit it.
std::optional<Candidate> uneven_candidate(const Input& input, Intervals window) {
  const std::vector<Uneven> found = all_uneven(window);
  if (found.empty()) return std::nullopt;
  auto best =
      balanced_shares(shares_input(input, lasting_seconds(window, found, input.shares.size())));
  Candidate candidate = costed(input, window, std::move(best));
  candidate.why = slower_text(found.front());
  // A replica that was slow has recovered: it has few micro-batches and ends early.
  const int total = std::accumulate(input.shares.begin(), input.shares.end(), 0);
  candidate.back = std::ranges::any_of(found, [&](const Uneven& one) {
    const int share = input.shares[static_cast<std::size_t>(one.replica)];
    return one.seconds < one.others && share * static_cast<int>(input.shares.size()) < total;
  });
  return candidate;
}

// If no replica stands out, shares that are more even.
std::optional<Candidate> even_candidate(const Input& input, Intervals window) {
  if (window.empty() || even(input.shares)) return std::nullopt;
  // These are the balanced shares of equally fast replicas, within the limit of one change.
  std::vector<double> seconds;
  for (const int share : input.shares) seconds.push_back(share + input.stages - 1);
  Candidate candidate =
      costed(input, window, balanced_shares(shares_input(input, std::move(seconds))));
  candidate.back = true;
  candidate.why = "uneven shares do not help over " + std::to_string(kPartialSteps) + " steps";
  return candidate;
}

// If uneven shares have cost more than they gained, even ones follow at once.
bool return_to_even(const Input& input, Decision& decision) {
  const Intervals window = newest(input.replicas.intervals, 1);
  if (window.empty() || even(input.shares)) return false;
  Candidate candidate = costed(input, window, even_shares(input.shares));
  decision.shares = candidate.shares;
  decision.returns_to_even = true;
  decision.gain = std::max(0.0, gain_of(input, candidate));
  decision.step_seconds = predicted_step(input, candidate);
  decision.reason = "shares " + joined(input.shares) + " -> " + joined(candidate.shares) +
                    ": uneven shares have cost more than they saved, predicted +" +
                    with_sign(decision.gain);
  return true;
}

gate::Weighed weigh(const Input& input, const State& state, const Candidate& candidate) {
  const double now = step_now(input, candidate);
  const gate::Offer offer{
      .name = joined(candidate.shares), .now_seconds = now, .then_seconds = now - candidate.saved};
  // A return to even shares is never kept out.
  return gate::weigh(offer, input.moment, input.retune.rules, input.retune.clock,
                     candidate.back ? gate::Record{} : state.shares);
}

// Whether shares that have cost too much may change: the cooldown may last.
bool settled(const Input& input) {
  const gate::Moment& moment = input.moment;
  return !moment.unjudged && moment.step - moment.last_change_step >= gate::kStepsBetween;
}

// True if shares change now or as soon as their tier is ready. The mode does not change then.
bool rebalance(const Input& input, State& state, Decision& decision) {
  if (!input.spec.rebalance || !input.retune.enabled) return false;
  if (input.current.mode != Mode::kExact) return false;
  add_intervals(state.share_cost, input.replicas.intervals, input.shares, input.stages);
  if (state.share_cost.current_shares >= kMostOfCurrent && settled(input) &&
      return_to_even(input, decision)) {
    if (input.adaptation == Adaptation::kAuto) state.share_cost.current_shares = 0;
    return true;
  }
  const Intervals window = newest(input.replicas.intervals, kUnevenSteps);
  if (window.empty()) {
    decision.reason = "fewer than " + std::to_string(kUnevenSteps) + " steps measured";
    return false;
  }
  decision.reason = "replicas are even";
  for (const auto& candidate :
       {uneven_candidate(input, window),
        even_candidate(input, newest(input.replicas.intervals, kPartialSteps))}) {
    if (!candidate || candidate->shares == input.shares) continue;
    const double gain = gain_of(input, *candidate);
    decision.reason = candidate->why + ": shares " + joined(input.shares) + " -> " +
                      joined(candidate->shares) + ", predicted +" + with_sign(gain);
    const gate::Weighed weighed = weigh(input, state, *candidate);
    if (!weighed.enough) {
      decision.reason += ": " + weighed.reason;
      continue;
    }
    if (!candidate->back && state.share_cost.all_shares >= kMostOfAll) {
      decision.reason += ", speeds change too fast for shares: following them has cost " +
                         number(state.share_cost.all_shares, 1) + " steps";
      continue;
    }
    if (!weighed.act) {
      decision.reason += ": " + weighed.reason;
      return true;
    }
    decision.shares = candidate->shares;
    decision.returns_to_even = candidate->back;
    decision.gain = gain;
    decision.step_seconds = predicted_step(input, *candidate);
    if (input.adaptation == Adaptation::kAuto) state.share_cost.current_shares = 0;
    return true;
  }
  return false;
}

void leave_exact(const Input& input, const State& state, Decision& decision) {
  const Intervals window = newest(input.replicas.intervals, kPartialSteps);
  if (window.empty()) return;
  const double gain = partial_gain(window);
  const std::string text = "step times of replicas vary (cv " + with_sign(spread_of(window).cv) +
                           " over " + std::to_string(kPartialSteps) + " steps): Exact -> Partial";
  // As a share of the step with Partial, since the step of the job may be unknown.
  const gate::Offer offer{.name = name(Mode::kPartial), .now_seconds = 1 + gain, .then_seconds = 1};
  const gate::Weighed weighed =
      gate::weigh(offer, input.moment, input.regroup.rules, input.regroup.clock, state.mode);
  if (!weighed.enough) {
    decision.reason += "; Partial: " + weighed.reason;
    return;
  }
  decision.reason = text + ", predicted +" + with_sign(gain) + " throughput";
  if (!weighed.act) {
    decision.reason += ": " + weighed.reason;
  } else {
    const bool wide = spread_of(window).tail > kWideTail;
    decision.policy =
        Policy{Mode::kPartial, settings_for(input.spec, static_cast<int>(input.shares.size()),
                                            wide ? kWideStaleness : kStaleness)};
    if (!even(input.shares)) {
      decision.shares = even_shares(input.shares);
      decision.reason += ", shares " + joined(input.shares) + " -> " + joined(*decision.shares);
    }
    decision.gain = gain;
    decision.step_seconds = input.step_seconds / (1 + gain);
    decision.reason += ", groups of up to " +
                       std::to_string(decision.policy->groups.group_size_max) + ", staleness " +
                       number(decision.policy->groups.max_staleness, 0);
  }
}

void back_to_exact(const Input& input, Decision& decision) {
  const Intervals window = newest(input.replicas.intervals, kEvenSteps);
  if (window.empty()) {
    decision.reason = "Partial: fewer than " + std::to_string(kEvenSteps) + " steps measured";
    return;
  }
  const double cv = spread_of(window).cv;
  const std::string over = " over " + std::to_string(kEvenSteps) + " steps";
  if (cv >= kEvenVariation) {
    decision.reason = "Partial stays: step times vary by " + with_sign(cv) + over;
    return;
  }
  if (const int replica = slow_sync_replica(input.replicas); replica >= 0) {
    decision.reason = "Partial stays: the sync link of replica " + std::to_string(replica) +
                      " is slower than half of the others";
    return;
  }
  decision.reason = "step times vary by " + with_sign(cv) + over + ": Partial -> Exact";
  const std::string wait =
      gate::reason_to_wait(input.moment, input.regroup.rules, input.regroup.clock);
  if (!wait.empty()) {
    decision.reason += ", waits: " + wait;
    return;
  }
  decision.policy = Policy{Mode::kExact, input.current.groups};
}

bool measured(const Input& input) {
  if (!input.replicas.fresh || input.replicas.speeds.size() != input.shares.size()) return false;
  int expected = 0;
  for (const auto& [replica, speed] : input.replicas.speeds) {
    if (replica != expected++) return false;
  }
  return true;
}

}  // namespace

const char* name(Mode mode) {
  return mode == Mode::kExact ? "Exact" : "Partial";
}

Policy first_policy(const Spec& spec, int replicas) {
  const bool partial = spec.mode == Allowed::kPartial && replicas >= 2;
  return {partial ? Mode::kPartial : Mode::kExact, settings_for(spec, replicas, kStaleness)};
}

Decided decide(const Input& input, const State& state) {
  WEIR_CHECK(!input.shares.empty() && input.stages >= 1, "a job has a replica and a stage");
  Decided result{.decision = {}, .state = state};
  gate::end_quarantine(result.state.shares, input.moment.step);
  gate::end_quarantine(result.state.mode, input.moment.step);
  Decision& decision = result.decision;
  if (follow_spec(input, decision)) return result;
  if (input.shares.size() < 2) {
    decision.reason = "one replica";
  } else if (input.adaptation == Adaptation::kOff) {
    decision.reason = "adaptation.mode is Off";
  } else if (!measured(input)) {
    decision.reason = "step times of the replicas are unknown or stale";
  } else if (!rebalance(input, result.state, decision) && input.spec.mode == Allowed::kAuto &&
             input.regroup.enabled) {
    if (input.current.mode == Mode::kExact) {
      leave_exact(input, state, decision);
    } else {
      back_to_exact(input, decision);
    }
  }
  if (decision.reason.empty()) decision.reason = "nothing to decide";
  decision.propose_only =
      (decision.shares || decision.policy) && input.adaptation != Adaptation::kAuto;
  return result;
}

}  // namespace weir::shares
