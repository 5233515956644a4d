// SPDX-License-Identifier: Apache-2.0
// The tuner against the simulator as the job, in virtual time: how soon it answers a change of a
// link (tests/bench/RESULTS.md "Tuner in simulation (E6, E8)"). A failing case prints its seed.
#include <cmath>

#include <gtest/gtest.h>

#include "operator/adaptation/retune/tune.h"
#include "operator/estimator/link_model.h"
#include "worker/base/random.h"
#include "worker/base/units.h"
#include "worker/schedule/simulator.h"

namespace weir::retune {
namespace closed_loop_test {

using namespace std::chrono_literals;
using estimator::Direction;

constexpr double kBytes = 120'000;

struct Loop {
  int micro_batches = 32;
  schedule::StageTime stage{10ms, 20ms};
  std::vector<double> transfer{0.0025, 0.0025, 0.0025};  // seconds
  double scrape = 1, window = 5, tick = 5;               // seconds
  double noise = 0;
  Settings settings;
  Random random{1};

  std::vector<double> steps;  // seconds
  std::vector<std::pair<std::size_t, std::string>> switches;
  std::vector<double> switch_times;
  double time = 0;

  Loop() {
    settings.rules.cooldown = std::chrono::seconds(0);
    current.dispatch = schedule::Dispatch::kStrict;
    current.caps = schedule::kfkb_caps(4, micro_batches, 1);
  }

  void run(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      one_step();
      while (time >= next_scrape) take_scrape();
      while (time >= next_tick) evaluate();
    }
  }
  double mean(std::size_t first, std::size_t end) const {
    double sum = 0;
    for (std::size_t i = first; i < end; ++i) sum += steps[i];
    return sum / static_cast<double>(end - first);
  }

 private:
  void one_step() {
    schedule::PipelineModel model;
    model.stages.assign(4, stage);
    std::vector<double> c = transfer;
    for (double& seconds : c) seconds *= std::exp(noise * random.normal());
    for (const double seconds : c) model.forward.push_back({from_seconds(seconds)});
    model.backward = model.forward;
    const double step = to_seconds(schedule::simulate(current, micro_batches, model)->step);
    time += step;
    steps.push_back(step);
    history.emplace_back(time, c);
  }

  void take_scrape() {
    estimator::Scrape scrape_now{at(next_scrape), {}};
    for (int b = 0; b < 3; ++b) {
      double sum = 0;
      int count = 0;
      for (const auto& [end, c] : history) {
        if (end <= next_scrape - window) continue;
        sum += c[static_cast<std::size_t>(b)];
        ++count;
      }
      if (count == 0) continue;
      for (const Direction direction : {Direction::kForward, Direction::kBackward})
        scrape_now.links.push_back({{0, b, direction}, "", "", kBytes * count / sum, 0});
    }
    estimator::add_scrapes(links, {scrape_now});
    next_scrape += scrape;
    std::erase_if(history, [&](const auto& entry) { return entry.first < time - 2 * window; });
  }

  void evaluate() {
    Input input;
    input.current = current;
    input.micro_batches = micro_batches;
    input.stages.assign(4, stage);
    input.boundary_bytes.assign(3, static_cast<std::int64_t>(kBytes));
    input.rates = estimator::estimates_of(links, estimator::Freshness::kFresh, at(time), 1h).rates;
    input.step = static_cast<std::int64_t>(steps.size());
    input.measured_step_seconds = steps.back();
    input.now = at(time);
    input.settings = settings;
    Tuned tuned = tune(input, state);
    state = std::move(tuned.state);
    if (tuned.decision.change) {
      current = tuned.decision.change->schedule;
      switches.emplace_back(steps.size(), tuned.decision.change->text);
      switch_times.push_back(time);
    }
    next_tick += tick;
  }

  static SystemTime at(double seconds) {
    return SystemTime(std::chrono::milliseconds(std::llround(1e3 * seconds)));
  }

 public:
  schedule::Schedule current;

