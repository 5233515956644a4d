// SPDX-License-Identifier: Apache-2.0
// E10: exact data parallelism with one slow replica, equal shares against balanced ones, on real
// workers with emulated compute. The losses of both must be equal bit for bit.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "operator/groups/shares.h"
#include "tests/multiproc/workers.h"

namespace weir::bench {
namespace {

constexpr double kForward = 0.010, kBackward = 0.020;  // seconds, of a stage and micro-batch
constexpr int kLayers = 8, kWarmUp = 3;

struct Setting {
  int replicas = 4, stages = 2, share = 16, steps = 20;
  int slow = 2;  // times slower is the last replica
};

std::string text(double value) {
  char digits[32];
  static_cast<void>(std::snprintf(digits, sizeof digits, "%.9g", value));
  return digits;
}

// Device classes x1, x2, ...: so many times slower.
std::string profile(const Setting& setting) {
  std::string nodes;
  for (int i = 0; i < kLayers; ++i) {
    const std::string id = i == 0             ? "embed"
                           : i == kLayers - 1 ? "head"
                                              : "hidden" + std::to_string(i - 1);
    std::string times;
    for (const int factor : {1, setting.slow}) {
      const double part = 1.0 * factor * setting.stages / kLayers;
      times += (times.empty() ? "\"x" : ", \"x") + std::to_string(factor) +
               "\": [{\"samples\": 2, \"forward\": " + text(kForward * part) +
               ", \"backward\": " + text(kBackward * part) + "}]";
      if (setting.slow == 1) break;
    }
    nodes += (i > 0 ? ", " : "") + std::string(R"({"id": ")") + id +
             R"(", "parameterBytes": 1, "outputBytesPerSample": 1, "times": {)" + times + "}}";
  }
  return R"({"apiVersion": "weir.dev/profile/v1", "nodes": [)" + nodes + "]}";
}

struct Outcome {
  double seconds = 0;  // median of a step
  std::vector<std::string> losses;
};

std::optional<Outcome> run(const Setting& setting, const std::vector<int>& shares) {
  const test::TempDir folder;
  const std::string file = folder.file("profile.json", profile(setting));
  std::vector<std::vector<std::string>> extra;
  for (int i = 0; i < setting.replicas * setting.stages; ++i) {
    const bool slow = i / setting.stages == setting.replicas - 1;
    extra.push_back({"--emulate-device=x" + std::to_string(slow ? setting.slow : 1)});
  }
  test::PlanText plan{.stages = setting.stages, .layers = kLayers, .shares = shares};
  test::Workers workers(plan,
                        {"--model=mlp", "--seq=16", "--vocab=32", "--emulate-profile=" + file,
                         "--steps=" + std::to_string(setting.steps + kWarmUp)},
                        extra);
  for (int i = 0; i < workers.count(); ++i) {
    if (workers[i].wait(std::chrono::minutes(10)) != 0) return std::nullopt;
  }
  Outcome outcome{.losses = test::losses(workers.steps(setting.stages - 1))};
  std::vector<double> times;
  for (const test::LoggedStep& step : workers.steps(0)) {
    if (step.step >= kWarmUp) times.push_back(step.iteration_seconds);
  }
  if (times.empty()) return std::nullopt;
  std::sort(times.begin(), times.end());
  outcome.seconds = times[times.size() / 2];
  return outcome;
}

std::string joined(const std::vector<int>& shares) {
  std::string line;
  for (const int share : shares) line += (line.empty() ? "" : ",") + std::to_string(share);
  return line;
}

int compare(const Setting& setting) {
  const std::vector<int> equal(static_cast<std::size_t>(setting.replicas), setting.share);
  group_policy::SharesInput input{.shares = equal,
                                  .stages = setting.stages,
                                  .least_share = setting.stages,
                                  .limit_change = false};
  for (int r = 0; r < setting.replicas; ++r) {
    const double factor = r + 1 == setting.replicas ? setting.slow : 1;
    input.seconds.push_back(factor * (setting.share + setting.stages - 1) * (kForward + kBackward));
  }
  const std::vector<int> balanced = group_policy::balanced_shares(input);
  const auto before = run(setting, equal);
  const auto after = run(setting, balanced);
  if (!before || !after) return std::fputs("the workers did not finish\n", stderr), 1;
  const double foretold =
      group_policy::slowest_seconds(input, equal) / group_policy::slowest_seconds(input, balanced);
  std::printf(
      "P=%d S=%d, last replica x%d: equal %s %.0f ms, balanced %s %.0f ms: %.2fx (%.2fx by "
      "the formula), losses %s\n",
      setting.replicas, setting.stages, setting.slow, joined(equal).c_str(), 1e3 * before->seconds,
      joined(balanced).c_str(), 1e3 * after->seconds, before->seconds / after->seconds, foretold,
      before->losses == after->losses ? "bit-equal" : "DIFFERENT");
  return before->losses == after->losses ? 0 : 1;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  weir::bench::Setting setting;
  std::vector<int> factors = {1, 2, 4};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto take = [&](const std::string& name, int& value) {
      const std::string prefix = "--" + name + "=";
      if (!word.starts_with(prefix)) return false;
      const char* const end = word.data() + word.size();
      return std::from_chars(word.data() + prefix.size(), end, value).ptr == end && value > 0;
    };
    int factor = 0;
    if (take("slow", factor)) {
      factors = {factor};
    } else if (!take("replicas", setting.replicas) && !take("stages", setting.stages) &&
               !take("micro-batches", setting.share) && !take("steps", setting.steps)) {
      std::fprintf(stderr, "unknown argument %s\n", word.c_str());
      return 2;
    }
  }
  int status = 0;
  for (const int factor : factors) {
    setting.slow = factor;
    status |= weir::bench::compare(setting);
  }
  return status;
}
