// SPDX-License-Identifier: Apache-2.0
// How many connections a link uses, in a network that is played: what n of them carry, and how long
// a small message waits beside them.
#include "worker/transport/tcp/connection_count.h"

#include <algorithm>
#include <deque>
#include <functional>

#include <gtest/gtest.h>

#include "worker/base/random.h"
#include "worker/base/units.h"
#include "worker/transport/tcp/frame.h"

namespace weir::transport::tcp {
namespace connection_count_test {

using namespace std::chrono_literals;

constexpr std::size_t kMessage = std::size_t{4} * 1024 * 1024;

struct World {
  std::function<double(int)> rate;  // bytes per second of n connections
  double wait = 60e-6;              // round trip of a ping beside data
  double idle = 60e-6;
  double data = 8e-3;  // round trip of the data: in the queue of their own flow, or with the ping
  // Connections that fill the port by themselves: then pings wait where the data do.
  int fill = 1000;
  double share = 0.8;   // of the time in which the link is busy
  double noise = 0.05;  // of a message's time
  std::size_t bytes = kMessage;
};

class ConnectionCountTest : public ::testing::TestWithParam<int> {
 protected:
  // One message after the other.
  void send(const World& world, int messages) {
    for (int i = 0; i < messages; ++i) {
      const int connections = count_.of_next(world.bytes, now_).value();
      count_.idle_round_trip(from_seconds(world.idle * (1 + random_.uniform())));
      const double took = static_cast<double>(world.bytes) / world.rate(connections) *
                          (1 + world.noise * (2 * random_.uniform() - 1));
      const double wait = connections < world.fill ? world.wait : world.data;
      count_.round_trip_beside(from_seconds(wait * (1 + random_.uniform())),
                               from_seconds(world.data * (1 + random_.uniform())));
      now_ += from_seconds(took / world.share);
      count_.arrived({static_cast<std::int64_t>(world.bytes), from_seconds(took)}, now_);
      most_ = std::max(most_, connections);
    }
  }
  static World capped(double cap, double port) {
    return {.rate = [=](int n) { return std::min(n * cap, port); }};
  }

