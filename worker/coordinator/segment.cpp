// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/segment.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "worker/base/median.h"

namespace weir::coordinator {
namespace {

constexpr std::size_t kLeastSide = 3;  // values on each side of a change
constexpr double kLeastRankSum = 2.2;  // standard deviations
constexpr double kCloser = 0.3;        // part of the deviation that a change explains
constexpr double kStepShift = 0.03;
constexpr double kLinkShift = 0.25;
// A link whose messages of a step all together change by less does not change the step.
constexpr double kRelevant = 0.01;
constexpr double kMixed = 0.05;        // a first step that lies further off holds the change
constexpr std::size_t kMostOpen = 16;  // steps that not all ranks have told yet
constexpr std::size_t kMostRanks = protocol::kMostSegmentRanks;  // and links
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Ranks from 1 on; equal values share their mean rank.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    const double shared = static_cast<double>(i + 1 + end) / 2;
    for (; i < end; ++i) ranks[order[i]] = shared;
  }
  return ranks;
}

double deviation(std::span<const double> values, double from) {
  double sum = 0;
  for (const double value : values) sum += std::abs(value - from);
  return sum;
}

double median_of(std::span<const double> values) {
  return median({values.begin(), values.end()});
}

bool apart(double a, double b, const Shift& least) {
  const auto [low, high] = std::minmax(a, b);
  return high - low >= least.absolute && high >= (1 + least.relative) * low;
}

double to_microsecond(double seconds) {
  return std::round(seconds * 1e6) / 1e6;
}

struct Spread {
  double mean = 0, error = 0;  // standard error of the mean
};
Spread spread_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  if (values.empty()) return {};
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  if (values.size() < 2) return {mean, mean};
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / (count - 1) / count)};
}

double seconds_of(const StepSample::Link& link) {
  return link.timed > 0 ? link.seconds / static_cast<double>(link.timed) : kUnknown;
}

// Takes what a rank copied in a step or behind it. Validations and switches fall into parts, too.
void add_copies(StepWithSaves& saves, std::size_t rank, const protocol::StageStatus& status) {
  using protocol::StepPart;
  if (!status.parts) {
    saves.otherwise = true;  // unknown
    return;
  }
  const protocol::PartSeconds& parts = *status.parts;
  saves.copies[rank] = parts.of(StepPart::kSave);
  saves.otherwise |= parts.of(StepPart::kValidation) > 0 || parts.of(StepPart::kSwitch) > 0;
  if (status.stage > 0) return;
  // Parts last until the next step begins, the seconds of a step until its update.
  const double all = std::accumulate(parts.seconds.begin(), parts.seconds.end(), 0.0);
  const double behind = std::clamp(all - status.step_seconds, 0.0, saves.copies[rank]);
  saves.copy_behind = std::max(saves.copy_behind, behind);
}

// Slow links and slow ranks matter most if not all is sent.
template <class Part, class Measure>
void keep_slowest(std::vector<Part>& parts, Measure measure) {
  if (parts.size() <= kMostRanks) return;
  std::ranges::stable_sort(parts, std::greater(), measure);
  parts.resize(kMostRanks);
}

}  // namespace

std::size_t change_in(std::span<const double> all, const Shift& least) {
  std::vector<double> values;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(all[i])) continue;
    values.push_back(all[i]);
    places.push_back(i);
  }
  const std::size_t count = values.size();
  if (count < 2 * kLeastSide) return 0;
  const std::vector<double> ranks = ranks_of(values);
  const std::span<const double> known(values);
  const double whole = deviation(known, median_of(known));
  double best = (1 - kCloser) * whole, sum = 0;
  std::size_t found = 0;
  for (std::size_t i = 1; i + kLeastSide <= count; ++i) {
    sum += ranks[i - 1];
    if (i < kLeastSide) continue;
    const auto left = static_cast<double>(i), right = static_cast<double>(count - i);
    const double expected = left * (left + right + 1) / 2;
    const double variance = left * right * (left + right + 1) / 12;
    if (std::abs(sum - expected) < kLeastRankSum * std::sqrt(variance)) continue;
    const double before = median_of(known.first(i)), after = median_of(known.subspan(i));
    if (!apart(before, after, least)) continue;
    const double rest = deviation(known.first(i), before) + deviation(known.subspan(i), after);
    if (rest > best) continue;
    best = rest;
    found = i;
  }
  return found == 0 ? 0 : places[found];
}

void SegmentWindow::add(StepSample step) {
  steps_.push_back(std::move(step));
  if (steps_.size() > kSegmentSteps) steps_.pop_front();
  for (std::size_t first = change(); first > 0; first = change()) {
    steps_.erase(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(first));
    cut_ = true;
  }
}

