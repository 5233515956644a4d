// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/observer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "worker/base/text.h"
#include "worker/timeline/codec.h"

namespace weir::coordinator {
namespace {

constexpr std::size_t kMostTraceBytes = protocol::kMaxTraceParts * protocol::kMaxTracePartBytes;
constexpr std::size_t kMostDumpBytes = std::size_t{16} << 20U;
constexpr std::size_t kRecent = 32, kFewest = 8;  // steps for a median
constexpr double kSlow = 2;                       // medians
constexpr double kSlowSeconds = 0.1;              // above the median, at least
constexpr double kStalled = 10;                   // medians
constexpr std::int64_t kStepsOfADump = 2;
// No user's request has such an id.
constexpr char kDumpPrefix[] = "dump/";

double seconds_of(const protocol::StageStatus& status) {
  if (!status.parts) return status.step_seconds;
  const auto& parts = status.parts->seconds;
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

bool ends(const Members& members) {
  return std::ranges::any_of(members.all(), [](const auto& entry) { return entry.second.leaving; });
}

std::string seconds_text(double seconds) {
  return number(seconds, seconds < 10 ? 2 : 0) + " s";
}

}  // namespace

void Observer::follow(const schedule::Plan* plan, int incarnation, const std::set<int>& lost) {
  lost_ = lost;
  const bool same =
      plan != nullptr && plan_ && plan->revision == plan_->revision && incarnation == incarnation_;
  if (same || (plan == nullptr && !plan_)) return;
  broken_ = plan == nullptr ? plan_ : std::nullopt;
  plan_ = plan == nullptr ? std::nullopt : std::optional(*plan);
  incarnation_ = incarnation;
  recent_.clear();
  longest_ = 0;
  moved_.reset();
  complete_.reset();
  stalled_ = false;
  stall_.reset();
  slow_.reset();
}

Observer::Effects Observer::want_trace(const protocol::TraceWanted& wanted, const Members& members,
                                       SteadyTime now) {
  if (wanted.id == traced_ || !plan_) return {};
  const auto complete = complete_on_all(*plan_, members, lost_);
  // The newest complete step is left out, because acknowledgements of its last tensors come in the
  // next one.
  if (!complete || *complete < 2) return {};
  traced_ = wanted.id;
  const std::int64_t last = *complete - 2;
  return {.send = records_.ask({.id = wanted.id,
                                .from = std::max<std::int64_t>(0, last - wanted.steps + 1),
                                .to = last,
                                .most_bytes = kMostTraceBytes,
                                .replica = wanted.replica},
                               *plan_, members, now)};
}

std::optional<double> Observer::median() const {
  if (recent_.size() < kFewest) return std::nullopt;
  std::vector<double> sorted(recent_.begin(), recent_.end());
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2));
  return sorted[sorted.size() / 2];
}

void Observer::look_for_slow_step(const protocol::StageStatus& status, SteadyTime now) {
  int first = 0;  // replica that trains
  while (lost_.contains(first)) ++first;
  if (status.stage != 0 || status.replica != first) return;
  const double seconds = seconds_of(status);
  const auto usual = median();
  const bool rests = last_slow_ && now - *last_slow_ < kPauseOfSlowSteps;
  if (usual && !slow_ && !rests && seconds > kSlow * *usual && seconds > *usual + kSlowSeconds) {
    slow_ = Slow{.step = status.step, .seconds = seconds, .median = *usual};
  }
  recent_.push_back(seconds);
  if (recent_.size() > kRecent) recent_.pop_front();
}

Observer::Effects Observer::on_status(const protocol::StageStatus& status, const Members& members,
                                      SteadyTime now) {
  Effects effects;
  moved_ = stands_ = now;
  stalled_ = false;
  stall_.reset();
  if (!plan_) return effects;
  longest_ = std::max(longest_, seconds_of(status));
  complete_ = complete_on_all(*plan_, members, lost_);
  look_for_slow_step(status, now);
  if (!slow_ || !complete_ || *complete_ < slow_->step + 2) return effects;
  last_slow_ = now;
  const std::int64_t number = slow_->step;
  ask({.text = "step " + std::to_string(number) + " took " + seconds_text(slow_->seconds) +
               " (median " + seconds_text(slow_->median) + ")",
       .step = number,
       .slow = static_cast<std::uint32_t>(number - 1)},
      std::max<std::int64_t>(0, number - 2), number, members, now, effects);
  slow_.reset();
  return effects;
}

