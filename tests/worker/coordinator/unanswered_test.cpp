// SPDX-License-Identifier: Apache-2.0
// Ranks that hang while their heartbeats go on: after a failure the others go on without them, and
// they join again once they answer.
#include <set>

#include <gtest/gtest.h>

#include "tests/worker/coordinator/three_replicas.h"

namespace weir::coordinator::test {
namespace unanswered_test {

using schedule::StateMove;
using schedule::Trigger;

// Rank 2 hangs, of replica 1, and the others find that their step does not end.
struct Hanging : ThreeReplicas {
  Hanging() {
    hangs = {2};
    say(0, protocol::PeerLost{.replica = 0, .revision = 1, .reason = "no message for 1800 s"});
  }
  void go_on(int incarnation) {
    ready(incarnation, {0, 1, 4, 5});
    loaded({0, 1, 4, 5}, 5);
    finish({0, 1, 4, 5}, 6);
    forget();
  }
};

TEST(Unanswered, ARankThatDoesNotTellWhatItHoldsIsCoveredLikeALostOne) {
  Hanging job;
  job.pass(9s);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty()) << "it may be in a long op";
  job.pass(2s);
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{3, 6}));
  EXPECT_EQ(job.prepare().state, StateMove::kKeep);
  job.go_on(1);
  EXPECT_EQ(job.switcher.covered(), (std::set<int>{1}));
  job.pass(60s);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty()) << "it would not answer";
  EXPECT_NE(job.switcher.training(), nullptr);

  job.tell(2);
  job.pass(1ms);
  EXPECT_EQ(job.prepare().replica_count(), 3);
  EXPECT_EQ(job.prepare().state, StateMove::kMove);
}

TEST(Unanswered, TwoStepsAreWaitedForWhereTheyTakeLonger) {
  ThreeReplicas job(20);
  job.hangs = {2};
  job.lose(5);
  job.pass(5s);
  job.pass(39s);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  job.pass(2s);
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{9})) << "one is lost, and one does not answer";
}

TEST(Unanswered, ARankThatDoesNotAnswerPrepareIsCoveredToo) {
  ThreeReplicas job;
  job.lose(3);
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{3, 6}));
  job.hangs = {4};  // after it has told what it holds
  job.ready(1, {0, 1, 5});
  job.forget();
  job.pass(11s);
  job.pass(2s);
  EXPECT_EQ(job.prepare().micro_batches, (Ranks{9}));
  job.ready(2, {0, 1});
  job.loaded({0, 1}, 5);
  job.finish({0, 1}, 6);
  EXPECT_EQ(job.switcher.covered(), (std::set<int>{1, 2}));
}

// Ranks 1 and 3 are back with nothing, so that rank 5 alone holds their layers.
TEST(Unanswered, IsNotGivenUpWhereStepsWereRepeatedWithoutIt) {
  ThreeReplicas job;
  job.hangs = {5};
  job.lose(1);
  job.lose(3);
  job.come(1);
  job.come(3);
  job.pass(60s);
  EXPECT_TRUE(job.receivers<protocol::Prepare>().empty());
  job.tell(5);
  job.pass(1ms);
  EXPECT_EQ(job.prepare().replica_count(), 3);
  EXPECT_EQ(job.prepare().state, StateMove::kMove);
}

TEST(Unanswered, APlanForARankThatHangsIsRefusedAndTrainingGoesOn) {
  Hanging job;
  job.pass(11s);
  job.go_on(1);
  job.offer(replicated(2, Trigger::kRegroup, {2, 3, 4}));
  job.pass(11s);
  ASSERT_EQ(job.finished.size(), 1U);
  EXPECT_EQ(job.finished[0].outcome, protocol::Outcome::kRefused);
  EXPECT_EQ(job.finished[0].reason, "pod pod-2 does not answer");
  EXPECT_NE(job.switcher.training(), nullptr);
}

}  // namespace unanswered_test
}  // namespace weir::coordinator::test
