// SPDX-License-Identifier: Apache-2.0
// Cost of the parts of a step: a pipeline of two workers whose engine books all its time, beside
// one of workers whose engine books nothing (unwatched/), in turn, A B A B. Ratios of the median
// step and of the CPU time of a step; losses must be equal. The goal is 0.5 % of a step down to ops
// of 100 us, and 2 % of CPU time.
//   stopwatch_bench [--model=NAME] [--seq=N] [--steps=N] [--rounds=N] [--micro-batches=N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/multiproc/workers.h"

namespace weir::bench {
namespace {

constexpr int kFail = 1, kWrongUse = 2;
constexpr int kWarmUp = 20;    // steps
constexpr int kLastSteps = 2;  // that the workers still make while they are asked

struct Given {
  std::string model = "gpt-mini";
  int sequence = 32, steps = 200, rounds = 2, micro_batches = 16;
};

struct Run {
  double step = 0, cpu = 0;  // seconds: median, and of both workers a step
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

std::optional<Run> run_of(const Given& given, const char* program) {
  const test::PlanText plan{
      .k = 2, .micro_batches = given.micro_batches, .micro_batch_size = 1, .caps = {4, 2}};
  const int steps = kWarmUp + given.steps + kLastSteps;
  std::vector<test::Host> hosts(2);
  for (test::Host& host : hosts) host.program = program;
  test::Workers workers(plan,
                        {"--model=" + given.model, "--seq=" + std::to_string(given.sequence),
                         "--threads=1", "--steps=" + std::to_string(steps)},
                        {}, 0, hosts);
  if (!workers.reaches(0, kWarmUp)) return std::nullopt;
  const auto before = read(workers);
  if (!workers.reaches(0, kWarmUp + given.steps)) return std::nullopt;
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
  run.losses = test::losses(workers.steps(1));
  return run;
}

int compare(const Given& given) {
  std::vector<double> steps, cpus;  // booked over unbooked, by round
  std::vector<std::string> losses;
  for (int round = 0; round < given.rounds; ++round) {
    std::map<std::string, Run> runs;
    for (const auto& [name, program] :
         {std::pair{"booked", WEIR_WORKER}, std::pair{"unbooked", WEIR_UNWATCHED_WORKER}}) {
      const auto run = run_of(given, program);
      if (!run) return kFail;
      std::printf("  %-8s step %.3f ms, CPU %.3f ms a step\n", name, 1e3 * run->step,
                  1e3 * run->cpu);
      std::fflush(stdout);
      if (losses.empty()) losses = run->losses;
      if (run->losses != losses || losses.empty()) {
        std::printf("FAIL: the losses differ\n");
        return kFail;
      }
      runs[name] = *run;
    }
    steps.push_back(runs["booked"].step / runs["unbooked"].step);
    cpus.push_back(runs["booked"].cpu / runs["unbooked"].cpu);
  }
  const auto tell = [](const char* what, std::vector<double> ratios) {
    std::ranges::sort(ratios);
    std::printf("booked over unbooked, %s: %.4f (%.4f to %.4f in %zu rounds)\n", what,
                median(ratios), ratios.front(), ratios.back(), ratios.size());
  };
  tell("step", steps);
  tell("CPU", cpus);
  return 0;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  weir::bench::Given given;
  const std::map<std::string, int*> numbers{{"--seq", &given.sequence},
                                            {"--steps", &given.steps},
                                            {"--rounds", &given.rounds},
                                            {"--micro-batches", &given.micro_batches}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], key = word.substr(0, word.find('='));
    const std::string value = key.size() == word.size() ? "" : word.substr(key.size() + 1);
    const auto number = numbers.find(key);
    if (key == "--model") {
      given.model = value;
    } else if (number != numbers.end() && std::atoi(value.c_str()) > 0) {
      *number->second = std::atoi(value.c_str());
    } else {
      std::fprintf(stderr,
                   "stopwatch_bench [--model=NAME] [--seq=N] [--steps=N] [--rounds=N] "
                   "[--micro-batches=N]\n");
      return weir::bench::kWrongUse;
    }
  }
  return weir::bench::compare(given);
}
