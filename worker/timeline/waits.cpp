// SPDX-License-Identifier: Apache-2.0
#include "worker/timeline/waits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "worker/base/text.h"

namespace weir::timeline {
namespace {

using protocol::StepPart;
using std::chrono::nanoseconds;

constexpr nanoseconds kWorthTelling = std::chrono::milliseconds(100);

bool is_wait(StepPart part) {
  switch (part) {
    case StepPart::kForwardLate:
    case StepPart::kForwardLink:
    case StepPart::kGradientLate:
    case StepPart::kGradientLink:
    case StepPart::kFullLink:
    case StepPart::kFullPeer:
    case StepPart::kSum:
    case StepPart::kAverage:
    case StepPart::kNote:
    case StepPart::kVerdict:
    case StepPart::kClip:
      return true;
    case StepPart::kForward:
    case StepPart::kBackward:
    case StepPart::kWeights:
    case StepPart::kOptimizer:
    case StepPart::kData:
    case StepPart::kCodec:
    case StepPart::kSave:
    case StepPart::kSwitch:
    case StepPart::kValidation:
    case StepPart::kOther:
      return false;
  }
  return false;
}

constexpr double kMostSeconds = 1e6;

std::string place_of(int replica, int stage, int stages, const std::string& node) {
  return "rank " + std::to_string(replica * stages + stage) + " (replica " +
         std::to_string(replica) + ", stage " + std::to_string(stage) +
         (node.empty() ? "" : ", " + node) + ")";
}

std::string seconds_text(nanoseconds time) {
  const double seconds = std::chrono::duration<double>(time).count();
  return number(seconds, seconds < 10 ? 1 : 0) + " s";
}

std::string does(const Doing& rank) {
  if (rank.silent) return "which does not answer";
  std::string what = protocol::name(rank.part);
  std::ranges::replace(what, '_', ' ');
  what = (is_wait(rank.part) ? "which waits (" + what + ")" : "in " + what);
  if (rank.micro_batch != kNoMicroBatch) {
    what += " of micro-batch " + std::to_string(rank.micro_batch);
  }
  return rank.since == nanoseconds(0) ? what : what + " for " + seconds_text(rank.since);
}

class Chain {
 public:
  explicit Chain(std::span<const Doing> ranks) : ranks_(ranks) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      at_[{ranks[i].replica, ranks[i].stage}] = i;
    }
  }

  Waits find() const {
    std::map<std::size_t, int> ends;  // by the rank at which chains end: how many ranks wait for it
    std::vector<std::size_t> circle;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      std::vector<std::size_t> path{i};
      while (const auto next = awaited(path.back())) {
        const auto seen = std::ranges::find(path, *next);
        if (seen != path.end()) {
          if (circle.empty()) circle.assign(seen, path.end());
          path.clear();
          break;
        }
        path.push_back(*next);
      }
      if (path.size() > 1) ++ends[path.back()];
    }
    Waits waits;
    if (!ends.empty()) {
      const auto root = std::ranges::max_element(ends, {}, [this](const auto& end) {
        return std::pair(ranks_[end.first].silent, end.second);
      });
      waits = {.waiting = root->second, .ranks = {ranks_[root->first]}};
    } else if (!circle.empty()) {
      for (const std::size_t i : circle) waits.ranks.push_back(ranks_[i]);
    } else if (!ranks_.empty()) {
      waits.ranks = {*std::ranges::max_element(
          ranks_, {}, [](const Doing& rank) { return std::pair(rank.silent, rank.since); })};
    }
    return waits;
  }

 private:
  bool waits(std::size_t i) const { return !ranks_[i].silent && is_wait(ranks_[i].part); }

  std::optional<std::size_t> rank_at(int replica, int stage) const {
    const auto found = at_.find({replica, stage});
    return found == at_.end() ? std::nullopt : std::optional(found->second);
  }

  // Sums and averages begin when all replicas have come.
  std::optional<std::size_t> other_replica(std::size_t i) const {
    std::optional<std::size_t> last;
    for (std::size_t other = 0; other < ranks_.size(); ++other) {
      const Doing& rank = ranks_[other];
      if (other == i || rank.stage != ranks_[i].stage) continue;
      if (!rank.silent && rank.part == ranks_[i].part) continue;
      if (!last || rank.silent) last = other;
    }
    return last;
  }

  // A full window is that of the next or of the previous stage; the one that has stood still
  // longer has filled it.
  std::optional<std::size_t> one_beside(std::size_t i) const {
    const Doing& rank = ranks_[i];
    const auto before = rank_at(rank.replica, rank.stage - 1);
    const auto behind = rank_at(rank.replica, rank.stage + 1);
    if (!before || !behind) return before ? before : behind;
    const auto weight = [this](std::size_t other) {
      return std::pair(ranks_[other].silent, ranks_[other].since);
    };
    return weight(*before) > weight(*behind) ? before : behind;
  }

  std::optional<std::size_t> awaited(std::size_t i) const {
    if (!waits(i)) return std::nullopt;
    const Doing& rank = ranks_[i];
    switch (rank.part) {
      case StepPart::kForwardLate:
      case StepPart::kForwardLink:
      case StepPart::kVerdict:
        return rank_at(rank.replica, rank.stage - 1);
      case StepPart::kGradientLate:
      case StepPart::kGradientLink:
      case StepPart::kNote:
        return rank_at(rank.replica, rank.stage + 1);
      case StepPart::kFullLink:
      case StepPart::kFullPeer:
        return one_beside(i);
      case StepPart::kSum:
      case StepPart::kAverage:
        return other_replica(i);
      default:
        return std::nullopt;
    }
  }

  std::span<const Doing> ranks_;
  std::map<std::pair<int, int>, std::size_t> at_;
};

}  // namespace

