// SPDX-License-Identifier: Apache-2.0
// When an offer is taken, and each thing that makes it wait.
#include "operator/adaptation/gate/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::gate {
namespace gate_test {

using namespace std::chrono_literals;
using testing::HasSubstr;

const SystemTime kNow{std::chrono::hours(24 * 365 * 50)};

// As of the tiers above retune.
const Rules kRules{.least_gain = 0.10,
                   .or_equal = true,
                   .wins_needed = 2,
                   .same_offer = true,
                   .cooldown = 600s,
                   .steps_between = 8,
                   .must_repay = true};

Rules with_gain(double least) {
  Rules rules = kRules;
  rules.least_gain = least;
  return rules;
}
Rules asked_for() {
  Rules rules = kRules;
  rules.cooldown = 0s;
  return rules;
}

Offer offer() {
  return {.name = "3 stages", .now_seconds = 2, .then_seconds = 1, .cost_seconds = 20};
}
Moment moment() {
  return {.now = kNow, .step = 100, .last_change_step = 10, .loss_seconds = 30};
}
Record seen_once() {
  return {.wanted = "3 stages", .wins_in_row = 1, .quarantine = {}};
}

TEST(Gate, ActsAtTheSecondEvaluation) {
  const auto first = weigh(offer(), moment(), kRules, {}, {});
  EXPECT_FALSE(first.act);
  EXPECT_TRUE(first.enough);
  EXPECT_THAT(first.reason, HasSubstr("seen once"));
  const auto second = weigh(offer(), moment(), kRules, {}, first.record);
  EXPECT_TRUE(second.act) << second.reason;
  EXPECT_DOUBLE_EQ(second.gain, 1);
  EXPECT_EQ(second.record.wins_in_row, 0);
}

TEST(Gate, SaysHowLongACooldownLasts) {
  Clock clock;
  EXPECT_EQ(cooldown_left(kNow, kRules, clock), 0s);
  clock.last_change = kNow - 400s;
  EXPECT_EQ(cooldown_left(kNow, kRules, clock), 200s);
  clock.cooldown = 1200s;
  EXPECT_EQ(cooldown_left(kNow, kRules, clock), 800s);
  EXPECT_EQ(cooldown_left(kNow + 900s, kRules, clock), 0s);
  EXPECT_EQ(cooldown_left(kNow, asked_for(), clock), 0s) << "asked for: never wait";
}

TEST(Gate, AnEvaluationWithoutEnoughGainBreaksTheRow) {
  Offer small = offer();
  small.then_seconds = 1.83;
  const auto weighed = weigh(small, moment(), kRules, {}, seen_once());
  EXPECT_FALSE(weighed.enough);
  EXPECT_EQ(weighed.record.wins_in_row, 0);
  EXPECT_THAT(weighed.reason, HasSubstr("below the least gain of 10.0 %"));
  EXPECT_EQ(weighed.answer, "below the least gain of 10.0 %");
}

// The gain that is compared with the least gain is the one that the reason shows: of throughput.
TEST(Gate, TheGainThatItShowsIsTheOneThatItCompares) {
  Offer close = offer();
  close.then_seconds = 1.8;  // 10 % less time, 11.1 % more throughput
  const auto enough = weigh(close, moment(), with_gain(0.105), {}, seen_once());
  EXPECT_TRUE(enough.enough) << enough.reason;
  EXPECT_THAT(enough.reason, HasSubstr("(+11.1 %)"));
  const auto weighed = weigh(close, moment(), with_gain(0.112), {}, seen_once());
  EXPECT_FALSE(weighed.enough);
  EXPECT_THAT(weighed.reason, HasSubstr("(+11.1 %), below the least gain of 11.2 %"));
}

TEST(Gate, WaitsForEachOfItsRules) {
  const auto reason = [](const Offer& what, const Moment& when, const Clock& clock) {
    const auto weighed = weigh(what, when, kRules, clock, seen_once());
    EXPECT_FALSE(weighed.act) << weighed.reason;
    EXPECT_TRUE(weighed.enough);
    return weighed.reason;
  };
  Moment early = moment();
  early.last_change_step = 95;
  EXPECT_THAT(reason(offer(), early, {}), HasSubstr("5 steps since the last change"));
  Moment unjudged = moment();
  unjudged.unjudged = true;
  EXPECT_THAT(reason(offer(), unjudged, {}), HasSubstr("the last change is not judged yet"));

  Clock cooling;
  cooling.last_change = kNow - 599s;
  EXPECT_THAT(reason(offer(), moment(), cooling), HasSubstr("cooldown: 599 of 600 s"));
  cooling.last_change = kNow - 601s;
  cooling.cooldown = 1200s;  // doubled
  EXPECT_THAT(reason(offer(), moment(), cooling), HasSubstr("cooldown: 601 of 1200 s"));

  Offer dear = offer();
  dear.cost_seconds = 301;  // half of the time of a cooldown is saved
  Moment long_lost = moment();
  long_lost.loss_seconds = 1e6;
  EXPECT_THAT(reason(dear, long_lost, {}), HasSubstr("is not repaid"));

  Moment new_loss = moment();
  new_loss.loss_seconds = 19;
  EXPECT_THAT(reason(offer(), new_loss, {}), HasSubstr("19.0 s lost"));
}

TEST(Gate, WhatWasRolledBackIsNoOfferUntilItsStep) {
  Record out = seen_once();
  out.quarantine["3 stages"] = 101;
  const auto kept_out = weigh(offer(), moment(), kRules, {}, out);
  EXPECT_FALSE(kept_out.act);
  EXPECT_FALSE(kept_out.enough);
  EXPECT_THAT(kept_out.reason, HasSubstr("rolled back"));
  out.quarantine["3 stages"] = 100;
  EXPECT_TRUE(weigh(offer(), moment(), kRules, {}, out).act);
}

TEST(Gate, AnotherOfferBeginsTheRowAgain) {
  Offer other = offer();
  other.name = "another map";
  EXPECT_FALSE(weigh(other, moment(), kRules, {}, seen_once()).act);
}

TEST(Gate, OneThatIsAskedForWaitsForNoCooldownAndNoLoss) {
  const Clock cooling{.last_change = kNow - 1s};
  Moment free = moment();
  free.loss_seconds = 0;
  EXPECT_TRUE(weigh(offer(), free, asked_for(), cooling, seen_once()).act);
}

TEST(Gate, WithoutTheSameOfferAnyOtherGoesOnWithTheRow) {
  Rules any = kRules;
  any.same_offer = false;
  Offer other = offer();
  other.name = "another map";
  EXPECT_TRUE(weigh(other, moment(), any, {}, seen_once()).act);
}

TEST(Gate, TheLeastGainItselfIsEnoughOnlyIfTheRulesSaySo) {
  Rules rules = with_gain(1);
  EXPECT_TRUE(weigh(offer(), moment(), rules, {}, seen_once()).enough);
  rules.or_equal = false;
  EXPECT_FALSE(weigh(offer(), moment(), rules, {}, seen_once()).enough);
}

TEST(Gate, ANewLeaderTakesFromStatusWhatItsClockDoesNotKnow) {
  Clock clock;
  resume(clock, kNow, 1200);
  EXPECT_EQ(clock.last_change, kNow);
  EXPECT_EQ(clock.cooldown, 1200s);
  resume(clock, kNow - 1s, 60);
  EXPECT_EQ(clock.last_change, kNow);
  EXPECT_EQ(clock.cooldown, 1200s);
}

TEST(Gate, UnknownTimesOfferNothing) {
  Offer unknown = offer();
  unknown.now_seconds = 0;
  EXPECT_FALSE(weigh(unknown, moment(), kRules, {}, seen_once()).enough);
}

TEST(GateOutcome, SlowerIsRolledBackKeptOutAndDoublesTheCooldown) {
  const auto judged = judge({.before_seconds = 1, .after_seconds = 1.04, .predicted_gain = 0.3},
                            "3 stages", 50, kRules, {}, {});
  EXPECT_EQ(judged.verdict, Verdict::kRollback);
  EXPECT_EQ(judged.record.quarantine.at("3 stages"), 150);
  EXPECT_EQ(judged.clock.cooldown, 1200s);
}

TEST(GateOutcome, AMissedGainIsKeptAndDoublesTheCooldownWithAndWithoutAWayBack) {
  for (const bool can_return : {true, false}) {
    const auto judged = judge({.before_seconds = 1,
                               .after_seconds = can_return ? 0.95 : 1.5,
                               .predicted_gain = 0.3,
                               .can_return = can_return},
                              "3 stages", 50, kRules, {.last_change = {}, .cooldown = 2000s}, {});
    EXPECT_EQ(judged.verdict, Verdict::kMissed);
    EXPECT_EQ(judged.clock.cooldown, 3600s);  // the cap
    EXPECT_TRUE(judged.record.quarantine.empty());
  }
}

TEST(GateOutcome, AHitHalvesTheCooldownDownToTheSetting) {
  const Measured hit{.before_seconds = 1, .after_seconds = 0.75, .predicted_gain = 0.3};
  auto judged = judge(hit, "3 stages", 50, kRules, {.last_change = {}, .cooldown = 2400s}, {});
  EXPECT_EQ(judged.verdict, Verdict::kKeep);
  EXPECT_EQ(judged.clock.cooldown, 1200s);
  judged = judge(hit, "3 stages", 50, kRules, judged.clock, {});
  judged = judge(hit, "3 stages", 50, kRules, judged.clock, {});
  EXPECT_EQ(judged.clock.cooldown, 600s);
}

}  // namespace gate_test
}  // namespace weir::gate
