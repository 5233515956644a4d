// SPDX-License-Identifier: Apache-2.0
#include "worker/base/strangers.h"

#include <string>

#include <gtest/gtest.h>

namespace weir {
namespace strangers_test {

TEST(Strangers, TheOldestGoesAndNotTheNewcomer) {
  Strangers strangers(2, 2);
  EXPECT_FALSE(strangers.add(1, "a"));
  EXPECT_FALSE(strangers.add(2, "b"));

  EXPECT_EQ(strangers.add(3, "c"), 1U);
  EXPECT_EQ(strangers.add(4, "d"), 2U);
  EXPECT_EQ(strangers.size(), 2U);
}

TEST(Strangers, AFloodOfOneAddressTakesOnlyItsOwnShare) {
  Strangers strangers(10, 3);
  strangers.add(1, "peer");
  for (Strangers::Id id = 2; id < 5; ++id) EXPECT_FALSE(strangers.add(id, "flood"));

  for (Strangers::Id id = 5; id < 100; ++id) EXPECT_EQ(strangers.add(id, "flood"), id - 3);

  EXPECT_EQ(strangers.size(), 4U);
  EXPECT_TRUE(strangers.remove(1));
}

TEST(Strangers, OneThatDoesWhatItShouldIsTheYoungestAgain) {
  Strangers strangers(2, 2);
  strangers.add(1, "a");
  strangers.add(2, "b");

  strangers.refresh(1);

  EXPECT_EQ(strangers.add(3, "c"), 2U);
}

TEST(Strangers, WhoHasGoneOrProvenItselfCountsNoMore) {
  Strangers strangers(2, 1);
  strangers.add(1, "a");
  EXPECT_TRUE(strangers.remove(1));
  EXPECT_FALSE(strangers.remove(1));

  EXPECT_FALSE(strangers.add(2, "a"));
  EXPECT_FALSE(strangers.add(3, "b"));
  strangers.refresh(1);
}

TEST(Strangers, WithoutAnyRoomTheNewcomerGoes) {
  Strangers strangers(2, 2);
  strangers.set_most(0);

  EXPECT_EQ(strangers.add(1, "a"), 1U);
  EXPECT_EQ(strangers.take_oldest(), std::nullopt);
}

}  // namespace strangers_test
}  // namespace weir
