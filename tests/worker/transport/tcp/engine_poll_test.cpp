// SPDX-License-Identifier: Apache-2.0
// The engine's wait: what wakes it and what does not.
#include "worker/transport/tcp/engine_poll.h"

#include <array>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

namespace weir::transport::tcp {
namespace engine_poll_test {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

class EnginePollTest : public ::testing::Test {
 protected:
  EnginePollTest() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, first_.data()), 0);
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, second_.data()), 0);
    poll_.add(first_[0]);
    poll_.add(second_[0]);
  }
  ~EnginePollTest() override {
    for (const int descriptor : {first_[0], first_[1], second_[0], second_[1]}) ::close(descriptor);
  }

  static void write_to(int descriptor) { EXPECT_EQ(::write(descriptor, "x", 1), 1); }
  void wait_long() { poll_.wait(steady_clock::now() + 30s, {}); }
  void look() { poll_.wait(steady_clock::now(), {}); }

  std::array<int, 2> first_{};
  std::array<int, 2> second_{};
  EnginePoll poll_;
};

TEST_F(EnginePollTest, SaysWhichSocketCanBeReadUntilItIsRead) {
  write_to(second_[1]);

  for (int i = 0; i < 2; ++i) {
    wait_long();
    EXPECT_FALSE(poll_.readable(0));
    EXPECT_TRUE(poll_.readable(1));
    EXPECT_FALSE(poll_.writable(1)) << "nobody asked";
  }
  char byte = 0;
  EXPECT_EQ(::read(second_[0], &byte, 1), 1);
  look();
  EXPECT_FALSE(poll_.readable(1));
}

TEST_F(EnginePollTest, SaysThatASocketHasRoomOnlyWhileAsked) {
  for (int round = 0; round < 2; ++round) {
    poll_.ask_writable(0, true);
    wait_long();
    EXPECT_TRUE(poll_.writable(0));
    EXPECT_FALSE(poll_.readable(0));
    poll_.ask_writable(0, false);
    look();  // may come back for the withdrawn question, once
    EXPECT_FALSE(poll_.writable(0));
    const auto begin = steady_clock::now();
    poll_.wait(begin + 20ms, {});
    EXPECT_GE(steady_clock::now() - begin, 20ms) << "it would spin";
  }
}

TEST_F(EnginePollTest, AClosedPeerCanBeRead) {
  ::shutdown(first_[1], SHUT_RDWR);

  wait_long();

  EXPECT_TRUE(poll_.readable(0));
}

TEST_F(EnginePollTest, ADroppedSocketWakesNobody) {
  ::shutdown(first_[1], SHUT_RDWR);
  poll_.drop(0);
  poll_.ask_writable(0, true);
  write_to(second_[1]);

  wait_long();

  EXPECT_FALSE(poll_.readable(0));
  EXPECT_FALSE(poll_.writable(0));
  EXPECT_TRUE(poll_.readable(1));
}

TEST_F(EnginePollTest, EndsByItsDeadlineAWakeOrAStop) {
  const auto begin = steady_clock::now();
  poll_.wait(begin + 5ms, {});
  EXPECT_GE(steady_clock::now() - begin, 5ms);

  poll_.wake();  // before the wait: not lost
  wait_long();

  const std::jthread waker([this] { poll_.wake(); });
  wait_long();

  std::stop_source stop;
  const std::jthread stopper([&] { stop.request_stop(); });
  poll_.wait(begin + 30s, stop.get_token());
  EXPECT_LT(steady_clock::now() - begin, 20s);
}

}  // namespace engine_poll_test
}  // namespace weir::transport::tcp
