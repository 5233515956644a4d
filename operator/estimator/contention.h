// SPDX-License-Identifier: Apache-2.0
// Contended links: slower than usual, for certain, and at a cost (README "Contention"). Rates come
// from the segments that workers report; the caller simulates the cost. Pure: the time is an
// argument.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "operator/estimator/estimates.h"

namespace weir::estimator {

using NodePair = std::pair<std::string, std::string>;  // from, to

// A link in a segment.
struct SegmentRate {
  std::int64_t timed = 0, transfers = 0;
  double rate = 0, error = 0;  // bytes per second of the timed ones; relative standard error
};
// The links of the plan in force, as the newest report tells them.
struct SegmentRates {
  std::uint32_t revision = 0;
  std::int64_t first_step = 0;
  int steps = 0;
  std::map<NodePair, SegmentRate> links;
};

struct UsualRate {
  double rate = 0, error = 0;
  // Most of its messages arrived in one piece, so the link is faster than `rate`: the rate of those
  // that could be timed, or a stand-in.
  bool untimed = false;
};

// The slow links would save this part of a simulated step at their usual rates.
struct Saving {
  double part = 0, error = 0;  // of a step; standard error
};

struct ContentionState {
  // A stretch of steps with one rate.
  struct Stretch {
    SystemTime begin{};
    std::uint32_t revision = 0;
    std::int64_t first_step = 0, last_step = 0;
    double rate = 0, error = 0;  // of the timed messages; 0 = unknown
    bool untimed = false;        // most messages arrived in one piece, so the link was fast
    double steps = 0;
  };
  std::map<NodePair, std::vector<Stretch>> seen;  // of 24 h, oldest first
  struct Watch {
    // The first of the evaluations in a row in which the link was slow, was slow at a cost, was
    // quick again or free.
    std::optional<SystemTime> slow, costly, quick, cheap;
    bool is_slow = false;
    std::optional<SystemTime> contended;  // since when
  };
  std::map<NodePair, Watch> watched;
  SystemTime evaluated{};  // time of the newest report that was evaluated
};

// Keeps the rates of a segment; a later report of the same segment replaces them.
void remember(ContentionState& state, const SegmentRates& segment, SystemTime now);

// The usual rate: the 90 % quantile over the steps of 24 h. Nothing = the link has not been
// measured. fast: stands in for the rate of a link whose messages all arrive in one piece.
std::optional<UsualRate> usual_rate(const ContentionState& state, const NodePair& link,
                                    double fast);
using UsualRates = std::map<NodePair, UsualRate>;

// The links that are certainly slower than usual, and those that were so at the last evaluation.
// The cost is that of all of them together.
std::set<NodePair> slow_links(const ContentionState& state, const SegmentRates& segment,
                              const UsualRates& usual);

// Whether a link looks slow, but too few of its messages were timed to be certain. The segment is
// young then.
bool may_be_slow(const SegmentRates& segment, const UsualRates& usual);

// Evaluates once with the report that came at `now`. A link is contended if it was slow at a cost
// of 1 % of the step and two standard errors, in two evaluations at least 10 s apart. That ends
// when it is back at 0.9 of the usual rate, or fewer than half of its messages were timed, or the
// cost is below 0.5 %, in two evaluations, too.
void evaluate(ContentionState& state, const SegmentRates& segment, const UsualRates& usual,
              const Saving& saving, SystemTime now);

enum class NetworkState : unsigned char {
  kHealthy,
  kHidden,  // a link is slow, but the plan hides it
  kContended
};
NetworkState network_state(const ContentionState& state);

}  // namespace weir::estimator
