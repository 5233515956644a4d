// SPDX-License-Identifier: Apache-2.0
// What failures cost a job, and what being ready for them costs one that has none.
//   recovery_bench --mtbf=SECONDS [...]: goodput of torchft's experiment (30 replicas, steps of
//     10.9 s, a process is back after 2 s) with real kills; all times are divided by --scale.
//   recovery_bench --planned [...]: workers of a pipeline are told to end, and each hands its stage
//     over to a worker that waits.
//   recovery_bench --quiet [...]: a pipeline with snapshots and copies at neighbors beside one
//     without, in turn: emulated compute, then real kernels.
// Ends with 1 if a loss differs, the job stands still, or a goal is missed, with 77 if rounds of
// --quiet scatter too much to judge.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/failing_job.h"
#include "tests/bench/planned_moves.h"
#include "tests/multiproc/slow_replica.h"
#include "tests/multiproc/workers.h"
#include "worker/base/median.h"
#include "worker/base/numbers.h"

namespace weir::bench {
namespace {

constexpr int kPass = 0, kFail = 1, kWrongUse = 2, kNotJudged = 77;
// Of torchft's experiment, and what it reached (its documentation): goals of ours beside them.
constexpr double kStep = 10.9, kAway = 2;
struct Goal {
  double between, goodput, peer;
};
constexpr Goal kGoals[] = {{60, 0.95, 0.812}, {15, 0.75, 0.134}};
constexpr double kPlannedPause = 0.5;  // seconds beyond a step; the state is small
constexpr double kMostQuiet = 1.01, kMostScatter = 0.04;  // of the ratios of the rounds
constexpr int kEvery = 4;  // steps between snapshots: recovery.maxLostSteps 8
// Steps of two intervals are one figure, so that the step of a snapshot is in each.
constexpr int kBlock = 2 * kEvery, kBlocks = 4;

struct Given {
  Failures failures;
  double mtbf = 0, scale = 5, step = kStep, away = kAway;
  int rounds = 4;
  bool quiet = false, planned = false;
  PlannedMoves moves;
  std::string model = "gpt-mini";
};

int judge(const Given& given, const Survived& is) {
  std::printf(
      "undisturbed step %.3f s before, %.3f s behind, median meanwhile %.3f s; %lld steps in %.1f "
      "s with %d failures",
      is.undisturbed, is.after, is.meanwhile, static_cast<long long>(is.steps), is.seconds,
      is.failures);
  if (is.of_coordinator > 0) std::printf(", %d of the coordinator", is.of_coordinator);
  const double lost = is.seconds - static_cast<double>(is.steps) * is.ideal();
  const double each = is.failures > 0 ? 1 / (is.failures * is.ideal()) : 0;
  std::printf(
      "\neach failure cost %.2f steps; begun again, the step that it hit alone would have cost "
      "%.2f\n",
      lost * each, is.dropped * each);
  if (is.of_coordinator == 0) {
    std::printf("steps without lost replicas began %d times, with all again %d times\n", is.covers,
                is.joins);
  }
  std::printf(
      "steps logged twice by a process %lld, by nobody %lld; losses compared %lld, "
      "different %lld\n",
      static_cast<long long>(is.again), static_cast<long long>(is.missing),
      static_cast<long long>(is.compared), static_cast<long long>(is.different));
  bool good = is.different == 0 && is.missing == 0 && is.compared > 0;
  std::printf("losses %s\n", good ? "equal bit for bit, passed" : "FAILED");
  std::printf("goodput %.1f %%", 100 * is.goodput());
  for (const Goal& goal : kGoals) {
    if (goal.between != given.mtbf) continue;
    const bool reached = is.goodput() >= goal.goodput;
    good = good && reached;
    std::printf(", goal %.0f %%, torchft %.1f %%: %s", 100 * goal.goodput, 100 * goal.peer,
                reached ? "passed" : "missed");
  }
  std::printf("\n");
  return good ? kPass : kFail;
}

int with_failures(const Given& given) {
  Failures failures = given.failures;
  failures.step = given.step / given.scale;
  failures.between = given.mtbf / given.scale;
  failures.away = given.away / given.scale;
  std::printf(
      "%d replicas x %d stages, %d micro-batches each, steps of %.2f s, a failure each "
      "%.2f s (%s, seed %llu), back after %.2f s: 1/%.3g of %.1f, %.1f, %.1f s; worker 0 is "
      "%s\n",
      failures.replicas, failures.stages, failures.micro_batches, failures.step, failures.between,
      failures.fixed ? "fixed" : "exponential", static_cast<unsigned long long>(failures.seed),
      failures.away, given.scale, given.step, given.mtbf, given.away,
      failures.coordinator ? "killed, too" : "spared");
  std::fflush(stdout);
  const auto survived = survive(failures);
  return survived ? judge(given, *survived) : kFail;
}

int planned(const Given& given) {
  const PlannedMoves& moves = given.moves;
  std::printf("%d stages, %d micro-batches, %d workers told to end, one after the other\n",
              moves.stages, moves.micro_batches, moves.moves);
  std::fflush(stdout);
  const auto moved = move_by_plan(moves);
  if (!moved) return kFail;
  std::vector<double> pauses = moved->pauses;
  std::ranges::sort(pauses);
  const double most = pauses.empty() ? 0 : pauses.back();
  const double goal = moved->step + kPlannedPause;
  const bool whole = pauses.size() == static_cast<std::size_t>(moves.moves) && moved->again == 0;
  const bool equal = moved->compared > 0 && moved->different == 0;
  const bool good = whole && equal && most <= goal;
  std::printf(
      "%zu hand-overs: pause %.2f s (median; %.2f to %.2f s) beyond a step of %.2f s, goal %.2f s "
      "at most; steps done again %d; losses compared %d, different %d: %s\n",
      pauses.size(), median(pauses), pauses.empty() ? 0 : pauses.front(), most, moved->step, goal,
      moved->again, moved->compared, moved->different, good ? "passed" : "missed");
  return good ? kPass : kFail;
}

struct Quiet {
  const char* name;
  int stages, micro_batches;
  std::vector<std::string> words;
  std::vector<std::vector<std::string>> extra;
};

struct Cost {
  double step = 0, waits = 0;  // seconds; part of the time in which updates waited for snapshots
  double copied = 0;           // step of the newest copy
};

std::optional<Cost> cost_of(const Quiet& job, bool copies) {
  const test::TempDir memory(test::kMemory);
  std::vector<std::string> words = job.words;
  words.push_back("--steps=" + std::to_string(test::kNoEnd));
  if (copies) {
    words.push_back("--recovery-dir=" + memory.path().string());
    words.push_back("--recovery-every=" + std::to_string(kEvery));
    words.emplace_back("--recovery-copies=On");
  }
  const test::PlanText plan{.stages = job.stages, .micro_batches = job.micro_batches};
  test::Workers workers(plan, words, job.extra);
  constexpr std::int64_t kEnd = (kBlocks + 1) * kBlock;  // the first block warms up
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(10);
  while (workers.newest_step(0) < kEnd) {
    if (std::chrono::steady_clock::now() > until) {
      std::fprintf(stderr, "the workers do not train: %s\n", workers[0].errors().c_str());
      return std::nullopt;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  Cost cost;
  double all = 0;
  std::vector<double> blocks(kBlocks, 0);
  for (const test::LoggedStep& step : workers.steps(0)) {
    all += step.iteration_seconds;
    const auto block = step.step / kBlock - 1;
    if (block >= 0 && block < kBlocks) {
      blocks[static_cast<std::size_t>(block)] += step.iteration_seconds / kBlock;
    }
  }
  cost.step = median(blocks);
  for (int i = 0; copies && i < workers.count(); ++i) {
    const std::string page = test::scrape(workers[i].logged("metrics_port").value_or(0));
    const double waited = test::metric(page, {"weir_recovery_copy_wait_seconds_total"}).value_or(0);
    cost.waits = std::max(cost.waits, waited / all);
    const double step = test::metric(page, {"weir_recovery_copy_step"}).value_or(-1);
    cost.copied = i == 0 ? step : std::min(cost.copied, step);
  }
  return cost;
}

int quiet(const Given& given) {
  const test::SlowReplica emulation(1, 4, 1);
  std::vector<std::string> emulated = emulation.common(1);
  std::erase_if(emulated, [](const std::string& word) { return word.starts_with("--steps"); });
  const Quiet jobs[] = {
      {"emulated, S=4 M=32", 4, 32, emulated, emulation.devices()},
      {"real, S=2 M=16", 2, 16, {"--model=" + given.model, "--seq=64", "--threads=1"}, {}}};
  int verdict = kPass;
  for (const Quiet& job : jobs) {
    std::vector<double> ratios, steps;
    double waits = 0, copied = 0;
    for (int round = 0; round < given.rounds; ++round) {
      const auto off = cost_of(job, false), on = cost_of(job, true);
      if (!off || !on) return kFail;
      ratios.push_back(on->step / off->step);
      steps.push_back(off->step);
      waits = std::max(waits, on->waits);
      copied = on->copied;
    }
    const auto [least, most] = std::ranges::minmax(ratios);
    const bool reached = median(ratios) <= kMostQuiet && copied > 0;
    const bool noisy = !reached && copied > 0 && least <= kMostQuiet && most - least > kMostScatter;
    if (!reached) verdict = noisy && verdict != kFail ? kNotJudged : kFail;
    std::printf(
        "%s: step %.1f ms; with a snapshot each %d steps and copies, over without: %.4f "
        "(%.4f to %.4f in %zu rounds of %d steps), goal %.2f: %s; updates waited %.2f %% of "
        "the time at most, newest copy of step %.0f\n",
        job.name, 1e3 * median(steps), kEvery, median(ratios), least, most, ratios.size(),
        kBlocks * kBlock, kMostQuiet,
        reached ? "passed"
        : noisy ? "not judged, the rounds scatter"
                : "missed",
        100 * waits, copied);
    std::fflush(stdout);
  }
  return verdict;
}

std::optional<Given> given_of(int argc, char** argv) {
  constexpr double kMost = 1e6;
  Given given;
  double seed = 1, replicas = 4, stages = 1, micro_batches = 16, rounds = 4, moves = 50;
  const std::map<std::string, double*> numbers{{"--mtbf", &given.mtbf},
                                               {"--scale", &given.scale},
                                               {"--step", &given.step},
                                               {"--restart", &given.away},
                                               {"--seconds", &given.failures.seconds},
                                               {"--seed", &seed},
                                               {"--replicas", &replicas},
                                               {"--stages", &stages},
                                               {"--micro-batches", &micro_batches},
                                               {"--rounds", &rounds},
                                               {"--moves", &moves}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], key = word.substr(0, word.find('='));
    const auto number = numbers.find(key);
    if (word == "--quiet") {
      given.quiet = true;
    } else if (word == "--planned") {
      given.planned = true;
    } else if (word == "--fixed") {
      given.failures.fixed = true;
    } else if (word == "--coordinator") {
      given.failures.coordinator = true;
    } else if (word.starts_with("--model=")) {
      given.model = word.substr(key.size() + 1);
    } else if (number != numbers.end() && key.size() < word.size()) {
      const auto value = parse_number(word.substr(key.size() + 1), 1e-3, kMost);
      if (!value.ok()) return std::nullopt;
      *number->second = *value;
    } else {
      return std::nullopt;
    }
  }
  given.failures.seed = static_cast<std::uint64_t>(seed);
  given.failures.replicas = static_cast<int>(replicas);
  given.failures.stages = static_cast<int>(stages);
  given.failures.micro_batches = static_cast<int>(micro_batches);
  given.rounds = static_cast<int>(rounds);
  given.moves.moves = static_cast<int>(moves);
  const bool possible = replicas >= 2 && stages >= 1 && micro_batches >= 1 && rounds >= 1;
  const int ways = (given.quiet ? 1 : 0) + (given.planned ? 1 : 0) + (given.mtbf > 0 ? 1 : 0);
  if (!possible || ways != 1) return std::nullopt;
  return given;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  const auto given = weir::bench::given_of(argc, argv);
  if (given && given->planned) return weir::bench::planned(*given);
  if (given) return given->quiet ? weir::bench::quiet(*given) : weir::bench::with_failures(*given);
  std::fprintf(stderr,
               "recovery_bench --mtbf=SECONDS [--replicas=N] [--stages=N] [--micro-batches=N]\n"
               "  [--scale=F] [--step=SECONDS] [--restart=SECONDS] [--seconds=N] [--fixed]\n"
               "  [--coordinator] [--seed=N]\n"
               "recovery_bench --planned [--moves=N]\n"
               "recovery_bench --quiet [--rounds=N] [--model=NAME]\n");
  return weir::bench::kWrongUse;
}
