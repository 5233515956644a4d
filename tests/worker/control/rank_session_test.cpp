// SPDX-License-Identifier: Apache-2.0
#include "worker/control/rank_session.h"

#include <gtest/gtest.h>

#include "tests/worker/control/recording_target.h"

namespace weir::control {
namespace rank_session_test {

using Calls = std::vector<std::string>;

struct SessionWorld {
  SessionWorld()
      : session(std::make_shared<RankSession>(
            target, [this](const protocol::Message& message) { sent.push_back(message); },
            [](const std::function<void()>& work) { work(); })) {}

  static schedule::Plan plan(std::uint32_t revision,
                             schedule::Trigger trigger = schedule::Trigger::kInitial) {
    return {.job_uid = "job", .revision = revision, .trigger = trigger, .stages = {{0, 3}}};
  }
  void prepare(std::uint32_t revision, int incarnation = 0,
               schedule::Trigger trigger = schedule::Trigger::kInitial) {
    session->on_message(
        protocol::Prepare{.plan = plan(revision, trigger), .incarnation = incarnation});
  }
  void commit(std::uint32_t revision, std::int64_t at_step = 0) {
    session->on_message(protocol::Commit{.revision = revision, .at_step = at_step});
  }
  template <class T>
  const T* last() const {
    return sent.empty() ? nullptr : std::get_if<T>(&sent.back());
  }

  test::RecordingTarget target;
  std::vector<protocol::Message> sent;
  std::shared_ptr<RankSession> session;
};

TEST(RankSession, AnswersTheStepsOfANewGeneration) {
  SessionWorld world;

  world.prepare(1);
  ASSERT_NE(world.last<protocol::Ready>(), nullptr);
  world.commit(1);
  ASSERT_NE(world.last<protocol::ReadyState>(), nullptr);
  EXPECT_EQ(world.last<protocol::ReadyState>()->error, "");
  world.session->on_message(protocol::Go{1});

  EXPECT_EQ(world.target.calls(), (Calls{"prepare 1 incarnation 0", "commit 1 at 0", "go 1"}));
}

TEST(RankSession, AnswersACommitWithinTheGenerationWithApplied) {
  SessionWorld world;
  world.prepare(1);
  world.commit(1);
  world.session->on_status({.epoch = 1, .step = 12});

  world.prepare(2, 0, schedule::Trigger::kRetune);
  world.commit(2);

  ASSERT_NE(world.last<protocol::Applied>(), nullptr);
  EXPECT_EQ(world.last<protocol::Applied>()->revision, 2U);
  EXPECT_EQ(world.last<protocol::Applied>()->step, 12);
}

TEST(RankSession, ARejoinOfTheSamePlanIsANewGeneration) {
  SessionWorld world;
  world.prepare(1);
  world.commit(1);

  world.prepare(1, 1);
  EXPECT_EQ(world.last<protocol::Ready>()->incarnation, 1);
  world.commit(1, 7);

  EXPECT_NE(world.last<protocol::ReadyState>(), nullptr);
  EXPECT_EQ(world.session->hello({}).incarnation, 1);
}

TEST(RankSession, PassesARejectOn) {
  SessionWorld world;
  world.target.prepare_answer = "needs 9 GB";

  world.prepare(1);

  ASSERT_NE(world.last<protocol::Reject>(), nullptr);
  EXPECT_EQ(world.last<protocol::Reject>()->reason, "needs 9 GB");
}

TEST(RankSession, RefusesToCommitWhatWasNotPrepared) {
  SessionWorld world;
  world.prepare(1);

  world.commit(2);

  ASSERT_NE(world.last<protocol::ReadyState>(), nullptr);
  EXPECT_EQ(world.last<protocol::ReadyState>()->error, "revision 2 was not prepared");
  EXPECT_EQ(world.target.calls(), Calls{"prepare 1 incarnation 0"});
}

TEST(RankSession, IgnoresGoAndAbortOfUnknownRevisions) {
  SessionWorld world;
  world.prepare(1);

  EXPECT_TRUE(world.session->on_message(protocol::Go{5}));
  EXPECT_TRUE(world.session->on_message(protocol::Abort{5}));

  EXPECT_EQ(world.target.calls(), Calls{"prepare 1 incarnation 0"});
}

TEST(RankSession, AnAnswerAfterAbortIsNotSent) {
  SessionWorld world;
  world.target.hold = true;
  world.prepare(1);
  world.session->on_message(protocol::Abort{1});

  world.target.answer();

  EXPECT_TRUE(world.sent.empty());
  EXPECT_EQ(world.target.calls().back(), "abort 1");
}

TEST(RankSession, ALostSessionForgetsWhatWasPrepared) {
  SessionWorld world;
  world.target.hold = true;
  world.prepare(1);

  world.session->on_disconnect();
  world.target.answer();

  EXPECT_EQ(world.target.calls().back(), "abort 1");
  EXPECT_TRUE(world.sent.empty());
}

TEST(RankSession, TellsInItsNextHelloWhatItRuns) {
  SessionWorld world;
  EXPECT_EQ(world.session->hello({}).revision, 0U);
  world.prepare(1);
  world.commit(1);
  world.session->on_status({.epoch = 1, .step = 3});
  // A stage other than 0 gets no COMMIT within the generation.
  world.prepare(2, 0, schedule::Trigger::kRetune);
  world.session->on_status({.epoch = 1, .step = 4});
  EXPECT_EQ(world.session->hello({}).revision, 1U);
  world.session->on_status({.epoch = 2, .step = 5});

  EXPECT_EQ(world.session->hello({}).revision, 2U);
  EXPECT_EQ(world.session->hello({}).step, 5);
}

TEST(RankSession, PassesALostPeerOnAndRefusesMessagesOfRanks) {
  SessionWorld world;

  EXPECT_TRUE(world.session->on_message(protocol::PeerLost{.stage = 2}));
  EXPECT_FALSE(world.session->on_message(protocol::Ready{}));

  EXPECT_EQ(world.target.calls(), Calls{"lost stage 2"});
}

TEST(RankSession, AnAnswerAfterTheEndDoesNothing) {
  SessionWorld world;
  world.target.hold = true;
  world.prepare(1);

  world.session.reset();
  world.target.answer();

  EXPECT_TRUE(world.sent.empty());
}

TEST(RankSession, HoldsTheStepOfTheCheckpointThatItHasLoaded) {
  SessionWorld world;
  world.target.hold = true;
  schedule::Plan plan{.revision = 3, .trigger = schedule::Trigger::kRestart};
  plan.state = schedule::StateMove::kCheckpoint;
  plan.checkpoint_step = 40;
  world.session->on_message(protocol::Prepare{.plan = plan});
  world.target.answer();
  world.session->on_message(protocol::Commit{.revision = 3});
  EXPECT_EQ(world.session->hello({}).revision, 0U);  // the state before is given up

  world.target.answer();

  ASSERT_NE(world.last<protocol::ReadyState>(), nullptr);
  EXPECT_EQ(world.last<protocol::ReadyState>()->step, 40);
  EXPECT_EQ(world.session->hello({}).step, 40);
  EXPECT_EQ(world.session->hello({}).revision, 3U);
}

TEST(RankSession, PassesSavesOn) {
  SessionWorld world;

  EXPECT_TRUE(world.session->on_message(protocol::Save{40}));
  EXPECT_TRUE(world.session->on_message(protocol::Saved{.step = 40, .leave = true}));

  EXPECT_EQ(world.target.calls(), (Calls{"save 40", "saved 40 leave"}));
}

}  // namespace rank_session_test
}  // namespace weir::control
