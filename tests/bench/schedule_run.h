// SPDX-License-Identifier: Apache-2.0
// Runs cases on real workers and says how late the machine itself was.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "tests/bench/namespaces.h"
#include "tests/bench/schedule_cases.h"

namespace weir::bench {

struct Measured {
  double median = 0, mean = 0, p10 = 0, p90 = 0, p95 = 0;  // ms, of steps after warming up
  int late_p50 = 0, late_p99 = 0;                          // microseconds
  int overruns = 0;        // ops whose real work was longer than the profile
  LinkTimes transfers{};   // c as the receivers timed it; 0 = unknown
  int in_flight_peak = 0;  // of stage 0
  // Late itself: wake-ups, or steps that should all be equal.
  bool noisy(bool steps_vary) const;
};

template <class T>
T quantile(std::vector<T> values, double q) {
  if (values.empty()) return T{};
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

// Nothing when the workers do not finish. spaces: the kernel limits the links; null: the workers
// do.
std::optional<Measured> measure(const Case& one, int steps, const Namespaces* spaces = nullptr);
// Step times and lateness of logged steps from `first` on.
Measured summary(const test::Workers& workers, std::int64_t first, std::int64_t end);
std::string pressure();  // of the processors, as the kernel tells it

// E5: link 1 falls to a tenth after a third of the steps and comes back after another while the
// operator's estimator and tuner run on the workers' counters. Exit status as of main.
int retune(int steps, schedule::Dispatch dispatch, const std::string& profile_file);

}  // namespace weir::bench
