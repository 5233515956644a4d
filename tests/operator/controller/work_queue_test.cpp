// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/work_queue.h"

#include <gtest/gtest.h>

#include "tests/support/jump_clock.h"

namespace weir::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct World {
  test::JumpClock clock;
  WorkQueue queue{clock};
};

TEST(WorkQueue, HoldsAKeyOnce) {
  World w;
  w.queue.add("a");
  w.queue.add("a");
  w.queue.add("b");

  EXPECT_EQ(w.queue.try_get(), "a");
  EXPECT_EQ(w.queue.try_get(), "b");
  EXPECT_FALSE(w.queue.try_get().has_value());
}

TEST(WorkQueue, NeverHandsOutAKeyThatIsBeingWorkedOn) {
  World w;
  w.queue.add("a");
  ASSERT_EQ(w.queue.try_get(), "a");

  w.queue.add("a");
  EXPECT_FALSE(w.queue.try_get().has_value());
  w.queue.done("a");

  EXPECT_EQ(w.queue.try_get(), "a");
}

TEST(WorkQueue, LetsLiveChangesPassTheFirstList) {
  World w;
  w.queue.add("old1", true);
  w.queue.add("old2", true);
  w.queue.add("new");
  w.queue.add("old2");  // changed meanwhile

  EXPECT_EQ(w.queue.try_get(), "new");
  EXPECT_EQ(w.queue.try_get(), "old2");
  EXPECT_EQ(w.queue.try_get(), "old1");
}

TEST(WorkQueue, KeepsTheEarliestOfTwoTimes) {
  World w;
  w.queue.add_after("a", seconds(10));
  w.queue.add_after("a", seconds(5));
  w.queue.add_after("a", seconds(20));

  w.clock.advance(seconds(4));
  EXPECT_FALSE(w.queue.try_get().has_value());
  w.clock.advance(seconds(1));
  EXPECT_EQ(w.queue.try_get(), "a");
  w.queue.done("a");
  w.clock.advance(seconds(60));
  EXPECT_FALSE(w.queue.try_get().has_value());
}

TEST(WorkQueue, DoublesTheBackOffUpToItsCapAndForgets) {
  World w;
  milliseconds waited{0};
  for (int i = 0; i < 5; ++i) {
    w.queue.add_rate_limited("a");
    while (!w.queue.try_get()) {
      w.clock.advance(milliseconds(1));
      ++waited;
    }
    w.queue.done("a");
  }
  EXPECT_EQ(waited, milliseconds(5 + 10 + 20 + 40 + 80));

  for (int i = 0; i < 40; ++i) w.queue.add_rate_limited("b");
  w.clock.advance(seconds(300));
  EXPECT_TRUE(w.queue.try_get().has_value());

  w.queue.forget("a");
  w.queue.add_rate_limited("a");
  w.clock.advance(milliseconds(5));
  EXPECT_EQ(w.queue.try_get(), "a");
}

TEST(WorkQueue, HandsOutNothingAfterShutDown) {
  World w;
  w.queue.add("a");

  w.queue.shut_down();

  EXPECT_FALSE(w.queue.try_get().has_value());
  EXPECT_FALSE(w.queue.get({}).has_value());
}

}  // namespace
}  // namespace weir::controller
