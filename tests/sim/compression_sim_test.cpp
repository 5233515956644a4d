// SPDX-License-Identifier: Apache-2.0
// Tier compress in the whole loop: a co-tenant leaves so little of a node's bandwidth that no order
// hides the link, and goes away again.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

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
  WholeLoop loop(bound_case(false), "Auto", 1);
  loop.run();
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
}

TEST(CompressionSim, LeavesAQuietJobAlone) {
  LoopCase one = bound_case(true);
  one.hazards->node_share[1] = {};
  WholeLoop loop(one, "Auto", 1);
  loop.run();
  EXPECT_EQ(loop.changes(Trigger::kCompress), 0) << loop.history();
}

}  // namespace compression_sim_test
}  // namespace weir::sim
