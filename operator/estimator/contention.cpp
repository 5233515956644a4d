// SPDX-License-Identifier: Apache-2.0
#include "operator/estimator/contention.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weir::estimator {
namespace {

constexpr std::int64_t kLeastTransfers = 40;
constexpr double kSlowShare = 0.8, kQuickShare = 0.9;  // of the usual rate
constexpr double kCertain = 4;                         // standard errors of a rate
constexpr double kLeastCost = 0.01, kFree = 0.005;     // of a step
constexpr double kCertainCost = 2;                     // standard errors of a saving
constexpr std::chrono::seconds kApart{10};             // between two evaluations that agree
constexpr double kUsualQuantile = 0.9;
constexpr std::chrono::hours kKept{24};
constexpr std::size_t kMostStretches = 128;
// Stretches of like rates that begin within this time become one.
constexpr std::chrono::minutes kMerged{15};
constexpr double kAlike = 0.2;
constexpr double kVague = 0.25;  // an error of a rate that tells nothing

bool timed(const SegmentRate& link) {
  return 2 * link.timed >= link.transfers && link.rate > 0;
}

// Whether the segment tells the rate of the link, or that it is fast.
bool told(const SegmentRate& link) {
  return timed(link) ? link.timed >= kLeastTransfers : link.transfers >= kLeastTransfers;
}

bool certainly_slow(const SegmentRate& link, const UsualRate& usual) {
  if (!timed(link) || link.timed < kLeastTransfers || usual.rate <= 0) return false;
  return link.rate <= kSlowShare * usual.rate &&
         std::log(usual.rate / link.rate) >= kCertain * std::hypot(usual.error, link.error);
}

bool quick(const SegmentRate& link, const UsualRate& usual) {
  return !timed(link) || link.rate >= kQuickShare * usual.rate;
}

bool alike(const ContentionState::Stretch& a, const ContentionState::Stretch& b) {
  return a.untimed == b.untimed && std::abs(a.rate - b.rate) <= kAlike * std::max(a.rate, b.rate);
}

// Whether the segment is the one of that stretch, some steps later. A segment that begins later is
// another one, unless its window is full and slides.
bool goes_on(const ContentionState::Stretch& stretch, const SegmentRates& segment) {
  if (stretch.revision != segment.revision) return false;
  constexpr int kFull = 63;  // of 64 steps one may not count
  if (segment.steps >= kFull) return segment.first_step <= stretch.last_step;
  return segment.first_step <= stretch.first_step + 1;
}

// The messages that could be timed tell how fast such a link is at least.
UsualRate usual_of_untimed(const std::vector<ContentionState::Stretch>& seen, double fast) {
  double steps = 0, sum = 0, errors = 0;
  for (const auto& stretch : seen) {
    if (!stretch.untimed || stretch.rate <= 0 || stretch.error > kVague) continue;
    steps += stretch.steps;
    sum += stretch.steps * stretch.rate;
    errors = std::hypot(errors, stretch.steps * stretch.error);
  }
  if (steps <= 0) return {.rate = fast, .untimed = true};
  return {.rate = sum / steps, .error = errors / steps, .untimed = true};
}

// Whether `holds` has been so in two evaluations far enough apart.
bool twice(std::optional<SystemTime>& since, bool holds, SystemTime now) {
  if (!holds) {
    since.reset();
    return false;
  }
  if (!since) since = now;
  return now - *since >= kApart;
}

}  // namespace

