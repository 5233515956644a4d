// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/members.h"

#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"
#include "worker/base/worker_index.h"

namespace weir::coordinator::test {
namespace members_test {

const SteadyTime kStart = SteadyTime(1h);

control::PeerId proven(int index, const std::string& uid) {
  return {.worker_index = index, .pod_uid = uid};
}

TEST(Members, AreCompleteWhenAllIndexesHaveCome) {
  Members members;

  members.hello(1, {.member = member(0)}, kStart);
  EXPECT_FALSE(members.complete(2));
  members.hello(8, {.member = member(kFirstSpare)}, SteadyTime(1s));
  EXPECT_FALSE(members.complete(2)) << "a spare is not waited for, and does not count";
  members.hello(2, {.member = member(1)}, kStart);

  EXPECT_TRUE(members.complete(2));
}

TEST(Members, ThePodOfAnIndexThatComesLastWinsAndTheOtherStaysOut) {
  Members members;
  members.hello(1, {.member = member(1)}, kStart);
  auto replacement = member(1, "uid-new");
  replacement.pod = "pod-1-1";

  EXPECT_EQ(members.refusal(proven(1, "uid-new"), {.member = replacement}), "");
  members.closed(1);
  members.hello(2, {.member = replacement}, kStart);

  EXPECT_EQ(members.find(1)->member.pod, "pod-1-1");
  EXPECT_EQ(members.refusal(proven(1, "uid-1"), {.member = member(1)}),
            "a newer pod holds worker index 1");
}

// It came last because its process had stood still, and it ends.
TEST(Members, ADisplacedPodReturnsWhenTheOtherIsGone) {
  Members members;
  members.hello(1, {.member = member(1, "uid-new")}, kStart);
  members.closed(1);
  members.hello(2, {.member = member(1, "uid-old")}, kStart);
  EXPECT_NE(members.refusal(proven(1, "uid-new"), {.member = member(1, "uid-new")}), "");

  members.closed(2);
  ASSERT_EQ(members.refusal(proven(1, "uid-new"), {.member = member(1, "uid-new")}), "");
  members.hello(3, {.member = member(1, "uid-new")}, kStart);
  EXPECT_EQ(members.refusal(proven(1, "uid-old"), {.member = member(1, "uid-old")}),
            "a newer pod holds worker index 1");
}

TEST(Members, OneThatLeavesDisplacesNobody) {
  Members members;
  members.hello(1, {.member = member(1, "uid-new")}, kStart);
  const protocol::Hello leaving{.member = member(1, "uid-old"), .leaving = true};

  EXPECT_EQ(members.refusal(proven(1, "uid-old"), leaving), "pod pod-1 has its place");
  members.closed(1);
  EXPECT_EQ(members.refusal(proven(1, "uid-old"), leaving), "") << "it may hold state";
  members.hello(2, leaving, kStart);
  EXPECT_TRUE(members.find(1)->leaving) << "its LEAVE may have gone to another coordinator";
}

TEST(Members, AReplacementWaitsForAPodThatLeaves) {
  Members members;
  members.hello(1, {.member = member(1)}, kStart);
  auto replacement = member(1, "uid-new");
  replacement.pod = "pod-1-1";
  members.leave(1, "terminated");

  EXPECT_EQ(members.refusal(proven(1, "uid-new"), {.member = replacement}),
            "pod pod-1 still leaves: its state comes first");
  EXPECT_EQ(members.refusal(proven(1, "uid-1"), {.member = member(1)}), "") << "it reconnects";
  members.closed(1);
  EXPECT_EQ(members.refusal(proven(1, "uid-new"), {.member = replacement}), "");
}

TEST(Members, OneThatHasFinishedIsReplacedAtOnce) {
  Members members;
  members.hello(1, {.member = member(1)}, kStart);
  members.leave(1, "finished");

  EXPECT_EQ(members.refusal(proven(1, "uid-new"), {.member = member(1, "uid-new")}), "");
}

TEST(Members, AHelloMustNameTheWorkerThatProvedTheKey) {
  const Members members;

  EXPECT_NE(members.refusal(proven(2, "uid-1"), {.member = member(1)}), "");
  EXPECT_NE(members.refusal(proven(1, "uid-2"), {.member = member(1)}), "");
}

TEST(Members, ARankWithOtherSettingsThanWorker0IsNamedWithThem) {
  const Settings worker_0{{"--seed", "1"}, {"--lr", "0.1"}};
  const protocol::Hello same{.member = member(1), .settings = worker_0};
  const protocol::Hello other{.member = member(2), .settings = {{"--seed", "7"}, {"--lr", "0.1"}}};
  const protocol::Hello of_an_older_version{.member = member(3)};

  EXPECT_EQ(Members::disagreement(worker_0, same), "");
  EXPECT_EQ(Members::disagreement(worker_0, other),
            "worker 2 does not train what worker 0 trains: --seed is 7, worker 0 has 1");
  EXPECT_EQ(Members::disagreement(worker_0, of_an_older_version), "");
}

TEST(Members, OnePodCannotBeTwoWorkers) {
  Members members;
  members.hello(1, {.member = member(1)}, kStart);
  auto twin = member(2);
  twin.pod = "pod-1";

  EXPECT_EQ(members.refusal(proven(2, "uid-2"), {.member = twin}), "pod pod-1 is worker 1 already");
}

TEST(Members, AReconnectOfTheSamePodIsNoChangeForTheOperator) {
  Members members;
  members.hello(1, {.member = member(0)}, kStart);
  const auto version = members.version();
  members.closed(1);

  members.hello(2, {.member = member(0), .incarnation = 1, .revision = 3, .step = 9}, kStart + 1s);
  EXPECT_EQ(members.version(), version);
  EXPECT_EQ(members.find(0)->step, 9);

  auto moved = member(0);
  moved.ips = {"10.0.0.99"};
  members.closed(2);
  members.hello(3, {.member = moved}, kStart + 2s);
  EXPECT_EQ(members.version(), version + 1);
  EXPECT_EQ(members.last_change(), kStart + 2s);
}

TEST(Members, OnlyTheCurrentSessionOfAMemberCanBeLost) {
  Members members;
  members.hello(1, {.member = member(0)}, kStart);
  members.closed(1);
  members.hello(2, {.member = member(0)}, kStart);

  EXPECT_EQ(members.closed(1), std::nullopt);
  EXPECT_TRUE(members.find(0)->connected());
  EXPECT_EQ(members.closed(2), 0);
  EXPECT_FALSE(members.find(0)->connected());
}

}  // namespace members_test
}  // namespace weir::coordinator::test
