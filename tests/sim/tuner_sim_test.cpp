// SPDX-License-Identifier: Apache-2.0
// Experiments E6 and E8 (tests/bench/README.md "Experiments"): is the right plan chosen, how much
// is lost against the best plan in hindsight, how often is it changed. Short here; WEIR_FULL=1 runs
// thousands of steps. A failing case prints its seed.

#include <gtest/gtest.h>

#include "tests/sim/seeds.h"
#include "tests/sim/tuned_job.h"
#include "worker/base/units.h"
#include "worker/schedule/caps.h"

namespace weir::sim {
namespace tuner_sim_test {

constexpr double kUnit = 0.004;  // seconds of one forward of one sample

// 64 samples a step, 32 in flight, f(mb) = mb + 1/2, b = 2f, c = c1 mb.
Job sized_job(double c1) {
  Job job;
  job.forward = kUnit;
  job.samples_in_flight = 32;
  job.transfer.assign(3, c1 * kUnit);
  job.sizes = {1, 2, 4, 8};
  return job;
}

Loop test_loop(schedule::Dispatch dispatch) {
  Loop loop;
  loop.settings.dispatch = dispatch;
  loop.settings.rules.cooldown = std::chrono::seconds(0);
  loop.settings.rules.least_gain = 0.02;  // small gains show how close it comes to the best
  loop.settings.min_gain_size = 0.02;
  return loop;
}

schedule::Schedule kfkb(const Job& job, int size, int k) {
  schedule::Schedule plan;
  plan.micro_batch_size = size;
  plan.k = k;
  plan.caps = schedule::kfkb_caps(job.stages, job.samples / size, k);
  plan.dispatch = schedule::Dispatch::kStrict;
  return plan;
}

double free_step(const Job& job, const schedule::Schedule& plan) {
  return to_seconds(schedule::simulate(plan, job.samples / plan.micro_batch_size,
                                       job.model(plan.micro_batch_size))
                        ->step);
}

TEST(E6, KAndSizeUnderMemoryAreChosenTogether) {
  struct Case {
    double c1;
    int k, size;
    double gain;  // over the best 1F1B, percent
  };
  // The published choice has k = 2 at c1 = 1 and k = 4 at c1 = 2: k = 3 takes the same time and has
  // more in reserve, or less in flight.
  const Case cases[] = {{0.001, 1, 4, 0}, {0.25, 2, 4, 8.4}, {1, 3, 2, 33.5}, {2, 3, 2, 61.7}};
  for (const Case& it : cases) {
    const Job job = sized_job(it.c1);
    double best_1f1b = 1e9;
    for (const int size : job.sizes)
      best_1f1b = std::min(best_1f1b, free_step(job, kfkb(job, size, 1)));
    // From the largest size, whose 1F1B is far from the best.
    TunedJob tuned(job, test_loop(schedule::Dispatch::kStrict), kfkb(job, 8, 1), 1);
    tuned.run(120);
    EXPECT_EQ(tuned.current().k, it.k) << it.c1;
    EXPECT_EQ(tuned.current().micro_batch_size, it.size) << it.c1;
    EXPECT_NEAR(100 * (best_1f1b / free_step(job, tuned.current()) - 1), it.gain, 4) << it.c1;
    EXPECT_LE(tuned.switches().size(), 2U) << it.c1;
  }
}

struct Regret {
  double tuned = 0, best = 0, baseline = 0;  // steps per second, mean over seeds
  double switches_per_100 = 0;
  std::string best_plan, last_plan;  // the latter of the last seed
  double percent() const { return 100 * (1 - tuned / best); }
};

// E8: share .08 half of the time on each link, 5 % noise, against every fixed plan in hindsight.
// weights: part of a backward; 0: whole ones.
Regret regret_of(schedule::Dispatch dispatch, double mean_burst, double seconds, int seeds,
                 const Loop& loop, double weights) {
  Job usual = sized_job(0.15);
  usual.weights = weights;
  Regret result;
  std::vector<double> fixed;
  double steps = 0, switches = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    Job job = usual;
    for (int b = 0; b < 3; ++b)
      job.shares.push_back(bursts(random, 0.08, mean_burst, 0.5, 1.5 * seconds));
    const auto plans = fixed_plans(job, dispatch);
    fixed.resize(plans.size());
    for (std::size_t i = 0; i < plans.size(); ++i)
      fixed[i] += throughput(job, plans[i], seconds) / seeds;
    result.baseline += throughput(job, kfkb(job, 4, 1), seconds) / seeds;
    TunedJob tuned(job, loop, best_when_free(job, plans), static_cast<std::uint64_t>(seed));
    tuned.run_until(seconds);
    result.tuned += static_cast<double>(tuned.steps().size()) / tuned.time() / seeds;
    steps += static_cast<double>(tuned.steps().size());
    switches += static_cast<double>(tuned.switches().size());
    result.last_plan = costing::describe(tuned.current());
  }
  const auto best = std::max_element(fixed.begin(), fixed.end());
  result.best = *best;
  result.best_plan = costing::describe(
      fixed_plans(usual, dispatch)[static_cast<std::size_t>(best - fixed.begin())]);
  result.switches_per_100 = 100 * switches / steps;
  return result;
}

void expect_little_regret(double mean_burst_steps, double seconds, int seeds) {
  constexpr double kStep = 1.1;  // seconds
  for (const auto dispatch : {schedule::Dispatch::kStrict, schedule::Dispatch::kHint}) {
    Loop loop = test_loop(dispatch);
    loop.rate_noise = 0.05;
    const Regret regret = regret_of(dispatch, mean_burst_steps * kStep, seconds, seeds, loop, 0);
    std::printf(
        "%s, mean burst %4.1f steps: over 1F1B %.3f, best fixed %.3f, regret %.2f %%, %.2f "
        "switches per 100 steps, ends with %s, best %s\n",
        schedule::name(dispatch), mean_burst_steps, regret.tuned / regret.baseline,
        regret.best / regret.baseline, regret.percent(), regret.switches_per_100,
        regret.last_plan.c_str(), regret.best_plan.c_str());
    EXPECT_LE(regret.percent(), 1.5) << schedule::name(dispatch) << " " << mean_burst_steps;
    EXPECT_LE(regret.switches_per_100, 2) << schedule::name(dispatch) << " " << mean_burst_steps;
    EXPECT_GT(regret.tuned / regret.baseline, 1.2);
  }
}

// The same with plans whose backwards are split, half of them weight gradients: more candidates
// must not cost more changes.
void expect_little_regret_split(double mean_burst_steps, double seconds, int seeds) {
  constexpr double kStep = 1.1;    // seconds
  constexpr double kAsMany = 0.1;  // changes in 100 steps that count as no more
  constexpr auto kHint = schedule::Dispatch::kHint;
  Loop loop = test_loop(kHint);
  loop.rate_noise = 0.05;
  const double burst = mean_burst_steps * kStep;
  const Regret whole = regret_of(kHint, burst, seconds, seeds, loop, 0);
  loop.settings.splits = true;
  const Regret split = regret_of(kHint, burst, seconds, seeds, loop, 0.5);
  std::printf(
      "split, mean burst %4.1f steps: over whole %.3f, regret %.2f %%, %.2f switches per 100 steps "
      "(whole %.2f), ends with %s, best %s\n",
      mean_burst_steps, split.tuned / whole.tuned, split.percent(), split.switches_per_100,
      whole.switches_per_100, split.last_plan.c_str(), split.best_plan.c_str());
  EXPECT_LE(split.percent(), 1.5) << mean_burst_steps;
  EXPECT_LE(split.switches_per_100, whole.switches_per_100 + kAsMany) << mean_burst_steps;
  EXPECT_GT(split.tuned / whole.tuned, 1.03) << mean_burst_steps;
}

TEST(E8, SplitBackwardsGainAndLoseLittleAgainstTheBestFixedPlan) {
#ifdef WEIR_SANITIZED
  GTEST_SKIP() << "minutes under a sanitizer";
#endif
  if (!full_run()) return expect_little_regret_split(2.2, 800, 1);
  for (const double burst : {0.1, 0.6, 2.2, 11.0, 44.0}) expect_little_regret_split(burst, 1000, 4);
}

// E6 with split backwards: no more changes than with whole ones, and never a longer step.
TEST(E6, SplitBackwardsAreChosenTogetherWithKAndSize) {
  for (const double c1 : {0.001, 0.25, 1.0, 2.0}) {
    Job job = sized_job(c1);
    TunedJob whole(job, test_loop(schedule::Dispatch::kHint), kfkb(job, 8, 1), 1);
    whole.run(120);
    job.weights = 0.5;
    Loop loop = test_loop(schedule::Dispatch::kHint);
    loop.settings.splits = true;
    TunedJob split(job, loop, kfkb(job, 8, 1), 1);
    split.run(120);
    EXPECT_TRUE(split.current().split) << c1;
    EXPECT_LE(split.switches().size(), std::max<std::size_t>(2, whole.switches().size())) << c1;
    EXPECT_LT(free_step(job, split.current()), 0.98 * free_step(job, whole.current())) << c1;
  }
}

TEST(E8, LittleIsLostAgainstTheBestFixedPlan) {
#ifdef WEIR_SANITIZED
  GTEST_SKIP() << "minutes under a sanitizer, of code that the next two run as well";
#endif
  if (!full_run()) return expect_little_regret(2.2, 800, 1);
  for (const double burst : {0.1, 0.6, 2.2, 11.0, 44.0}) expect_little_regret(burst, 1000, 4);
}

TEST(E8, TwoThousandQuietStepsSwitchNothing) {
  for (int seed = 1; seed <= (full_run() ? 20 : 2); ++seed)
    for (const auto& [c1, splits] : {std::pair(0.02, false),
                                     {0.15, false},
                                     {0.6, false},
                                     {0.02, true},
                                     {0.15, true},
                                     {0.6, true}}) {
      Job job = sized_job(c1);
      job.weights = splits ? 0.5 : 0;
      Loop loop = test_loop(schedule::Dispatch::kHint);
      loop.rate_noise = 0.05;
      loop.step_noise = 0.05;
      loop.settings.splits = splits;
      // From wherever the tuner settles.
      TunedJob tuned(job, loop, best_when_free(job, fixed_plans(job, schedule::Dispatch::kHint)),
                     static_cast<std::uint64_t>(seed));
      tuned.run(100);
      const std::size_t settled = tuned.switches().size();
      tuned.run(2000);
      EXPECT_EQ(tuned.switches().size(), settled)
          << "seed " << seed << " c1 " << c1 << ": " << tuned.switches().back().text;
    }
}

// The profile says that 32 samples fit, a device holds hardly more: caps go down until 2 % are
// free, and no later plan fills it again, whatever the links do.
TEST(MemoryGuard, LowersCapsUntilThereIsRoomAndRemembers) {
  for (int seed = 1; seed <= (full_run() ? 20 : 2); ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    Job job = sized_job(0.6);
    job.real_samples = 32.2;
    for (int b = 0; b < 3; ++b) job.shares.push_back(bursts(random, 0.08, 12, 0.5, 1500));
    Loop loop = test_loop(schedule::Dispatch::kHint);
    loop.rate_noise = 0.05;
    TunedJob tuned(job, loop, kfkb(job, 2, 4), static_cast<std::uint64_t>(seed));  // 32 on stage 0
    EXPECT_LT(tuned.least_free(), 0.02);
    tuned.run(40);
    EXPECT_GE(tuned.alarms(), 1) << "seed " << seed;
    for (int step = 0; step < 200; ++step) {
      tuned.run(1);
      ASSERT_GE(tuned.least_free(), 0.02) << "seed " << seed << " step " << step;
    }
    EXPECT_LE(tuned.alarms(), 2) << "seed " << seed;
  }
}

// Rare preemptions and dear small micro-batches: one plan is best all the time.
TEST(E8, WhereOneRobustPlanIsBestItStays) {
  Random random(7);
  Job job = sized_job(0.15);
  job.overhead = 2;
  for (int b = 0; b < 3; ++b) job.shares.push_back(bursts(random, 0.06, 5, 0.15, 3000));
  Loop loop = test_loop(schedule::Dispatch::kStrict);
  loop.rate_noise = 0.05;
  TunedJob tuned(job, loop, kfkb(job, 4, 2), 7);
  tuned.run(full_run() ? 1500 : 300);
  EXPECT_LE(100.0 * static_cast<double>(tuned.switches().size()) /
                static_cast<double>(tuned.steps().size()),
            1.0);
}

}  // namespace tuner_sim_test
}  // namespace weir::sim
