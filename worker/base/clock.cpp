// SPDX-License-Identifier: Apache-2.0
#include "worker/base/clock.h"

#include <condition_variable>
#include <mutex>

namespace weir {

bool SystemClock::sleep_until(SteadyTime deadline, std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_until(lock, stop, deadline, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace weir
