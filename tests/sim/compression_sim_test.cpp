// SPDX-License-Identifier: Apache-2.0
// Tier compress in the whole loop: a co-tenant leaves so little of a node's bandwidth that no order
// hides the link, and goes away again.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sim/seeds.h"
#include "tests/sim/whole_loop.h"

namespace weir::sim {
namespace compression_sim_test {

using schedule::Trigger;

constexpr double kBegin = 200, kEnd = 700, kHorizon = 1000;  // seconds
// An evaluation that sees the new rate in a window of scrapes, a second one, and the switch.
constexpr double kReaction = 60;

// A transfer of 10 ms takes 205 ms then, where a stage needs 68 ms for a micro-batch.
LoopCase bound_case(bool compresses) {
  LoopCase one;
  one.horizon = kHorizon;
  one.regroups = false;
  one.compresses = compresses;
  one.shape.micro_batches = 16;
  Hazards hazards;
  hazards.node_share.resize(static_cast<std::size_t>(one.shape.workers + one.spare_nodes));
  hazards.slow.resize(hazards.node_share.size());
  hazards.node_share[1].set(kBegin, 0.05);
  hazards.node_share[1].set(kEnd, 1);
  one.hazards = hazards;
  return one;
}

double samples_between(const WholeLoop& loop, double from, double to) {
  const auto at = [&](double time) {
    return loop.work()[static_cast<std::size_t>(time / WholeLoop::kSampled) - 1];
  };
  return at(to) - at(from);
}

TEST(CompressionSim, MakesABoundLinkCarryTheJobAndGoesAwayWithTheNeed) {
  WholeLoop with(bound_case(true), "Auto", 1), without(bound_case(false), "Auto", 1);
  with.run();
  without.run();
  for (const auto& what : with.wrong()) ADD_FAILURE() << what;

  // Raw, a step takes as long as the link needs for its tensors; in 8 bits an order hides them.
  const double gain = samples_between(with, kBegin + kReaction, kEnd) /
                      samples_between(without, kBegin + kReaction, kEnd);
  EXPECT_GT(gain, 2) << with.history();
  double first = 0, last = 0;
  int compressed = 0;
  for (std::size_t i = 0; i < with.plans().size(); ++i) {
    if (with.plans()[i].trigger != Trigger::kCompress) continue;
    if (first == 0) first = with.plan_times()[i];
    last = with.plan_times()[i];
    ++compressed;
  }
  EXPECT_GT(first, kBegin);
  EXPECT_LT(first, kBegin + kReaction) << with.history();
  EXPECT_GT(last, kEnd);
  EXPECT_LT(last, kEnd + kReaction) << with.history();
  EXPECT_LE(compressed, 3) << with.history();
  EXPECT_TRUE(with.plans().back().codecs.raw());
  EXPECT_GT(samples_between(with, kEnd + kReaction, kHorizon),
            0.98 * samples_between(without, kEnd + kReaction, kHorizon));
  for (const WholeLoop::Outcome& outcome : with.outcomes()) {
    const double off = std::abs(outcome.told - outcome.truth);
    EXPECT_LE(off, std::max(std::abs(outcome.truth) / 3, 0.015)) << outcome.note;
  }
}

TEST(CompressionSim, OnlyProposesOnceWhatTheJobDoesNotAllow) {
  WholeLoop loop(bound_case(false), "Auto", 1), allowed(bound_case(true), "Auto", 1);
  loop.run();
  allowed.run();
  int proposals = 0;
  std::string note;
  for (const api::Event& event : loop.events()) {
    if (event.reason != "PlanProposed" || event.note.find("compress") == std::string::npos)
      continue;
    ++proposals;
    note = event.note;
  }
  EXPECT_EQ(proposals, 1) << note;
  EXPECT_NE(note.find("set adaptation.compress.enabled to true"), std::string::npos) << note;
  for (const schedule::Plan& plan : loop.plans()) EXPECT_TRUE(plan.codecs.raw());
  // What it proposes is about what it then brings.
  const double told = std::stod(note.substr(note.find("(+") + 2)) / 100;
  double measured = 0;
  for (const WholeLoop::Outcome& outcome : allowed.outcomes()) {
    if (outcome.note.find("codecs Raw ->") != std::string::npos) measured = outcome.told;
  }
  EXPECT_GT(measured, 0) << allowed.history();
  EXPECT_NEAR(told, measured, measured / 3) << note;
}

// 10,000 quiet steps in the long form. The link is quick, or takes 41 ms where a stage takes 68.
TEST(CompressionSim, LeavesAQuietJobAlone) {
  constexpr double kStep = 1.6;  // s, at most
  const double steps = full_run() ? 10'000 : 500;
  for (const double noise : {0.05, 0.2}) {
    for (const double share : {1.0, 0.25}) {
      LoopCase one = bound_case(true);
      one.horizon = kStep * steps;
      one.shape.rate_noise = noise;
      one.hazards->node_share[1] = {};
      one.hazards->node_share[1].set(0, share);
      WholeLoop loop(one, "Auto", 1);
      loop.run();
      EXPECT_EQ(loop.changes(Trigger::kCompress), 0) << noise << ", " << share << loop.history();
      EXPECT_GT(static_cast<double>(loop.steps()), steps);
    }
  }
}

// The link is bound half of the time. Long periods are followed, short ones are sat out with
// codecs.
TEST(CompressionSim, ChangesAtMostTwiceInAHundredStepsWhateverThePeriod) {
  constexpr double kLate = 900, kSteps = 100;
  const std::vector<double> periods =
      full_run() ? std::vector<double>{10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 450, 600}
                 : std::vector<double>{10, 120, 240};
  for (const double period : periods) {
    LoopCase one = bound_case(true);
    one.horizon = kBegin + kLate;
    one.hazards->node_share[1] = {};
    for (double time = kBegin; time < one.horizon; time += period) {
      one.hazards->node_share[1].set(time, 0.05);
      one.hazards->node_share[1].set(time + period / 2, 1);
    }
    WholeLoop loop(one, "Auto", 1);
    loop.run();
    for (const auto& what : loop.wrong()) ADD_FAILURE() << what;
    std::vector<double> at;  // step
    for (std::size_t i = 0; i < loop.plans().size(); ++i) {
      if (loop.plans()[i].trigger != Trigger::kCompress) continue;
      const double samples =
          loop.work()[static_cast<std::size_t>(loop.plan_times()[i] / WholeLoop::kSampled) - 1];
      at.push_back(samples / (one.shape.micro_batches * one.shape.micro_batch_size));
      if (at.size() < 3) continue;
      EXPECT_GE(at.back() - at[at.size() - 3], kSteps) << period << " s\n" << loop.history();
    }
  }
}

// From 4 Mbit/s to 10 Gbit/s: messages with codecs take 25 us there and arrive in one piece, so
// that they are not timed; where `all`, the raw ones of 98 us do so, too.
LoopCase unseen_case(bool all) {
  LoopCase one = bound_case(true);
  one.shape.node_rate = 1.25e9;
  one.shape.one_piece = all ? 2e-4 : 5e-5;
  one.hazards->node_share[1] = {};
  one.hazards->node_share[1].set(kBegin, 4e-4);
  one.hazards->node_share[1].set(kEnd, 1);
  return one;
}

TEST(CompressionSim, SeesARecoveryAlthoughMessagesArriveInOnePiece) {
  constexpr double kTwoTicks = 40;  // of 20 s
  for (const bool all : {false, true}) {
    WholeLoop loop(unseen_case(all), "Auto", 1);
    loop.run();
    for (const auto& what : loop.wrong()) ADD_FAILURE() << what;
    EXPECT_EQ(loop.changes(Trigger::kCompress), 2) << loop.history();
    EXPECT_TRUE(loop.plans().back().codecs.raw());
    EXPECT_GT(loop.plan_times().back(), kEnd);
    EXPECT_LT(loop.plan_times().back(), kEnd + kTwoTicks) << loop.history();
    EXPECT_TRUE(std::ranges::none_of(loop.events(), [](const api::Event& event) {
      return event.reason == "MetricsUnavailable";
    })) << loop.history();
  }
}

}  // namespace compression_sim_test
}  // namespace weir::sim
