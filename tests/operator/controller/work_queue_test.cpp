// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/work_queue.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/jump_clock.h"

namespace weir::controller {
namespace work_queue_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Real time, and how often it was asked for.
class CountingClock final : public Clock {
 public:
  SteadyTime now() const override {
    ++asked;
    return clock_.now();
  }
  SystemTime system_now() const override { return clock_.system_now(); }
  bool sleep_until(SteadyTime deadline, std::stop_token stop) override {
    return clock_.sleep_until(deadline, stop);
  }
  mutable std::atomic<int> asked{0};

 private:
  SystemClock clock_;
};

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

TEST(WorkQueue, GathersTheChangesOfABurst) {
  World w;
  w.queue.add_gathering("a");
  ASSERT_EQ(w.queue.try_get(), "a") << "the first one at once";
  w.queue.add_gathering("a");  // while it is worked on: nobody knows whether it was seen
  w.queue.done("a");

  for (int i = 0; i < 9; ++i) {
    w.clock.advance(milliseconds(10));
    w.queue.add_gathering("a");
    EXPECT_FALSE(w.queue.try_get().has_value()) << i;
  }
  w.clock.advance(milliseconds(10));
  ASSERT_EQ(w.queue.try_get(), "a");
  w.queue.done("a");
  EXPECT_FALSE(w.queue.try_get().has_value()) << "nine changes, one pass";

  w.clock.advance(milliseconds(100));
  w.queue.add_gathering("a");
  EXPECT_EQ(w.queue.try_get(), "a") << "after a pause";
}

TEST(WorkQueue, HandsOutWhatIsDueInTheOrderOfItsTime) {
  World w;
  w.queue.add_after("c", seconds(3));
  w.queue.add_after("a", seconds(9));
  w.queue.add_after("b", seconds(2));
  w.queue.add_after("a", seconds(1));
  w.clock.advance(seconds(5));

  for (const char* key : {"a", "b", "c"}) {
    EXPECT_EQ(w.queue.try_get(), key);
    w.queue.done(key);
  }
  w.clock.advance(seconds(5));
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

TEST(WorkQueue, ADueTimeWakesOneThreadAndNoKeyIsForgotten) {
  constexpr int kKeys = 40;
  CountingClock clock;
  WorkQueue queue(clock);
  std::atomic<int> handed{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&](const std::stop_token& stop) {
      while (const auto key = queue.get(stop)) {
        ++handed;
        queue.done(*key);
      }
    });
  }
  for (int i = 0; i < kKeys; ++i)
    queue.add_after("later" + std::to_string(i), milliseconds(5 * i + 5));
  for (int i = 0; i < kKeys; ++i) queue.add("now" + std::to_string(i));
  while (handed < 2 * kKeys) std::this_thread::sleep_for(milliseconds(1));
  // All are idle: whoever watches must hear of a time that is before its own. Best of five, as
  // other processes may hold up a thread.
  std::chrono::nanoseconds best = seconds(10);
  for (int i = 0; i < 5; ++i) {
    const SteadyTime begun = clock.now();
    const int before = handed;
    queue.add_after("soon", milliseconds(5));
    while (handed == before) std::this_thread::sleep_for(milliseconds(1));
    best = std::min(best, clock.now() - begun);
  }
  EXPECT_LT(best, milliseconds(500));
  queue.shut_down();
  threads.clear();

  EXPECT_EQ(handed, 2 * kKeys + 5);
  // About 500; 1000 and more when all threads wake.
  EXPECT_LT(clock.asked, 700);
}

TEST(WorkQueue, HandsOutNothingAfterShutDown) {
  World w;
  w.queue.add("a");

  w.queue.shut_down();

  EXPECT_FALSE(w.queue.try_get().has_value());
  EXPECT_FALSE(w.queue.get({}).has_value());
}

TEST(WorkQueue, TellsHowLongKeysWaitAndAreWorkedOn) {
  test::JumpClock clock;
  std::vector<std::string> reported;
  const auto note = [&reported](const char* what) {
    return [&reported, what](std::chrono::nanoseconds time) {
      reported.push_back(what + std::to_string(time / seconds(1)));
    };
  };
  WorkQueue queue(clock, {.added = [&reported] { reported.emplace_back("added"); },
                          .retried = [&reported] { reported.emplace_back("retried"); },
                          .waited = note("waited "),
                          .worked = note("worked ")});

  queue.add_after("a", seconds(5));
  clock.advance(seconds(7));
  ASSERT_EQ(queue.try_get(), "a");  // in the queue from here on: its time was not looked at before
  queue.add("a");
  clock.advance(seconds(2));
  EXPECT_EQ(queue.unfinished().longest, seconds(2));
  queue.done("a");
  queue.add_rate_limited("a");

  EXPECT_EQ(reported,
            (std::vector<std::string>{"added", "waited 0", "added", "worked 2", "retried"}));
  EXPECT_EQ(queue.unfinished().sum, seconds(0));
}

}  // namespace work_queue_test
}  // namespace weir::controller
