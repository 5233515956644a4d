// SPDX-License-Identifier: Apache-2.0
#include "operator/estimator/contention.h"

#include <cmath>

#include <gtest/gtest.h>

#include "worker/base/random.h"

namespace weir::estimator {
namespace contention_test {

using namespace std::chrono_literals;

const NodePair kLink{"n1", "n2"};
constexpr double kStandIn = 1.25e9;

SystemTime at(double seconds) {
  return SystemTime(std::chrono::hours(24 * 365 * 56)) +
         std::chrono::milliseconds(std::llround(1000 * seconds));
}

// One link; a report each 5 s.
struct Network {
  void report(double rate, int steps = 20, double cost = 0.2) {
    SegmentRate link{.timed = 8 * steps, .transfers = 9 * steps, .rate = rate, .error = 0.01};
    if (rate == 0) link = {.timed = 2 * steps, .transfers = 9 * steps, .rate = 1e6, .error = 0.5};
    tell(link, steps, cost);
  }
  void tell(const SegmentRate& link, int steps, double cost) {
    now += 5;
    if (link.rate != last) first_step += 100;
    last = link.rate;
    const SegmentRates segment{
        .revision = 1, .first_step = first_step, .steps = steps, .links = {{kLink, link}}};
    remember(state, segment, at(now));
    UsualRates usual;
    if (const auto known = usual_rate(state, kLink, kStandIn)) usual[kLink] = *known;
    const bool slow = !slow_links(state, segment, usual).empty();
    evaluate(state, segment, usual, {.part = slow ? cost : 0, .error = 0.002}, at(now));
  }
  NetworkState network() const { return network_state(state); }

