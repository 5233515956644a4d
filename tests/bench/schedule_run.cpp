// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/schedule_run.h"

#include <algorithm>
#include <fstream>
#include <numeric>

namespace weir::bench {
namespace {

constexpr double kMostSpread = 1.03;         // p90/p10 of equal steps
constexpr int kMostLateMicroseconds = 1000;  // p99

}  // namespace

bool Measured::noisy(bool steps_vary) const {
  return late_p99 > kMostLateMicroseconds || (!steps_vary && p90 > kMostSpread * p10);
}

Measured summary(const test::Workers& workers, std::int64_t first, std::int64_t end) {
  Measured measured;
  std::vector<double> times;
  std::vector<int> lateness;
  for (int worker = 0; worker < kStages; ++worker) {
    for (const test::LoggedStep& step : workers.steps(worker)) {
      if (step.step < first || step.step >= end) continue;
      if (worker == 0) times.push_back(1e3 * step.step_seconds);
      lateness.insert(lateness.end(), step.lateness_us.begin(), step.lateness_us.end());
      measured.overruns += step.overruns;
    }
  }
  if (times.empty()) return measured;
  measured.mean =
      std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  measured.median = quantile(times, 0.5);
  measured.p10 = quantile(times, 0.1);
  measured.p90 = quantile(times, 0.9);
  measured.p95 = quantile(times, 0.95);
  measured.late_p50 = quantile(lateness, 0.5);
  measured.late_p99 = quantile(lateness, 0.99);
  return measured;
}

std::optional<Measured> measure(const Case& one, int steps, const std::string& profile_file) {
  const test::TempDir folder;
  std::vector<std::vector<std::string>> extra;
  for (int worker = 0; worker < kStages; ++worker) extra.push_back(pacing(one, worker, folder));
  test::Workers workers(plan_text(one.plan, one), common_arguments(steps + kWarmUp, profile_file),
                        extra);
  if (!workers.reaches(0, kWarmUp)) return std::nullopt;
  const std::string page = test::scrape(workers[0].logged("metrics_port").value_or(0));
  const auto bytes = test::metric(page, {"weir_link_bytes_total", R"(dir="fwd")"});
  const auto busy = test::metric(page, {"weir_link_busy_seconds_total", R"(dir="fwd")"});
  const auto peak = test::metric(page, {"weir_inflight_peak"});
  for (int i = 0; i < kStages; ++i) {
    if (workers[i].wait(std::chrono::milliseconds(steps * 10000)) != 0) return std::nullopt;
  }
  Measured measured = summary(workers, kWarmUp, kWarmUp + steps);
  if (bytes && busy && *bytes > 0) measured.transfer = 1e3 * *busy / *bytes * kMessageBytes;
  measured.in_flight_peak = static_cast<int>(peak.value_or(0));
  return measured;
}

std::string pressure() {
  std::ifstream file("/proc/pressure/cpu");
  std::string line;
  return std::getline(file, line) ? line : "unknown";
}

}  // namespace weir::bench
