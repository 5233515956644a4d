// SPDX-License-Identifier: Apache-2.0
// When a tier above retune acts, and each thing that makes it wait.
#include "operator/tuner/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::tuner {
namespace gate_test {

using namespace std::chrono_literals;
using testing::HasSubstr;

const SystemTime kNow{std::chrono::hours(24 * 365 * 50)};

Offer offer() {
  return {.text = "3 stages", .current_seconds = 2, .seconds = 1, .cost_seconds = 20};
}
Moment moment() {
  return {.now = kNow, .step = 100, .last_change_step = 10, .loss_seconds = 30};
}
TierState seen_once() {
  return {.wanted = "3 stages", .wins_in_row = 1, .quarantine = {}, .last_change = {}};
}

TEST(Tier, ActsAtTheSecondEvaluationAndRemembersWhen) {
  const auto first = weigh(offer(), moment(), {}, {});
  EXPECT_FALSE(first.act);
  EXPECT_TRUE(first.enough);
  EXPECT_THAT(first.reason, HasSubstr("seen once"));
  const auto second = weigh(offer(), moment(), {}, first.state);
  EXPECT_TRUE(second.act) << second.reason;
  EXPECT_DOUBLE_EQ(second.gain, 1);
  EXPECT_EQ(second.state.last_change, kNow);
  EXPECT_EQ(second.state.wins_in_row, 0);
}

TEST(Tier, SaysHowLongItsCooldownLasts) {
  TierState state;
  EXPECT_EQ(cooldown_left(kNow, {}, state), 0s);
  state.last_change = kNow - 400s;
  EXPECT_EQ(cooldown_left(kNow, {}, state), 200s);
  state.cooldown = 1200s;
  EXPECT_EQ(cooldown_left(kNow, {}, state), 800s);
  EXPECT_EQ(cooldown_left(kNow + 900s, {}, state), 0s);
  EXPECT_EQ(cooldown_left(kNow, {.cooldown = 0s}, state), 0s) << "asked for: never wait";
}

TEST(Tier, AnEvaluationWithoutEnoughGainBreaksTheRow) {
  Offer small = offer();
  small.seconds = 1.83;
  const auto weighed = weigh(small, moment(), {}, seen_once());
  EXPECT_FALSE(weighed.enough);
  EXPECT_EQ(weighed.state.wins_in_row, 0);
  EXPECT_THAT(weighed.reason, HasSubstr("below the least gain of 10.0 %"));
}

// The gain that is compared with the least gain is the one that the reason shows: of throughput.
TEST(Tier, TheGainThatItShowsIsTheOneThatItCompares) {
  Offer close = offer();
  close.seconds = 1.8;  // 10 % less time, 11.1 % more throughput
  const auto enough = weigh(close, moment(), {.min_gain = 0.105}, seen_once());
  EXPECT_TRUE(enough.enough) << enough.reason;
  EXPECT_THAT(enough.reason, HasSubstr("(+11.1 %)"));
  const auto weighed = weigh(close, moment(), {.min_gain = 0.112}, seen_once());
  EXPECT_FALSE(weighed.enough);
  EXPECT_THAT(weighed.reason, HasSubstr("(+11.1 %), below the least gain of 11.2 %"));
}

TEST(Tier, WaitsForEachOfItsRules) {
  const auto reason = [](Offer what, Moment when, TierState state) {
    const auto weighed = weigh(what, when, {}, state);
    EXPECT_FALSE(weighed.act) << weighed.reason;
    EXPECT_TRUE(weighed.enough);
    return weighed.reason;
  };
  Moment early = moment();
  early.last_change_step = 95;
  EXPECT_THAT(reason(offer(), early, seen_once()), HasSubstr("5 steps since the last change"));

  TierState cooling = seen_once();
  cooling.last_change = kNow - 599s;
  EXPECT_THAT(reason(offer(), moment(), cooling), HasSubstr("cooldown: 599 of 600 s"));
  cooling.last_change = kNow - 601s;
  cooling.cooldown = 1200s;  // doubled
  EXPECT_THAT(reason(offer(), moment(), cooling), HasSubstr("cooldown: 601 of 1200 s"));

  Offer dear = offer();
  dear.cost_seconds = 301;  // half of the time of a cooldown is saved
  Moment long_lost = moment();
  long_lost.loss_seconds = 1e6;
  EXPECT_THAT(reason(dear, long_lost, seen_once()), HasSubstr("is not repaid"));

  Moment new_loss = moment();
  new_loss.loss_seconds = 19;
  EXPECT_THAT(reason(offer(), new_loss, seen_once()), HasSubstr("19.0 s lost"));
}

TEST(Tier, WhatWasRolledBackIsNoOfferUntilItsStep) {
  TierState out = seen_once();
  out.quarantine["3 stages"] = 101;
  const auto kept_out = weigh(offer(), moment(), {}, out);
  EXPECT_FALSE(kept_out.act);
  EXPECT_FALSE(kept_out.enough);
  EXPECT_THAT(kept_out.reason, HasSubstr("rolled back"));
  out.quarantine["3 stages"] = 100;
  EXPECT_TRUE(weigh(offer(), moment(), {}, out).act);
}

TEST(Tier, AnotherOfferBeginsTheRowAgain) {
  Offer other = offer();
  other.text = "another map";
  EXPECT_FALSE(weigh(other, moment(), {}, seen_once()).act);
}

TEST(Tier, OneThatIsAskedForWaitsForNoCooldownAndNoLoss) {
  TierState cooling = seen_once();
  cooling.last_change = kNow - 1s;
  Moment free = moment();
  free.loss_seconds = 0;
  EXPECT_TRUE(weigh(offer(), free, {.cooldown = 0s}, cooling).act);
}

TEST(Tier, UnknownTimesOfferNothing) {
  Offer unknown = offer();
  unknown.current_seconds = 0;
  EXPECT_FALSE(weigh(unknown, moment(), {}, seen_once()).enough);
}

TEST(TierOutcome, SlowerIsRolledBackKeptOutAndDoublesTheCooldown) {
  const auto judged = judge(
      {.before_seconds = 1, .after_seconds = 1.04, .predicted_gain = 0.3, .rates_unchanged = true},
      "3 stages", 50, {}, {});
  EXPECT_EQ(judged.verdict, Verdict::kRollback);
  EXPECT_EQ(judged.state.quarantine.at("3 stages"), 150);
  EXPECT_EQ(judged.state.cooldown, 1200s);
}

TEST(TierOutcome, AMissedGainIsKeptAndDoublesTheCooldownAtAnyRates) {
  for (const bool unchanged : {true, false}) {
    const auto judged = judge({.before_seconds = 1,
                               .after_seconds = unchanged ? 0.95 : 1.5,
                               .predicted_gain = 0.3,
                               .rates_unchanged = unchanged},
                              "3 stages", 50, {}, {.cooldown = 2000s});
    EXPECT_EQ(judged.verdict, Verdict::kMissed);
    EXPECT_EQ(judged.state.cooldown, 3600s);  // the cap
    EXPECT_TRUE(judged.state.quarantine.empty());
  }
}

TEST(TierOutcome, AHitHalvesTheCooldownDownToTheSetting) {
  const Outcome hit{
      .before_seconds = 1, .after_seconds = 0.75, .predicted_gain = 0.3, .rates_unchanged = true};
  auto judged = judge(hit, "3 stages", 50, {}, {.cooldown = 2400s});
  EXPECT_EQ(judged.verdict, Verdict::kKeep);
  EXPECT_EQ(judged.state.cooldown, 1200s);
  judged = judge(hit, "3 stages", 50, {}, judged.state);
  judged = judge(hit, "3 stages", 50, {}, judged.state);
  EXPECT_EQ(judged.state.cooldown, 600s);
}

}  // namespace gate_test
}  // namespace weir::tuner