  ContentionState state;
  double now = 0, last = -1;
  std::int64_t first_step = 0;
};

TEST(Contention, NeedsTwoEvaluationsTenSecondsApart) {
  Network network;
  network.report(4e8);
  network.report(4e6);
  EXPECT_EQ(network.network(), NetworkState::kHealthy);
  network.report(4e6);
  EXPECT_EQ(network.network(), NetworkState::kHealthy) << "5 s later";
  network.report(4e6);
  EXPECT_EQ(network.network(), NetworkState::kContended);
  EXPECT_EQ(network.state.watched.at(kLink).contended, at(10)) << "since the first of them";
}

TEST(Contention, IsNoneWhereThePlanHidesIt) {
  Network network;
  network.report(4e8);
  for (int i = 0; i < 5; ++i) network.report(4e6, 20, 0.004);
  EXPECT_EQ(network.network(), NetworkState::kHidden);
}

TEST(Contention, IsHiddenByAnotherPlan) {
  Network network;
  network.report(4e8);
  for (int i = 0; i < 5; ++i) network.report(4e6);
  EXPECT_EQ(network.network(), NetworkState::kContended);
  for (int i = 0; i < 2; ++i) network.report(4e6, 20, 0.003);
  EXPECT_EQ(network.network(), NetworkState::kContended);
  network.report(4e6, 20, 0.003);
  EXPECT_EQ(network.network(), NetworkState::kHidden);
}

TEST(Contention, EndsAtNineTenthsOfTheUsualRate) {
  Network network;
  network.report(4e8);
  for (int i = 0; i < 4; ++i) network.report(4e6);
  for (int i = 0; i < 9; ++i) network.report(3.5e8);
  EXPECT_EQ(network.network(), NetworkState::kContended) << "between 0.8 and 0.9 nothing changes";
  for (int i = 0; i < 2; ++i) network.report(3.7e8);
  EXPECT_EQ(network.network(), NetworkState::kContended);
  network.report(3.7e8);
  EXPECT_EQ(network.network(), NetworkState::kHealthy);
}

TEST(Contention, EndsWhereMessagesArriveInOnePiece) {
  Network network;
  network.report(4e8);
  for (int i = 0; i < 4; ++i) network.report(4e6);
  for (int i = 0; i < 3; ++i) network.report(0);
  EXPECT_EQ(network.network(), NetworkState::kHealthy);
}

TEST(Contention, NeedsFortyTimedMessagesAndHalfOfAll) {
  Network network;
  network.report(4e8);
  for (int i = 0; i < 5; ++i) network.report(4e6, 4);
  EXPECT_EQ(network.network(), NetworkState::kHealthy) << "32 messages";
  for (int i = 0; i < 5; ++i) {
    network.tell({.timed = 80, .transfers = 180, .rate = 4e6, .error = 0.01}, 20, 0.2);
  }
  EXPECT_EQ(network.network(), NetworkState::kHealthy) << "most came in one piece";
}

TEST(Contention, MayBeWhereTooFewMessagesWereTimed) {
  const UsualRates usual{{kLink, {.rate = 4e8, .error = 0.01}}};
  const auto may = [&](std::int64_t timed, double rate) {
    const SegmentRate link{.timed = timed, .transfers = timed + 3, .rate = rate, .error = 0.01};
    return may_be_slow({.revision = 1, .first_step = 1, .steps = 4, .links = {{kLink, link}}},
                       usual);
  };
  EXPECT_TRUE(may(39, 4e6));
  EXPECT_FALSE(may(40, 4e6)) << "this is certain";
  EXPECT_FALSE(may(39, 3.5e8));
  EXPECT_FALSE(may(2, 4e6)) << "most arrived in one piece";
}

TEST(Contention, NeedsCertainty) {
  Network network;
  network.report(4e8);
  for (int i = 0; i < 5; ++i) {
    network.tell({.timed = 80, .transfers = 90, .rate = 3e8, .error = 0.1}, 20, 0.2);
  }
  EXPECT_EQ(network.network(), NetworkState::kHealthy);
}

TEST(Contention, ClaimsNothingOfALinkThatWasAlwaysSo) {
  Network network;
  for (int i = 0; i < 9; ++i) network.report(4e6);
  EXPECT_EQ(network.network(), NetworkState::kHealthy);
  EXPECT_DOUBLE_EQ(usual_rate(network.state, kLink, kStandIn)->rate, 4e6);
  EXPECT_FALSE(usual_rate(network.state, {"n2", "n1"}, kStandIn));
}

TEST(Contention, KnowsThatALinkIsUsuallyTooFastToBeTimed) {
  Network network;
  for (int i = 0; i < 3; ++i) network.report(0);
  const auto usual = usual_rate(network.state, kLink, kStandIn);
  ASSERT_TRUE(usual);
  EXPECT_TRUE(usual->untimed);
  EXPECT_DOUBLE_EQ(usual->rate, kStandIn);
  for (int i = 0; i < 3; ++i) network.report(4e6);
  EXPECT_EQ(network.network(), NetworkState::kContended);
}

TEST(Contention, TakesTheFewTimedMessagesOfAFastLinkForItsLeastRate) {
  Network network;
  const SegmentRate few{.timed = 60, .transfers = 180, .rate = 3e8, .error = 0.05};
  for (int i = 0; i < 3; ++i) network.tell(few, 20, 0.2);
  const auto usual = usual_rate(network.state, kLink, kStandIn);
  ASSERT_TRUE(usual && usual->untimed);
  EXPECT_DOUBLE_EQ(usual->rate, 3e8);
  for (int i = 0; i < 5; ++i) network.report(3.1e8);
  EXPECT_EQ(network.network(), NetworkState::kHealthy);
}

TEST(Contention, ForgetsLinksThatThePlanDoesNotUse) {
  Network network;
  network.report(4e8);
  for (int i = 0; i < 4; ++i) network.report(4e6);
  evaluate(network.state, {}, {}, {}, at(network.now + 5));
  EXPECT_EQ(network.network(), NetworkState::kHealthy);
}

TEST(UsualRate, IsTheNinthTenthOverSteps) {
  ContentionState state;
  const auto add = [&](double rate, int steps, double time) {
    const SegmentRate link{.timed = 400, .transfers = 450, .rate = rate, .error = 0.01};
    remember(state,
             {.revision = 1,
              .first_step = std::llround(100 * time),
              .steps = steps,
              .links = {{kLink, link}}},
             at(3600 * time));
  };
  add(1e8, 40, 1);
  add(3e8, 4, 2);
  add(2e8, 16, 3);
  EXPECT_DOUBLE_EQ(usual_rate(state, kLink, kStandIn)->rate, 2e8);
  add(3e8, 6, 4);
  EXPECT_DOUBLE_EQ(usual_rate(state, kLink, kStandIn)->rate, 3e8);
  add(1e8, 50, 27);
  EXPECT_DOUBLE_EQ(usual_rate(state, kLink, kStandIn)->rate, 2e8) << "a day later";
}

TEST(UsualRate, CountsAllStepsOfAWindowThatSlides) {
  ContentionState state;
  for (int i = 0; i < 100; ++i) {
    const SegmentRate link{.timed = 400, .transfers = 450, .rate = 1e8, .error = 0.01};
    remember(state, {.revision = 1, .first_step = 1 + 5 * i, .steps = 64, .links = {{kLink, link}}},
             at(5 * i));
  }
  ASSERT_EQ(state.seen.at(kLink).size(), 1U);
  EXPECT_DOUBLE_EQ(state.seen.at(kLink)[0].steps, 64 + 99 * 5);
}

TEST(UsualRate, KeepsLittleOfALinkThatMovesAllDay) {
  Network network;
  for (int i = 0; i < 10'000; ++i) network.report(i % 2 == 0 ? 4e8 : 1e8);
  EXPECT_LE(network.state.seen.at(kLink).size(), 128U);
}

// A quiet network is never contended, whatever is timed of it.
TEST(Contention, IsNoneOnAQuietNetwork) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    Network network;
    for (int i = 0; i < 500; ++i) {
      const int steps = 2 + static_cast<int>(random.below(62));
      const double error = 0.3 / std::sqrt(8.0 * steps);
      network.tell({.timed = static_cast<std::int64_t>(random.below(9 * steps)),
                    .transfers = 9 * steps,
                    .rate = 3e8 * std::exp(error * random.normal()),
                    .error = error},
                   steps, 0.2);
      EXPECT_EQ(network.network(), NetworkState::kHealthy) << "seed " << seed << ", " << i;
    }
  }
}

}  // namespace contention_test
}  // namespace weir::estimator
