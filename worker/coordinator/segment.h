// SPDX-License-Identifier: Apache-2.0
// Segments: the newest steps of one plan since network or devices have last changed, at most 64
// (worker/coordinator/README.md "Segments"). Rates and step times of a segment cover the same
// steps, so two plans can be compared by their segments. No clock, no socket. Used only on the
// coordinator's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "worker/base/cpu_shortage.h"
#include "worker/coordinator/segment_saves.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::coordinator {

inline constexpr std::size_t kSegmentSteps = 64;
// A report has the least rounding of so many newest steps: one step alone is no trend.
inline constexpr std::ptrdiff_t kRoundingSteps = 8;

// Thresholds of a change in a series.
struct Shift {
  double relative = 0;  // between the medians before and after
  double absolute = 0;  // likewise
};
// The first value behind the clearest change of a series, 0 = none. A change leaves three known
// values or more on each side; the medians differ by both thresholds; the rank sum lies 2.2
// standard deviations off; and the values lie closer to the two medians than to a common one, by 30
// % in sum. NaN = unknown, which does not count.
std::size_t change_in(std::span<const double> values, const Shift& least);

// One step as all ranks have told it.
struct StepSample {
  std::int64_t step = 0;  // completed steps after it
  double seconds = 0;     // of the slowest replica
  struct Link {
    std::int64_t transfers = 0, timed = 0;
    double seconds = 0;  // of the timed ones
    double rtt_seconds = 0;
    double rounding_error = 0, zeroed = 0;
    int connections = 1;
  };
  std::vector<Link> links;                     // by replica, boundary and direction, forward first
  std::vector<std::pair<double, double>> ops;  // mean forward and backward by replica and stage
  std::vector<std::optional<protocol::PartSeconds>> parts;  // likewise; none of many ranks
  std::vector<CpuShortage> shortage;                        // likewise, as ops
};

// The steps of one plan. Steps before the last change are dropped.
class SegmentWindow {
 public:
  SegmentWindow(std::uint32_t revision, int replicas, int stages)
      : revision_(revision), replicas_(replicas), stages_(stages) {}

  void add(StepSample step);
  std::optional<protocol::Segment> segment() const;  // nothing before two steps
  std::optional<double> usual_step() const;          // the median, in seconds

 private:
  std::size_t change() const;  // the first step behind the newest change; 0 = none
  // Mean parts of the ranks of the replica that waits least for the others, into its ranks.
  void add_parts(std::size_t first, std::vector<protocol::SegmentRank>& ranks) const;
  // Whether the first step does not count: the change may have come in its middle.
  bool first_is_mixed() const;

  std::uint32_t revision_;
  int replicas_, stages_;
  bool cut_ = false;  // steps before a change were dropped
  std::deque<StepSample> steps_;
};

// The segments of the plan in force and of the plan before it, from STATUS of all ranks.
class Segments {
 public:
  // The plan that the ranks train with. Replicas that average have no common step, so nothing is
  // kept of such a plan, nor without one.
  void follow(const schedule::Plan* plan, int incarnation);
  void on_status(const protocol::StageStatus& status);

  std::optional<protocol::Segment> current() const;
  std::optional<protocol::Segment> previous() const;

 private:
  struct Gathered {
    StepSample sample;
    int ranks = 0;             // that have told it
    StepWithSaves saves = {};  // interrupted: on one of them
  };
  struct Kept {
    std::uint32_t revision = 0;
    int incarnation = 0, stages = 0;
    std::vector<int> micro_batches;
    SegmentWindow window;
    SegmentSaves saves = {};
    std::map<std::int64_t, Gathered> open;  // steps that not all ranks have told
  };
  static std::optional<protocol::Segment> segment_of(const std::optional<Kept>& kept);
  static Kept kept_of(const schedule::Plan& plan, int incarnation);
  static void take(Kept& kept, const protocol::StageStatus& status);

  std::optional<Kept> current_, previous_;
};

}  // namespace weir::coordinator
