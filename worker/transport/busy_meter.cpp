// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/busy_meter.h"

#include <algorithm>
#include <utility>

namespace weir::transport {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// A shorter gap is the receiver's wake-up time and not an idle link.
constexpr nanoseconds kBackToBack = std::chrono::milliseconds(1);
constexpr int kBackToBackPart = 10;  // part of the message's own time, for messages below 10 ms

}  // namespace

nanoseconds BusyMeter::Message::whole_time() const {
  const std::int64_t timed = bytes - first_bytes;
  if (timed <= 0) return nanoseconds(0);
  const double seen = static_cast<double>(nanoseconds(last - first).count());
  return nanoseconds(
      static_cast<std::int64_t>(seen * static_cast<double>(bytes) / static_cast<double>(timed)));
}

Arrival BusyMeter::add(const Message& m) {
  const std::optional<steady_clock::time_point> before = std::exchange(last_, m.last);
  if (m.bytes <= 0) return {};

  const nanoseconds whole = m.whole_time();
  const nanoseconds limit = std::min(kBackToBack, whole / kBackToBackPart);
  if (before && m.first - *before < limit) return {m.bytes, m.last - *before};
  if (m.first_bytes <= m.bytes / 2) return {m.bytes, whole};
  return {};
}

}  // namespace weir::transport