void remember(ContentionState& state, const SegmentRates& segment, SystemTime now) {
  for (const auto& [nodes, link] : segment.links) {
    if (!told(link)) continue;
    auto& seen = state.seen[nodes];
    const ContentionState::Stretch fresh{.begin = now,
                                         .revision = segment.revision,
                                         .first_step = segment.first_step,
                                         .last_step = segment.first_step + segment.steps - 1,
                                         .rate = link.rate,
                                         .error = link.error,
                                         .untimed = !timed(link),
                                         .steps = static_cast<double>(segment.steps)};
    if (seen.empty()) {
      seen.push_back(fresh);
      continue;
    }
    auto& newest = seen.back();
    if (goes_on(newest, segment)) {
      const auto more = static_cast<double>(fresh.last_step - newest.last_step);
      newest.steps += std::max(0.0, more);
      newest.last_step = fresh.last_step;
      newest.rate = fresh.rate;
      newest.error = fresh.error;
      newest.untimed = fresh.untimed;
    } else if (now - newest.begin < kMerged && alike(newest, fresh)) {
      const double all = newest.steps + fresh.steps;
      newest.rate = (newest.steps * newest.rate + fresh.steps * fresh.rate) / all;
      newest.error = std::hypot(newest.steps * newest.error, fresh.steps * fresh.error) / all;
      newest.steps = all;
      newest.revision = fresh.revision;
      newest.first_step = fresh.first_step;
      newest.last_step = fresh.last_step;
    } else {
      seen.push_back(fresh);
    }
    std::erase_if(seen, [&](const auto& stretch) { return now - stretch.begin > kKept; });
    if (seen.size() > kMostStretches) seen.erase(seen.begin());
  }
}

std::optional<UsualRate> usual_rate(const ContentionState& state, const NodePair& link,
                                    double fast) {
  const auto found = state.seen.find(link);
  if (found == state.seen.end() || found->second.empty()) return std::nullopt;
  std::vector<ContentionState::Stretch> sorted = found->second;
  const auto faster = [](const auto& a, const auto& b) {
    return std::pair(a.untimed, a.rate) < std::pair(b.untimed, b.rate);
  };
  std::ranges::sort(sorted, faster);
  double all = 0, sum = 0;
  for (const auto& stretch : sorted) all += stretch.steps;
  for (const auto& stretch : sorted) {
    sum += stretch.steps;
    if (sum < kUsualQuantile * all) continue;
    if (stretch.untimed) return usual_of_untimed(sorted, fast);
    return UsualRate{.rate = stretch.rate, .error = stretch.error};
  }
  return std::nullopt;
}

std::set<NodePair> slow_links(const ContentionState& state, const SegmentRates& segment,
                              const UsualRates& usual) {
  std::set<NodePair> slow;
  for (const auto& [nodes, link] : segment.links) {
    const auto known = usual.find(nodes);
    if (known == usual.end()) continue;
    const auto watch = state.watched.find(nodes);
    const bool was = watch != state.watched.end() && watch->second.is_slow;
    if (certainly_slow(link, known->second) || (was && !quick(link, known->second))) {
      slow.insert(nodes);
    }
  }
  return slow;
}

bool may_be_slow(const SegmentRates& segment, const UsualRates& usual) {
  return std::ranges::any_of(segment.links, [&](const auto& entry) {
    const auto& [nodes, link] = entry;
    const auto known = usual.find(nodes);
    return known != usual.end() && timed(link) && link.timed < kLeastTransfers &&
           link.rate <= kSlowShare * known->second.rate;
  });
}

void evaluate(ContentionState& state, const SegmentRates& segment, const UsualRates& usual,
              const Saving& saving, SystemTime now) {
  state.evaluated = now;
  // A link that carries nothing now is nothing that this plan suffers from.
  std::erase_if(state.watched,
                [&](const auto& entry) { return !segment.links.contains(entry.first); });
  const bool costs = saving.part >= kLeastCost && saving.part >= kCertainCost * saving.error;
  for (const auto& [nodes, link] : segment.links) {
    const auto known = usual.find(nodes);
    if (known == usual.end()) continue;
    auto& watch = state.watched[nodes];
    const bool slow = certainly_slow(link, known->second);
    const bool over = quick(link, known->second);
    if (twice(watch.slow, slow, now)) watch.is_slow = true;
    const auto first = watch.costly;
    if (twice(watch.costly, slow && costs, now) && !watch.contended) watch.contended = first;
    if (twice(watch.quick, over, now)) {
      watch.is_slow = false;
      watch.contended.reset();
    }
    if (twice(watch.cheap, saving.part < kFree, now)) watch.contended.reset();
  }
}

NetworkState network_state(const ContentionState& state) {
  NetworkState result = NetworkState::kHealthy;
  for (const auto& [nodes, watch] : state.watched) {
    if (watch.contended) return NetworkState::kContended;
    if (watch.is_slow) result = NetworkState::kHidden;
  }
  return result;
}

}  // namespace weir::estimator