 private:
  State state;
  estimator::LinkModelState links;
  std::vector<std::pair<double, std::vector<double>>> history;
  double next_scrape = 0, next_tick = 5;
};

// E5: link 1 at 2.5, then 25 (steps 100-199), then 2.5 ms.
void run_e5(Loop& loop) {
  loop.run(100);
  loop.transfer[1] = 0.025;
  loop.run(100);
  loop.transfer[1] = 0.0025;
  loop.run(100);
}

TEST(ClosedLoop, HintFollowsAPreemptedLink) {
  Loop loop;
  run_e5(loop);

  EXPECT_NEAR(loop.mean(20, 100), 1.065, 0.01) << "1F1B would take 1.180";
  EXPECT_LE(loop.mean(130, 200), 1.170) << "1F1B 1.865, best 1.110";
  EXPECT_LE(loop.switches.size(), 2U);
  ASSERT_GE(loop.switches.size(), 1U);
  EXPECT_LE(loop.switches.back().first, 130U);
  EXPECT_LE(loop.mean(220, 300), 1.08);
  for (std::size_t i = 0; i < loop.switches.size(); ++i) {
    RecordProperty("switch_" + std::to_string(i),
                   std::to_string(loop.switches[i].first) + " " + loop.switches[i].second);
  }
}

TEST(ClosedLoop, StrictFollowsByKAlone) {
  Loop loop;
  loop.settings.dispatch = schedule::Dispatch::kStrict;
  run_e5(loop);

  EXPECT_LE(loop.mean(130, 200), 1.340);
  EXPECT_LE(loop.switches.size(), 3U);
  EXPECT_EQ(loop.current.dispatch, schedule::Dispatch::kStrict);
}

TEST(ClosedLoop, DefaultsReactWithin60Steps) {
  Loop loop;
  loop.scrape = 5;
  loop.window = 30;
  loop.tick = 15;
  loop.transfer.assign(3, 0.0075);
  loop.settings.rules.cooldown = std::chrono::seconds(60);
  loop.run(200);
  const std::size_t before = loop.switches.size();
  loop.transfer[1] = 0.030;
  loop.run(100);
  ASSERT_GT(loop.switches.size(), before);
  EXPECT_LE(loop.switches[before].first, 260U) << "36 simulated: 48 s";
}

// The demo: default scrapes and ticks, 40 Mbit/s left of one link. Whatever the phase of the tick.
TEST(ClosedLoop, TheDemoReactsWithin60Seconds) {
  for (std::size_t quiet_steps = 60; quiet_steps < 75; ++quiet_steps) {
    Loop loop;
    loop.stage = {20ms, 40ms};
    loop.micro_batches = 16;
    loop.current.caps = schedule::kfkb_caps(4, 16, 1);
    loop.transfer.assign(3, 0.0004);
    loop.scrape = 5;
    loop.window = 30;
    loop.tick = 15;
    loop.settings.rules.cooldown = std::chrono::seconds(60);
    loop.run(quiet_steps);
    ASSERT_TRUE(loop.switches.empty());
    const double preempted_at = loop.time, quiet = loop.mean(0, quiet_steps);
    loop.transfer[1] = 0.024;
    loop.run(60);
    ASSERT_FALSE(loop.switches.empty());
    EXPECT_LE(loop.switch_times.front() - preempted_at, 60) << "after " << quiet_steps;
    EXPECT_LE(loop.steps.back() / loop.steps[quiet_steps + 1], 0.80);

    loop.transfer[1] = 0.0004;
    loop.run(100);
    EXPECT_LE(loop.steps.back(), 1.02 * quiet);
    EXPECT_LE(loop.switches.size(), 3U);
  }
}

TEST(ClosedLoop, TwoThousandQuietStepsWithNoiseSwitchNothing) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    Loop loop;
    loop.random = Random(seed);
    loop.noise = 0.05;
    loop.stage = {20ms, 40ms};
    loop.micro_batches = 16;
    loop.current.caps = schedule::kfkb_caps(4, 16, 1);
    loop.transfer.assign(3, 0.0004);  // c/f = 0.02: k=1 is right
    loop.run(2000);
    EXPECT_TRUE(loop.switches.empty()) << "seed " << seed << ": " << loop.switches[0].second;
  }
}

TEST(ClosedLoop, NoiseAroundATunedPlanSwitchesNothing) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    Loop loop;
    loop.random = Random(seed);
    loop.noise = 0.05;
    loop.transfer = {0.0025, 0.025, 0.0025};
    loop.run(100);
    const std::size_t settled = loop.switches.size();
    loop.run(1000);
    EXPECT_EQ(loop.switches.size(), settled)
        << "seed " << seed << ": " << loop.switches.back().second;
  }
}

}  // namespace closed_loop_test
}  // namespace weir::retune