std::size_t SegmentWindow::change() const {
  std::vector<double> series;
  for (const StepSample& step : steps_) series.push_back(step.seconds);
  if (series.size() < 2 * kLeastSide) return 0;
  const double usual = median_of(series);
  std::size_t newest = change_in(series, {.relative = kStepShift});
  for (std::size_t link = 0; link < steps_.back().links.size(); ++link) {
    std::int64_t transfers = 1;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      series[i] = seconds_of(steps_[i].links[link]);
      transfers = std::max(transfers, steps_[i].links[link].transfers);
    }
    const Shift least{.relative = kLinkShift,
                      .absolute = kRelevant * usual / static_cast<double>(transfers)};
    newest = std::max(newest, change_in(series, least));
  }
  return newest;
}

std::optional<double> SegmentWindow::usual_step() const {
  if (steps_.empty()) return std::nullopt;
  std::vector<double> seconds;
  for (const StepSample& step : steps_) seconds.push_back(step.seconds);
  return median_of(seconds);
}

bool SegmentWindow::first_is_mixed() const {
  if (!cut_ || steps_.size() < 2 * kLeastSide - 1) return false;
  std::vector<double> seconds;
  for (const StepSample& step : steps_) seconds.push_back(step.seconds);
  const double usual = median_of(seconds);
  return std::abs(seconds.front() - usual) > kMixed * usual;
}

std::optional<protocol::Segment> SegmentWindow::segment() const {
  const std::size_t first = first_is_mixed() ? 1 : 0;
  if (steps_.size() < first + 2) return std::nullopt;
  const auto begin = steps_.begin() + static_cast<std::ptrdiff_t>(first);
  protocol::Segment segment{.revision = revision_,
                            .first_step = begin->step,
                            .steps = static_cast<int>(steps_.size() - first)};
  std::vector<double> seconds;
  for (auto step = begin; step != steps_.end(); ++step) seconds.push_back(step->seconds);
  const Spread times = spread_of(seconds);
  segment.step_seconds = times.mean;
  segment.step_error = times.error;
  const auto newest = std::min<std::ptrdiff_t>(kRoundingSteps, segment.steps);
  for (std::size_t i = 0; i < begin->links.size(); ++i) {
    const auto at = static_cast<int>(i);
    const int boundaries = stages_ - 1;
    protocol::SegmentLink link{
        .replica = at / (2 * boundaries), .boundary = at / 2 % boundaries, .forward = at % 2 == 0};
    std::vector<double> means;
    double busy = 0;
    for (auto step = begin; step != steps_.end(); ++step) {
      const StepSample::Link& sample = step->links[i];
      link.transfers += sample.transfers;
      link.timed += sample.timed;
      busy += sample.seconds;
      if (sample.timed > 0) means.push_back(seconds_of(sample));
      // A mean of the whole segment would hide for half of it that a tensor has got outliers.
      if (steps_.end() - step == newest) {
        link.rounding_error = sample.rounding_error;
        link.zeroed = sample.zeroed;
      }
      link.rounding_error = std::min(link.rounding_error, sample.rounding_error);
      link.zeroed = std::min(link.zeroed, sample.zeroed);
      link.connections = sample.connections;
      if (sample.rtt_seconds > 0) link.latency_seconds = sample.rtt_seconds / 2;
    }
    if (link.transfers == 0) continue;
    if (link.timed > 0) link.seconds = busy / static_cast<double>(link.timed);
    link.error = spread_of(means).error;
    segment.links.push_back(link);
  }
  for (std::size_t i = 0; i < begin->ops.size(); ++i) {
    const auto at = static_cast<int>(i);
    protocol::SegmentRank rank{.replica = at / stages_, .stage = at % stages_};
    for (auto step = begin; step != steps_.end(); ++step) {
      rank.forward_seconds += step->ops[i].first / segment.steps;
      rank.backward_seconds += step->ops[i].second / segment.steps;
      rank.queued_seconds += step->shortage[i].queued_seconds / segment.steps;
      rank.throttled_seconds += step->shortage[i].throttled_seconds / segment.steps;
    }
    for (double* shortage : {&rank.queued_seconds, &rank.throttled_seconds}) {
      *shortage = to_microsecond(*shortage);
    }
    segment.ranks.push_back(rank);
  }
  add_parts(first, segment.ranks);
  keep_slowest(segment.links, &protocol::SegmentLink::seconds);
  keep_slowest(segment.ranks, [](const protocol::SegmentRank& rank) {
    return rank.forward_seconds + rank.backward_seconds;
  });
  return segment;
}

void SegmentWindow::add_parts(std::size_t first, std::vector<protocol::SegmentRank>& ranks) const {
  if (ranks.size() > kMostRanks || stages_ > protocol::kMostSegmentStages) return;
  std::vector<protocol::PartSeconds> means(ranks.size());
  const auto steps = static_cast<double>(steps_.size() - first);
  for (std::size_t at = first; at < steps_.size(); ++at) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto& told = steps_[at].parts[i];
      if (!told) return;
      for (std::size_t part = 0; part < protocol::kStepParts; ++part) {
        means[i].seconds[part] += told->seconds[part] / steps;
      }
    }
  }
  std::vector<double> waits(static_cast<std::size_t>(replicas_));  // of all ranks of a replica
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    waits[static_cast<std::size_t>(ranks[i].replica)] += means[i].of(protocol::StepPart::kSum);
  }
  const auto slowest = static_cast<int>(std::ranges::min_element(waits) - waits.begin());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].replica != slowest) continue;
    for (double& seconds : means[i].seconds) seconds = to_microsecond(seconds);
    ranks[i].parts = means[i];
  }
}