Observer::Effects Observer::on_lost(const std::string& who, const Members& members,
                                    SteadyTime now) {
  Effects effects;
  const bool rests = last_loss_ && now - *last_loss_ < kPauseOfLosses;
  if (!plan_ || !complete_ || *complete_ >= total_steps_ || rests) return effects;
  last_loss_ = now;
  ask({.text = who + " is lost after step " + std::to_string(*complete_), .step = *complete_},
      std::max<std::int64_t>(0, *complete_ - 1), *complete_ + 1, members, now, effects);
  return effects;
}

Observer::Effects Observer::tick(const Members& members, SteadyTime now) {
  Effects effects;
  if (plan_ && moved_ && complete_ && !stalled_) {
    const std::chrono::duration<double> since = now - *moved_;
    if (since >= kLeastStall && since.count() >= kStalled * median().value_or(longest_) &&
        *complete_ < total_steps_ && !ends(members)) {
      stalled_ = true;
      ask({.text = "no step for " + seconds_text(since.count()),
           .step = *complete_,
           .stalled = since.count()},
          std::max<std::int64_t>(0, *complete_ - 1), *complete_ + 1, members, now, effects);
    }
  }
  for (auto& gathered : records_.take(members, now)) {
    const auto why = asked_.extract(gathered.id);
    if (why.empty()) {
      effects.traces.push_back({.id = gathered.id,
                                .octets = std::move(gathered.octets),
                                .ranks = gathered.ranks,
                                .answers = gathered.answers});
      continue;
    }
    const bool soon = last_for_users_ && now - *last_for_users_ < kPauseForUsers;
    const bool slow = why.mapped().slow.has_value();
    const bool worse = why.mapped().stalled || (!slow && !users_have_loss_);
    const bool for_users = !gathered.octets.empty() && (!soon || worse);
    if (for_users) {
      last_for_users_ = now;
      users_have_loss_ = !slow;
    }
    effects.dumps.push_back({.step = why.mapped().step,
                             .text = told(why.mapped(), gathered.octets),
                             .octets = std::move(gathered.octets),
                             .for_users = for_users});
  }
  return effects;
}

void Observer::ask(const Asked& why, std::int64_t from, std::int64_t to, const Members& members,
                   SteadyTime now, Effects& effects) {
  const std::string id = kDumpPrefix + std::to_string(++dumps_);
  asked_[id] = why;
  effects.send =
      records_.ask({.id = id, .from = from, .to = to, .open = true, .most_bytes = kMostDumpBytes},
                   *plan_, members, now);
}

std::string Observer::told(const Asked& why, const std::string& octets) {
  std::vector<timeline::RankRecord> records;
  if (!octets.empty()) {
    if (auto read = timeline::decode(octets)) records = *std::move(read);
  }
  std::string text = why.text;
  if (why.slow) {
    const std::string grown = timeline::what_grew(records, *why.slow);
    return grown.empty() ? text : text + ": " + grown;
  }
  if (!why.stalled || !plan_) return text;
  std::vector<timeline::Doing> ranks;
  for (const auto& rank : plan_->ranks) {
    if (lost_.contains(rank.replica)) continue;
    ranks.push_back({.replica = rank.replica, .stage = rank.stage, .node = rank.node});
  }
  ranks = timeline::doing_of(std::move(ranks), records);
  const timeline::Waits waits = timeline::chain_of_waits(ranks);
  const bool as_it_should = !waits.ranks.empty() && !waits.ranks.front().silent &&
                            waits.ranks.front().part == protocol::StepPart::kValidation;
  if (stalled_ && !as_it_should) stall_ = timeline::stall_of(waits, *why.stalled);
  return text + ": " + timeline::text_of(waits, plan_->stage_count());
}

std::optional<protocol::Stall> Observer::stall(const Members& members, SteadyTime now) const {
  return plan_ ? stall_ : missing(members, now);
}

std::optional<protocol::Stall> Observer::missing(const Members& members, SteadyTime now) const {
  if (!broken_ || !stands_ || now - *stands_ < kLeastStall || ends(members)) return std::nullopt;
  timeline::Waits waits;
  for (const auto& rank : broken_->ranks) {
    const MemberState* const member = members.by_pod(rank.pod);
    if (member != nullptr && member->connected()) {
      ++waits.waiting;
    } else {
      waits.ranks.push_back({.replica = rank.replica, .stage = rank.stage, .node = rank.node});
    }
  }
  if (waits.ranks.empty() || waits.waiting == 0) return std::nullopt;
  return timeline::stall_of(waits, std::chrono::duration<double>(now - *stands_).count());
}

}  // namespace weir::coordinator
