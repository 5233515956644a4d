// SPDX-License-Identifier: Apache-2.0
// Exact sums of two replicas with raw and with packed contributions: bytes a parameter and the time
// of the sums of a step, over ports that HTB limits (root) and over the loopback, in turn. Losses
// must be equal. Ends with 77 if the ports cannot be limited.
//   sums_bench [--model=NAME] [--steps=N] [--mbit=N] [--data=FILE]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/namespaces.h"
#include "tests/multiproc/workers.h"

namespace weir::bench {
namespace {

constexpr int kFail = 1, kWrongUse = 2, kSkipped = 77;

struct Given {
  std::string model = "gpt-mini", data;
  int steps = 20, mbit = 100;
};

struct Sums {
  double bytes = 0, seconds = 0;  // of a step, sent by one replica
  double step = 0;                // seconds, median
  double packed = 0;              // share of the bytes
  std::vector<std::string> losses;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

std::optional<Sums> sums_of(const Given& given, const std::string& encoding,
                            const Namespaces* spaces) {
  std::vector<std::string> words = {"--model=" + given.model, "--seq=128", "--threads=1",
                                    "--steps=" + std::to_string(given.steps),
                                    "--sum-encoding=" + encoding};
  if (!given.data.empty()) words.push_back("--data=" + given.data);
  const std::vector<test::Host> hosts = spaces ? spaces->hosts() : std::vector<test::Host>();
  test::PlanText plan{.micro_batch_size = 1, .shares = {1, 1}};
  plan.stages = 1;
  test::Workers workers(plan, words, {}, 0, hosts);
  const int until = given.steps - 2;  // they still serve their metrics
  if (!workers.reaches(0, until)) return std::nullopt;
  const int port = workers[0].logged("metrics_port").value_or(0);
  const std::string page = spaces ? test::scrape(port, hosts[0].address) : test::scrape(port);
  for (int i = 0; i < workers.count(); ++i) {
    if (workers[i].wait(std::chrono::minutes(10)) != 0) {
      std::fprintf(stderr, "%s\n", workers[i].errors().c_str());
      return std::nullopt;
    }
  }
  const auto steps = test::metric(page, {"weir_sync_rounds_total", "exact"});
  const auto raw = test::metric(page, {"weir_sync_bytes_total", "raw"});
  const auto packed = test::metric(page, {"weir_sync_bytes_total", "packed"});
  const auto rate = test::metric(page, {"weir_sync_bus_bandwidth"});
  if (!steps || !raw || !packed || !rate || *steps < 1) return std::nullopt;
  Sums sums;
  sums.bytes = (*raw + *packed) / *steps;
  sums.packed = *packed / (*raw + *packed);
  sums.seconds = sums.bytes / *rate;
  std::vector<double> times;
  for (const test::LoggedStep& step : workers.steps(0)) times.push_back(step.iteration_seconds);
  sums.step = median(times);
  sums.losses = test::losses(workers.steps(0));
  return sums;
}

int compare(const Given& given, const Namespaces* spaces) {
  std::printf("%s\n", spaces ? (std::to_string(given.mbit) + " Mbit/s").c_str() : "loopback");
  std::map<std::string, Sums> all;
  for (const char* encoding : {"raw", "packed", "auto", "raw", "packed", "auto"}) {
    const auto sums = sums_of(given, encoding, spaces);
    if (!sums) return kFail;
    std::printf("  %-6s sent %.2f MB a step (%.0f %% packed), sums %.1f ms, step %.1f ms\n",
                encoding, sums->bytes / 1e6, 100 * sums->packed, 1e3 * sums->seconds,
                1e3 * sums->step);
    std::fflush(stdout);
    if (!all.empty() && all.begin()->second.losses != sums->losses) {
      std::printf("FAIL: the losses differ\n");
      return kFail;
    }
    all[encoding] = *sums;
  }
  const Sums& raw = all["raw"];
  for (const char* encoding : {"packed", "auto"}) {
    const Sums& one = all[encoding];
    std::printf("  %s over raw: bytes %.3f, sums %.3f, step %.3f\n", encoding,
                one.bytes / raw.bytes, one.seconds / raw.seconds, one.step / raw.step);
  }
  return 0;
}

int run(const Given& given) {
  const int loopback = compare(given, nullptr);
  if (loopback != 0) return loopback;
  const auto spaces = Namespaces::make(0, 2);
  if (!spaces) return kSkipped;
  for (const int index : {0, 1}) {
    if (!spaces->limit_port(index, 1e6 / 8 * given.mbit)) return kSkipped;
  }
  return compare(given, spaces.get());
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  weir::bench::Given given;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], key = word.substr(0, word.find('='));
    const std::string value = key.size() == word.size() ? "" : word.substr(key.size() + 1);
    if (key == "--model") {
      given.model = value;
    } else if (key == "--data") {
      given.data = value;
    } else if (key == "--steps" && std::atoi(value.c_str()) > 3) {
      given.steps = std::atoi(value.c_str());
    } else if (key == "--mbit" && std::atoi(value.c_str()) > 0) {
      given.mbit = std::atoi(value.c_str());
    } else {
      std::fprintf(stderr, "sums_bench [--model=NAME] [--steps=N] [--mbit=N] [--data=FILE]\n");
      return weir::bench::kWrongUse;
    }
  }
  return weir::bench::run(given);
}
