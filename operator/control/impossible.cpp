// SPDX-License-Identifier: Apache-2.0
#include "operator/control/impossible.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace weir::control_server {
namespace {

constexpr double kMostSeconds = 1e6;

bool possible(double seconds) {
  return std::isfinite(seconds) && seconds >= 0 && seconds <= kMostSeconds;
}

bool possible(const protocol::SegmentLink& link) {
  return link.replica >= 0 && link.boundary >= 0 && possible(link.seconds) &&
         possible(link.latency_seconds) && link.timed >= 0 && link.transfers >= link.timed;
}

bool possible(const protocol::SegmentRank& rank) {
  return rank.replica >= 0 && rank.stage >= 0 && possible(rank.forward_seconds) &&
         possible(rank.backward_seconds);
}

bool possible(const protocol::Stall& stall) {
  return possible(stall.seconds) && stall.waiting >= 0 &&
         stall.ranks.size() <= protocol::kMostStalledRanks &&
         std::ranges::all_of(stall.ranks, [](const protocol::StalledRank& rank) {
           return rank.replica >= 0 && rank.stage >= 0 && possible(rank.seconds);
         });
}

template <class Entry>
int drop_entries(std::vector<Entry>& entries) {
  return static_cast<int>(
      std::erase_if(entries, [](const Entry& entry) { return !possible(entry); }));
}

int drop_from(std::optional<protocol::Segment>& segment) {
  if (!segment) return 0;
  if (!possible(segment->step_seconds) || segment->steps < 0) {
    segment.reset();
    return 1;
  }
  int dropped = 0;
  const auto clear = [&dropped](double& seconds) {
    if (possible(seconds)) return;
    seconds = 0;
    ++dropped;
  };
  clear(segment->step_error);
  clear(segment->save_every);
  clear(segment->save_seconds);
  dropped += drop_entries(segment->links) + drop_entries(segment->ranks);
  for (protocol::SegmentLink& link : segment->links) {
    clear(link.error);
    clear(link.rounding_error);
    clear(link.zeroed);
  }
  for (protocol::SegmentRank& rank : segment->ranks) {
    clear(rank.save_seconds);
    clear(rank.queued_seconds);
    clear(rank.throttled_seconds);
    if (!rank.parts ||
        std::ranges::all_of(rank.parts->seconds, [](double each) { return possible(each); })) {
      continue;
    }
    rank.parts.reset();
    ++dropped;
  }
  return dropped;
}

}  // namespace

int drop_impossible(protocol::Report& report) {
  int dropped = drop_from(report.segment) + drop_from(report.previous_segment);
  if (report.stall && !possible(*report.stall)) {
    report.stall.reset();
    ++dropped;
  }
  for (protocol::MemberReport& member : report.members) {
    if (possible(member.silent_seconds)) continue;
    member.silent_seconds = 0;
    ++dropped;
  }
  return dropped;
}

}  // namespace weir::control_server
