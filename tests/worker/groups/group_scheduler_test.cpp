// SPDX-License-Identifier: Apache-2.0
#include "worker/groups/group_scheduler.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/groups/world.h"
#include "worker/base/units.h"

namespace weir::groups {
namespace group_scheduler_test {

using std::chrono::milliseconds;
using namespace std::chrono_literals;
using testing::DoubleEq;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

Config config(int replicas, int most = 4) {
  Config config;
  config.shares.assign(static_cast<std::size_t>(replicas), 8);
  config.stages = 2;
  config.settings.group_size_max = most;
  return config;
}

Arrival arrival(int replica, std::int64_t step) {
  return {.replica = replica,
          .step = step,
          .progress = static_cast<double>(step),
          .step_seconds = 1,
          .received = {}};
}

// All replicas arrive with step 1 and begin step 2 at 1 s: their times are known from here on.
GroupScheduler running(const Config& config) {
  GroupScheduler scheduler(config, 1);
  const int replicas = static_cast<int>(config.shares.size());
  for (int p = 0; p < replicas; ++p) {
    for (const FormedGroup& grant : scheduler.arrived(arrival(p, 1), 1s)) {
      for (const int member : grant.members) scheduler.began(member, 1s);
    }
  }
  return scheduler;
}

TEST(GroupScheduler, AllReadyGoAtOnce) {
  GroupScheduler scheduler(config(3), 1);
  EXPECT_THAT(scheduler.arrived(arrival(0, 1), 1s), IsEmpty());
  EXPECT_THAT(scheduler.arrived(arrival(1, 1), 1s), IsEmpty());
  const auto grants = scheduler.arrived(arrival(2, 1), 1s);
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_THAT(grants[0].members, ElementsAre(0, 1, 2));
  EXPECT_THAT(grants[0].steps, ElementsAre(1, 1, 1));
  EXPECT_THAT(grants[0].weights,
              ElementsAre(DoubleEq(1 / 3.0), DoubleEq(1 / 3.0), DoubleEq(1 / 3.0)));
  EXPECT_EQ(grants[0].round, 1U);
  EXPECT_EQ(scheduler.timer(), std::nullopt);
}

// What waiting may cost: a window of 15 % of a second for the squared distance that an average with
// that one ends, n/(n+1) d for each of n that wait; for less than two, twice. Half a step at most.
Time allowed(double distance, int here) {
  return from_seconds(std::min(0.5, (here < 2 ? 2 : 1) * 0.15 * distance / (here + 1)));
}

TEST(GroupScheduler, WaitsForOneWhoIsExpectedSoon) {
  auto scheduler = running(config(3));
  scheduler.began(2, 1020ms);  // due at 2.02 s
  EXPECT_THAT(scheduler.arrived(arrival(0, 2), 2s), IsEmpty());
  EXPECT_THAT(scheduler.arrived(arrival(1, 2), 2s), IsEmpty());
  // One step of 2 is 1 from where all were, the mean of two others 1/2.
  EXPECT_EQ(scheduler.timer(), Time(2020ms + allowed(1.5, 2) / 2)) << "late by half of that";
  const auto grants = scheduler.arrived(arrival(2, 2), 2020ms);
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_THAT(grants[0].members, ElementsAre(0, 1, 2));
}

TEST(GroupScheduler, LeavesTheLateBehind) {
  auto scheduler = running(config(3));
  EXPECT_THAT(scheduler.arrived(arrival(0, 2), 2s), IsEmpty());
  EXPECT_THAT(scheduler.arrived(arrival(1, 2), 2s), IsEmpty());
  const auto grants = scheduler.tick(*scheduler.timer());
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_THAT(grants[0].members, ElementsAre(0, 1));
}

TEST(GroupScheduler, DoesNotWaitForOneWhoIsExpectedLater) {
  auto scheduler = running(config(3));
  scheduler.began(2, 1900ms);                                    // due at 2.9 s
  EXPECT_THAT(scheduler.arrived(arrival(0, 2), 2s), IsEmpty());  // for 1
  EXPECT_THAT(scheduler.arrived(arrival(1, 2), 2s), SizeIs(1));
}

TEST(GroupScheduler, OneAloneDoesNotWaitForNobody) {
  auto scheduler = running(config(2));
  scheduler.began(1, 1001ms + allowed(2, 1));
  const auto grants = scheduler.arrived(arrival(0, 2), 2s);
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_THAT(grants[0].members, ElementsAre(0));
}

// It meets the others seldom; waiting costs it as large a part of its step as theirs costs them.
TEST(GroupScheduler, ASlowOneWaitsAPartOfItsOwnStep) {
  auto scheduler = running(config(2));
  Arrival slow = arrival(0, 2);
  slow.step_seconds = 7;  // T_0 = (1 + 7) / 2
  scheduler.began(1, 4s + 4 * allowed(2, 1));
  EXPECT_THAT(scheduler.arrived(slow, 5s), IsEmpty());
  EXPECT_EQ(scheduler.timer(), Time(5s + 6 * allowed(2, 1)));
}

// With each step without news models are farther apart, and an average is worth more: half a step
// at most. k updates in a row have a variance of 1, 3.2, 6.12, 9.47: each goes partly where the one
// before went.
TEST(GroupScheduler, WhoHasNotAveragedForStepsWaitsLonger) {
  auto scheduler = running(config(2));
  std::int64_t step = 2;
  for (const Time most :
       {allowed(2, 1), allowed(4.2, 1), allowed(7.12, 1), Time(500ms), Time(500ms)}) {
    const Time now = std::chrono::seconds(step);
    scheduler.began(1, now + most - 1001ms);  // due just in time
    EXPECT_THAT(scheduler.arrived(arrival(0, step), now), IsEmpty()) << "step " << step;
    const auto late = scheduler.timer();
    ASSERT_TRUE(late);
    EXPECT_NEAR(to_seconds(*late - now), to_seconds(most) * 1.5, 0.002) << "step " << step;
    EXPECT_THAT(scheduler.tick(*late), SizeIs(1)) << "it is late";
    scheduler.began(0, *late);
    ++step;
  }
}

// 0 and 1 average at 2 s; 2 and 3 are still in their second step.
GroupScheduler acquainted() {
  auto scheduler = running(config(4));
  for (const int p : {2, 3}) scheduler.began(p, 1800ms);  // due at 2.8 s
  EXPECT_THAT(scheduler.arrived(arrival(0, 2), 2s), IsEmpty());
  const auto grants = scheduler.arrived(arrival(1, 2), 2s);
  EXPECT_THAT(grants, SizeIs(1));
  EXPECT_THAT(grants[0].members, ElementsAre(0, 1));
  for (const int p : {0, 1}) scheduler.began(p, 2s);
  return scheduler;
}

// Whether 0 waits with its next step for a replica that is due `in` later; the others are far away.
bool waits_for(int replica, Time in) {
  auto scheduler = acquainted();
  for (const int p : {1, 2, 3}) scheduler.began(p, p == replica ? 2s + in : Time(2900ms));
  return scheduler.arrived(arrival(0, 3), 3s).empty();
}

// Who has averaged arrives together again; strangers have more news, and are worth a longer wait.
TEST(GroupScheduler, WaitsLongerForAStranger) {
  // 0 has gone 1 from where 1 will have gone 1 more.
  EXPECT_TRUE(waits_for(1, allowed(2, 1) - 1ms));
  EXPECT_FALSE(waits_for(1, allowed(2, 1) + 1ms));
  // Half of its update before, half of 1's and its last one: 1/4 + 1/4 + 1 + 0.6; and 1 of 2.
  EXPECT_TRUE(waits_for(2, allowed(3.1, 1) - 1ms));
  EXPECT_FALSE(waits_for(2, allowed(3.1, 1) + 1ms));
}

TEST(GroupScheduler, GathersAllTheLivingOnce) {
  auto scheduler = running(config(3, 2));
  EXPECT_THAT(scheduler.arrived(arrival(0, 2), 2s), IsEmpty());
  scheduler.gather();
  EXPECT_THAT(scheduler.arrived(arrival(1, 2), 2s), IsEmpty());
  EXPECT_EQ(scheduler.timer(), std::nullopt);
  EXPECT_THAT(scheduler.tick(1min), IsEmpty());

  const auto grants = scheduler.arrived(arrival(2, 2), 61s);

  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_THAT(grants[0].members, ElementsAre(0, 1, 2)) << "more than group_size_max";
  EXPECT_TRUE(grants[0].gathers);
  for (const int member : grants[0].members) scheduler.began(member, 61s);
  EXPECT_THAT(scheduler.arrived(arrival(0, 3), 62s), IsEmpty());
  const auto next = scheduler.arrived(arrival(1, 3), 62s);
  for (const FormedGroup& grant : next) EXPECT_FALSE(grant.gathers);
}

TEST(GroupScheduler, GathersWithoutTheDead) {
  auto scheduler = running(config(3));
  scheduler.gather();
  EXPECT_THAT(scheduler.arrived(arrival(0, 2), 2s), IsEmpty());
  EXPECT_THAT(scheduler.arrived(arrival(1, 2), 2s), IsEmpty());
  const auto grants = scheduler.died(2, 3s);
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_THAT(grants[0].members, ElementsAre(0, 1));
}

TEST(GroupScheduler, WeightsAndProgressFollowTheShares) {
  Config shares = config(2);
  shares.shares = {12, 4};
  GroupScheduler scheduler(shares, 1);
  Arrival first = arrival(0, 1), second = arrival(1, 1);
  first.progress = 1.5;
  second.progress = 0.5;
  EXPECT_THAT(scheduler.arrived(first, 1s), IsEmpty());
  const auto grants = scheduler.arrived(second, 1s);
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_THAT(grants[0].weights, ElementsAre(DoubleEq(0.75), DoubleEq(0.25)));
  EXPECT_DOUBLE_EQ(grants[0].progress, 0.75 * 1.5 + 0.25 * 0.5);
}

TEST(GroupScheduler, RepeatedArrivalGetsTheSameGrantAgain) {
  auto scheduler = running(config(2));
  EXPECT_THAT(scheduler.arrived(arrival(0, 1), 1100ms), IsEmpty());
  const auto again = scheduler.granted(0, 1);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->round, 1U);
  EXPECT_EQ(scheduler.granted(0, 2), std::nullopt);
  // Arriving twice before a grant counts once.
  EXPECT_THAT(scheduler.arrived(arrival(0, 2), 2s), IsEmpty());
  EXPECT_THAT(scheduler.arrived(arrival(0, 2), 2s), IsEmpty());
  EXPECT_THAT(scheduler.arrived(arrival(1, 2), 2s), SizeIs(1));
}

TEST(GroupScheduler, DealsComponentsLikeCards) {
  auto scheduler = running(config(4, 2));  // {0,2} and {1,3}
  ASSERT_THAT(scheduler.granted(0, 1)->members, ElementsAre(0, 2));
  for (int p = 0; p < 3; ++p) EXPECT_THAT(scheduler.arrived(arrival(p, 2), 2s), IsEmpty());
  const auto grants = scheduler.arrived(arrival(3, 2), 2s);
  ASSERT_THAT(grants, SizeIs(2));
  EXPECT_THAT(grants[0].members, ElementsAre(0, 1));  // not those who just had an average
  EXPECT_THAT(grants[1].members, ElementsAre(2, 3));
}

TEST(GroupScheduler, RingFollowsTheTopology) {
  Config placed = config(4);
  placed.places = {1, 0, 1, 0};
  auto scheduler = running(placed);
  EXPECT_THAT(scheduler.granted(0, 1)->members, ElementsAre(1, 3, 0, 2));
  EXPECT_EQ(key_of(scheduler.granted(0, 1)->members), "0-1-2-3");
}

// Replica 1 is behind by more than tau and somewhere in its step: 0 is held until it arrives.
TEST(GroupScheduler, HoldsAFrontRunner) {
  auto scheduler = running(config(2));
  scheduler.began(1, 2s);
  Arrival ahead = arrival(0, 2);
  ahead.progress = 1 + 6.5;  // tau = 6
  EXPECT_THAT(scheduler.arrived(ahead, 10s), IsEmpty());
  EXPECT_EQ(scheduler.timer(), std::nullopt);
  const auto grants = scheduler.arrived(arrival(1, 2), 20s);
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_THAT(grants[0].members, ElementsAre(0, 1));
  EXPECT_DOUBLE_EQ(grants[0].progress, 4.75);
}

TEST(GroupScheduler, AfterBStepsEverybodyIsConnected) {
  Config window = config(3);
  window.settings.connect_every = 4;
  window.settings.max_staleness = 100;
  auto scheduler = running(window);
  // 0 and 1 go on without 2, whose step takes long.
  for (std::int64_t step = 2; step <= 4; ++step) {
    const Time now = std::chrono::seconds(10 * step);
    for (const int p : {0, 1}) scheduler.began(p, now - 1s);
    EXPECT_THAT(scheduler.arrived(arrival(0, step), now), IsEmpty());
    ASSERT_THAT(scheduler.arrived(arrival(1, step), now), SizeIs(1)) << step;
  }
  EXPECT_THAT(scheduler.arrived(arrival(0, 5), 50s), IsEmpty());
  EXPECT_THAT(scheduler.arrived(arrival(1, 5), 50s), IsEmpty());
  EXPECT_THAT(scheduler.tick(1000s), IsEmpty());
  const auto grants = scheduler.arrived(arrival(2, 2), 1001s);
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_TRUE(grants[0].connects);
  EXPECT_THAT(grants[0].members, ElementsAre(0, 1, 2));
}

TEST(GroupScheduler, ASlowNodeAveragesOnlyEveryThirdStep) {
  auto scheduler = running(config(3));  // all had an average with step 1
  Arrival other = arrival(1, 2);
  other.received = {{0, 1e8}, {2, 1e9}};
  EXPECT_THAT(scheduler.arrived(other, 1900ms), IsEmpty());
  Arrival slow = arrival(0, 2);
  slow.received = {{1, 1e8}, {2, 1e8}};
  for (slow.step = 2; slow.step <= 3; ++slow.step) {
    slow.progress = static_cast<double>(slow.step);
    const auto grants = scheduler.arrived(slow, std::chrono::seconds(slow.step));
    ASSERT_THAT(grants, Not(IsEmpty()));
    EXPECT_THAT(grants[0].members, ElementsAre(0));
    scheduler.began(0, std::chrono::seconds(slow.step));
    slow.received.clear();
  }
  for (const int p : {1, 2}) scheduler.began(p, 3010ms);  // due at 4.01 s
  EXPECT_THAT(scheduler.arrived(slow, 4s), IsEmpty()) << "its last average was 3 steps ago";
}

// Beside a step an average takes no time: a replica on a slow node is like the others while its
// averages are shorter than a step.
TEST(GroupScheduler, ASlowNodeAveragesLikeTheOthersWhenThatFitsIntoAStep) {
  for (const double seconds : {0.8, 1.1}) {
    auto scheduler = running(config(3));
    Arrival other = arrival(1, 2);
    other.received = {{0, 1e8}, {2, 1e9}};
    EXPECT_THAT(scheduler.arrived(other, 1900ms), IsEmpty());
    Arrival slow = arrival(0, 2);
    slow.received = {{1, 1e8}, {2, 1e8}};
    slow.average_seconds = seconds;
    const auto grants = scheduler.arrived(slow, 2s);
    if (seconds < 1) {
      EXPECT_THAT(grants, IsEmpty()) << "all wait for replica 2";
    } else {
      ASSERT_THAT(grants, SizeIs(1));
      EXPECT_THAT(grants[0].members, ElementsAre(0)) << "goes on alone";
    }
  }
}

// All arrive with a step after an average of all of them that took so long.
std::vector<FormedGroup> granted_after(double average_seconds, int replicas = 3) {
  auto scheduler = running(config(replicas));
  std::vector<FormedGroup> grants;
  for (int p = 0; p < replicas; ++p) {
    Arrival one = arrival(p, 2);
    if (p == 0) one.average_seconds = average_seconds;
    grants = scheduler.arrived(one, 2s);
  }
  EXPECT_THAT(grants, SizeIs(1));
  return grants;
}

TEST(GroupScheduler, AnAverageThatTakesLongGoesOnBesideTheNextStep) {
  EXPECT_TRUE(granted_after(0.3)[0].overlaps);
  EXPECT_FALSE(granted_after(0.2)[0].overlaps) << "not worth that models are a step older";
  EXPECT_FALSE(granted_after(0)[0].overlaps) << "it cannot";
}

// Of fewer it takes less: 2 (m - 1) / m of a model.
TEST(GroupScheduler, AnAverageOfTwoIsShorterThanOneOfThree) {
  for (const auto& [seconds, overlaps] : {std::pair{0.30, false}, {0.35, true}}) {
    auto scheduler = running(config(3));
    scheduler.died(2, 1100ms);
    Arrival one = arrival(0, 2);
    one.average_seconds = seconds;
    EXPECT_THAT(scheduler.arrived(one, 2s), IsEmpty());
    const auto grants = scheduler.arrived(arrival(1, 2), 2s);
    ASSERT_THAT(grants, SizeIs(1));
    EXPECT_EQ(grants[0].overlaps, overlaps) << seconds;
  }
}

// All of the state is averaged where all must be one, and nobody goes on without it; how long that
// took says nothing of others.
TEST(GroupScheduler, AGatheringDoesNotGoOnBesideAStep) {
  auto scheduler = running(config(2));
  scheduler.gather();
  Arrival one = arrival(0, 2);
  one.average_seconds = 0.5;
  EXPECT_THAT(scheduler.arrived(one, 2s), IsEmpty());
  auto grants = scheduler.arrived(arrival(1, 2), 2s);
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_FALSE(grants[0].overlaps);
  for (const int p : {0, 1}) scheduler.began(p, 2s);
  for (const int p : {0, 1}) {
    Arrival next = arrival(p, 3);
    next.average_seconds = 0.1;
    grants = scheduler.arrived(next, 3s);
  }
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_TRUE(grants[0].overlaps) << "as the one before took 0.5 s";
}

// Then it averages with one other: the rest does not wait for it.
TEST(GroupScheduler, ASlowNodeHoldsUpOneOther) {
  auto scheduler = running(config(4));  // all had an average with step 1
  for (const int p : {1, 2, 3}) {
    Arrival fast = arrival(p, 2);
    for (const int q : {0, 1, 2, 3}) {
      if (q != p) fast.received.push_back({q, q == 0 ? 1e8 : 1e9});
    }
    EXPECT_THAT(scheduler.arrived(fast, 2s), IsEmpty());
  }
  Arrival slow = arrival(0, 5);  // four steps later
  const auto grants = scheduler.arrived(slow, 2s);
  ASSERT_THAT(grants, SizeIs(2));
  EXPECT_THAT(grants[0].members, SizeIs(2));
  EXPECT_THAT(grants[1].members, SizeIs(2));
}

// When it comes soon one of the others stays for it, where it is not worth the time of all.
TEST(GroupScheduler, OneStaysForASlowNode) {
  auto scheduler = running(config(4));  // all had an average with step 1
  const auto rates = [](int p) {
    std::vector<ReceivedRate> from;
    for (const int q : {0, 1, 2, 3}) {
      if (q != p) from.push_back({q, q == 0 ? 1e8 : 1e9});
    }
    return from;
  };
  scheduler.began(0, 1100ms);  // due at 2.1 s
  for (const int p : {1, 2}) {
    Arrival fast = arrival(p, 2);
    fast.received = rates(p);
    EXPECT_THAT(scheduler.arrived(fast, 2s), IsEmpty());
  }
  Arrival last = arrival(3, 2);
  last.received = rates(3);
  const auto grants = scheduler.arrived(last, 2s);
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_THAT(grants[0].members, ElementsAre(2, 3)) << "1 stays";
  ASSERT_TRUE(scheduler.timer());
  EXPECT_GT(*scheduler.timer(), 2100ms);

  Arrival slow = arrival(0, 4);  // three steps later
  const auto pair = scheduler.arrived(slow, 2100ms);
  ASSERT_THAT(pair, SizeIs(1));
  EXPECT_THAT(pair[0].members, ElementsAre(0, 1));
}

TEST(GroupScheduler, WhoStaysForASlowNodeThatIsLateGoesOn) {
  auto scheduler = running(config(4));
  scheduler.began(0, 1100ms);
  for (const int p : {1, 2, 3}) {
    Arrival fast = arrival(p, 2);
    fast.received = {{0, 1e8}, {1 + p % 3, 1e9}};
    scheduler.arrived(fast, 2s);
  }
  std::vector<FormedGroup> grants;
  while (grants.empty()) {
    ASSERT_TRUE(scheduler.timer());
    ASSERT_LT(*scheduler.timer(), 2300ms);
    grants = scheduler.tick(*scheduler.timer());
  }
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_THAT(grants[0].members, ElementsAre(1));
}

TEST(GroupScheduler, MembersOfAFailedRoundGoOnWithoutTheMissing) {
  auto scheduler = running(config(3));
  for (int p = 0; p < 3; ++p) static_cast<void>(scheduler.arrived(arrival(p, 2), 2s));
  const auto round = scheduler.granted(0, 2)->round;
  EXPECT_THAT(scheduler.failed(round, 2, 12s), IsEmpty());
  EXPECT_THAT(scheduler.failed(round, 2, 12s), IsEmpty()) << "each member tells it";
  EXPECT_FALSE(scheduler.living(2));
  for (const int p : {0, 1}) scheduler.began(p, 12s);
  EXPECT_THAT(scheduler.arrived(arrival(0, 3), 13s), IsEmpty());
  const auto grants = scheduler.arrived(arrival(1, 3), 13s);
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_THAT(grants[0].members, ElementsAre(0, 1));
  EXPECT_GT(grants[0].round, round);

  // It was only late.
  static_cast<void>(scheduler.arrived(arrival(2, 3), 13s));
  EXPECT_TRUE(scheduler.living(2));
}

TEST(GroupScheduler, AMissingMemberThatGoesOnIsAlive) {
  auto scheduler = running(config(2));
  for (int p = 0; p < 2; ++p) static_cast<void>(scheduler.arrived(arrival(p, 2), 2s));
  const auto round = scheduler.granted(0, 2)->round;
  EXPECT_THAT(scheduler.arrived(arrival(1, 3), 3s), SizeIs(1));  // finished that round
  EXPECT_THAT(scheduler.failed(round, 1, 12s), IsEmpty());
  EXPECT_TRUE(scheduler.living(1));
}

// After a failed round nobody knows who is equal to whom: B steps later all must have met.
TEST(GroupScheduler, AFailedRoundConnectsNobody) {
  Config two = config(2);
  two.settings.connect_every = 2;
  auto scheduler = running(two);
  for (int p = 0; p < 2; ++p) static_cast<void>(scheduler.arrived(arrival(p, 2), 2s));
  static_cast<void>(scheduler.failed(scheduler.granted(0, 2)->round, -1, 3s));
  for (std::int64_t step = 3; step <= 4; ++step) {
    static_cast<void>(scheduler.arrived(arrival(0, step), std::chrono::seconds(3 * step)));
    static_cast<void>(scheduler.tick(std::chrono::seconds(3 * step + 2)));
  }
  EXPECT_THAT(scheduler.arrived(arrival(0, 5), 20s), IsEmpty());
  EXPECT_THAT(scheduler.tick(60s), IsEmpty()) << "held until the other one comes";
  EXPECT_THAT(scheduler.arrived(arrival(1, 3), 61s), SizeIs(1));
}

TEST(GroupScheduler, DeathLetsTheOthersGo) {
  auto scheduler = running(config(3));
  EXPECT_THAT(scheduler.arrived(arrival(0, 2), 2s), IsEmpty());
  EXPECT_THAT(scheduler.arrived(arrival(1, 2), 2s), IsEmpty());
  const auto grants = scheduler.died(2, 2010ms);
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_THAT(grants[0].members, ElementsAre(0, 1));
}

TEST(GroupScheduler, TheLastOneLivingGoesOnAlone) {
  auto scheduler = running(config(2));
  EXPECT_THAT(scheduler.died(1, 1500ms), IsEmpty());
  for (std::int64_t step = 2; step < 40; ++step) {
    const auto grants = scheduler.arrived(arrival(0, step), std::chrono::seconds(step));
    ASSERT_THAT(grants, SizeIs(1));
    EXPECT_THAT(grants[0].members, ElementsAre(0));
  }
}

TEST(GroupScheduler, APlanChangeIsNotTakenForSlowness) {
  auto scheduler = running(config(3));
  scheduler.reconfigure(config(3), 2);  // steps take twice as long from now on
  for (const int p : {0, 1}) {
    Arrival slower = arrival(p, 2);
    slower.step_seconds = 2;
    EXPECT_THAT(scheduler.arrived(slower, 3s), IsEmpty());
  }
  EXPECT_EQ(scheduler.timer(), Time(3s + allowed(1.5, 2))) << "half of twice that after 3 s";
}

// G1 to G7 and liveness, whatever happens.
TEST(GroupSchedulerWorld, KeepsItsInvariants) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    Random random(seed);
    WorldOptions options;
    options.replicas = 2 + static_cast<int>(random.below(8));
    options.settings.group_size_max = 2 + static_cast<int>(random.below(4));
    options.settings.connect_every = 2 + static_cast<int>(random.below(12));
    options.settings.max_staleness = 1 + static_cast<double>(random.below(8));
    options.settings.grace_window_percent = static_cast<int>(random.below(40));
    options.uneven_shares = random.uniform() < 0.5;
    options.slow_link = random.uniform() < 0.3;
    options.average_seconds = random.uniform() < 0.5 ? 0.1 : random.uniform();
    if (random.uniform() < 0.2) options.average_seconds = 0;
    options.slow_average_seconds =
        options.slow_link ? 3 * random.uniform() : options.average_seconds;
    options.deaths = random.uniform() < 0.5 ? static_cast<int>(random.below(5)) : 0;
    options.restarts = random.uniform() < 0.3 ? 1 + static_cast<int>(random.below(2)) : 0;
    World world(options, seed);
    world.run(80);
    EXPECT_THAT(world.broken(), IsEmpty()) << "seed " << seed;
    if (HasFailure()) return;
  }
}

// Disagreement halves in a window; where the windows of connection and of measurement lie badly to
// each other, in two.
TEST(GroupSchedulerWorld, DisagreementShrinks) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    WorldOptions options;
    options.replicas = 8;
    options.settings.group_size_max = 4;
    World world(options, seed);
    world.run(150);
    double logs = 0;
    for (const double factor : world.contractions()) logs += std::log(factor);
    EXPECT_LE(std::exp(logs / static_cast<double>(world.contractions().size())), 0.3) << seed;
    EXPECT_LE(*std::ranges::max_element(world.contractions()), 0.7) << seed;
  }
}

}  // namespace group_scheduler_test
}  // namespace weir::groups
