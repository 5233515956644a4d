// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/connection_count.h"

#include <algorithm>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/median.h"
#include "worker/base/units.h"
#include "worker/transport/tcp/frame.h"

namespace weir::transport::tcp {
namespace {

constexpr std::size_t kLeastParts = 4;  // of a message: shorter ones cannot use several
constexpr int kLook = 8;                // timed messages between two looks at the load
constexpr double kLeastShare = 0.2;     // of the time the link is busy: else nothing is to be won
constexpr std::chrono::minutes kAgain{10};            // between trials,
constexpr std::chrono::minutes kAgainAfterChange{1};  // or this, if the rate has moved by:
constexpr double kMoved = 0.25;
constexpr int kTrialMessages = 24;
constexpr int kGroup = 3;               // messages with the same number
constexpr std::size_t kLeastRates = 4;  // timed messages on each side
constexpr double kGain = 1.15;          // of twice as many connections
constexpr double kEqual = 0.97;         // of half as many
// A round trip above kWaits times the usual one and kWaitsMore, or kWaitsOfData of that of the
// data, waited in a queue that others fill, too; less is a processor that others use. Measured on a
// port of 80 Mbit/s, usual 0.1 ms: 0.05 to 0.07 ms beside a flow that was capped alone, 1.6 to 4.8
// ms in one queue with four flows of others.
constexpr double kWaits = 1.5, kWaitsMore = 300e-6, kWaitsOfData = 0.1;
// Where others fill the queue from the beginning, the usual one waited, too. So a round trip above
// kLeastQueue that takes kLikeData of that of the data waited where they do. Measured on a port of
// 200 Mbit/s: 0.01 to 0.04 beside a flow that was capped alone, 0.6 to 1.5 in a common queue.
constexpr double kLikeData = 0.5, kLeastQueue = 500e-6;

}  // namespace

ConnectionCount::ConnectionCount(int open, bool automatic)
    : automatic_(automatic),
      most_(automatic ? std::max(1, open - 1) : open),
      in_use_(automatic ? 1 : open) {
  WEIR_CHECK(open >= 1, "a link has a connection");
}

std::optional<int> ConnectionCount::of_next(std::size_t bytes, Time now) {
  if (!since_) since_ = now;
  const bool many = parts_of(bytes) >= kLeastParts;
  if (many && !trial_ && due(now)) {
    begin_trial(in_use_ < most_ ? std::min(2 * in_use_, most_) : in_use_ / 2);
  }
  Started one{.connections = started_.empty() ? in_use_ : started_.back().connections};
  if (many) {
    one.connections = in_use_;
    const bool tried = trial_ && trial_->started < kTrialMessages;
    if (tried) {
      one.trial = trial_->number;
      one.candidate = trial_->started / kGroup % 2 == 1;
      if (one.candidate) one.connections = trial_->candidate;
    }
    if (!started_.empty() && started_.back().connections != one.connections) return std::nullopt;
    if (tried) ++trial_->started;
  }
  started_.push_back(one);
  return one.connections;
}

bool ConnectionCount::due(Time now) const {
  if (!automatic_ || most_ == 1 || share_ < kLeastShare) return false;
  if (!judged_ || now - *judged_ >= kAgain) return true;
  const double moved = judged_rate_ > 0 ? rate_ / judged_rate_ : 1;
  return now - *judged_ >= kAgainAfterChange && (moved > 1 + kMoved || moved < 1 - kMoved);
}

void ConnectionCount::begin_trial(int candidate) {
  trial_ = Trial{.number = ++trials_, .candidate = candidate};
}

void ConnectionCount::arrived(const Arrival& arrival, Time now) {
  WEIR_CHECK(!started_.empty(), "an arrival belongs to a message");
  const Started one = started_.front();
  started_.pop_front();
  const double busy = to_seconds(arrival.busy);
  if (busy > 0) {
    busy_ += busy;
    bytes_ += static_cast<double>(arrival.counted_bytes);
    ++timed_;
  }
  if (timed_ >= kLook) {
    const double elapsed = to_seconds(now - *since_);
    share_ = elapsed > 0 ? busy_ / elapsed : 0;
    rate_ = bytes_ / busy_;
    busy_ = bytes_ = 0;
    timed_ = 0;
    since_ = now;
  }
  if (!trial_ || one.trial != trial_->number) return;
  if (busy > 0) {
    trial_->rates[one.candidate ? 1 : 0].push_back(static_cast<double>(arrival.counted_bytes) /
                                                   busy);
  }
  if (++trial_->arrived == kTrialMessages) judge(now);
}

void ConnectionCount::idle_round_trip(std::chrono::nanoseconds time) {
  idle_[idles_++ % idle_.size()] = to_seconds(time);
}

void ConnectionCount::round_trip_beside(std::chrono::nanoseconds time,
                                        std::chrono::nanoseconds data) {
  if (!trial_ || started_.empty() || started_.front().connections != in_use_) return;
  trial_->waits.push_back(to_seconds(time));
  trial_->data_waits.push_back(to_seconds(data));
}

// Without a round trip to compare with, the port counts as shared.
bool ConnectionCount::shared() const {
  if (trial_->waits.empty() || idles_ == 0) return true;
  const auto end = idle_.begin() + static_cast<std::ptrdiff_t>(std::min(idles_, idle_.size()));
  const double usual = *std::min_element(idle_.begin(), end);
  const double wait = median(trial_->waits), data = median(trial_->data_waits);
  return wait > kWaits * usual + std::max(kWaitsMore, kWaitsOfData * data) ||
         (wait > kLeastQueue && wait > kLikeData * data);
}

void ConnectionCount::judge(Time now) {
  const Trial& trial = *trial_;
  const bool up = trial.candidate > in_use_;
  const bool known = std::ranges::all_of(
      trial.rates, [](const auto& rates) { return rates.size() >= kLeastRates; });
  const double before = known ? median(trial.rates[0]) : 0;
  const double after = known ? median(trial.rates[1]) : 0;
  const bool better = known && after >= (up ? kGain : kEqual) * before;
  const bool taken = better && !(up && shared());
  std::int64_t& counter =
      taken ? (up ? probes_.raised : probes_.lowered) : (better ? probes_.shared : probes_.kept);
  ++counter;
  if (taken) {
    // Several in a row are one change.
    if (!change_) change_ = Change{.before = in_use_, .rate_before = before};
    change_->now = trial.candidate;
    change_->rate_now = after;
    in_use_ = trial.candidate;
  }
  judged_ = now;
  judged_rate_ = taken ? after : before;
  const bool further = taken && up && in_use_ < most_;
  const bool fewer = !taken && up && !better && in_use_ > 1;
  trial_.reset();
  if (further) begin_trial(std::min(2 * in_use_, most_));
  if (fewer) begin_trial(in_use_ / 2);
}

std::optional<ConnectionCount::Change> ConnectionCount::take_change() {
  if (trial_) return std::nullopt;
  return std::exchange(change_, std::nullopt);
}

}  // namespace weir::transport::tcp
