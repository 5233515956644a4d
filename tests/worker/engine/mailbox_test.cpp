// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/mailbox.h"

#include <stop_token>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/letter_text.h"

namespace weir::engine {
namespace mailbox_test {

using testing::ElementsAre;
using testing::IsEmpty;

struct World {
  static schedule::Plan plan(std::uint32_t revision,
                             schedule::Trigger trigger = schedule::Trigger::kInitial) {
    return {.job_uid = "job", .revision = revision, .trigger = trigger, .stages = {{0, 3}}};
  }
  void put_prepare(std::uint32_t revision, int incarnation = 0,
                   schedule::Trigger trigger = schedule::Trigger::kInitial) {
    mailbox.put(protocol::Prepare{.plan = plan(revision, trigger), .incarnation = incarnation});
  }
  void put_commit(std::uint32_t revision, std::int64_t at_step = 0) {
    mailbox.put(protocol::Commit{.revision = revision, .at_step = at_step});
  }
  // Takes the letters that wait, and answers PREPARE and COMMIT.
  std::vector<std::string> take_all(const std::string& reason = "") {
    std::vector<std::string> texts;
    while (const std::optional<Letter> letter = mailbox.take()) {
      texts.push_back(test::text_of(*letter));
      if (test::asks(*letter)) mailbox.answer(*letter, reason);
    }
    return texts;
  }
  std::vector<std::string> prepare(std::uint32_t revision, int incarnation = 0,
                                   schedule::Trigger trigger = schedule::Trigger::kInitial) {
    put_prepare(revision, incarnation, trigger);
    return take_all();
  }
  std::vector<std::string> commit(std::uint32_t revision, std::int64_t at_step = 0) {
    put_commit(revision, at_step);
    return take_all();
  }
  void fill() {
    for (int i = 0; i < 100; ++i) mailbox.put(protocol::Save{.step = i});
  }
  template <class T>
  const T* last() const {
    return sent.empty() ? nullptr : std::get_if<T>(&sent.back());
  }

