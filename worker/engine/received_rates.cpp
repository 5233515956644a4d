// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/received_rates.h"

#include "worker/base/units.h"

namespace weir::engine {

using transport::CollectiveCounters;
using Received = protocol::SyncReady::Received;

std::vector<Received> received_rates(const CollectiveCounters& before,
                                     const CollectiveCounters& after) {
  constexpr double kNoise = 0.010;  // seconds; on a loopback averages of 300 kB take 1 to 5 ms
  // Timed part of the bytes below which the rate is not known.
  constexpr double kLeastCounted = 0.25;
  std::vector<Received> rates;
  double senders = 0;
  for (const auto& [replica, now] : after.received) {
    const auto known = before.received.find(replica);
    const auto old =
        known == before.received.end() ? CollectiveCounters::Received() : known->second;
    const auto bytes = static_cast<double>(now.bytes - old.bytes);
    if (bytes <= 0) continue;
    const auto counted = static_cast<double>(now.counted_bytes - old.counted_bytes);
    ++senders;
    if (counted < kLeastCounted * bytes) continue;
    const double busy = to_seconds(now.busy - old.busy) * bytes / counted;
    rates.push_back({replica, bytes / (busy + kNoise)});
  }
  for (Received& rate : rates) rate.bytes_per_second *= senders;
  return rates;
}

}  // namespace weir::engine
