// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/schedule_run.h"

#include <algorithm>
#include <fstream>
#include <numeric>

namespace weir::bench {
namespace {

constexpr double kMostSpread = 1.03;         // p90/p10 of equal steps
constexpr int kMostLateMicroseconds = 1000;  // p99

LinkTimes transfers_of(test::Workers& workers, const std::vector<test::Host>& hosts,
                       const Case& one) {
  std::vector<std::string> pages(one.c.size() + 1);
  for (int i = 0; i < one.stages(); ++i) {
    const int port = workers[i].logged("metrics_port").value_or(0);
    const auto at = static_cast<std::size_t>(i);
    pages[at] = hosts.empty() ? test::scrape(port) : test::scrape(port, hosts[at].address);
  }
  LinkTimes result(one.c.size());
  for (std::size_t link = 0; link < result.size(); ++link) {
    const std::string label =
        "link=\"" + std::to_string(link) + "-" + std::to_string(link + 1) + "\"";
    for (std::size_t way = 0; way < 2; ++way) {
      const std::string& page = pages[link + way];
      const char* direction = way == 0 ? R"(dir="fwd")" : R"(dir="bwd")";
      const auto sent = test::metric(page, {"weir_link_bytes_total{", label, direction});
      const auto busy = test::metric(page, {"weir_link_busy_seconds_total{", label, direction});
      if (sent && busy && *sent > 0) result[link][way] = 1e3 * *busy / *sent * one.wire_bytes(link);
    }
  }
  return result;
}

}  // namespace

bool Measured::noisy(bool steps_vary) const {
  return late_p99 > kMostLateMicroseconds || (!steps_vary && p90 > kMostSpread * p10);
}

Measured summary(const test::Workers& workers, std::int64_t first, std::int64_t end) {
  Measured measured;
  std::vector<double> times;
  std::vector<int> lateness;
  for (int worker = 0; worker < workers.count(); ++worker) {
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

std::optional<Measured> measure(const Case& one, int steps, const Namespaces* spaces) {
  const test::TempDir folder;
  const std::string profile_file = folder.file("profile.json", profile(one.stages()));
  std::vector<test::Host> hosts;
  if (spaces != nullptr) {
    std::vector<double> seconds;
    for (const double c : one.c) seconds.push_back(c / 1e3);
    if (!spaces->limit(seconds, one.message_bytes())) return std::nullopt;
    hosts = spaces->hosts();
  }
  std::vector<std::vector<std::string>> extra;
  for (int worker = 0; worker < one.stages(); ++worker) {
    extra.push_back(spaces == nullptr ? pacing(one, worker, folder) : std::vector<std::string>());
    if (one.window) {
      extra.back().push_back("--emulate-send-window=" + std::to_string(*one.window));
    }
  }
  test::Workers workers(plan_text(one.plan, one),
                        common_arguments(steps + kWarmUp, profile_file, one.tokens), extra, 0,
                        hosts);
  if (!workers.reaches(0, kWarmUp + steps / 2)) return std::nullopt;
  const LinkTimes transfers = transfers_of(workers, hosts, one);
  const std::string page =
      hosts.empty() ? test::scrape(workers[0].logged("metrics_port").value_or(0))
                    : test::scrape(workers[0].logged("metrics_port").value_or(0), hosts[0].address);
  const auto peak = test::metric(page, {"weir_inflight_peak"});
  for (int i = 0; i < one.stages(); ++i) {
    if (workers[i].wait(std::chrono::milliseconds(steps * 10000)) != 0) return std::nullopt;
  }
  Measured measured = summary(workers, kWarmUp, kWarmUp + steps);
  measured.transfers = transfers;
  measured.in_flight_peak = static_cast<int>(peak.value_or(0));
  return measured;
}

std::string pressure() {
  std::ifstream file("/proc/pressure/cpu");
  std::string line;
  return std::getline(file, line) ? line : "unknown";
}

}  // namespace weir::bench
