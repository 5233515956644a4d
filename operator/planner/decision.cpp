// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/decision.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/base/check.h"

namespace weir::planner {
namespace {

using Index = std::size_t;

constexpr double kSecondsPerNanosecond = 1e-9;
// Windows are a little wider than T, the exact test of the cost decides.
constexpr double kSlack = 1 + 1e-12;
constexpr std::int64_t kPairsBetweenStops = 4'000'000;  // about 10 ms

// Smallest count of devices that brings `seconds` of divisible work to at most T, at least 1.
int devices_for(double seconds, double threshold, int most) {
  const double count = std::ceil(seconds / (threshold * kSlack));
  return count > most ? most + 1 : std::max(1, static_cast<int>(count));
}

struct LaneTest {
  const Lanes* all;
  int blocks;
  bool subset(Index inner, Index outer) const {
    const Lanes* a = all + inner * static_cast<Index>(blocks);
    const Lanes* b = all + outer * static_cast<Index>(blocks);
    for (int block = 0; block < blocks; ++block) {
      if (any_above(a[block], b[block])) return false;
    }
    return true;
  }
};

struct BitTest {
  const Ideals& ideals;
  const std::vector<Index>& candidates;
  bool subset(Index inner, Index outer) const {
    return ideals.subset(candidates[inner], candidates[outer]);
  }
};

}  // namespace

double BottleneckCosts::stage(std::int64_t work, std::int64_t parameters, int ranks) const {
  const double sync = 4.0 * (ranks - 1) * static_cast<double>(parameters) /
                      (bytes_per_second * static_cast<double>(ranks));
  return (static_cast<double>(work) * kSecondsPerNanosecond + sync) / ranks;
}

double BottleneckCosts::boundary(std::int64_t cut, int ranks) const {
  return transfers ? 2.0 * static_cast<double>(cut) / (bytes_per_second * ranks) : 0;
}

double value_of(const Ideals& ideals, const BottleneckCosts& costs, const IdealChain& chain) {
  double value = 0;
  Index from = 0;
  for (Index s = 0; s < chain.ends.size(); ++s) {
    const Index to = chain.ends[s];
    const int ranks = chain.ranks[s];
    value =
        std::max({value,
                  costs.stage(ideals.work(0, to) - ideals.work(0, from),
                              ideals.parameters[to] - ideals.parameters[from], ranks),
                  costs.boundary(ideals.cut[from], ranks), costs.boundary(ideals.cut[to], ranks)});
    from = to;
  }
  return value;
}

// One threshold: the boundaries that may be used under it, and what is known of them.
struct Decision::Question {
  double threshold;
  std::int64_t most_pairs;
  const std::function<bool()>& stop;
  std::vector<Index> candidate;  // index into candidates_, by rising work
  std::vector<std::int64_t> work, parameters;
  std::vector<std::int32_t> least;  // ranks that the boundary needs on either side
  std::vector<std::int32_t> limit;  // most devices before it
  std::vector<std::int32_t> ranks;  // of the stage that ends here, in the best way found
  std::vector<std::uint32_t> from;  // where that stage begins
  std::vector<std::vector<std::uint32_t>> buckets;  // by devices before: questions' indices
};

Decision::Decision(const Ideals& ideals, const BottleneckCosts& costs,
                   const std::vector<int>& chains, double most_seconds)
    : ideals_(ideals), costs_(costs) {
  WEIR_CHECK(ideals.forward.size() == 1, "the bottleneck knows one device class");
  const double all = static_cast<double>(ideals.work(0, ideals.last())) * kSecondsPerNanosecond;
  const int devices = costs.devices;
  for (Index i = 0; i < ideals.count(); ++i) {
    const double before = static_cast<double>(ideals.work(0, i)) * kSecondsPerNanosecond;
    const int ranks = devices_for(costs.boundary(ideals.cut[i], 1), most_seconds, devices);
    const bool end = i == 0 || i == ideals.last();
    if (end || std::max(ranks, devices_for(before, most_seconds, devices)) +
                       std::max(ranks, devices_for(all - before, most_seconds, devices)) <=
                   devices) {
      candidates_.push_back(i);
    }
  }
  std::stable_sort(candidates_.begin(), candidates_.end(), [&](Index a, Index b) {
    return ideals.work(0, a) < ideals.work(0, b);  // by rising size before that
  });
  if (chains.empty()) return;
  blocks_ = *std::max_element(chains.begin(), chains.end()) / 8 + 1;
  lanes_.resize(candidates_.size() * static_cast<Index>(blocks_));
  for (Index i = 0; i < candidates_.size(); ++i) {
    fill_lanes(ideals, candidates_[i], chains, &lanes_[i * static_cast<Index>(blocks_)], blocks_);
  }
}

Decision::Outcome Decision::ask(double seconds, std::int64_t most_pairs,
                                const std::function<bool()>& stop, IdealChain* plan) {
  Question question{.threshold = seconds,
                    .most_pairs = most_pairs,
                    .stop = stop,
                    .candidate = {},
                    .work = {},
                    .parameters = {},
                    .least = {},
                    .limit = {},
                    .ranks = {},
                    .from = {},
                    .buckets = {}};
  const int devices = costs_.devices;
  const double all = static_cast<double>(ideals_.work(0, ideals_.last())) * kSecondsPerNanosecond;
  for (Index i = 0; i < candidates_.size(); ++i) {
    const Index ideal = candidates_[i];
    const double before = static_cast<double>(ideals_.work(0, ideal)) * kSecondsPerNanosecond;
    const bool last = ideal == ideals_.last();
    const int least = devices_for(costs_.boundary(ideals_.cut[ideal], 1), seconds, devices);
    const int after = last ? 0 : std::max(least, devices_for(all - before, seconds, devices));
    const int needed = ideal == 0 ? 0 : std::max(least, devices_for(before, seconds, devices));
    if (needed + after > devices && ideal != 0) continue;
    question.candidate.push_back(i);
    question.work.push_back(ideals_.work(0, ideal));
    question.parameters.push_back(ideals_.parameters[ideal]);
    question.least.push_back(least);
    question.limit.push_back(devices - after);
  }
  question.ranks.assign(question.candidate.size(), 0);
  question.from.assign(question.candidate.size(), 0);
  question.buckets.resize(static_cast<Index>(devices) + 1);
  effort_.boundaries = std::max(effort_.boundaries, question.candidate.size());
  if (question.candidate.empty() || candidates_[question.candidate.back()] != ideals_.last()) {
    return Outcome::kNo;
  }
  const Outcome outcome = blocks_ > 0 ? run(question, LaneTest{lanes_.data(), blocks_})
                                      : run(question, BitTest{ideals_, candidates_});
  if (outcome != Outcome::kYes) return outcome;
  plan->ends.clear();
  plan->ranks.clear();
  for (Index at = question.candidate.size() - 1; at != 0; at = question.from[at]) {
    plan->ends.push_back(candidates_[question.candidate[at]]);
    plan->ranks.push_back(question.ranks[at]);
  }
  std::reverse(plan->ends.begin(), plan->ends.end());
  std::reverse(plan->ranks.begin(), plan->ranks.end());
  return outcome;
}

// f(J) = fewest devices that can run the prefix J; kept as the bucket that J lies in.
template <class Sets>
Decision::Outcome Decision::run(Question& q, const Sets& sets) {
  const double nanoseconds = q.threshold * kSlack / kSecondsPerNanosecond;
  std::int64_t pairs = 0;
  std::int64_t next_stop = kPairsBetweenStops;
  q.buckets[0].push_back(0);
  const Index last = q.candidate.size() - 1;
  for (Index j = 1; j <= last; ++j) {
    const int limit = q.limit[j];
    const int fewest = static_cast<int>(std::min(
        static_cast<double>(limit) + 1, std::ceil(static_cast<double>(q.work[j]) / nanoseconds)));
    int best = limit + 1;
    for (int v = 0; v < best && best > fewest; ++v) {
      const std::vector<std::uint32_t>& bucket = q.buckets[static_cast<Index>(v)];
      // From the nearest prefix down: the ranks needed only rise.
      for (Index at = bucket.size(); at-- > 0;) {
        const Index i = bucket[at];
        const std::int64_t work = q.work[j] - q.work[i];
        const auto spread = static_cast<double>(work) / nanoseconds;
        if (spread > best - 1 - v) break;
        int ranks = std::max({1, static_cast<int>(std::ceil(spread)), q.least[i], q.least[j]});
        ++pairs;
        if (v + ranks >= best || !sets.subset(q.candidate[i], q.candidate[j])) continue;
        const std::int64_t cut = std::max(ideals_.cut[candidates_[q.candidate[i]]],
                                          ideals_.cut[candidates_[q.candidate[j]]]);
        const std::int64_t parameters = q.parameters[j] - q.parameters[i];
        for (; v + ranks < best; ++ranks) {
          if (costs_.stage(work, parameters, ranks) > q.threshold) continue;
          if (costs_.boundary(cut, ranks) > q.threshold) continue;
          best = v + ranks;
          q.ranks[j] = ranks;
          q.from[j] = static_cast<std::uint32_t>(i);
        }
      }
    }
    if (best <= limit) q.buckets[static_cast<Index>(best)].push_back(static_cast<std::uint32_t>(j));
    if (pairs > q.most_pairs) break;
    if (pairs < next_stop) continue;
    next_stop = pairs + kPairsBetweenStops;
    if (q.stop && q.stop()) break;
  }
  effort_.pairs += pairs;
  if (q.ranks[last] > 0) return Outcome::kYes;
  const bool finished = pairs <= q.most_pairs && !(q.stop && q.stop());
  return finished ? Outcome::kNo : Outcome::kGaveUp;
}

}  // namespace weir::planner
