// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/compressed_steps.h"

#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"

namespace weir::coordinator::test {
namespace compressed_steps_test {

using schedule::Trigger;

schedule::Plan with_codecs(schedule::Plan plan) {
  plan.codecs = {.forward = {schedule::Codec::kInt8, schedule::Codec::kRaw},
                 .backward = {schedule::Codec::kRaw, schedule::Codec::kRaw}};
  return plan;
}

std::int64_t told(const World& world) {
  return world.last<protocol::Commit>().compressed_steps;
}

TEST(CompressedSteps, CountWhileThePlanHasCodecs) {
  CompressedSteps steps;
  EXPECT_FALSE(steps.knows(0));
  EXPECT_EQ(steps.at(5), 0);
  steps.begin(10, 3, false);
  EXPECT_FALSE(steps.knows(9));
  EXPECT_EQ(steps.at(2), 2) << "3 of the first 10, so not more";
  EXPECT_EQ(steps.at(20), 3);
  steps.change(20, true);
  EXPECT_EQ(steps.at(20), 3);
  EXPECT_EQ(steps.at(25), 8);
  steps.change(30, false);
  EXPECT_EQ(steps.at(99), 13);
  EXPECT_EQ(steps.at(22), 5) << "the past stays";
}

TEST(CompressedSteps, ThatAreRolledBackDoNotCount) {
  CompressedSteps steps;
  steps.begin(0, 0, false);
  steps.change(10, true);
  EXPECT_EQ(steps.at(30), 20);
  steps.begin(15, steps.at(15), false);
  EXPECT_EQ(steps.at(15), 5);
  EXPECT_EQ(steps.at(30), 5);
}

TEST(CompressedSteps, OutliveAGenerationAndAreToldToItsRanks) {
  World world;
  world.train(5);
  world.offer(with_codecs(plan(2, Trigger::kCompress)));
  world.all_ready(2);
  world.all_finish_step(1, 6);
  world.all_finish_step(2, 7);
  world.all_finish_step(2, 8);
  ASSERT_EQ(world.finished.size(), 1U);
  EXPECT_EQ(world.switcher.compressed().at(8), 2);

  world.say(1, protocol::PeerLost{.stage = 1, .revision = 2, .reason = "closed"});
  world.all_ready(2, 1);
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 8);
  EXPECT_EQ(told(world), 2);
  world.all_loaded(2);
  world.all_finish_step(2, 9);
  EXPECT_EQ(world.switcher.compressed().at(9), 3);
}

TEST(CompressedSteps, OfALoadedCheckpointAreThoseOfItsManifest) {
  World world;
  world.switcher.set_checkpoint(40, 7);
  world.offer(with_codecs(plan(1, Trigger::kInitial)));
  world.all_ready(1);
  EXPECT_EQ(told(world), 7);
  world.all_loaded(1);
  world.all_finish_step(1, 41);
  EXPECT_EQ(world.switcher.compressed().at(41), 8);
}

TEST(CompressedSteps, AreKnownToACoordinatorThatRoseAgain) {
  World world(0);
  const World trained;
  for (int index = 0; index < 3; ++index) {
    protocol::Inventory inventory = trained.inventory(index, 4, 30);
    inventory.held.at(0).compressed_steps = 12;
    world.members.hello(++world.last_session,
                        {.member = member(index),
                         .incarnation = 2,
                         .revision = 4,
                         .step = 30,
                         .inventory = inventory},
                        world.now);
  }
  world.switcher.set_checkpoint(20, 2);
  world.offer(with_codecs(plan(4, Trigger::kCompress)));
  world.all_ready(4, 3);
  EXPECT_EQ(world.last<protocol::Commit>().at_step, 30);
  EXPECT_EQ(told(world), 12);
}

}  // namespace compressed_steps_test
}  // namespace weir::coordinator::test
