// SPDX-License-Identifier: Apache-2.0
// What the order of traffic brings to a step: two replicas of real workers with emulated compute,
// each behind a port that HTB limits, with the order and without, with sums at the end of a step or
// averages beside it, and one replica alone, which sends neither; in turn. Root only.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/bench/namespaces.h"
#include "tests/multiproc/slow_replica.h"
#include "tests/multiproc/workers.h"

namespace weir::bench {
namespace {

constexpr int kNoNumber = 2, kFailed = 1, kStages = 4, kMicroBatches = 8, kWarmUp = 3;

struct Arguments {
  int rounds = 5, steps = 15, mbit = 100;
};

struct Way {
  const char* name;
  int replicas;
  const char *order, *sync;
  std::vector<double> medians = {};  // of the rounds, seconds
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Seconds of a step.
std::optional<double> measure(const Arguments& arguments, const Way& way) {
  const int count = way.replicas * kStages;
  const auto spaces = Namespaces::make(0, count);
  if (!spaces) return std::nullopt;
  for (int i = 0; i < count; ++i) {
    if (!spaces->limit_port(i, arguments.mbit * 1e6 / 8)) return std::nullopt;
  }
  const test::SlowReplica equal(way.replicas, kStages, 1);
  test::PlanText plan;
  plan.stages = kStages;
  plan.layers = test::kEmulatedLayers;
  plan.sync = way.sync;
  plan.shares.assign(static_cast<std::size_t>(way.replicas), kMicroBatches);
  std::vector<std::string> common = equal.common(arguments.steps);
  std::ranges::replace(common, std::string("--seq=4"), std::string("--seq=128"));
  common.push_back(std::string("--traffic-order=") + way.order);
  common.emplace_back("--sum-encoding=raw");
  test::Workers workers(plan, common, equal.devices(), 0, spaces->hosts());
  for (const auto& code : workers.wait_all()) {
    if (code == 0) continue;
    std::fprintf(stderr, "the workers do not train: %s\n", workers[0].errors().c_str());
    return std::nullopt;
  }
  std::vector<double> times;
  for (const test::LoggedStep& step : workers.steps(0)) times.push_back(step.iteration_seconds);
  times.erase(times.begin(), times.begin() + std::min<std::ptrdiff_t>(kWarmUp, std::ssize(times)));
  if (times.empty()) return std::nullopt;
  return median(times);
}

int run(const Arguments& arguments) {
  std::vector<Way> ways = {{"one replica, no sums", 1, "on", "Exact"},
                           {"two, sums, order off", 2, "off", "Exact"},
                           {"two, sums, order on", 2, "on", "Exact"},
                           {"two, averages, order off", 2, "off", "Partial"},
                           {"two, averages, order on", 2, "on", "Partial"}};
  for (int round = 0; round < arguments.rounds; ++round) {
    for (Way& way : ways) {
      const auto seconds = measure(arguments, way);
      if (!seconds) return kFailed;
      way.medians.push_back(*seconds);
    }
  }
  const double compute = (kMicroBatches + kStages - 1) * test::kOpSeconds;
  std::printf("ports of %d Mbit/s, %d rounds of %d steps; compute alone %.1f ms\n", arguments.mbit,
              arguments.rounds, arguments.steps, 1e3 * compute);
  for (const Way& way : ways) {
    const auto [least, most] = std::ranges::minmax(way.medians);
    std::printf("%-24s %.1f ms (%.1f to %.1f)\n", way.name, 1e3 * median(way.medians), 1e3 * least,
                1e3 * most);
  }
  return 0;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  weir::bench::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    bool known = false;
    for (const auto& [name, number] : {std::pair{"--rounds=", &arguments.rounds},
                                       {"--steps=", &arguments.steps},
                                       {"--mbit=", &arguments.mbit}}) {
      if (!word.starts_with(name)) continue;
      const std::string_view digits = word.substr(std::string_view(name).size());
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), *number);
      known = error == std::errc() && end == digits.data() + digits.size() && *number > 0;
    }
    if (known) continue;
    std::fprintf(stderr, "usage: order_steps_bench [--rounds=N] [--steps=N] [--mbit=N]\n");
    return weir::bench::kNoNumber;
  }
  return weir::bench::run(arguments);
}
