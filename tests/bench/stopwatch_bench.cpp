// SPDX-License-Identifier: Apache-2.0
// Cost of what is always recorded, in turn, A B A B: ratios of the median step and of the CPU time
// of a step; losses must be equal. The goal is 0.5 % of a step down to ops of 100 us, and 2 % of
// CPU time. --of=parts: a pipeline of two workers whose engine books all its time, beside one of
// workers whose engine books nothing (unwatched/). --of=recorder: with the flight recorder, beside
// the same without; first with real compute, then with emulated one of --op-us=N a micro-batch.
// --of=e1: the same with the four stages of E1 (tests/bench/README.md "Experiments") and k = 2.
//   stopwatch_bench [--of=parts|recorder|e1] [--model=NAME] [--seq=N] [--steps=N] [--rounds=N]
//                   [--micro-batches=N] [--op-us=N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/multiproc/slow_replica.h"
#include "tests/multiproc/workers.h"

namespace weir::bench {
namespace {

constexpr int kFail = 1, kWrongUse = 2;
constexpr int kWarmUp = 20;    // steps
constexpr int kLastSteps = 2;  // that the workers still make while they are asked

struct Given {
  std::string model = "gpt-mini";
  std::string of = "parts";
  int sequence = 32, steps = 200, rounds = 2, micro_batches = 16, op_us = 3000;
};

// One of the two that are compared.
struct Side {
  const char *name, *program;
  std::vector<std::string> words;
};

struct Run {
  double step = 0, cpu = 0;  // seconds: median, and of all workers a step
  std::vector<std::string> losses;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

// CPU seconds of all workers, and the steps that the first one has completed.
struct Reading {
  double cpu = 0, steps = 0;
};
std::optional<Reading> read(test::Workers& workers) {
  Reading reading;
  for (int i = workers.count() - 1; i >= 0; --i) {
    const std::string page = test::scrape(workers[i].logged("metrics_port").value_or(0));
    const auto cpu = test::metric(page, {"process_cpu_seconds_total"});
    const auto step = test::metric(page, {"weir_step{"});
    if (!cpu || !step) return std::nullopt;
    reading.cpu += *cpu;
    reading.steps = *step;
  }
  return reading;
}

// However long steps take, as long as they come.
bool reaches(const test::Workers& workers, std::int64_t steps) {
  for (std::int64_t before = -1; !workers.reaches(0, steps);) {
    const std::int64_t now = workers.newest_step(0);
    if (now <= before) return false;
    before = now;
  }
  return true;
}

test::PlanText plan_of(const Given& given) {
  if (given.of == "e1") return {.type = "KFKB", .k = 2, .stages = 4, .micro_batches = 32};
  return {.k = 2, .micro_batches = given.micro_batches, .micro_batch_size = 1, .caps = {4, 2}};
}

// emulation: null: compute is real.
std::optional<Run> run_of(const Given& given, const Side& side,
                          const test::SlowReplica* emulation) {
  const test::PlanText plan = plan_of(given);
  const int steps = kWarmUp + given.steps + kLastSteps;
  std::vector<test::Host> hosts(static_cast<std::size_t>(plan.stages));
  for (test::Host& host : hosts) host.program = side.program;
  std::vector<std::string> words =
      emulation != nullptr
          ? emulation->common(steps)
          : std::vector{"--model=" + given.model, "--seq=" + std::to_string(given.sequence),
                        "--steps=" + std::to_string(steps)};
  words.emplace_back("--threads=1");
  words.insert(words.end(), side.words.begin(), side.words.end());
  const auto extra =
      emulation != nullptr ? emulation->devices() : std::vector<std::vector<std::string>>{};
  test::Workers workers(plan, words, extra, 0, hosts);
  if (!reaches(workers, kWarmUp)) return std::nullopt;
  const auto before = read(workers);
  if (!reaches(workers, kWarmUp + given.steps)) return std::nullopt;
  const auto after = read(workers);
  for (int i = 0; i < workers.count(); ++i) {
    if (workers[i].wait(std::chrono::minutes(10)) != 0) {
      std::fprintf(stderr, "%s\n", workers[i].errors().c_str());
      return std::nullopt;
    }
  }
  if (!before || !after || after->steps <= before->steps) return std::nullopt;
  Run run{.cpu = (after->cpu - before->cpu) / (after->steps - before->steps)};
  std::vector<double> times;
  for (const test::LoggedStep& step : workers.steps(0)) {
    if (step.step > kWarmUp) times.push_back(step.iteration_seconds);
  }
  run.step = median(times);
  run.losses = test::losses(workers.steps(plan.stages - 1));
  return run;
}

int compare(const Given& given, const Side& with, const Side& without,
            const test::SlowReplica* emulation = nullptr) {
  std::vector<double> steps, cpus;  // with over without, by round
  std::vector<std::string> losses;
  for (int round = 0; round < given.rounds; ++round) {
    std::map<std::string, Run> runs;
    for (const Side* const side : {&with, &without}) {
      const auto run = run_of(given, *side, emulation);
      if (!run) return kFail;
      std::printf("  %-8s step %.3f ms, CPU %.3f ms a step\n", side->name, 1e3 * run->step,
                  1e3 * run->cpu);
      std::fflush(stdout);
      if (losses.empty()) losses = run->losses;
      if (run->losses != losses || losses.empty()) {
        std::printf("FAIL: the losses differ\n");
        return kFail;
      }
      runs[side->name] = *run;
    }
    steps.push_back(runs[with.name].step / runs[without.name].step);
    cpus.push_back(runs[with.name].cpu / runs[without.name].cpu);
  }
  const auto tell = [&](const char* what, std::vector<double> ratios) {
    std::ranges::sort(ratios);
    std::printf("%s over %s, %s: %.4f (%.4f to %.4f in %zu rounds)\n", with.name, without.name,
                what, median(ratios), ratios.front(), ratios.back(), ratios.size());
  };
  tell("step", steps);
  tell("CPU", cpus);
  return 0;
}

int run(const Given& given) {
  if (given.of == "parts") {
    return compare(given, {"booked", WEIR_WORKER, {}}, {"unbooked", WEIR_UNWATCHED_WORKER, {}});
  }
  const Side on{"on", WEIR_WORKER, {}}, off{"off", WEIR_WORKER, {"--flight-events=0"}};
  if (given.of == "e1") {
    constexpr int kStages = 4;
    const test::SlowReplica emulation(1, kStages, 1);
    return compare(given, on, off, &emulation);
  }
  std::printf("real compute, %s\n", given.model.c_str());
  if (const int failed = compare(given, on, off); failed != 0) return failed;
  std::printf("emulated compute, %d us a micro-batch\n", given.op_us);
  const test::SlowReplica emulation(1, 2, 1, 1e-6 * given.op_us);
  return compare(given, on, off, &emulation);
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  weir::bench::Given given;
  const std::map<std::string, int*> numbers{{"--seq", &given.sequence},
                                            {"--steps", &given.steps},
                                            {"--rounds", &given.rounds},
                                            {"--micro-batches", &given.micro_batches},
                                            {"--op-us", &given.op_us}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], key = word.substr(0, word.find('='));
    const std::string value = key.size() == word.size() ? "" : word.substr(key.size() + 1);
    const auto number = numbers.find(key);
    if (word == "--of=parts" || word == "--of=recorder" || word == "--of=e1") {
      given.of = value;
    } else if (key == "--model") {
      given.model = value;
    } else if (number != numbers.end() && std::atoi(value.c_str()) > 0) {
      *number->second = std::atoi(value.c_str());
    } else {
      std::fprintf(stderr,
                   "stopwatch_bench [--of=parts|recorder|e1] [--model=NAME] [--seq=N] [--steps=N] "
                   "[--rounds=N] [--micro-batches=N] [--op-us=N]\n");
      return weir::bench::kWrongUse;
    }
  }
  return weir::bench::run(given);
}
