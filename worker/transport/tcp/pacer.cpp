// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/pacer.h"

#include <algorithm>

#include "worker/base/check.h"
#include "worker/base/units.h"

namespace weir::transport::tcp {
namespace {

constexpr std::size_t kChunks = 8;     // 4 to 16 make no difference in time; 8 cost 5 % of a core
constexpr double kLongestChunk = 0.5;  // seconds; heartbeats are due every second
// read_pace_trace refuses 0, so that a link always makes progress.
constexpr double kSmallestShare = 0.001;

}  // namespace

}  // namespace weir::transport::tcp

namespace weir::transport {

const Pacing* pacing_of(const std::vector<Pacing>& pacings, int boundary, Channel channel) {
  for (const Pacing& pacing : pacings) {
    if (pacing.boundary >= 0 && pacing.boundary != boundary) continue;
    if (pacing.channel >= 0 && pacing.channel != static_cast<int>(channel)) continue;
    return pacing.bytes_per_second > 0 ? &pacing : nullptr;
  }
  return nullptr;
}

}  // namespace weir::transport

namespace weir::transport::tcp {

Pacer::Pacer(Pacing pacing, Time start) : pacing_(std::move(pacing)), start_(start) {
  WEIR_CHECK(pacing_.bytes_per_second > 0, "a paced link has a rate");
}

double Pacer::share_at(Time time) const {
  double share = 1;
  for (const auto& [from, value] : pacing_.trace) {
    if (start_ + from > time) break;
    share = value;
  }
  return std::max(share, kSmallestShare);
}

// Time at which the integral of rate x share from `from` on reaches `bytes`.
Pacer::Time Pacer::finish(Time from, double bytes) const {
  for (const auto& edge : pacing_.trace) {
    const Time until = start_ + edge.first;
    if (until <= from) continue;
    const double rate = pacing_.bytes_per_second * share_at(from);
    const double possible = rate * to_seconds(until - from);
    if (bytes <= possible) return from + from_seconds(bytes / rate);
    bytes -= possible;
    from = until;
  }
  return from + from_seconds(bytes / (pacing_.bytes_per_second * share_at(from)));
}

void Pacer::begin(Time now, std::size_t bytes) {
  free_ = std::max(free_, now);
  left_ = bytes;
  const double longest = pacing_.bytes_per_second * share_at(free_) * kLongestChunk;
  chunk_ = std::min((bytes + kChunks - 1) / kChunks, static_cast<std::size_t>(longest) + 1);
}

Pacer::Chunk Pacer::next() {
  const std::size_t bytes = std::min(chunk_, left_);
  left_ -= bytes;
  free_ = finish(free_, static_cast<double>(bytes));
  return {bytes, free_};
}

}  // namespace weir::transport::tcp
