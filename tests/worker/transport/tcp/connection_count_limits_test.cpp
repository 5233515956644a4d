// SPDX-License-Identifier: Apache-2.0
// Each limit of the number of connections of a link, from both sides, in a network without noise.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/base/units.h"
#include "worker/transport/tcp/connection_count.h"
#include "worker/transport/tcp/frame.h"

namespace weir::transport::tcp {
namespace connection_count_limits_test {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;

constexpr int kLook = 8;    // messages until a link is seen to be busy
constexpr int kTrial = 24;  // messages of a trial
constexpr double kRate = 1e9;

// One message after the other.
struct Link {
  explicit Link(int open = 3, bool automatic = true) : count(open, automatic) {}

  void send(int messages) {
    for (int i = 0; i < messages; ++i) {
      const int connections = count.of_next(bytes, now).value();
      sent.push_back(connections);
      if (idle > 0s) count.idle_round_trip(idle);
      if (wait > 0s) count.round_trip_beside(wait, data);
      const double took = static_cast<double>(bytes) / rate(connections);
      now += from_seconds(took / share);
      const bool seen = !timed || timed(connections);
      count.arrived({static_cast<std::int64_t>(seen ? bytes : 0), from_seconds(seen ? took : 0)},
                    now);
    }
  }
  // The first trial, with all that comes before it.
  void send_trial() { send(kLook + kTrial); }

