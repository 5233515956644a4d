// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/link_stats.h"

#include <algorithm>

#include "worker/base/units.h"

namespace weir::transport {

void count_transfer(LinkCounters& counters, std::int64_t counted_bytes,
                    std::chrono::nanoseconds busy) {
  ++counters.transfers;
  if (counted_bytes <= 0) return;
  counters.bytes += counted_bytes;
  counters.busy += busy;
  counters.transfer_seconds_sum += to_seconds(busy);
  std::size_t bucket = 0;
  std::chrono::nanoseconds bound = std::chrono::microseconds(100);
  while (bucket + 1 < kTransferBuckets && busy > bound) {
    ++bucket;
    bound *= 2;
  }
  ++counters.histogram[bucket];
}

void RoundTrips::add(std::chrono::nanoseconds round_trip) {
  trips_[count_ % kKept] = round_trip;
  ++count_;
}

double RoundTrips::smallest_seconds() const {
  if (count_ == 0) return 0;
  const auto kept = static_cast<std::ptrdiff_t>(std::min(count_, kKept));
  return to_seconds(*std::min_element(trips_.begin(), trips_.begin() + kept));
}

}  // namespace weir::transport