Segments::Kept Segments::kept_of(const schedule::Plan& plan, int incarnation) {
  return {.revision = plan.revision,
          .incarnation = incarnation,
          .stages = plan.stage_count(),
          .micro_batches = plan.micro_batches,
          .window = {plan.revision, plan.replica_count(), plan.stage_count()},
          .saves = {},
          .open = {}};
}

void Segments::follow(const schedule::Plan* plan, int incarnation) {
  if (plan == nullptr) return;  // the ranks connect again; what was measured stays
  if (current_ && current_->revision == plan->revision && current_->incarnation == incarnation) {
    return;
  }
  const bool new_plan = !current_ || current_->revision != plan->revision;
  if (new_plan) previous_ = std::exchange(current_, std::nullopt);
  current_ = kept_of(*plan, incarnation);
  if (schedule::averages(*plan)) current_->micro_batches.clear();
}

void Segments::on_status(const protocol::StageStatus& status) {
  for (std::optional<Kept>* kept : {&current_, &previous_}) {
    if (*kept && (*kept)->revision == status.epoch) return take(**kept, status);
  }
}

void Segments::take(Kept& kept, const protocol::StageStatus& status) {
  const auto replicas = static_cast<int>(kept.micro_batches.size());
  const bool known = 0 <= status.replica && status.replica < replicas && 0 <= status.stage &&
                     status.stage < kept.stages;
  if (!known) return;
  Gathered& gathered = kept.open[status.step];
  StepSample& sample = gathered.sample;
  const int boundaries = kept.stages - 1;
  if (gathered.ranks == 0) {
    sample.step = status.step;
    sample.links.resize(static_cast<std::size_t>(2 * replicas * boundaries));
    sample.ops.resize(static_cast<std::size_t>(replicas * kept.stages));
    sample.shortage.resize(sample.ops.size());
    if (sample.ops.size() <= kMostRanks) sample.parts.resize(sample.ops.size());
    gathered.saves.step = status.step;
    gathered.saves.copies.resize(sample.parts.size());
  }
  ++gathered.ranks;
  // A worker of an older release does not tell these times.
  gathered.saves.interrupted |= status.interrupted || status.forward_seconds <= 0;
  if (status.stage == 0) sample.seconds = std::max(sample.seconds, status.step_seconds);
  const double count = kept.micro_batches[static_cast<std::size_t>(status.replica)];
  const auto rank = static_cast<std::size_t>(status.replica * kept.stages + status.stage);
  sample.ops[rank] = {status.forward_seconds / count, status.backward_seconds / count};
  sample.shortage[rank] = {status.queued_seconds, status.throttled_seconds};
  if (rank < sample.parts.size()) {
    sample.parts[rank] = status.parts;
    add_copies(gathered.saves, rank, status);
  }
  for (const protocol::Sent& sent : status.sent) {
    const int boundary = sent.forward ? status.stage : status.stage - 1;
    if (boundary < 0 || boundary >= boundaries) continue;
    const int place = 2 * (status.replica * boundaries + boundary) + (sent.forward ? 0 : 1);
    sample.links[static_cast<std::size_t>(place)] = {.transfers = sent.transfers,
                                                     .timed = sent.timed,
                                                     .seconds = sent.seconds,
                                                     .rtt_seconds = sent.rtt_seconds,
                                                     .rounding_error = sent.rounding_error,
                                                     .zeroed = sent.zeroed,
                                                     .connections = sent.connections};
  }
  if (gathered.ranks == replicas * kept.stages) {
    gathered.saves.seconds = sample.seconds;
    const bool interrupted = gathered.saves.interrupted;
    kept.saves.add(std::move(gathered.saves), kept.window.usual_step());
    if (!interrupted && sample.seconds > 0) kept.window.add(std::move(sample));
    kept.open.erase(status.step);
  }
  while (kept.open.size() > kMostOpen) kept.open.erase(kept.open.begin());
}

std::optional<protocol::Segment> Segments::segment_of(const std::optional<Kept>& kept) {
  std::optional<protocol::Segment> segment = kept ? kept->window.segment() : std::nullopt;
  if (segment) kept->saves.tell(*segment);
  return segment;
}

std::optional<protocol::Segment> Segments::current() const {
  return segment_of(current_);
}

std::optional<protocol::Segment> Segments::previous() const {
  return segment_of(previous_);
}

}  // namespace weir::coordinator
