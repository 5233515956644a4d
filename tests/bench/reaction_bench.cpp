// SPDX-License-Identifier: Apache-2.0
// What window, scrape interval, tick and the rules between two evaluations cost and gain, in seeded
// simulation: seconds from a link's fall to the change of plan (mean and longest over phases of the
// tick), changes in quiet time under noise, changes and loss against the best fixed plan under
// bursts. Nothing sleeps.
//   reaction_bench [--seeds=N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/sim/tuned_job.h"
#include "worker/schedule/caps.h"

namespace weir::bench {
namespace {

using sim::Job;
using sim::Loop;
using sim::TunedJob;

struct Setting {
  const char* name;
  double scrape, window, tick;
  int steps_apart, scrapes_apart, used;
  double min_gain, min_gain_size;
};

// S=4, M=32, f=10 ms, b=20 ms.
Job plain_job(double transfer) {
  Job job;
  job.samples = 32;
  job.forward = 0.010;
  job.overhead = 0;
  job.transfer.assign(3, transfer);
  return job;
}
// 64 samples, 32 in flight, sizes 1 to 8: E6 and E8.
Job sized_job() {
  constexpr double kUnit = 0.004;
  Job job;
  job.forward = kUnit;
  job.samples_in_flight = 32;
  job.transfer.assign(3, 0.15 * kUnit);
  job.sizes = {1, 2, 4, 8};
  return job;
}

Loop loop_of(const Setting& setting, double noise) {
  Loop loop;
  loop.scrape = setting.scrape;
  loop.window = setting.window;
  loop.tick = setting.tick;
  loop.rate_noise = noise;
  loop.settings.rules.cooldown = std::chrono::seconds(0);
  loop.settings.min_steps_evaluated = setting.steps_apart;
  loop.settings.min_scrapes_evaluated = setting.scrapes_apart;
  loop.used_scrapes = setting.used;
  loop.settings.rules.least_gain = setting.min_gain;
  loop.settings.min_gain_size = setting.min_gain_size;
  return loop;
}

schedule::Schedule settled(const Job& job) {
  return sim::best_when_free(job, sim::fixed_plans(job, schedule::Dispatch::kHint));
}

struct Reaction {
  double mean = 0, longest = 0;  // seconds; longest < 0: never in 200 steps
};
// Link 1 goes from `before` to `after`.
Reaction reaction(const Setting& setting, double before, double after, double noise, int seeds) {
  Reaction result;
  for (int seed = 0; seed < seeds; ++seed) {
    const Job job = plain_job(before);
    schedule::Schedule first;  // 1F1B; the tuner settles by itself
    first.dispatch = schedule::Dispatch::kStrict;
    first.caps = schedule::kfkb_caps(job.stages, job.samples, 1);
    TunedJob run(job, loop_of(setting, noise), first, static_cast<std::uint64_t>(seed + 1));
    run.run(100);
    run.next_tick_in(setting.tick * seed / seeds);
    run.set_transfer(1, after);
    const std::size_t known = run.switches().size();
    const double fell = run.time();
    for (int i = 0; i < 200 && run.switches().size() == known; ++i) run.run(1);
    if (run.switches().size() == known) return {-1, -1};
    const double took = run.switches()[known].time - fell;
    result.mean += took / seeds;
    result.longest = std::max(result.longest, took);
  }
  return result;
}

// Changes per 1000 steps on links that only scatter.
double restless(const Setting& setting, double noise, int seeds) {
  std::size_t changes = 0, steps = 0;
  for (const double transfer : {0.001, 0.0025, 0.0075}) {
    for (int seed = 1; seed <= seeds; ++seed) {
      const Job job = plain_job(transfer);
      Loop loop = loop_of(setting, noise);
      loop.step_noise = 0.05;
      TunedJob run(job, loop, settled(job), static_cast<std::uint64_t>(seed));
      run.run(200);
      const std::size_t known = run.switches().size();
      run.run(2000);
      changes += run.switches().size() - known;
      steps += 2000;
    }
  }
  return 1000.0 * static_cast<double>(changes) / static_cast<double>(steps);
}

struct Bursts {
  double regret = 0, switches = 0;  // percent, per 100 steps
};
Bursts under_bursts(const Setting& setting, double mean_burst, int seeds,
                    std::vector<std::vector<double>>& fixed) {
  constexpr double kSeconds = 800;
  double best = 0, tuned = 0, steps = 0, switches = 0;
  std::vector<double> sums;
  for (int seed = 1; seed <= seeds; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    Job job = sized_job();
    for (int b = 0; b < 3; ++b)
      job.shares.push_back(sim::bursts(random, 0.08, mean_burst, 0.5, 1.5 * kSeconds));
    const auto plans = sim::fixed_plans(job, schedule::Dispatch::kHint);
    const auto index = static_cast<std::size_t>(seed - 1);
    if (fixed.size() <= index) {  // the same for every setting
      fixed.emplace_back();
      for (const auto& plan : plans) fixed[index].push_back(sim::throughput(job, plan, kSeconds));
    }
    sums.resize(plans.size());
    for (std::size_t i = 0; i < plans.size(); ++i) sums[i] += fixed[index][i];
    TunedJob run(job, loop_of(setting, 0.05), sim::best_when_free(job, plans),
                 static_cast<std::uint64_t>(seed));
    run.run_until(kSeconds);
    tuned += static_cast<double>(run.steps().size()) / run.time();
    steps += static_cast<double>(run.steps().size());
    switches += static_cast<double>(run.switches().size());
  }
  best = *std::max_element(sums.begin(), sums.end());
  return {100 * (1 - tuned / best), 100 * switches / steps};
}

int run(int argc, char** argv) {
  int seeds = 8;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--seeds=")) {
      std::fprintf(stderr, "reaction_bench [--seeds=N]\n");
      return 2;
    }
    seeds = std::max(1, std::atoi(word.c_str() + 8));
  }
  const Setting settings[] = {
      {"5/30/15 st4 s5", 5, 30, 15, 4, 2, 16, .03, .05},
      {"5/30/15", 5, 30, 15, 2, 2, 16, .03, .03},
      {"5/20/5", 5, 20, 5, 2, 2, 16, .03, .03},
      {"2/10/5 st4", 2, 10, 5, 4, 2, 16, .03, .03},
      {"2/10/5", 2, 10, 5, 2, 2, 16, .03, .03},
      {"2/10/5 V8", 2, 10, 5, 2, 2, 8, .03, .03},
      {"2/30/5", 2, 30, 5, 2, 2, 16, .03, .03},
      {"1/5/5", 1, 5, 5, 2, 2, 16, .03, .03},
      {"1/5/2 st1", 1, 5, 2, 1, 2, 16, .03, .03},
      {"1/5/5 V32", 1, 5, 5, 2, 2, 32, .03, .03},
      {"2/10/5 h2", 2, 10, 5, 2, 2, 16, .02, .02},
      {"2/10/5 h1", 2, 10, 5, 2, 2, 16, .01, .01},
  };
  std::printf(
      "scrape/window/tick s; st: least steps between evaluations, else 2; V: vectors, else 16; h: "
      "least gain %%, else 3; s: of sizes\n"
      "seconds to change when link 1 goes 0.4 -> 25 ms, 7.5 -> 30, 2.5 -> 25: mean (longest) of %d "
      "phases | changes per 1000 quiet steps at 5 and 20 %% noise | regret %% and changes per 100 "
      "steps, bursts of 2.4, 12, 48 s\n",
      seeds);
  std::vector<std::vector<double>> fixed[3];
  const double mean_bursts[3] = {2.4, 12, 48};
  for (const Setting& setting : settings) {
    const Reaction large = reaction(setting, 0.0004, 0.025, 0.05, seeds);
    const Reaction middle = reaction(setting, 0.0075, 0.030, 0.05, seeds);
    const Reaction small = reaction(setting, 0.0025, 0.025, 0.05, seeds);
    std::printf("%-14s | %5.1f (%5.1f) | %5.1f (%5.1f) | %5.1f (%5.1f) | %5.2f %5.2f |",
                setting.name, large.mean, large.longest, middle.mean, middle.longest, small.mean,
                small.longest, restless(setting, 0.05, seeds), restless(setting, 0.20, seeds));
    for (int i = 0; i < 3; ++i) {
      const Bursts bursts = under_bursts(setting, mean_bursts[i], std::min(seeds, 4), fixed[i]);
      std::printf(" %5.2f %4.2f |", bursts.regret, bursts.switches);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  return weir::bench::run(argc, argv);
}
