// SPDX-License-Identifier: Apache-2.0
// Time in which a thread had work and no processor: because its container had used up its CPU limit
// (cgroup v2 or v1), or because others ran. The parsers take text, so that tests need no container.
#pragma once

#include <chrono>
#include <string_view>

#include "worker/base/clock.h"

namespace weir {

struct CpuShortage {
  double queued_seconds = 0;  // the thread was ready to run; the kernel may count throttling here
  double throttled_seconds = 0;  // of all threads of the container; may exceed the time that passed
};

// Seconds of /proc/thread-self/schedstat: "<ns on a processor> <ns queued> <slices>". 0 for other
// text.
double queued_seconds(std::string_view schedstat);
// Seconds of a cgroup's cpu.stat: `throttled_usec` in v2, `throttled_time` (ns) in v1. 0 without a
// limit.
double throttled_seconds(std::string_view cpu_stat);

// Used by the thread that it measures.
class CpuShortageMeter {
 public:
  // The shortage since the call before that measured. Reading costs about 0.05 ms, so it measures
  // at most each 50 ms and is 0 in between. Files that are missing count as 0.
  CpuShortage take(SteadyTime now);

 private:
  SteadyTime measured_{};
  CpuShortage total_;
};

}  // namespace weir
