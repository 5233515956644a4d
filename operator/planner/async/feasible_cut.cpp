// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/async/feasible_cut.h"

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

// Prefixes that need the same count of devices, by rising work, side by side in memory: scanning
// them is most of the search.
template <int kBlocks>
struct LaneBucket {
  std::vector<std::int64_t> work;
  std::vector<std::uint32_t> at;  // index in the question
  std::vector<Lanes> sets;

  void add(std::int64_t of, std::uint32_t index, const Lanes* set) {
    work.push_back(of);
    at.push_back(index);
    sets.insert(sets.end(), set, set + kBlocks);
  }
  bool inside(Index entry, const Lanes* outer) const {
    const Lanes* inner = &sets[entry * kBlocks];
    for (int block = 0; block < kBlocks; ++block) {
      if (any_above(inner[block], outer[block])) return false;
    }
    return true;
  }
};

struct BitBucket {
  std::vector<std::int64_t> work;
  std::vector<std::uint32_t> at;
  std::vector<std::uint64_t> sets;
  Index words;

  void add(std::int64_t of, std::uint32_t index, const std::uint64_t* set) {
    work.push_back(of);
    at.push_back(index);
    sets.insert(sets.end(), set, set + words);
  }
  bool inside(Index entry, const std::uint64_t* outer) const {
    const std::uint64_t* inner = &sets[entry * words];
    for (Index w = 0; w < words; ++w) {
      if ((inner[w] & ~outer[w]) != 0) return false;
    }
    return true;
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
struct FeasibleCut::Question {
  double threshold;
  std::int64_t most_pairs;
  const std::function<bool()>& stop;
  std::vector<Index> candidate;  // index into candidates_, by rising work
  std::vector<std::int64_t> work, parameters;
  std::vector<std::int32_t> least;  // ranks that the boundary needs on either side
  std::vector<std::int32_t> limit;  // most devices before it
  std::vector<std::int32_t> ranks;  // of the stage that ends here, in the best way found
  std::vector<std::uint32_t> from;  // where that stage begins
};

FeasibleCut::FeasibleCut(const Ideals& ideals, const BottleneckCosts& costs,
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
  std::ranges::stable_sort(candidates_, [&](Index a, Index b) {
    return ideals.work(0, a) < ideals.work(0, b);  // by rising size before that
  });
  if (chains.empty()) return;
  blocks_ = *std::ranges::max_element(chains) / 8 + 1;
  lanes_.resize(candidates_.size() * static_cast<Index>(blocks_));
  for (Index i = 0; i < candidates_.size(); ++i) {
    fill_lanes(ideals, candidates_[i], chains, &lanes_[i * static_cast<Index>(blocks_)], blocks_);
  }
}

FeasibleCut::Outcome FeasibleCut::ask(double seconds, std::int64_t most_pairs,
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
                    .from = {}};
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
  effort_.boundaries = std::max(effort_.boundaries, question.candidate.size());
  if (question.candidate.empty() || candidates_[question.candidate.back()] != ideals_.last()) {
    return Outcome::kNo;
  }
  const auto lanes = [&](Index i) {
    return &lanes_[question.candidate[i] * static_cast<Index>(blocks_)];
  };
  Outcome outcome = Outcome::kNo;
  switch (blocks_) {
    case 1:
      outcome = run<LaneBucket<1>>(question, {}, lanes);
      break;
    case 2:
      outcome = run<LaneBucket<2>>(question, {}, lanes);
      break;
    case 3:
      outcome = run<LaneBucket<3>>(question, {}, lanes);
      break;
    case 4:
      outcome = run<LaneBucket<4>>(question, {}, lanes);
      break;
    default:
      outcome =
          run<BitBucket>(question, {{}, {}, {}, static_cast<Index>(ideals_.words)},
                         [&](Index i) { return ideals_.set(candidates_[question.candidate[i]]); });
      break;
  }
  if (outcome != Outcome::kYes) return outcome;
  plan->ends.clear();
  plan->ranks.clear();
  for (Index at = question.candidate.size() - 1; at != 0; at = question.from[at]) {
    plan->ends.push_back(candidates_[question.candidate[at]]);
    plan->ranks.push_back(question.ranks[at]);
  }
  std::ranges::reverse(plan->ends);
  std::ranges::reverse(plan->ranks);
  return outcome;
}

// The fewest ranks, below `most`, that run the stage between two boundaries; `most` if none do.
int FeasibleCut::ranks_between(const Question& q, Index i, Index j, int most) const {
  const std::int64_t work = q.work[j] - q.work[i];
  const std::int64_t parameters = q.parameters[j] - q.parameters[i];
  const std::int64_t cut =
      std::max(ideals_.cut[candidates_[q.candidate[i]]], ideals_.cut[candidates_[q.candidate[j]]]);
  // One by one: with parameters to sync the cost does not fall with every rank.
  for (int ranks = std::max({1, q.least[i], q.least[j]}); ranks < most; ++ranks) {
    if (costs_.stage(work, parameters, ranks) <= q.threshold &&
        costs_.boundary(cut, ranks) <= q.threshold) {
      return ranks;
    }
  }
  return most;
}

// f(J) = fewest devices that can run the prefix J; kept as the bucket that J lies in.
template <class Bucket, class Set>
FeasibleCut::Outcome FeasibleCut::run(Question& q, const Bucket& empty, const Set& set) {
  const double nanoseconds = q.threshold * kSlack / kSecondsPerNanosecond;
  const std::int64_t budget = q.most_pairs;
  std::vector<Bucket> buckets(static_cast<Index>(costs_.devices) + 1, empty);
  buckets[0].add(0, 0, set(0));
  std::int64_t pairs = 0;
  std::int64_t next_stop = kPairsBetweenStops;
  bool stopped = false;
  const Index last = q.candidate.size() - 1;
  for (Index j = 1; j <= last && !stopped; ++j) {
    const int limit = q.limit[j];
    const auto work = static_cast<double>(q.work[j]);
    const double fewest = std::ceil(work / nanoseconds);
    const auto* outer = set(j);
    int best = limit + 1;
    for (int v = 0; v < best && best > fewest; ++v) {
      const Bucket& bucket = buckets[static_cast<Index>(v)];
      // From the nearest prefix down: the ranks needed only rise. Beyond `end` no count is left.
      const auto end_of = [&] {
        const double least = work - nanoseconds * (best - 1 - v);
        return std::ranges::lower_bound(bucket.work, least, {},
                                        [](std::int64_t of) { return static_cast<double>(of); }) -
               bucket.work.begin();
      };
      auto entry = static_cast<std::ptrdiff_t>(bucket.at.size());
      std::ptrdiff_t end = end_of();
      pairs += std::max<std::ptrdiff_t>(entry - end, 0);
      while (--entry >= end) {
        if (!bucket.inside(static_cast<Index>(entry), outer)) continue;
        const Index i = bucket.at[static_cast<Index>(entry)];
        const int ranks = ranks_between(q, i, j, best - v);
        if (v + ranks >= best) continue;
        best = v + ranks;
        q.ranks[j] = ranks;
        q.from[j] = static_cast<std::uint32_t>(i);
        const std::ptrdiff_t sooner = std::max(end_of(), end);
        pairs -= std::min(sooner, entry) - end;
        end = sooner;
      }
    }
    if (best <= limit) {
      buckets[static_cast<Index>(best)].add(q.work[j], static_cast<std::uint32_t>(j), set(j));
    }
    if (pairs < next_stop && pairs <= budget) continue;
    next_stop = pairs + kPairsBetweenStops;
    stopped = j < last && (pairs > budget || (q.stop && q.stop()));
  }
  effort_.pairs += pairs;
  if (stopped) return Outcome::kGaveUp;
  return q.ranks[last] > 0 ? Outcome::kYes : Outcome::kNo;
}

}  // namespace weir::planner
