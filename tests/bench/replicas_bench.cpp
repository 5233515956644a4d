// SPDX-License-Identifier: Apache-2.0
// E9 and E10 on real workers with emulated compute. E10: one slow replica, exact data parallelism,
// equal shares against balanced ones; the losses of both must be equal bit for bit. E9: averages in
// groups (sync.mode Partial) against exact steps with equal shares, beside two baselines that are
// re-implemented: SDPipe's scheduler and first pairs (baseline_groups.cpp): throughput, loss and
// how far the models of the replicas are apart (disagreement.h).
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "operator/adaptation/shares/shares.h"
#include "tests/bench/replica_run.h"
#include "tests/multiproc/slow_replica.h"
#include "worker/groups/settings.h"

namespace weir::bench {
namespace {

struct Case {
  const char* name;
  Uneven kind;
  int slow;
  double over_exact, over_sdpipe;  // tests/bench/README.md "Targets of replicas"
};
// none: 2 % of measuring noise are allowed.
constexpr Case kCases[] = {
    {"none", Uneven::kNone, 1, 0.98, 0.92},     {"det2", Uneven::kOneSlow, 2, 1.65, 0.95},
    {"det4", Uneven::kOneSlow, 4, 2.9, 1.2},    {"tail", Uneven::kTail, 1, 1.8, 0.90},
    {"dyn10", Uneven::kChanging, 1, 1.6, 0.95}, {"net", Uneven::kSlowSync, 1, 1.28, 1.03}};

constexpr double kMostApart = 1.0 / 3;  // consensus error, of SDPipe's

struct Arguments {
  int replicas = 8, stages = 2, share = 8, steps = 60, seeds = 3, first_seed = 1, jitter = 0;
  std::vector<std::string> cases = {"balance2", "balance4", "none",  "det2",
                                    "det4",     "tail",     "dyn10", "net"};
};

struct Spread {
  std::vector<double> values;
  void add(double value) { values.push_back(value); }
  double mean() const {
    double sum = 0;
    for (const double value : values) sum += value / static_cast<double>(values.size());
    return sum;
  }
  std::string text() const {
    const auto [least, most] = std::ranges::minmax(values);
    char line[64];
    std::snprintf(line, sizeof line, "%.2f (%.2f..%.2f)", mean(), least, most);
    return line;
  }
};

struct Rule {
  const char* name;
  test::PlanText plan;
  const char* program;
  Spread over_exact = {}, loss = {};  // its loss over that of exact steps after the same time
  double loss_of_samples = 0;         // the same after as many samples, mean
  Spread consensus_error = {};
  int drifts = 0;
};

// One seed; false: a run failed.
bool measure(const Replicas& setting, std::vector<Rule>& rules, Spread& exact_rate) {
  const auto exact = run_replicas(setting, {});
  if (!exact) return false;
  exact_rate.add(exact->throughput);
  const double end = setting.steps * setting.step_seconds();
  for (Rule& rule : rules) {
    const auto outcome = run_replicas(setting, rule.plan, rule.program);
    if (!outcome) return false;
    rule.over_exact.add(outcome->throughput / exact->throughput);
    rule.loss.add(outcome->loss_at(end) / exact->loss_at(end));
    const double then = outcome->time_of(exact->steps_at(end));
    rule.loss_of_samples += outcome->loss_at(then > 0 ? then : end) / exact->loss_at(end);
    rule.consensus_error.add(outcome->consensus_error);
    rule.drifts += outcome->drifts;
  }
  return true;
}

int groups_case(const Case& one, const Arguments& arguments) {
  const int most = groups::usual_group_size_max(arguments.replicas);
  std::vector<Rule> rules = {
      {"groups", {.sync = "Partial", .group_size_max = most}, WEIR_RECORDING_WORKER},
      {"SDPipe", {.sync = "Partial", .group_size_max = arguments.replicas}, WEIR_BASELINE_WORKER},
      {"first pairs", {.sync = "Partial", .group_size_max = 2}, WEIR_BASELINE_WORKER}};
  Spread exact_rate;
  const int past = arguments.first_seed + arguments.seeds;
  for (int seed = arguments.first_seed; seed < past; ++seed) {
    const Replicas setting{.replicas = arguments.replicas,
                           .stages = arguments.stages,
                           .share = arguments.share,
                           .kind = one.kind,
                           .slow = one.slow,
                           .seed = seed,
                           .jitter = arguments.jitter,
                           .steps = arguments.steps};
    if (!measure(setting, rules, exact_rate)) return 1;
  }
  std::printf("%s: exact %.1f micro-batches a second\n", one.name, exact_rate.mean());
  for (const Rule& rule : rules) {
    std::printf(
        "  %-11s x%s, loss x%s after the same time, x%.3f after as many samples, %d drifts, "
        "consensus error %.2e\n",
        rule.name, rule.over_exact.text().c_str(), rule.loss.text().c_str(),
        rule.loss_of_samples / arguments.seeds, rule.drifts, rule.consensus_error.mean());
  }
  const double over_sdpipe = rules[0].over_exact.mean() / rules[1].over_exact.mean();
  const double apart = rules[0].consensus_error.mean() / rules[1].consensus_error.mean();
  const bool met = rules[0].over_exact.mean() >= one.over_exact && over_sdpipe >= one.over_sdpipe &&
                   apart <= kMostApart && rules[0].loss.mean() <= 1.01 && rules[0].drifts == 0;
  std::printf(
      "  groups over exact x%.2f (target %.2f), over SDPipe x%.2f (target %.2f), consensus error "
      "x%.3f of SDPipe's (target %.2f): %s\n",
      rules[0].over_exact.mean(), one.over_exact, over_sdpipe, one.over_sdpipe, apart, kMostApart,
      met ? "met" : "MISSED");
  std::fflush(stdout);
  return met ? 0 : 1;
}

struct ExactRun {
  double seconds = 0;  // median of a step of replica 0
  std::vector<std::string> losses;
};

std::optional<ExactRun> run_exact(const test::SlowReplica& slow, const test::PlanText& plan,
                                  int steps) {
  constexpr int kWarmUp = 3;
  test::Workers workers(plan, slow.common(steps + kWarmUp), slow.devices());
  for (int i = 0; i < workers.count(); ++i) {
    if (workers[i].wait(std::chrono::minutes(10)) != 0) return std::nullopt;
  }
  std::vector<double> times;
  for (const test::LoggedStep& step : workers.steps(0)) {
    if (step.step >= kWarmUp) times.push_back(step.iteration_seconds);
  }
  if (times.empty()) return std::nullopt;
  std::ranges::sort(times);
  return ExactRun{times[times.size() / 2], test::losses(workers.steps(plan.stages - 1))};
}

std::string joined(const std::vector<int>& shares) {
  std::string line;
  for (const int share : shares) line += (line.empty() ? "" : ",") + std::to_string(share);
  return line;
}

int balance(int slower, const Arguments& arguments) {
  constexpr int kReplicas = 4, kShare = 16, kSteps = 20;
  shares::SharesInput input{.shares = std::vector<int>(kReplicas, kShare),
                            .stages = arguments.stages,
                            .least_share = arguments.stages,
                            .limit_change = false};
  for (int r = 0; r < kReplicas; ++r) {
    const double factor = r + 1 == kReplicas ? slower : 1;
    input.seconds.push_back(factor * (kShare + arguments.stages - 1) * test::kOpSeconds);
  }
  const std::vector<int> balanced = shares::balanced_shares(input);
  const test::SlowReplica slow(kReplicas, arguments.stages, slower);
  test::PlanText plan{.stages = arguments.stages, .layers = test::kEmulatedLayers};
  plan.shares = input.shares;
  const auto before = run_exact(slow, plan, kSteps);
  plan.shares = balanced;
  const auto after = run_exact(slow, plan, kSteps);
  if (!before || !after) return std::fputs("the workers did not finish\n", stderr), 1;
  const double foretold =
      shares::slowest_seconds(input, input.shares) / shares::slowest_seconds(input, balanced);
  const double gain = before->seconds / after->seconds, target = slower == 2 ? 1.6 : 2.9;
  const bool equal = before->losses == after->losses;
  std::printf(
      "P=%d, last replica x%d: equal %s %.0f ms, balanced %s %.0f ms: x%.2f (target %.2f, by the "
      "formula %.2f), losses %s: %s\n",
      kReplicas, slower, joined(input.shares).c_str(), 1e3 * before->seconds,
      joined(balanced).c_str(), 1e3 * after->seconds, gain, target, foretold,
      equal ? "bit-equal" : "DIFFERENT", equal && gain >= target ? "met" : "MISSED");
  std::fflush(stdout);
  return equal && gain >= target ? 0 : 1;
}

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto take = [&](const std::string& name, int& value) {
      const std::string prefix = "--" + name + "=";
      if (!word.starts_with(prefix)) return false;
      const char* const end = word.data() + word.size();
      return std::from_chars(word.data() + prefix.size(), end, value).ptr == end && value > 0;
    };
    if (word.starts_with("--cases=")) {
      arguments.cases.clear();
      std::istringstream names(word.substr(word.find('=') + 1));
      for (std::string name; std::getline(names, name, ',');) arguments.cases.push_back(name);
    } else if (!take("replicas", arguments.replicas) && !take("stages", arguments.stages) &&
               !take("micro-batches", arguments.share) && !take("steps", arguments.steps) &&
               !take("seeds", arguments.seeds) && !take("jitter", arguments.jitter) &&
               !take("first-seed", arguments.first_seed)) {
      std::fprintf(stderr, "unknown argument %s\n", word.c_str());
      return false;
    }
  }
  return true;
}

int run_case(const std::string& name, const Arguments& arguments) {
  if (name == "balance2" || name == "balance4") return balance(name.back() - '0', arguments);
  for (const Case& one : kCases) {
    if (name == one.name) return groups_case(one, arguments);
  }
  std::fprintf(stderr, "no case %s\n", name.c_str());
  return 2;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  weir::bench::Arguments arguments;
  if (!weir::bench::parse(argc, argv, arguments)) return 2;
  std::printf("P=%d S=%d, %d micro-batches of each a step, %d steps, seeds %d..%d\n",
              arguments.replicas, arguments.stages, arguments.share, arguments.steps,
              arguments.first_seed, arguments.first_seed + arguments.seeds - 1);
  int status = 0;
  for (const std::string& name : arguments.cases) {
    status = std::max(status, weir::bench::run_case(name, arguments));
  }
  return status;
}
