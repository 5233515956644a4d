// SPDX-License-Identifier: Apache-2.0
#include "worker/app/hang_watch.h"

#include <chrono>
#include <future>
#include <optional>

#include <gtest/gtest.h>

namespace weir::app {
namespace hang_watch_test {

using namespace std::chrono_literals;
using engine::Mailbox;

struct Looks {
  std::chrono::nanoseconds after(std::chrono::nanoseconds pause, std::uint64_t put,
                                 std::uint64_t taken) {
    now += pause;
    return unread.look({.put = put, .taken = taken}, now);
  }
  Unread unread{10s};
  SteadyTime now{};
};

TEST(Unread, CountsFromTheLookThatSawALetter) {
  Looks looks;
  EXPECT_EQ(looks.after(5s, 3, 3), 0s);
  EXPECT_EQ(looks.after(5s, 4, 3), 0s) << "it may have come just now";
  EXPECT_EQ(looks.after(5s, 4, 3), 5s);
  EXPECT_EQ(looks.after(5s, 6, 3), 10s);
}

TEST(Unread, BeginsAgainWhereOneOfSeveralIsTaken) {
  Looks looks;
  looks.after(5s, 9, 3);
  EXPECT_EQ(looks.after(5s, 9, 3), 5s);
  EXPECT_EQ(looks.after(5s, 9, 4), 0s);
  EXPECT_EQ(looks.after(5s, 9, 4), 5s);
  EXPECT_EQ(looks.after(5s, 9, 9), 0s);
  EXPECT_EQ(looks.after(500s, 9, 9), 0s) << "none waits";
}

TEST(Unread, DoesNotCountThatTheProcessWasStopped) {
  Looks looks;
  looks.after(5s, 1, 0);
  EXPECT_EQ(looks.after(3600s, 1, 0), 10s);
}

class Watched : public testing::Test {
 protected:
  void watch(std::chrono::nanoseconds limit) {
    watch_.emplace(mailbox_, limit, clock_,
                   [this](std::chrono::nanoseconds waited) { hangs_.set_value(waited); });
  }
  SystemClock clock_;
  Mailbox mailbox_{nullptr};
  std::promise<std::chrono::nanoseconds> hangs_;
  std::future<std::chrono::nanoseconds> told_ = hangs_.get_future();
  std::optional<HangWatch> watch_;
};

TEST_F(Watched, EngineThatTakesNoLetterHangs) {
  watch(200ms);
  mailbox_.put(protocol::Leave{"finished"});
  ASSERT_EQ(told_.wait_for(60s), std::future_status::ready);
  EXPECT_GE(told_.get(), 200ms);
}

TEST_F(Watched, EngineThatTakesItsLettersDoesNot) {
  watch(300ms);
  for (int i = 0; i < 3; ++i) {
    mailbox_.put(protocol::Leave{"finished"});
    EXPECT_TRUE(mailbox_.take());
    EXPECT_EQ(told_.wait_for(200ms), std::future_status::timeout);
  }
}

}  // namespace hang_watch_test
}  // namespace weir::app