  ConnectionCount count;
  ConnectionCount::Time now{};
  std::function<double(int)> rate = [](int n) { return n * kRate; };
  std::function<bool(int)> timed;
  nanoseconds idle = 100us, wait = 100us, data = 8ms;
  double share = 0.8;
  std::size_t bytes = 16 * kPartBytes;
  std::vector<int> sent;  // number of connections of each message
};

// Twice as many connections carry so many times as much.
std::function<double(int)> gain(double factor) {
  return [factor](int n) { return n == 1 ? kRate : kRate * factor; };
}

TEST(ConnectionLimits, AMessageOfFourPartsCanUseSeveral) {
  for (const bool four : {false, true}) {
    Link link;
    link.bytes = 3 * kPartBytes + (four ? 1 : 0);
    link.send_trial();
    EXPECT_EQ(link.count.in_use(), four ? 2 : 1);
  }
}

TEST(ConnectionLimits, ALinkThatIsBusyAFifthOfTheTimeIsWorthATrial) {
  for (const bool enough : {false, true}) {
    Link link;
    link.share = enough ? 0.21 : 0.19;
    link.send_trial();
    EXPECT_EQ(link.count.in_use(), enough ? 2 : 1);
  }
}

TEST(ConnectionLimits, TheLoadIsSeenInEightTimedMessages) {
  Link link;
  int number = 0;
  link.timed = [&](int) { return ++number % 2 == 0; };
  link.send(2 * kLook);
  EXPECT_FALSE(link.count.on_trial());
  link.send(1);
  EXPECT_TRUE(link.count.on_trial());
}

TEST(ConnectionLimits, ATrialTakesGroupsOfThreeMessagesInTurn) {
  Link link;
  link.send(kLook + kTrial - 1);
  EXPECT_EQ(link.count.probes().raised, 0);
  for (int i = 0; i < kLook; ++i) EXPECT_EQ(link.sent[static_cast<std::size_t>(i)], 1);
  for (int i = 0; i < kTrial - 1; ++i) {
    EXPECT_EQ(link.sent[static_cast<std::size_t>(kLook + i)], i / 3 % 2 == 0 ? 1 : 2) << i;
  }
  link.send(1);
  EXPECT_EQ(link.count.probes().raised, 1);
}

TEST(ConnectionLimits, FourTimedMessagesOfEachNumberMakeAMedian) {
  for (const int candidate : {1, 2}) {
    for (const int least : {3, 4}) {
      Link link;
      link.send(kLook);
      int seen = 0;
      link.timed = [&](int n) { return n != candidate || ++seen <= least; };
      link.send(kTrial);
      EXPECT_EQ(link.count.in_use(), least == 4 ? 2 : 1) << candidate;
      EXPECT_EQ(link.count.probes().kept, least == 4 ? 0 : 1);
    }
  }
}

TEST(ConnectionLimits, TwiceAsManyHaveToCarryFifteenPercentMore) {
  for (const bool enough : {false, true}) {
    Link link;
    link.rate = gain(enough ? 1.16 : 1.14);
    link.send_trial();
    EXPECT_EQ(link.count.in_use(), enough ? 2 : 1);
    EXPECT_EQ(link.count.probes().kept, enough ? 0 : 1);
  }
}

TEST(ConnectionLimits, HalfAsManyMayCarryThreePercentLess) {
  for (const bool enough : {false, true}) {
    Link link;
    link.send_trial();
    ASSERT_EQ(link.count.in_use(), 2);
    link.now += 11min;
    link.rate = gain(enough ? 1 / 0.98 : 1 / 0.96);
    link.wait = 50ms;  // nobody else is asked when there are to be fewer
    link.send(kTrial);
    EXPECT_EQ(link.count.in_use(), enough ? 1 : 2);
    EXPECT_EQ(link.count.probes().lowered, enough ? 1 : 0);
    EXPECT_EQ(link.count.probes().kept, enough ? 0 : 1);
    link.sent.clear();
    link.send(kTrial);
    EXPECT_THAT(link.sent, Each(link.count.in_use())) << "it is left at that";
  }
}

TEST(ConnectionLimits, PingsThatWaitHaveSeenAQueueOfOthers) {
  struct Case {
    nanoseconds idle, data, wait;  // that is no queue of others; 20 us more is one
  };
  for (const Case& one : {Case{100us, 1ms, 440us},       // half more, and 300 us
                          Case{100us, 8ms, 940us},       // or a tenth of the data's
                          Case{1ms, 8ms, 2290us},        //
                          Case{5ms, 8ms, 3990us},        // half of the data's
                          Case{400us, 600us, 490us}}) {  // above half a millisecond
    for (const bool waits : {false, true}) {
      Link link;
      link.idle = one.idle;
      link.data = one.data;
      link.wait = one.wait + (waits ? 20us : 0us);
      link.send_trial();
      EXPECT_EQ(link.count.in_use(), waits ? 1 : 2) << link.wait.count();
      EXPECT_EQ(link.count.probes().shared, waits ? 1 : 0);
    }
  }
}

TEST(ConnectionLimits, MostPingsTellAndNotAFewOfThem) {
  for (const bool most_wait : {false, true}) {
    Link link;
    link.send(kLook);
    for (int i = 0; i < kTrial; ++i) {
      link.wait = (i % 3 == 0) == most_wait ? 100us : 50ms;
      link.send(1);
    }
    EXPECT_EQ(link.count.in_use(), most_wait ? 1 : 2);
  }
}

TEST(ConnectionLimits, TheShortestOfTheLastIdleRoundTripsIsTheUsualOne) {
  for (const int later : {31, 32}) {
    Link link;
    link.count.idle_round_trip(10us);
    for (int i = 0; i < later; ++i) link.count.idle_round_trip(1ms);
    link.idle = 0s;
    link.wait = 2ms;
    link.send_trial();
    EXPECT_EQ(link.count.in_use(), later == 32 ? 2 : 1);
  }
}

TEST(ConnectionLimits, OneIdleRoundTripIsEnoughAndNoneIsNot) {
  for (const bool known : {false, true}) {
    Link link;
    if (known) link.count.idle_round_trip(1ms);  // as that of the handshake
    link.idle = 0s;
    link.wait = 2ms;
    link.send_trial();
    EXPECT_EQ(link.count.in_use(), known ? 2 : 1);
    EXPECT_EQ(link.count.probes().shared, known ? 0 : 1);
  }
}

TEST(ConnectionLimits, WithoutPingsBesideDataNobodyKnowsWhoElseIsThere) {
  Link link;
  link.wait = 0s;
  link.send_trial();
  EXPECT_EQ(link.count.in_use(), 1);
  EXPECT_EQ(link.count.probes().shared, 1);
}

TEST(ConnectionLimits, PingsBeforeATrialOrWithoutDataTellNothing) {
  Link link;
  link.wait = 0s;
  for (int i = 0; i < 100; ++i) link.count.round_trip_beside(50ms, 8ms);
  link.send(kLook);
  for (int i = 0; i < kTrial; ++i) {
    link.count.round_trip_beside(50ms, 8ms);  // nothing is on its way
    link.wait = 100us;
    link.send(1);
  }
  EXPECT_EQ(link.count.in_use(), 2);
}

TEST(ConnectionLimits, AfterTenMinutesATrialIsMadeAgain) {
  Link link;
  link.rate = gain(1);
  link.send_trial();
  const auto judged = link.now;
  link.now = judged + 10min - 2s;
  link.send(2 * kTrial);  // takes less than a second
  EXPECT_EQ(link.count.probes().kept, 1);
  link.now = judged + 10min;
  link.send(kTrial);
  EXPECT_EQ(link.count.probes().kept, 2);
}

TEST(ConnectionLimits, AfterAMinuteATrialIsMadeAgainIfTheRateHasMovedByAFourth) {
  struct Case {
    double factor;
    std::chrono::seconds after;
    bool again;
  };
  for (const Case& one : {Case{1.24, 120s, false}, Case{1.27, 120s, true}, Case{0.76, 120s, false},
                          Case{0.73, 120s, true}, Case{2, 58s, false}, Case{2, 60s, true}}) {
    Link link;
    link.rate = gain(1);
    link.send_trial();
    link.now += one.after;
    link.rate = [&](int) { return one.factor * kRate; };
    link.send(kLook);  // the first of them waited, so the link does not look busy
    link.send(kLook + kTrial);
    EXPECT_EQ(link.count.probes().kept, one.again ? 2 : 1) << one.factor;
  }
}

TEST(ConnectionLimits, TheRateWithTheNumberThatStaysIsTheOneToMoveFrom) {
  for (const bool better : {false, true}) {
    Link link;
    link.rate = gain(better ? 2 : 0.5);
    link.send_trial();
    ASSERT_EQ(link.count.in_use(), better ? 2 : 1);
    link.send(kLook);  // the load that is seen is no longer that of the trial
    link.now += 2min;
    link.send(2 * kLook + kTrial);
    EXPECT_EQ(link.count.probes().kept, better ? 0 : 1);
  }
}

TEST(ConnectionLimits, TheLastConnectionCarriesOnlyPings) {
  for (const auto& [open, most] : {std::pair(1, 1), {2, 1}, {3, 2}, {4, 3}, {6, 5}, {9, 8}}) {
    Link link(open);
    link.send(kLook + 5 * kTrial);
    EXPECT_EQ(link.count.in_use(), most);
    EXPECT_THAT(link.sent, Each(AllOf(Ge(1), Le(most))));
  }
}

TEST(ConnectionLimits, LaterTrialsDoubleTheNumberUpToTheMostAndHalveIt) {
  for (const int open : {4, 9}) {
    Link link(open);
    link.rate = [](int n) { return n == 1 ? kRate : 2 * kRate; };
    link.send(kLook + 3 * kTrial);
    ASSERT_EQ(link.count.in_use(), 2);
    const int more = open == 4 ? 3 : 4;
    link.now += 11min;
    link.rate = [](int n) { return std::min(n, 4) * kRate; };
    link.sent.clear();
    link.send(2 * kTrial);
    EXPECT_EQ(link.count.in_use(), more);
    EXPECT_EQ(link.sent[3], more);
  }
  Link link(5);
  link.send(kLook + 2 * kTrial);
  ASSERT_EQ(link.count.in_use(), 4);
  link.now += 11min;
  link.sent.clear();
  link.send(kTrial);
  EXPECT_EQ(link.sent[3], 2);
}

TEST(ConnectionLimits, AFixedNumberIsNeverTried) {
  Link link(5, false);
  link.send(10 * kTrial);
  EXPECT_THAT(link.sent, Each(5));
}

TEST(ConnectionLimits, FewerAreTriedWhereMoreCarryNoMoreAndNotWhereOthersWait) {
  for (const bool others : {false, true}) {
    Link link(5);  // up to four
    link.rate = [](int n) { return n == 1 ? kRate : 2 * kRate; };
    link.send(kLook + 3 * kTrial);  // 2, not 4, not 1
    ASSERT_EQ(link.count.in_use(), 2);
    ASSERT_EQ(link.count.probes().kept, 2);
    link.now += 11min;
    link.sent.clear();
    if (others) {
      link.rate = [](int n) { return n * kRate; };
      link.wait = 50ms;
    }
    link.send(3 * kTrial);
    EXPECT_EQ(link.count.probes().shared, others ? 1 : 0);
    EXPECT_EQ(link.count.probes().kept, others ? 2 : 4);
    EXPECT_EQ(std::ranges::count(link.sent, 1) > 0, !others);
  }
}

TEST(ConnectionLimits, SmallMessagesArePartOfNoTrial) {
  Link link;
  link.send(kLook);
  for (int i = 0; i < kTrial; ++i) {
    ASSERT_EQ(link.count.probes().raised, 0) << i;
    const auto small = link.bytes;
    link.bytes = 1000;
    link.send(1);
    EXPECT_EQ(link.sent.back(), 1);
    EXPECT_EQ(link.count.on_trial(), i > 0) << "they begin none";
    link.bytes = small;
    link.send(1);
  }
  EXPECT_EQ(link.count.probes().raised, 1);
}

TEST(ConnectionLimits, ASmallMessageGoesWithTheOneBeforeIt) {
  Link link;
  link.send(kLook + 3);
  ASSERT_EQ(link.count.of_next(link.bytes, link.now), 2);
  EXPECT_EQ(link.count.of_next(1000, link.now), 2);
}

TEST(ConnectionLimits, MessagesFromBeforeATrialAreNotCountedInIt) {
  Link link;
  const auto arrive = [&] {
    link.now += 5ms;
    link.count.arrived({static_cast<std::int64_t>(link.bytes), 4ms}, link.now);
  };
  ASSERT_EQ(link.count.of_next(link.bytes, link.now), 1);
  ASSERT_EQ(link.count.of_next(link.bytes, link.now), 1);
  for (int i = 0; i < kLook; ++i) {
    arrive();
    if (i + 1 == kLook) break;
    ASSERT_EQ(link.count.of_next(link.bytes, link.now), 1);
  }
  EXPECT_FALSE(link.count.on_trial());
  ASSERT_EQ(link.count.of_next(link.bytes, link.now), 1);
  ASSERT_TRUE(link.count.on_trial());
  arrive();  // began before the trial
  arrive();
  link.send(kTrial - 2);
  EXPECT_TRUE(link.count.on_trial());
  link.send(1);
  EXPECT_FALSE(link.count.on_trial());
}

TEST(ConnectionLimits, AChangeIsToldWhenTheLastTrialHasEnded) {
  Link link(5);
  link.send_trial();
  ASSERT_EQ(link.count.in_use(), 2);
  EXPECT_FALSE(link.count.take_change());
  link.send(kTrial);
  const auto change = link.count.take_change();
  ASSERT_TRUE(change);
  EXPECT_THAT((std::vector{change->before, change->now}), ElementsAre(1, 4));
  EXPECT_NEAR(change->rate_before, kRate, 1e3);
  EXPECT_NEAR(change->rate_now, 4 * kRate, 1e4);
}

}  // namespace connection_count_limits_test
}  // namespace weir::transport::tcp
