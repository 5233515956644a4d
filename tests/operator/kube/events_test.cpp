// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/events.h"

#include <gtest/gtest.h>

#include "operator/kube/auth.h"
#include "tests/support/fake_transport.h"
#include "tests/support/jump_clock.h"

namespace weir::kube {
namespace events_test {

using std::chrono::minutes;

struct World {
  World() {
    job->meta.name = "j";
    job->meta.namespace_name = "a";
    job->meta.uid = "u1";
  }
  void emit(const std::string& reason, const std::string& note,
            const std::string& type = "Normal") {
    sender.emit(job, {type, reason, note, ""});
    while (sender.send_one()) {
    }
  }
  test::JumpClock clock;
  test::FakeTransport server;
  TokenSource token{"", "", clock};
  std::unique_ptr<Client> client = make_client(server, token, clock, {});
  std::shared_ptr<api::PipelineJob> job = std::make_shared<api::PipelineJob>();
  EventSender sender{*client, clock, "op-1"};
};

TEST(EventSender, SendsEachEventUnderANameOfItsOwn) {
  World world;

  world.emit("PlanCreated", "one");
  world.emit("PlanCreated", "two");

  EXPECT_EQ(world.server.paths().size(), 2U);
}

TEST(EventSender, MakesASeriesOfRepeatedEvents) {
  World world;
  world.emit("Unschedulable", "no node");
  world.emit("Unschedulable", "no node");
  world.emit("Unschedulable", "no node");

  ASSERT_EQ(world.server.paths().size(), 1U);
  EXPECT_NE(world.server.get(world.server.paths()[0]).find(R"("count":3)"), std::string::npos);

  world.clock.advance(minutes(7));
  world.emit("Unschedulable", "no node");
  EXPECT_EQ(world.server.paths().size(), 2U);
}

TEST(EventSender, KeepsToTheBudgetOfEachJob) {
  World world;
  for (int i = 0; i < 40; ++i) world.emit("Restarting", std::to_string(i));
  EXPECT_EQ(world.server.paths().size(), 25U);

  world.clock.advance(minutes(5));
  world.emit("Restarting", "later");
  world.emit("Restarting", "too soon");
  EXPECT_EQ(world.server.paths().size(), 26U);

  world.job = std::make_shared<api::PipelineJob>(*world.job);
  world.job->meta.uid = "u2";
  world.emit("Restarting", "other job");
  EXPECT_EQ(world.server.paths().size(), 27U);
}

TEST(EventSender, WhatIsNormalUsesUpNoBudgetOfWarnings) {
  World world;
  for (int i = 0; i < 40; ++i) world.emit("PlanRetuned", std::to_string(i));
  EXPECT_EQ(world.server.paths().size(), 25U);

  world.emit("Failed", "pod x: exit code 2", "Warning");

  EXPECT_EQ(world.server.paths().size(), 26U);
}

TEST(EventSender, WhatHappensOftenDoesNotHideWhatHappensOnce) {
  World world;
  for (int i = 0; i < 40; ++i) world.emit("WorkerLost", std::to_string(i), "Warning");
  EXPECT_EQ(world.server.paths().size(), 25U);

  world.emit("ProgressLost", "40 steps", "Warning");
  world.emit("ProgressLost", "again", "Warning");
  EXPECT_EQ(world.server.paths().size(), 26U);

  world.clock.advance(minutes(2));
  for (const char* reason : {"ProgressLost", "WorkerLost"}) world.emit(reason, "soon", "Warning");
  EXPECT_EQ(world.server.paths().size(), 26U);
  world.clock.advance(minutes(3));
  for (const char* reason : {"ProgressLost", "WorkerLost"}) world.emit(reason, "late", "Warning");
  EXPECT_EQ(world.server.paths().size(), 28U);
}

TEST(EventSender, SurvivesAServerThatRefuses) {
  World world;
  world.server.fail({.match = "POST", .count = 1, .error = Error{Code::kTimeout, "slow"}});

  world.emit("PlanCreated", "lost");
  world.emit("PlanCreated", "kept");

  EXPECT_EQ(world.server.paths().size(), 1U);
}

}  // namespace events_test
}  // namespace weir::kube