  std::vector<protocol::Message> sent;
  Mailbox mailbox{[this](const protocol::Message& message) { sent.push_back(message); }};
};

TEST(Mailbox, AnswersTheStepsOfANewGeneration) {
  World world;

  EXPECT_THAT(world.prepare(1), ElementsAre("prepare 1 incarnation 0"));
  ASSERT_NE(world.last<protocol::Ready>(), nullptr);
  EXPECT_THAT(world.commit(1), ElementsAre("commit 1 at 0"));
  ASSERT_NE(world.last<protocol::ReadyState>(), nullptr);
  EXPECT_EQ(world.last<protocol::ReadyState>()->error, "");
  world.mailbox.put(protocol::Go{1});

  EXPECT_THAT(world.take_all(), ElementsAre("go 1"));
}

TEST(Mailbox, AnswersACommitWithinTheGenerationWithApplied) {
  World world;
  world.prepare(1);
  world.commit(1);
  world.mailbox.tell(protocol::StageStatus{.epoch = 1, .step = 12});

  world.prepare(2, 0, schedule::Trigger::kRetune);
  world.commit(2);

  ASSERT_NE(world.last<protocol::Applied>(), nullptr);
  EXPECT_EQ(world.last<protocol::Applied>()->revision, 2U);
  EXPECT_EQ(world.last<protocol::Applied>()->step, 12);
}

TEST(Mailbox, ARejoinOfTheSamePlanIsANewGeneration) {
  World world;
  world.prepare(1);
  world.commit(1);

  world.prepare(1, 1);
  EXPECT_EQ(world.last<protocol::Ready>()->incarnation, 1);
  world.commit(1, 7);

  EXPECT_NE(world.last<protocol::ReadyState>(), nullptr);
  EXPECT_EQ(world.mailbox.hello({}).incarnation, 1);
  EXPECT_EQ(world.mailbox.hello({}).step, 7);
}

TEST(Mailbox, SendsAReject) {
  World world;

  world.put_prepare(1, 2);
  world.take_all("needs 9 GB");

  ASSERT_NE(world.last<protocol::Reject>(), nullptr);
  EXPECT_EQ(world.last<protocol::Reject>()->reason, "needs 9 GB");
  EXPECT_EQ(world.last<protocol::Reject>()->revision, 1U);
  EXPECT_EQ(world.last<protocol::Reject>()->incarnation, 2);
}

TEST(Mailbox, RefusesToCommitWhatWasNotPrepared) {
  World world;
  world.prepare(1);

  EXPECT_THAT(world.commit(2), IsEmpty());

  ASSERT_NE(world.last<protocol::ReadyState>(), nullptr);
  EXPECT_EQ(world.last<protocol::ReadyState>()->error, "revision 2 was not prepared");
}

TEST(Mailbox, IgnoresGoAndAbortOfUnknownRevisions) {
  World world;
  world.prepare(1);

  EXPECT_TRUE(world.mailbox.put(protocol::Go{5}));
  EXPECT_TRUE(world.mailbox.put(protocol::Abort{5}));

  EXPECT_THAT(world.take_all(), IsEmpty());
}

// The engine may be in a long op when the message comes: the letter that it holds is out of date.
TEST(Mailbox, AnAnswerAfterAbortIsNotSent) {
  World world;
  world.put_prepare(1);
  const std::optional<Letter> letter = world.mailbox.take();
  world.mailbox.put(protocol::Abort{1});

  world.mailbox.answer(*letter);

  EXPECT_TRUE(world.sent.empty());
  EXPECT_THAT(world.take_all(), ElementsAre("abort 1"));
}

TEST(Mailbox, AnAnswerAfterANewerPrepareIsNotSent) {
  World world;
  world.put_prepare(1);
  const std::optional<Letter> letter = world.mailbox.take();
  world.put_prepare(2);

  world.mailbox.answer(*letter);

  EXPECT_TRUE(world.sent.empty());
  EXPECT_THAT(world.take_all(), ElementsAre("abort 1", "prepare 2 incarnation 0"));
  EXPECT_EQ(world.last<protocol::Ready>()->revision, 2U);
}

TEST(Mailbox, ALostSessionForgetsWhatWasPrepared) {
  World world;
  world.put_prepare(1);
  const std::optional<Letter> letter = world.mailbox.take();

  world.mailbox.session_lost();
  world.mailbox.answer(*letter);

  EXPECT_THAT(world.take_all(), ElementsAre("abort 1"));
  EXPECT_TRUE(world.sent.empty());
}

TEST(Mailbox, ALostSessionLeavesACommittedPlanAloneAndDropsItsAnswer) {
  World world;
  world.prepare(1);
  world.put_commit(1);
  const std::optional<Letter> letter = world.mailbox.take();
  const std::size_t before = world.sent.size();

  world.mailbox.session_lost();
  world.mailbox.answer(*letter);

  EXPECT_THAT(world.take_all(), IsEmpty());
  EXPECT_EQ(world.sent.size(), before);
  EXPECT_EQ(world.mailbox.hello({}).revision, 0U);
}

TEST(Mailbox, TellsInItsNextHelloWhatItRuns) {
  World world;
  EXPECT_EQ(world.mailbox.hello({}).revision, 0U);
  world.prepare(1);
  world.commit(1);
  world.mailbox.tell(protocol::StageStatus{.epoch = 1, .step = 3});
  // A stage other than 0 gets no COMMIT within the generation.
  world.prepare(2, 0, schedule::Trigger::kRetune);
  world.mailbox.tell(protocol::StageStatus{.epoch = 1, .step = 4});
  EXPECT_EQ(world.mailbox.hello({}).revision, 1U);
  world.mailbox.tell(protocol::StageStatus{.epoch = 2, .step = 5});

  EXPECT_EQ(world.mailbox.hello({}).revision, 2U);
  EXPECT_EQ(world.mailbox.hello({}).step, 5);
  EXPECT_NE(world.last<protocol::StageStatus>(), nullptr) << "it is also sent";
}

TEST(Mailbox, TellsOfTheStateThatIsLeftAfterAMoveThatFailed) {
  World world;
  world.prepare(1);
  world.commit(1);
  world.mailbox.tell(protocol::StageStatus{.epoch = 1, .step = 3});
  schedule::Plan next = World::plan(2, schedule::Trigger::kRegroup);
  next.state = schedule::StateMove::kMove;
  world.mailbox.put(protocol::Prepare{.plan = next});
  world.take_all();
  world.put_commit(2, 5);

  world.take_all("a holder is gone");

  EXPECT_EQ(world.last<protocol::ReadyState>()->error, "a holder is gone");
  EXPECT_FALSE(world.last<protocol::ReadyState>()->holds) << "no layers of that plan";
  EXPECT_EQ(world.mailbox.hello({}).revision, 1U);
  EXPECT_EQ(world.mailbox.hello({}).step, 3);
}

TEST(Mailbox, HoldsTheStepOfTheCheckpointThatItHasLoaded) {
  World world;
  world.prepare(1);
  world.commit(1);
  schedule::Plan plan = World::plan(3, schedule::Trigger::kRestart);
  plan.state = schedule::StateMove::kCheckpoint;
  plan.checkpoint_step = 40;
  world.mailbox.put(protocol::Prepare{.plan = plan});
  world.take_all();
  world.put_commit(3);
  EXPECT_EQ(world.mailbox.hello({}).revision, 0U);  // the state before is given up

  world.take_all();

  ASSERT_NE(world.last<protocol::ReadyState>(), nullptr);
  EXPECT_EQ(world.last<protocol::ReadyState>()->step, 40);
  EXPECT_EQ(world.mailbox.hello({}).step, 40);
  EXPECT_EQ(world.mailbox.hello({}).revision, 3U);
}

TEST(Mailbox, TakesWhatACoordinatorSendsAndNothingElse) {
  World world;

  EXPECT_TRUE(world.mailbox.put(protocol::PeerLost{.stage = 2}));
  EXPECT_TRUE(world.mailbox.put(protocol::Save{40}));
  EXPECT_TRUE(world.mailbox.put(protocol::Saved{.step = 40, .leave = true}));
  EXPECT_TRUE(world.mailbox.put(protocol::Leave{}));
  EXPECT_TRUE(world.mailbox.put(protocol::Grant{.round = 7}));
  EXPECT_TRUE(world.mailbox.put(protocol::Measure{.rounds = 3}));
  EXPECT_FALSE(world.mailbox.put(protocol::Ready{}));

  EXPECT_THAT(world.take_all(), ElementsAre("lost stage 2", "save 40", "saved 40 leave", "leave",
                                            "grant 7", "measure 3"));
}

TEST(Mailbox, AnswersPrepareAndCommitAtOnceWhenTooManyLettersWait) {
  World world;
  world.prepare(1);
  world.fill();

  world.put_commit(1);
  ASSERT_NE(world.last<protocol::ReadyState>(), nullptr);
  EXPECT_EQ(world.last<protocol::ReadyState>()->error, "too many plan changes are waiting");
  world.put_prepare(2, 3);

  ASSERT_NE(world.last<protocol::Reject>(), nullptr);
  EXPECT_EQ(world.last<protocol::Reject>()->reason, "too many plan changes are waiting");
  EXPECT_EQ(world.last<protocol::Reject>()->revision, 2U);
  EXPECT_EQ(world.last<protocol::Reject>()->incarnation, 3);
  EXPECT_EQ(world.take_all().size(), 64U);
}

// The members of the group wait for this rank.
TEST(Mailbox, TheLastGrantIsNotLostWhenTooManyLettersWait) {
  World world;
  world.fill();
  world.mailbox.put(protocol::Grant{.round = 7, .step = 3});
  world.mailbox.put(protocol::Grant{.round = 8, .step = 3});

  EXPECT_EQ(world.take_all().back(), "grant 8");
  EXPECT_FALSE(world.mailbox.wait({}, std::stop_token()));
}

TEST(Mailbox, AGrantThatWasKeptNeedsNoDeadline) {
  World world;
  world.fill();
  world.mailbox.put(protocol::Grant{.round = 7, .step = 3});

  int grants = 0;
  while (const std::optional<Letter> letter = world.mailbox.wait({}, std::stop_token())) {
    grants += std::holds_alternative<protocol::Grant>(letter->message) ? 1 : 0;
  }

  EXPECT_EQ(grants, 1);
}

TEST(Mailbox, EndsConnectingAndMeasuringWithTheSession) {
  World world;
  const std::stop_source connecting = world.mailbox.begin_connecting();
  world.mailbox.session_lost();
  EXPECT_TRUE(connecting.stop_requested());
  const std::stop_source measuring = world.mailbox.begin_measuring();
  EXPECT_FALSE(measuring.stop_requested()) << "of the next session";
  world.mailbox.session_lost();
  EXPECT_TRUE(measuring.stop_requested());
}

TEST(Mailbox, InterruptsMeasuringAlone) {
  World world;
  const std::stop_source connecting = world.mailbox.begin_connecting();
  world.mailbox.interrupt_measuring();
  EXPECT_FALSE(connecting.stop_requested());
  const std::stop_source measuring = world.mailbox.begin_measuring();
  world.mailbox.interrupt_measuring();
  EXPECT_TRUE(measuring.stop_requested());
  const std::stop_source again = world.mailbox.begin_connecting();
  world.mailbox.interrupt_measuring();
  EXPECT_FALSE(again.stop_requested());
}

TEST(Mailbox, SendsTheAnswerToAMeasureUnlessAPlanHasCome) {
  World world;
  world.mailbox.put(protocol::Measure{.rounds = 3});
  const std::optional<Letter> letter = world.mailbox.take();
  ASSERT_TRUE(letter);
  world.mailbox.answer(*letter, protocol::Measured{.profile_json = "{}"});
  ASSERT_NE(world.last<protocol::Measured>(), nullptr);
  EXPECT_EQ(world.last<protocol::Measured>()->profile_json, "{}");

  world.put_prepare(1);
  world.mailbox.answer(*letter, protocol::Measured{.profile_json = "late"});
  EXPECT_EQ(world.last<protocol::Measured>()->profile_json, "{}");
}

TEST(Mailbox, PrepareAndAbortEndConnecting) {
  World world;
  world.prepare(1);
  const std::stop_source first = world.mailbox.begin_connecting();
  world.mailbox.put(protocol::Save{.step = 1});
  EXPECT_FALSE(first.stop_requested());
  world.mailbox.put(protocol::Abort{1});
  EXPECT_TRUE(first.stop_requested());

  EXPECT_TRUE(world.mailbox.begin_connecting().stop_requested()) << "ABORT has not been taken";
  world.take_all();
  const std::stop_source second = world.mailbox.begin_connecting();
  EXPECT_FALSE(second.stop_requested());
  world.put_prepare(2);
  EXPECT_TRUE(second.stop_requested());
}

}  // namespace mailbox_test
}  // namespace weir::engine
