// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/replica_group_sessions.h"

#include <gtest/gtest.h>

namespace weir::transport::tcp {
namespace replica_group_sessions_test {

using Fate = ReplicaGroupSessions::Fate;

TEST(ReplicaGroupSessions, CountStepsNotOperations) {
  ReplicaGroupSessions sessions;
  EXPECT_EQ(sessions.begin({.step = 7, .part = 0}), 0U);
  EXPECT_EQ(sessions.begin({.step = 7, .part = 1}), 0U);
  EXPECT_EQ(sessions.begin({.step = 9, .part = 0}), 1U);
}

TEST(ReplicaGroupSessions, SayWhatHasNotBegunHere) {
  ReplicaGroupSessions sessions;
  EXPECT_EQ(sessions.fate(0, 0), Fate::kLater);
  sessions.begin({.step = 7, .part = 0});
  EXPECT_EQ(sessions.fate(0, 0), Fate::kBegun);
  EXPECT_EQ(sessions.fate(0, 1), Fate::kLater);
  EXPECT_EQ(sessions.fate(1, 0), Fate::kLater);
  sessions.begin({.step = 8, .part = 0});
  EXPECT_EQ(sessions.fate(0, 1), Fate::kBegun) << "over";
}

// One side has begun two operations of the step, the other one: they mean the same ones afterwards.
TEST(ReplicaGroupSessions, StayEqualWhenBothDropAStep) {
  ReplicaGroupSessions here, there;
  for (const std::uint32_t part : {0U, 1U}) here.begin({.step = 7, .part = part});
  there.begin({.step = 7, .part = 0});
  EXPECT_EQ(here.drop(7), 0U);
  EXPECT_EQ(there.drop(7), 0U);
  EXPECT_EQ(there.fate(0, 1), Fate::kDropped);
  EXPECT_EQ(here.begin({.step = 9, .part = 0}), there.begin({.step = 9, .part = 0}));
  EXPECT_EQ(there.fate(0, 1), Fate::kDropped) << "what comes late";
  EXPECT_EQ(there.fate(1, 0), Fate::kBegun);
}

// One side had all that it wanted of the step.
TEST(ReplicaGroupSessions, StayEqualWhenOneDropsWhatTheOtherHasDone) {
  ReplicaGroupSessions here, there;
  here.begin({.step = 7, .part = 0});
  there.begin({.step = 7, .part = 0});
  EXPECT_EQ(here.drop(7), 0U);
  EXPECT_EQ(here.begin({.step = 9, .part = 0}), there.begin({.step = 9, .part = 0}));
}

TEST(ReplicaGroupSessions, DropOnlyTheLastStep) {
  ReplicaGroupSessions sessions;
  EXPECT_EQ(sessions.drop(7), std::nullopt);
  sessions.begin({.step = 7, .part = 0});
  sessions.begin({.step = 8, .part = 0});
  EXPECT_EQ(sessions.drop(7), std::nullopt);
  EXPECT_EQ(sessions.fate(0, 0), Fate::kBegun);
}

}  // namespace replica_group_sessions_test
}  // namespace weir::transport::tcp
