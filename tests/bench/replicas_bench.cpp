// SPDX-License-Identifier: Apache-2.0
// E9 and E10 on real workers with emulated compute and one slow replica. E10: exact data
// parallelism, equal shares against balanced ones; the losses of both must be equal bit for bit.
// E9: averages in groups (sync.mode Partial) against exact steps with equal shares, beside two
// baselines: the first pair that is there, and SDPipe's window and bound. Both are this scheduler
// with other settings: like theirs they know neither staleness nor a window that follows the step.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/groups/shares.h"
#include "tests/multiproc/slow_replica.h"
#include "tests/multiproc/workers.h"

namespace weir::bench {
namespace {

constexpr int kWarmUp = 3;
constexpr const char* kDrift = "replicas drift apart";  // a contraction above 0.5 in the log

struct Setting {
  int replicas = 4, stages = 2, share = 16, steps = 20;
  int slow = 2;  // times slower is the last replica
};

// The losses of one replica by the time since its first step.
using LossCurve = std::vector<std::pair<double, double>>;

struct Outcome {
  double seconds = 0;     // median of a step of replica 0
  double throughput = 0;  // micro-batches of all replicas a second
  std::vector<std::string> losses;
  std::vector<LossCurve> curves;  // of each replica
  int drifts = 0;                 // windows of B steps with a contraction above 0.5
};

std::optional<Outcome> run(const Setting& setting, test::PlanText plan, int steps) {
  const test::SlowReplica slow(setting.replicas, setting.stages, setting.slow);
  plan.stages = setting.stages;
  plan.layers = test::kEmulatedLayers;
  test::Workers workers(plan, slow.common(steps + kWarmUp), slow.devices());
  for (int i = 0; i < workers.count(); ++i) {
    if (workers[i].wait(std::chrono::minutes(10)) != 0) return std::nullopt;
  }
  Outcome outcome{.losses = test::losses(workers.steps(setting.stages - 1))};
  const std::string log = workers[0].errors();
  for (std::size_t at = log.find(kDrift); at != log.npos; at = log.find(kDrift, at + 1)) {
    ++outcome.drifts;
  }
  for (int r = 0; r < setting.replicas; ++r) {
    LossCurve curve;
    double time = 0, warm = 0;
    for (const test::LoggedStep& step : workers.steps((r + 1) * setting.stages - 1)) {
      time += step.iteration_seconds;
      curve.emplace_back(time, std::stod(step.loss_hex));
      if (curve.size() == kWarmUp) warm = time;
    }
    if (curve.size() <= kWarmUp) return std::nullopt;
    const auto counted = static_cast<double>(curve.size() - kWarmUp);
    outcome.throughput +=
        counted * plan.shares[static_cast<std::size_t>(r)] / (curve.back().first - warm);
    outcome.curves.push_back(std::move(curve));
  }
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

// Mean of the newest losses of all replicas at that time.
double loss_at(const Outcome& outcome, double time) {
  constexpr std::size_t kNewest = 5;
  double sum = 0;
  for (const LossCurve& curve : outcome.curves) {
    std::size_t end = 0;
    while (end < curve.size() && curve[end].first <= time) ++end;
    const std::size_t count = std::max<std::size_t>(1, std::min(kNewest, end));
    double mean = 0;
    for (std::size_t i = std::max(end, count) - count; i < std::max(end, count); ++i) {
      mean += curve[i].second / static_cast<double>(count);
    }
    sum += mean;
  }
  return sum / static_cast<double>(outcome.curves.size());
}

double end_of(const Outcome& outcome) {
  double end = outcome.curves.front().back().first;
  for (const LossCurve& curve : outcome.curves) end = std::min(end, curve.back().first);
  return end;
}

// About as long as the exact run.
int average(const Setting& setting, const std::vector<int>& equal, const Outcome& exact) {
  constexpr int kNever = 1'000'000;
  struct Rule {
    const char* name;
    test::PlanText plan;
  };
  const double step = (setting.share + setting.stages - 1) * test::kOpSeconds;
  const int ten_ms = std::max(1, static_cast<int>(0.010 / step * 100 / 2));  // twice when few
  const Rule rules[] = {
      {"groups", {.group_size_max = setting.replicas}},
      {"first pairs",
       {.group_size_max = 2,
        .grace_window_percent = kNever,
        .connect_every = kNever,
        .max_staleness = kNever}},
      {"SDPipe's window and bound",
       {.group_size_max = setting.replicas,
        .grace_window_percent = ten_ms,
        .connect_every = 10,
        .max_staleness = kNever}},
  };
  for (const Rule& rule : rules) {
    test::PlanText plan = rule.plan;
    plan.shares = equal;
    plan.sync = "Partial";
    const auto outcome = run(setting, plan, setting.steps * setting.slow);
    if (!outcome) return std::fputs("the workers did not finish\n", stderr), 1;
    const double time = std::min(end_of(exact), end_of(*outcome));
    std::printf(
        "  %s: %.1f micro-batches a second, %.2fx exact; after %.1f s loss %.4f, exact %.4f; "
        "%d windows with a contraction above 0.5\n",
        rule.name, outcome->throughput, outcome->throughput / exact.throughput, time,
        loss_at(*outcome, time), loss_at(exact, time), outcome->drifts);
    std::fflush(stdout);
  }
  return 0;
}

int compare(const Setting& setting) {
  const std::vector<int> equal(static_cast<std::size_t>(setting.replicas), setting.share);
  group_policy::SharesInput input{.shares = equal,
                                  .stages = setting.stages,
                                  .least_share = setting.stages,
                                  .limit_change = false};
  for (int r = 0; r < setting.replicas; ++r) {
    const double factor = r + 1 == setting.replicas ? setting.slow : 1;
    input.seconds.push_back(factor * (setting.share + setting.stages - 1) * test::kOpSeconds);
  }
  const std::vector<int> balanced = group_policy::balanced_shares(input);
  const auto before = run(setting, {.shares = equal}, setting.steps);
  const auto after = run(setting, {.shares = balanced}, setting.steps);
  if (!before || !after) return std::fputs("the workers did not finish\n", stderr), 1;
  const double foretold =
      group_policy::slowest_seconds(input, equal) / group_policy::slowest_seconds(input, balanced);
  std::printf(
      "P=%d S=%d, last replica x%d: equal %s %.0f ms, balanced %s %.0f ms: %.2fx (%.2fx by "
      "the formula), losses %s\n",
      setting.replicas, setting.stages, setting.slow, joined(equal).c_str(), 1e3 * before->seconds,
      joined(balanced).c_str(), 1e3 * after->seconds, before->seconds / after->seconds, foretold,
      before->losses == after->losses ? "bit-equal" : "DIFFERENT");
  return average(setting, equal, *before) + (before->losses == after->losses ? 0 : 1);
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