std::vector<Doing> doing_of(std::vector<Doing> ranks, std::span<const RankRecord> records) {
  for (Doing& rank : ranks) {
    const auto found = std::ranges::find_if(records, [&](const RankRecord& record) {
      return record.replica == rank.replica && record.stage == rank.stage;
    });
    if (found == records.end() || found->events.empty()) continue;
    const Event& open = found->events.back();
    if (open.kind != EventKind::kPart || open.detail >= protocol::kStepParts) continue;
    rank.silent = false;
    rank.part = static_cast<StepPart>(open.detail);
    rank.micro_batch = open.micro_batch;
    rank.since = nanoseconds(open.end - open.begin);
  }
  return ranks;
}

Waits chain_of_waits(std::span<const Doing> ranks) {
  return Chain(ranks).find();
}

std::string text_of(const Waits& waits, int stages) {
  if (waits.ranks.empty()) return "there are no ranks";
  std::string told;
  for (const Doing& rank : waits.ranks) {
    const char* between = waits.waiting > 0 ? ", and " : ", for ";
    told += (told.empty() ? "" : between) + place_of(rank.replica, rank.stage, stages, rank.node) +
            ", " + does(rank);
  }
  if (waits.waiting > 0) {
    return std::to_string(waits.waiting) +
           (waits.waiting == 1 ? " rank waits for " : " ranks wait for ") + told;
  }
  if (waits.ranks.size() == 1) return "no rank waits for another one: " + told;
  const Doing& first = waits.ranks.front();
  return "ranks wait for each other: " + told + ", for rank " +
         std::to_string(first.replica * stages + first.stage);
}

protocol::Stall stall_of(const Waits& waits, double seconds) {
  protocol::Stall stall{.seconds = seconds, .waiting = waits.waiting, .ranks = {}};
  for (const Doing& rank : waits.ranks) {
    if (stall.ranks.size() == protocol::kMostStalledRanks) break;
    protocol::StalledRank& told = stall.ranks.emplace_back();
    told.replica = rank.replica;
    told.stage = rank.stage;
    if (rank.silent) continue;
    told.part = protocol::name(rank.part);
    if (rank.micro_batch != kNoMicroBatch) told.micro_batch = rank.micro_batch;
    told.seconds = std::chrono::duration<double>(rank.since).count();
  }
  return stall;
}

Result<Waits> waits_of(const protocol::Stall& stall, const schedule::Plan& plan) {
  if (stall.ranks.empty() || stall.ranks.size() > protocol::kMostStalledRanks ||
      stall.waiting < 0) {
    return invalid("stall: " + std::to_string(stall.ranks.size()) + " ranks, for which " +
                   std::to_string(stall.waiting) + " wait");
  }
  Waits waits{.waiting = std::min(stall.waiting, static_cast<int>(plan.ranks.size())), .ranks = {}};
  for (const protocol::StalledRank& told : stall.ranks) {
    const auto place = std::ranges::find_if(plan.ranks, [&](const schedule::RankPlace& rank) {
      return rank.replica == told.replica && rank.stage == told.stage;
    });
    if (place == plan.ranks.end()) return invalid("stall: a rank is not of the plan");
    Doing& rank = waits.ranks.emplace_back(
        Doing{.replica = told.replica, .stage = told.stage, .node = place->node});
    rank.silent = told.part.empty();
    for (std::size_t i = 0; i < protocol::kStepParts; ++i) {  // a part of a newer worker: other
      if (told.part == protocol::kStepPartNames[i]) rank.part = static_cast<StepPart>(i);
    }
    if (told.micro_batch >= 0 && told.micro_batch < kNoMicroBatch) {
      rank.micro_batch = static_cast<std::uint16_t>(told.micro_batch);
    }
    if (std::isfinite(told.seconds) && told.seconds > 0 && told.seconds < kMostSeconds) {
      rank.since =
          std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(told.seconds));
    }
  }
  return waits;
}

std::string what_grew(std::span<const RankRecord> records, std::uint32_t step) {
  nanoseconds most = kWorthTelling;
  std::string text;
  for (const RankRecord& record : records) {
    std::array<nanoseconds, protocol::kStepParts> grown{};
    bool has_before = false;
    for (const Event& event : record.events) {
      if (event.kind != EventKind::kPart || event.detail >= protocol::kStepParts) continue;
      const nanoseconds took(event.end - event.begin);
      if (event.step == step) grown[event.detail] += took;
      if (event.step + 1 == step) {
        grown[event.detail] -= took;
        has_before = true;
      }
    }
    for (std::size_t part = 0; has_before && part < grown.size(); ++part) {
      if (is_wait(static_cast<StepPart>(part)) || grown[part] < most) continue;
      most = grown[part];
      text = std::string(protocol::kStepPartNames[part]) + " on " +
             place_of(record.replica, record.stage, record.stages, record.node) + ", " +
             seconds_text(most) + " more";
    }
  }
  return text;
}

}  // namespace weir::timeline
