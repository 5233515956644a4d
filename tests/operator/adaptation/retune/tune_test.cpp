// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/retune/tune.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "tests/operator/adaptation/retune/tuned_demo.h"
#include "worker/base/units.h"
#include "worker/schedule/simulator.h"
#include "worker/schedule/validate.h"

namespace weir::retune {
namespace tune_test {

using namespace test;
using estimator::LinkKey;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(Tuner, QuietDemoStaysAtK1) {
  const Tuned tuned = evaluate(quiet_demo());
  EXPECT_FALSE(tuned.decision.change.has_value());
  EXPECT_THAT(tuned.decision.reason, StartsWith("k=1 caps 4,3,2,1 Strict: 1.1"));
  EXPECT_THAT(tuned.decision.reason, HasSubstr("below the least gain of 3.0 %"));
  EXPECT_LT(tuned.decision.gain, 0.015);
}

TEST(Tuner, PreemptedDemoTakesAPlanOf78Percent) {
  const Tuned first = evaluate(preempted_demo());
  EXPECT_FALSE(first.decision.change.has_value()) << "only the second evaluation counts";
  EXPECT_EQ(first.decision.best, first.decision.candidates.front().text);
  EXPECT_EQ(first.decision.answer, "waits: seen once, needs a second evaluation");
  EXPECT_THAT(first.decision.reason, HasSubstr("waits: seen once"));
  EXPECT_EQ(first.state.record.wins_in_row, 1);

  const Tuned second = evaluate(preempted_demo(), 1, first.state);

  ASSERT_TRUE(second.decision.change.has_value()) << second.decision.reason;
  const Costed& change = *second.decision.change;
  EXPECT_GE(change.schedule.k, 2);
  EXPECT_NEAR(change.seconds / second.decision.current_seconds, 0.78, 0.015);
  EXPECT_NEAR(second.decision.gain, 1 / 0.78 - 1, 0.025);
  EXPECT_THAT(schedule::broken_rules(change.schedule, 4, 16), IsEmpty());
  EXPECT_EQ(change.text, costing::describe(change.schedule));
  EXPECT_THAT(second.decision.reason,
              HasSubstr("link 1-2 forward takes 24.0 ms a micro-batch at 40 Mbit/s"));
  EXPECT_EQ(second.state.record.wins_in_row, 0);
  EXPECT_EQ(second.state.last_change_step, 1004);
}

TEST(Tuner, CostsAreThoseOfTheSimulator) {
  const Input input = preempted_demo();
  const Tuned tuned = evaluate(input);
  schedule::PipelineModel model;
  model.stages = input.stages;
  for (const double c : {0.0004, 0.024, 0.0004}) model.forward.push_back({from_seconds(c)});
  model.backward = model.forward;
  for (const Costed& candidate : tuned.decision.candidates) {
    EXPECT_NEAR(candidate.seconds,
                to_seconds(schedule::simulate(candidate.schedule, 16, model)->step), 1e-6)
        << candidate.text;
  }
}

TEST(Tuner, HalfTheRoundTripIsLatency) {
  Input input = quiet_demo();
  const double without = evaluate(input).decision.current_seconds;
  for (const auto& [link, rates] : input.rates.rates) input.rates.rtt_seconds[link] = 0.004;
  // (2 x 3 + 15 x 2 x 3/4) transfers on the critical loop of 1F1B, 2 ms each.
  EXPECT_NEAR(evaluate(input).decision.current_seconds - without, 0.002 * 28, 0.003);
}

TEST(Tuner, CostsTheDistributionAndNotItsMean) {
  Input input = quiet_demo();
  auto& rates = input.rates.rates;
  for (std::size_t i = 0; i < 16; i += 2)
    for (const Direction direction : {Direction::kForward, Direction::kBackward})
      rates[{0, 1, direction}][i] = kBytes / 0.024;  // every second scrape
  const double free = evaluate(quiet_demo()).decision.current_seconds;
  const double preempted = evaluate(preempted_demo()).decision.current_seconds;
  EXPECT_NEAR(evaluate(input).decision.current_seconds, (free + preempted) / 2, 1e-6);
}

struct UnknownCase {
  const char* name;
  void (*spoil)(Input&);
  const char* reason;
};
TEST(Tuner, UnknownMeansNoChangeAndSaysWhy) {
  const UnknownCase cases[] = {
      {"no rates", [](Input& input) { input.rates = {}; }, "only 0 of 4 scrapes"},
      {"few scrapes", [](Input& input) { input.rates.times.resize(3); }, "only 3 of 4 scrapes"},
      {"a link was never seen",
       [](Input& input) { input.rates.rates.erase({0, 2, Direction::kBackward}); },
       "no rate known of link 2-3 backward"},
      {"a link never had traffic",
       [](Input& input) { input.rates.rates[{0, 0, Direction::kForward}].assign(16, kNoTraffic); },
       "no rate known of link 0-1 forward"},
      {"one replica is unseen",
       [](Input& input) { input.rates.rates[{1, 0, Direction::kForward}].assign(16, 1e6); },
       "no rate known of link 0-1 backward of replica 1"},
  };
  for (const UnknownCase& it : cases) {
    Input input = preempted_demo();
    it.spoil(input);
    State state;
    state.record.wins_in_row = 1;
    const Tuned tuned = evaluate(input, 1, state);
    EXPECT_FALSE(tuned.decision.change.has_value()) << it.name;
    EXPECT_THAT(tuned.decision.reason, HasSubstr(it.reason)) << it.name;
    EXPECT_EQ(tuned.state.record.wins_in_row, 0) << it.name;
    EXPECT_THAT(tuned.decision.candidates, IsEmpty()) << it.name;
  }
}

TEST(Tuner, AGapTakesTheNewestKnownRate) {
  Input input = preempted_demo();
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    auto& rates = input.rates.rates[{0, 1, direction}];
    for (std::size_t i = 4; i < 16; ++i) rates[i] = kNoTraffic;
    rates[0] = kNoTraffic;
  }
  EXPECT_NEAR(evaluate(input).decision.current_seconds,
              evaluate(preempted_demo()).decision.current_seconds, 1e-9);
}

TEST(Tuner, UsesOnlyTheNewest16) {
  Input input = preempted_demo();
  input.rates.times.insert(input.rates.times.begin(), 16, input.now - 1h);
  for (auto& [link, rates] : input.rates.rates) rates.insert(rates.begin(), 16, kBytes / 0.2);
  EXPECT_NEAR(evaluate(input).decision.current_seconds,
              evaluate(preempted_demo()).decision.current_seconds, 1e-9);
}

struct NothingCase {
  void (*make)(Input&);
  const char* reason;
};
TEST(Tuner, SomeJobsHaveNothingToTune) {
  const NothingCase cases[] = {
      {[](Input& input) { input.settings.family = schedule::Family::kOneFOneB; },
       "schedule.type is OneFOneB"},
      {[](Input& input) { input.settings.family = schedule::Family::kGpipe; },
       "schedule.type is GPipe"},
      {[](Input& input) { input.settings.fixed_caps = {4, 3, 2, 1}; }, "inFlightCaps are fixed"},
      {[](Input& input) { input.stages.pop_back(); }, "do not agree on the number of stages"},
      {[](Input& input) {
         input.stages.resize(1);
         input.boundary_bytes.clear();
         input.current.caps = {1};
       },
       "one stage has no link"},
  };
  for (const NothingCase& it : cases) {
    Input input = preempted_demo();
    it.make(input);
    const Tuned tuned = evaluate(input, 2);
    EXPECT_FALSE(tuned.decision.change.has_value());
    EXPECT_THAT(tuned.decision.reason, HasSubstr(it.reason));
  }
}

// Regroup, replace and codecs act for such jobs, too, and need to know what a step takes.
TEST(Tuner, CostsTheOrderThatIsFixed) {
  for (const bool caps : {false, true}) {
    Input input = preempted_demo();
    if (caps) input.settings.fixed_caps = input.current.caps;
    if (!caps) {
      input.settings.family = input.current.family = schedule::Family::kGpipe;
      input.current.caps.assign(input.current.caps.size(), input.micro_batches);
    }
    const Tuned tuned = evaluate(input);
    EXPECT_FALSE(tuned.decision.change.has_value());
    ASSERT_EQ(tuned.decision.candidates.size(), 1U);
    EXPECT_EQ(tuned.decision.candidates[0].schedule.caps, input.current.caps);
    EXPECT_GT(tuned.decision.current_seconds, 0);
  }
}

TEST(Tuner, TheLeastGainIsTheUsers) {
  Input input = quiet_demo();
  for (int b = 0; b < 3; ++b) set_transfer(input, b, 0.0018);  // gain about 5 %
  EXPECT_TRUE(evaluate(input, 2).decision.change.has_value());
  input.settings.rules.least_gain = 0.08;
  EXPECT_FALSE(evaluate(input, 2).decision.change.has_value());
  EXPECT_GT(evaluate(input).decision.gain, 0.03);
}

// The gain that is compared with the least gain is the one that is shown: of throughput.
TEST(Tuner, TheGainThatItShowsIsTheOneThatItCompares) {
  Input input = quiet_demo();
  for (int b = 0; b < 3; ++b) set_transfer(input, b, 0.0018);
  const Tuned tuned = evaluate(input);
  const auto best =
      std::ranges::find(tuned.decision.candidates, tuned.state.record.wanted, &Costed::text);
  ASSERT_NE(best, tuned.decision.candidates.end()) << tuned.decision.reason;
  const double gain = tuned.decision.current_seconds / best->seconds - 1;
  EXPECT_DOUBLE_EQ(tuned.decision.gain, gain);
  for (const double margin : {-0.001, 0.001}) {  // saved time is less than both
    input.settings.rules.least_gain = gain + margin;
    EXPECT_EQ(evaluate(input, 2).decision.change.has_value(), margin < 0) << gain;
  }
}

TEST(Tuner, WaitsEightStepsAfterAChange) {
  Input input = preempted_demo();
  State state;
  state.last_change_step = 999;
  EXPECT_THAT(evaluate(input, 2, state).decision.reason,
              HasSubstr("waits: 5 steps since the last change, at least 8"));
  state.last_change_step = 996;
  EXPECT_TRUE(evaluate(input, 2, state).decision.change.has_value());
}

TEST(Tuner, WaitsForTheCooldown) {
  Input input = preempted_demo();
  State state;
  state.clock.last_change = input.now - 30s;
  EXPECT_THAT(evaluate(input, 2, state).decision.reason, HasSubstr("waits: cooldown: 45 of 60 s"));
  EXPECT_TRUE(evaluate(input, 3, state).decision.change.has_value());
  state.clock.cooldown = 120s;  // doubled after a missed gain
  EXPECT_FALSE(evaluate(input, 3, state).decision.change.has_value());
  input.settings.rules.cooldown = 0s;  // a user who asks does not wait
  EXPECT_TRUE(evaluate(input, 2, state).decision.change.has_value());
}

TEST(Tuner, AWinOnlyCountsInARow) {
  State state = evaluate(preempted_demo()).state;
  state = evaluate(quiet_demo(), 1, state).state;
  EXPECT_EQ(state.record.wins_in_row, 0);
  EXPECT_FALSE(evaluate(preempted_demo(), 1, state).decision.change.has_value());
}

TEST(Tuner, AQuarantinedPlanIsNoCandidateUntilItsStep) {
  const Tuned usual = evaluate(preempted_demo(), 2);
  ASSERT_TRUE(usual.decision.change.has_value());
  State state;
  state.record.quarantine[usual.decision.change->text] = 1100;

  const Tuned other = evaluate(preempted_demo(), 2, state);
  ASSERT_TRUE(other.decision.change.has_value());
  EXPECT_NE(other.decision.change->text, usual.decision.change->text);

  Input later = preempted_demo();
  later.step = 1100;
  const Tuned back = evaluate(later, 2, state);
  EXPECT_EQ(back.decision.change->text, usual.decision.change->text);
  EXPECT_THAT(back.state.record.quarantine, IsEmpty());
}

TEST(Tuner, CostsAgainOnlyWhenSomethingMoved) {
  const Tuned first = evaluate(quiet_demo());
  EXPECT_FALSE(first.decision.candidates.empty());

  Input input = quiet_demo();
  set_transfer(input, 1, 0.0004 * 1.05);
  const Tuned second = evaluate(input, 1, first.state);
  EXPECT_THAT(second.decision.candidates, IsEmpty());
  EXPECT_THAT(second.decision.reason, HasSubstr("no link rate moved by more than 10.0 %"));
  EXPECT_GT(second.decision.current_seconds, 1);

  set_transfer(input, 1, 0.0004 * 1.2);
  EXPECT_FALSE(evaluate(input, 1, second.state).decision.candidates.empty());
  input = quiet_demo();
  input.stages[2].forward *= 2;
  EXPECT_FALSE(evaluate(input, 1, second.state).decision.candidates.empty());
}

TEST(Tuner, CorrectionFactorFollowsMeasuredStepsWithinLimits) {
  Input input = quiet_demo();
  const double predicted = evaluate(input).decision.current_seconds;
  input.measured_step_seconds = 1.1 * predicted;
  EXPECT_NEAR(evaluate(input).state.cost.correction.at(1), 1.02, 1e-6);
  EXPECT_NEAR(evaluate(input).decision.current_seconds, 1.02 * predicted, 1e-6);
  EXPECT_NEAR(evaluate(input, 40).state.cost.correction.at(1), 1.1, 1e-3);
  input.measured_step_seconds = 9 * predicted;
  EXPECT_EQ(evaluate(input, 40).state.cost.correction.at(1), 1.25);
  input.measured_step_seconds = 0.1 * predicted;
  EXPECT_EQ(evaluate(input, 40).state.cost.correction.at(1), 0.8);

  State fresh;
  fresh.last_change_step = 996;
  EXPECT_TRUE(evaluate(input, 1, fresh).state.cost.correction.empty())
      << "steps of the plan before";

  set_transfer(input, 1, 0.024);
  for (const Direction direction : {Direction::kForward, Direction::kBackward})
    for (std::size_t i = 0; i < 12; ++i) input.rates.rates[{0, 1, direction}][i] = kBytes / 0.0004;
  EXPECT_TRUE(evaluate(input).state.cost.correction.empty())
      << "rates that move say nothing about the model";
}

TEST(Tuner, EvaluationsAreTwoStepsAndTwoScrapesApart) {
  Input input = preempted_demo();
  State state = tune(input, State{}).state;
  EXPECT_EQ(state.record.wins_in_row, 1);

  input.now += 15s;
  input.step += 1;
  for (SystemTime& time : input.rates.times) time += 15s;
  const Tuned early = tune(input, state);
  EXPECT_THAT(early.decision.reason, HasSubstr("waits: 1 steps since the last evaluation"));
  EXPECT_EQ(early.state.record.wins_in_row, 1) << "not an evaluation: the row goes on";
  EXPECT_EQ(early.decision.simulations, 0);

  input.step += 1;
  for (SystemTime& time : input.rates.times) time -= 10s;
  EXPECT_THAT(tune(input, state).decision.reason, HasSubstr("waits: 1 scrapes since the last"));
  for (SystemTime& time : input.rates.times) time += 5s;
  EXPECT_TRUE(tune(input, state).decision.change.has_value());
}

TEST(Tuner, SimulatesNothingWhileNothingMoves) {
  const Tuned first = evaluate(quiet_demo());
  EXPECT_GT(first.decision.simulations, 10);
  const Tuned second = evaluate(quiet_demo(), 1, first.state);
  EXPECT_EQ(second.decision.simulations, 0);
  EXPECT_EQ(second.decision.current_seconds, first.decision.current_seconds);
}

// Bursts that the counters average away make the current plan slower than predicted, and another
// one less slow.
TEST(Tuner, AStepLongerThanPredictedCountsForPlansThatHideMore) {
  const auto gain_at = [](const Input& input, double correction) {
    State state;
    state.cost.correction[1] = correction;
    return evaluate(input, 1, state).decision.gain;
  };
  Input input = quiet_demo();
  EXPECT_NEAR(gain_at(input, 1.1), gain_at(input, 1), 1e-9) << "slower links would change nothing";
  for (int b = 0; b < 3; ++b) set_transfer(input, b, 0.010);
  EXPECT_GT(gain_at(input, 1.1), gain_at(input, 1) + 0.03);
  EXPECT_NEAR(gain_at(input, 1.01), gain_at(input, 1), 1e-9) << "so little may be chance";
}

TEST(Tuner, AMemoryAlarmLowersCapsAtOnceAndForGood) {
  Input input = preempted_demo();
  set_current(input, {8, 6, 4, 2}, schedule::Dispatch::kHint);
  input.free_memory = {0.5, 0.015, -1, 0.5};
  State state;
  state.clock.last_change = input.now;  // no cooldown, dwell or second evaluation for this
  state.last_change_step = input.step;
  const Tuned tuned = tune(input, state);
  ASSERT_TRUE(tuned.decision.change.has_value());
  EXPECT_TRUE(tuned.decision.memory_guard);
  EXPECT_EQ(tuned.decision.change->schedule.caps, (std::vector{8, 5, 4, 2}));
  EXPECT_THAT(schedule::broken_rules(tuned.decision.change->schedule, 4, 16), IsEmpty());

  input.current = tuned.decision.change->schedule;
  input.free_memory[1] = 0.1;
  for (const Costed& plan : evaluate(input, 1, tuned.state).decision.candidates)
    EXPECT_LE(plan.schedule.caps[1], 5) << plan.text << ": the limit stays";

  input.free_memory[1] = 0.01;
  EXPECT_FALSE(tune(input, tuned.state).decision.memory_guard) << "the new caps did not run yet";
  input.step += 3;
  const Tuned again = tune(input, tuned.state);
  ASSERT_TRUE(again.decision.memory_guard);
  EXPECT_EQ(again.decision.change->schedule.caps, (std::vector{8, 4, 4, 2}));

  set_current(input, {4, 1, 1, 1}, schedule::Dispatch::kStrict);
  EXPECT_FALSE(tune(input, State{}).decision.memory_guard) << "nothing left to lower";
}

TEST(Tuner, ALinkAsSlowAsAStageIsBound) {
  Input input = quiet_demo();
  set_transfer(input, 1, 0.055);
  const auto bound = evaluate(input).decision.escalation.link_bound;
  ASSERT_EQ(bound.size(), 2U) << "0.9 x 60 ms";
  EXPECT_EQ(bound[0].link, (LinkKey{0, 1, Direction::kForward}));
  EXPECT_NEAR(bound[0].seconds, 0.055, 1e-9);
  set_transfer(input, 1, 0.053);
  EXPECT_TRUE(evaluate(input).decision.escalation.link_bound.empty());
}

TEST(Tuner, TheLossAgainstFreeLinksAddsUp) {
  Input input = preempted_demo();
  const double free = evaluate(quiet_demo()).decision.current_seconds;
  input.measured_step_seconds = free + 0.3;
  input.settings.k_max = 1;
  EXPECT_EQ(evaluate(input, 3).decision.escalation.loss_seconds, 0) << "no baseline known";

  for (const auto& [link, rates] : input.rates.rates) input.baseline[link] = kBytes / 0.0004;
  Tuned tuned = evaluate(input, 3);
  const double correction = tuned.state.cost.correction.at(1);
  EXPECT_NEAR(tuned.decision.escalation.loss_seconds, 8 * (free + 0.3 - correction * free), 0.1);
  EXPECT_GT(tuned.decision.escalation.loss_seconds, 1.5);

  State state = tuned.state;
  state.cost.loss_seconds = 0;
  input.measured_step_seconds = 0.7 * free;
  EXPECT_EQ(evaluate(input, 3, state).decision.escalation.loss_seconds, 0) << "never a credit";
}

TEST(Describe, NamesKCapsAndDispatch) {
  EXPECT_EQ(
      costing::describe(
          {.dispatch = schedule::Dispatch::kHint, .micro_batch_size = 4, .caps = {7, 5, 3, 1}}),
      "k=2 caps 7,5,3,1 Hint mb=4");
  EXPECT_EQ(costing::describe({.dispatch = schedule::Dispatch::kHint, .caps = {16, 12, 8, 4}}),
            "k=4 caps 16,12,8,4 Hint");
}

}  // namespace tune_test
}  // namespace weir::retune
