// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/shares/policy.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/estimator/replica_model.h"
#include "worker/base/random.h"

namespace weir::shares {
namespace policy_test {

using testing::ElementsAre;
using testing::HasSubstr;

// Step times of each replica by step, scraped every `every` steps.
using Times = std::function<double(int replica, int step)>;
estimator::ReplicaEstimates measured(int replicas, int steps, const Times& times, int every = 4) {
  estimator::ReplicaModelState state;
  estimator::ReplicaScrape scrape;
  const estimator::SystemTime begin{};
  for (int step = 0; step <= steps; ++step) {
    for (int p = 0; p < replicas; ++p) {
      auto& counter = scrape.replicas[p];
      counter.steps = step;
      counter.sync_bytes_per_second = 1e9;
      if (step > 0) counter.seconds += times(p, step);
    }
    scrape.time = begin + std::chrono::seconds(1 + step);
    if (step % every == 0) add_replica_scrapes(state, {scrape});
  }
  return replica_estimates_of(state, scrape.time, std::chrono::seconds(60));
}
double one(int, int) {
  return 1;
}
double first_is_twice_as_slow(int replica, int) {
  return replica == 0 ? 2 : 1;
}

Input job(int replicas, Allowed mode, estimator::ReplicaEstimates estimates) {
  Input input;
  input.spec.mode = mode;
  input.current = first_policy(input.spec, replicas);
  input.shares.assign(static_cast<std::size_t>(replicas), 32);
  input.stages = 4;
  input.moment.step = 1000;
  input.replicas = std::move(estimates);
  return input;
}
// The tier has changed something just now.
Tier cooling(double least_gain) {
  return {true, rules(least_gain, std::chrono::seconds(60)), {.last_change = gate::SystemTime{}}};
}
Decision decide_once(const Input& input) {
  return decide(input, {}).decision;
}

// Slow in turns: no share suits them for long.
double changing(int replica, int step) {
  return (step / 5 + replica) % 4 == 0 ? 4 : 1;
}

TEST(Rebalance, TwoReplicasAreEnough) {
  const auto decision =
      decide_once(job(2, Allowed::kExact, measured(2, 20, first_is_twice_as_slow)));
  ASSERT_TRUE(decision.shares) << decision.reason;
  EXPECT_THAT(*decision.shares, ElementsAre(20, 44));
  EXPECT_FALSE(decision.policy);
  EXPECT_FALSE(decision.propose_only);
  EXPECT_NEAR(decision.gain, 70.0 / 47 - 1, 0.01);  // 2 x 35 slots -> 47
  EXPECT_THAT(decision.reason,
              HasSubstr("replica 0 takes 2.000 s, median of the others 1.000 s for 16 steps: "
                        "shares 32,32 -> 20,44, predicted +48.9 %"));
}

TEST(Rebalance, OnlyAfterSixteenSteps) {
  EXPECT_FALSE(
      decide_once(job(2, Allowed::kExact, measured(2, 12, first_is_twice_as_slow))).shares);
  EXPECT_TRUE(decide_once(job(2, Allowed::kExact, measured(2, 16, first_is_twice_as_slow))).shares);
  // In a row: four even steps in between begin the count anew.
  const auto pause = [](int p, int step) { return p == 0 && (step < 9 || step > 12) ? 2.0 : 1.0; };
  EXPECT_FALSE(decide_once(job(2, Allowed::kExact, measured(2, 24, pause))).shares);
  EXPECT_TRUE(decide_once(job(2, Allowed::kExact, measured(2, 32, pause))).shares);
}

TEST(Rebalance, OnlyBeyondTenPercent) {
  const auto slower = [](double factor) {
    return [factor](int p, int) { return p == 2 ? factor : 1.0; };
  };
  EXPECT_FALSE(decide_once(job(4, Allowed::kExact, measured(4, 32, slower(1.09)))).shares);
  EXPECT_TRUE(decide_once(job(4, Allowed::kExact, measured(4, 32, slower(1.12)))).shares);
}

TEST(Rebalance, ALimitedStepAtOnce) {
  const auto ten_times = [](int p, int) { return p == 0 ? 10.0 : 1.0; };
  EXPECT_THAT(*decide_once(job(2, Allowed::kExact, measured(2, 20, ten_times))).shares,
              ElementsAre(16, 48));
  Input input = job(2, Allowed::kExact, measured(2, 20, ten_times));
  input.least_share = 24;
  EXPECT_THAT(*decide_once(input).shares, ElementsAre(24, 40));
}

// One that was slow and is no more stands out to the other side.
TEST(Rebalance, BackWhenTheSlowOneRecovers) {
  Input input =
      job(4, Allowed::kExact, measured(4, 20, [](int p, int) { return p == 0 ? 0.6 : 1.0; }));
  input.shares = {18, 37, 37, 36};
  const auto decision = decide_once(input);
  ASSERT_TRUE(decision.shares) << decision.reason;
  EXPECT_GT(decision.shares->front(), 25);
}

TEST(Rebalance, NothingForLessThanTheLeastGain) {
  Input input = job(2, Allowed::kExact, measured(2, 20, first_is_twice_as_slow));
  input.retune.rules.least_gain = 0.6;
  const auto decision = decide_once(input);
  EXPECT_FALSE(decision.shares);
  EXPECT_THAT(decision.reason, HasSubstr("below the least gain of 60.0 %"));
  // Too coarse: a micro-batch more would be too many.
  Input coarse =
      job(2, Allowed::kExact, measured(2, 20, [](int p, int) { return p == 0 ? 1.2 : 1.0; }));
  coarse.shares = {2, 2};
  EXPECT_FALSE(decide_once(coarse).shares);
}

TEST(Rebalance, KeepsToTheSwitchesOfTheUser) {
  const auto estimates = measured(2, 20, first_is_twice_as_slow);
  Input input = job(2, Allowed::kExact, estimates);
  input.spec.rebalance = false;
  EXPECT_FALSE(decide_once(input).shares);
  input.shares = {20, 44};  // and takes back what it did
  const auto back = decide_once(input);
  EXPECT_THAT(*back.shares, ElementsAre(32, 32));
  EXPECT_TRUE(back.by_spec);

  input = job(2, Allowed::kExact, estimates);
  input.retune.enabled = false;
  EXPECT_FALSE(decide_once(input).shares);
  input.retune = cooling(0.03);
  EXPECT_THAT(decide_once(input).reason, HasSubstr("waits: cooldown: 0 of 60 s"));
  EXPECT_FALSE(decide_once(input).shares);

  input = job(2, Allowed::kExact, estimates);
  input.adaptation = Adaptation::kOff;
  EXPECT_FALSE(decide_once(input).shares);
  input.adaptation = Adaptation::kObserve;
  EXPECT_TRUE(decide_once(input).shares);
  EXPECT_TRUE(decide_once(input).propose_only);
}

TEST(Rebalance, NothingIsDecidedOnOldNumbers) {
  Input input = job(2, Allowed::kAuto, measured(2, 40, first_is_twice_as_slow));
  input.replicas.fresh = false;
  EXPECT_FALSE(decide_once(input).shares);
  EXPECT_THAT(decide_once(input).reason, HasSubstr("unknown or stale"));
  input = job(3, Allowed::kAuto, measured(2, 40, first_is_twice_as_slow));  // one is not measured
  EXPECT_FALSE(decide_once(input).shares);
}

TEST(Rebalance, NotAgainWhatWasTakenBack) {
  Input input = job(2, Allowed::kExact, measured(2, 20, first_is_twice_as_slow));
  State state;
  state.shares.quarantine["20,44"] = input.moment.step + 100;
  EXPECT_FALSE(decide(input, state).decision.shares);
  input.moment.step += 100;
  const auto later = decide(input, state);
  EXPECT_TRUE(later.decision.shares);
  EXPECT_TRUE(later.state.shares.quarantine.empty());
}

// Slow spells of others in the window do not make their shares jump.
TEST(Rebalance, OnlyWhoStandsOutAllTheTimeIsMeasuredByItself) {
  const auto times = [](int p, int step) {
    return p == 0 ? 2.0 : p == 3 && step > 10 && step < 14 ? 3.0 : 1.0;
  };
  const auto decision = decide_once(job(4, Allowed::kExact, measured(4, 16, times)));
  ASSERT_TRUE(decision.shares) << decision.reason;
  EXPECT_THAT(*decision.shares, ElementsAre(17, 37, 37, 37));
}

// Speeds vary, nobody stands out for long: the shares of another time only do harm.
TEST(Rebalance, BackToEvenSharesThatHelpNobody) {
  const auto times = [](int p, int step) {
    const double own = p == 0 ? 0.55 : 1.15;
    return step / 4 % 4 == p ? 2.5 * own : own;
  };
  Input input = job(4, Allowed::kExact, measured(4, 40, times));
  input.shares = {16, 37, 37, 38};
  const auto decision = decide_once(input);
  ASSERT_TRUE(decision.shares) << decision.reason;
  EXPECT_THAT(decision.reason, HasSubstr("uneven shares do not help over 32 steps"));
  EXPECT_THAT(*decision.shares, ElementsAre(24, 35, 35, 34));
  EXPECT_TRUE(decision.returns_to_even);
}

// The cost of uneven shares limits how often they are tried. It lapses with time, so that they are
// tried again.
TEST(Rebalance, DoesNotChaseSpeedsThatKeepChanging) {
  State state;
  state.share_cost.all_shares = 12.5;
  Input slow = job(4, Allowed::kExact, measured(4, 20, first_is_twice_as_slow));
  const auto decided = decide(slow, state);
  EXPECT_FALSE(decided.decision.shares);
  EXPECT_THAT(decided.decision.reason, HasSubstr("following them has cost 12.4 steps"));
  state.share_cost.all_shares = 11;
  EXPECT_TRUE(decide(slow, state).decision.shares);
}

// Shares that cost more than they save go at once: no 16 steps, no cooldown, but never in the
// middle of another change.
TEST(Rebalance, SharesThatHarmGoAtOnce) {
  State state;
  state.share_cost.all_shares = 20;
  Input input =
      job(2, Allowed::kExact, measured(2, 12, [](int p, int) { return p == 0 ? 0.5 : 1.5; }));
  input.shares = {16, 48};
  input.retune = cooling(0.03);
  const auto even = decide(input, state);
  ASSERT_TRUE(even.decision.shares) << even.decision.reason;
  EXPECT_THAT(*even.decision.shares, ElementsAre(32, 32));
  EXPECT_TRUE(even.decision.returns_to_even);
  EXPECT_GT(even.decision.gain, 0.2);
  EXPECT_EQ(even.state.share_cost.current_shares, 0);
  EXPECT_GT(even.state.share_cost.all_shares, 20);

  input.moment.unjudged = true;
  EXPECT_FALSE(decide(input, state).decision.shares);
  input.moment.unjudged = false;
  input.replicas = measured(2, 4, [](int p, int) { return p == 0 ? 0.5 : 1.5; });  // hardly yet
  EXPECT_FALSE(decide(input, state).decision.shares);
  input.adaptation = Adaptation::kObserve;
  input.replicas = measured(2, 12, [](int p, int) { return p == 0 ? 0.5 : 1.5; });
  EXPECT_TRUE(decide(input, state).decision.propose_only);
}

TEST(Mode, AutoLeavesExactWhenSpeedsKeepChanging) {
  const auto decision = decide_once(job(8, Allowed::kAuto, measured(8, 48, changing)));
  ASSERT_TRUE(decision.policy) << decision.reason;
  EXPECT_FALSE(decision.shares);
  EXPECT_EQ(decision.policy->mode, Mode::kPartial);
  EXPECT_EQ(decision.policy->groups.group_size_max, 4);
  EXPECT_THAT(decision.reason, HasSubstr("Exact -> Partial, predicted +"));
}

TEST(Mode, NeverLeavesExactUnlessTheUserAllowsIt) {
  for (const auto adaptation : {Adaptation::kOff, Adaptation::kObserve, Adaptation::kAuto}) {
    Input input = job(8, Allowed::kExact, measured(8, 48, changing));
    input.adaptation = adaptation;
    EXPECT_FALSE(decide_once(input).policy);
    input = job(8, Allowed::kAuto, measured(8, 48, changing));
    input.adaptation = adaptation;
    const auto decision = decide_once(input);
    EXPECT_EQ(decision.policy && !decision.propose_only, adaptation == Adaptation::kAuto);
  }
}

TEST(Mode, StaysExactForALittle) {
  Input input = job(8, Allowed::kAuto, measured(8, 48, changing));
  input.regroup.rules.least_gain = 10;
  EXPECT_FALSE(decide_once(input).policy);
  input.regroup = cooling(0.1);
  EXPECT_FALSE(decide_once(input).policy);
  EXPECT_FALSE(decide_once(job(8, Allowed::kAuto, measured(8, 28, changing))).policy);  // 32 steps
  State state;
  state.mode.quarantine["Partial"] = 1090;
  input = job(8, Allowed::kAuto, measured(8, 48, changing));
  EXPECT_FALSE(decide(input, state).decision.policy);
  input.moment.step = 1090;
  EXPECT_TRUE(decide(input, state).decision.policy);
}

// A replica that is slow all the time is a matter of shares, the cheaper way.
TEST(Mode, SharesGoFirst) {
  const auto decision =
      decide_once(job(2, Allowed::kAuto, measured(2, 60, first_is_twice_as_slow)));
  EXPECT_TRUE(decision.shares);
  EXPECT_FALSE(decision.policy);
  Input waits = job(2, Allowed::kAuto, measured(2, 60, first_is_twice_as_slow));
  waits.retune = cooling(0.03);
  EXPECT_FALSE(decide_once(waits).policy);
}

TEST(Mode, BackToExactAfterFiftyEvenSteps) {
  Input input = job(4, Allowed::kAuto, measured(4, 60, one));
  input.current.mode = Mode::kPartial;
  const auto decision = decide_once(input);
  ASSERT_TRUE(decision.policy) << decision.reason;
  EXPECT_EQ(decision.policy->mode, Mode::kExact);

  input.replicas = measured(4, 48, one);
  EXPECT_FALSE(decide_once(input).policy);
  input.replicas = measured(4, 60, [](int p, int) { return p == 0 ? 1.2 : 1.0; });
  EXPECT_FALSE(decide_once(input).policy);
  input.replicas = measured(4, 60, one);
  input.replicas.speeds[2].sync_bytes_per_second = 4e8;
  EXPECT_FALSE(decide_once(input).policy);
  EXPECT_THAT(decide_once(input).reason, HasSubstr("sync link of replica 2"));
}

// Shares are a thing of Exact: groups take care of slow replicas themselves.
TEST(Mode, PartialHasEvenShares) {
  Input input = job(4, Allowed::kPartial, measured(4, 60, first_is_twice_as_slow));
  EXPECT_FALSE(decide_once(input).shares);
  input = job(8, Allowed::kAuto, measured(8, 48, changing));
  input.shares = {30, 34, 32, 32, 32, 32, 32, 32};
  const auto decision = decide_once(input);
  ASSERT_TRUE(decision.policy) << decision.reason;
  ASSERT_TRUE(decision.shares);
  EXPECT_THAT(*decision.shares, testing::Each(32));
}

TEST(Mode, VeryUnevenTimesWidenTheStaleness) {
  const auto tail = [](int p, int step) { return (step / 4 + p) % 8 == 0 ? 12.0 : 1.0; };
  const auto wide = decide_once(job(8, Allowed::kAuto, measured(8, 48, tail)));
  ASSERT_TRUE(wide.policy) << wide.reason;
  EXPECT_EQ(wide.policy->groups.max_staleness, 12);
  Input set = job(8, Allowed::kAuto, measured(8, 48, tail));
  set.spec.max_staleness = 3;
  EXPECT_EQ(decide_once(set).policy->groups.max_staleness, 3);
}

TEST(Spec, IsFollowedInEveryAdaptationMode) {
  for (const auto adaptation : {Adaptation::kOff, Adaptation::kObserve, Adaptation::kAuto}) {
    Input input = job(4, Allowed::kExact, {});  // nothing measured
    input.adaptation = adaptation;
    input.current.mode = Mode::kPartial;
    auto decision = decide_once(input);
    ASSERT_TRUE(decision.policy);
    EXPECT_EQ(decision.policy->mode, Mode::kExact);
    EXPECT_TRUE(decision.by_spec);
    EXPECT_FALSE(decision.propose_only);

    input = job(4, Allowed::kPartial, {});
    input.adaptation = adaptation;
    EXPECT_FALSE(decide_once(input).policy);  // is so already
    input.spec.group_size_max = 2;
    input.spec.max_staleness = 9;
    decision = decide_once(input);
    ASSERT_TRUE(decision.policy);
    EXPECT_EQ(decision.policy->groups.group_size_max, 2);
    EXPECT_EQ(decision.policy->groups.max_staleness, 9);
    input.current = *decision.policy;
    EXPECT_FALSE(decide_once(input).policy);
  }
}

TEST(Spec, FirstPolicy) {
  Spec spec;
  EXPECT_EQ(first_policy(spec, 4).mode, Mode::kExact);
  spec.mode = Allowed::kAuto;
  EXPECT_EQ(first_policy(spec, 4).mode, Mode::kExact);  // starts so
  spec.mode = Allowed::kPartial;
  EXPECT_EQ(first_policy(spec, 4).mode, Mode::kPartial);
  EXPECT_EQ(first_policy(spec, 1).mode, Mode::kExact);  // with nobody to average with
  const auto most = [&](int replicas) {
    return first_policy(spec, replicas).groups.group_size_max;
  };
  EXPECT_EQ(most(2), 2);
  EXPECT_EQ(most(4), 4);
  EXPECT_EQ(most(5), 4);
  EXPECT_EQ(most(15), 4);
  EXPECT_EQ(most(16), 8);
  spec.group_size_max = 6;
  EXPECT_EQ(most(16), 6);
  EXPECT_EQ(most(3), 3);  // no more than there are
}

}  // namespace policy_test
}  // namespace weir::shares