  Random random_{static_cast<std::uint64_t>(GetParam())};
  ConnectionCount count_{9, true};
  ConnectionCount::Time now_{};
  int most_ = 0;  // connections of any message
};

TEST_P(ConnectionCountTest, FindsTheNumberThatFillsThePortWhereEachFlowIsCapped) {
  send(capped(0.6e9, 2.4e9), 8 + 5 * 24);

  EXPECT_EQ(count_.in_use(), 4);
  EXPECT_EQ(count_.probes().raised, 2);
  const auto change = count_.take_change();
  ASSERT_TRUE(change);
  EXPECT_EQ(change->before, 1);
  EXPECT_EQ(change->now, 4);
  EXPECT_NEAR(change->rate_now / change->rate_before, 4, 0.4);
  EXPECT_FALSE(count_.take_change()) << "told once";
}

TEST_P(ConnectionCountTest, StaysAtOneWhereAFlowFillsThePort) {
  send(capped(2.4e9, 2.4e9), 1000);
  EXPECT_EQ(count_.in_use(), 1);
  EXPECT_EQ(count_.probes().raised, 0);
  EXPECT_GE(count_.probes().kept, 1);
}

// There more connections carry more, at the cost of others.
TEST_P(ConnectionCountTest, StaysAtOneOnAPortThatOthersUse) {
  World world{.rate = [](int n) { return 1e9 * n / (n + 4.0); }};
  world.wait = 2e-3;
  send(world, 1000);
  EXPECT_EQ(count_.in_use(), 1);
  EXPECT_GE(count_.probes().shared, 1);
}

// Nobody has ever seen the round trip of the empty path, so the usual one tells nothing.
TEST_P(ConnectionCountTest, StaysAtOneOnAPortThatOthersHaveFilledFromTheBeginning) {
  World world{.rate = [](int n) { return 1e9 * n / (n + 1.0); }};
  world.wait = world.idle = 7e-3;
  world.data = 8e-3;
  send(world, 1000);
  EXPECT_EQ(count_.in_use(), 1);
  EXPECT_GE(count_.probes().shared, 1);
}

TEST_P(ConnectionCountTest, FillsThePortThoughPingsWaitWhereItIsFull) {
  World world = capped(0.6e9, 2.4e9);
  world.fill = 4;
  send(world, 8 + 5 * 24);
  EXPECT_EQ(count_.in_use(), 4);
}

TEST_P(ConnectionCountTest, TakesPingsThatWaitForABusyProcessorForNoQueue) {
  World world = capped(0.6e9, 2.4e9);
  world.wait = 500e-6;
  send(world, 8 + 5 * 24);
  EXPECT_EQ(count_.in_use(), 4);
}

// As a limit that drops what is too much: the data wait no longer than a ping does.
TEST_P(ConnectionCountTest, FindsTheNumberWhereACapHasNoQueue) {
  World world = capped(0.6e9, 2.4e9);
  world.data = world.wait = world.idle = 150e-6;
  send(world, 8 + 5 * 24);
  EXPECT_EQ(count_.in_use(), 4);
}

TEST_P(ConnectionCountTest, GoesBackWhereFewerCarryAsMuch) {
  send(capped(0.6e9, 2.4e9), 8 + 5 * 24);
  ASSERT_EQ(count_.in_use(), 4);
  now_ += 11min;
  send(capped(2.4e9, 2.4e9), 200);  // now a flow fills the port
  now_ += 11min;
  send(capped(2.4e9, 2.4e9), 200);
  EXPECT_LE(count_.in_use(), 2);
  EXPECT_GE(count_.probes().lowered, 1);
}

TEST_P(ConnectionCountTest, TriesNothingOnALinkThatHardlyWorks) {
  World world = capped(0.6e9, 2.4e9);
  world.share = 0.1;
  send(world, 1000);
  EXPECT_EQ(most_, 1);
}

TEST_P(ConnectionCountTest, TriesNothingWithShortMessages) {
  World world = capped(0.6e9, 2.4e9);
  world.bytes = 3 * kPartBytes;
  send(world, 1000);
  EXPECT_EQ(most_, 1);
}

TEST_P(ConnectionCountTest, TriesAgainOnlyAfterTenMinutesOrAChangeOfTheRate) {
  send(capped(2.4e9, 2.4e9), 100);
  ASSERT_EQ(count_.probes().kept, 1);
  now_ += 2min;
  send(capped(2.4e9, 2.4e9), 100);
  EXPECT_EQ(count_.probes().kept, 1) << "the rate is what it was";
  now_ += 2min;
  send(capped(1e9, 1e9), 100);
  EXPECT_EQ(count_.probes().kept, 2) << "the rate has moved";
}

TEST_P(ConnectionCountTest, AFixedNumberIsUsedFromTheFirstMessageOn) {
  ConnectionCount fixed(5, false);
  EXPECT_EQ(fixed.of_next(kMessage, now_).value_or(0), 5);
  EXPECT_EQ(fixed.in_use(), 5);
}

TEST_P(ConnectionCountTest, MessagesOfATrialAreNotTimedTogetherWithAnotherNumber) {
  const World world = capped(0.6e9, 2.4e9);
  std::deque<int> on_their_way;
  int switches = 0;
  for (int i = 0; i < 200; ++i) {
    const auto next = count_.of_next(kMessage, now_);
    if (next && !on_their_way.empty() && *next != on_their_way.back()) ++switches;
    if (next) on_their_way.push_back(*next);
    if (next && on_their_way.size() < 3) continue;
    const double took = static_cast<double>(kMessage) / world.rate(on_their_way.front());
    now_ += from_seconds(took);
    count_.idle_round_trip(60us);
    count_.round_trip_beside(60us, 8ms);
    count_.arrived({kMessage, from_seconds(took)}, now_);
    on_their_way.pop_front();
  }
  EXPECT_EQ(switches, 0);
  EXPECT_EQ(count_.in_use(), 4) << "it goes on for all that";
}

INSTANTIATE_TEST_SUITE_P(Seeds, ConnectionCountTest, ::testing::Range(1, 6));

}  // namespace connection_count_test
}  // namespace weir::transport::tcp
