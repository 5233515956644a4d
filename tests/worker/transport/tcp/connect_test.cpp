// SPDX-License-Identifier: Apache-2.0
// Who may enter a generation, and what connect() says when one does not come.
#include <atomic>
#include <stop_token>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/transport/tcp/relay.h"
#include "tests/worker/transport/tcp/rig.h"
#include "worker/transport/tcp/place.h"
#include "worker/wire/handshake.h"

namespace weir::transport::test {
namespace connect_test {

using ::testing::HasSubstr;

// Two ranks that are not connected yet.
struct Two {
  std::unique_ptr<TcpTransport> first = make_transport();
  std::unique_ptr<TcpTransport> second = make_transport();
  std::vector<int> ports{first->data_port(), second->data_port()};

  Generation of(int stage, std::uint32_t revision = 1, std::uint16_t incarnation = 0) const {
    Generation result = generation(stage, ports);
    result.revision = revision;
    result.incarnation = incarnation;
    return result;
  }
};

std::string name(int stage, int port) {
  return "stage " + std::to_string(stage) + " at 127.0.0.1:" + std::to_string(port);
}

TEST(TcpConnect, RefusesAWrongKey) {
  Two two;
  Generation stranger = two.of(0);
  stranger.job_key = "another key";

  auto honest = connect_async(*two.second, two.of(1), 500ms);
  const Connected refused = two.first->connect(stranger, soon(), {});

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kForbidden);
  EXPECT_EQ(refused.error().message,
            name(1, two.ports[1]) + ": it does not hold the key of this job");
  EXPECT_FALSE(honest.get());
}

TEST(TcpConnect, RefusesAnotherJob) {
  Two two;
  Generation stranger = two.of(0);
  stranger.job_uid = "job-2";

  auto honest = connect_async(*two.second, two.of(1), 500ms);
  const Connected refused = two.first->connect(stranger, soon(), {});

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kForbidden);
  EXPECT_THAT(refused.error().message, HasSubstr("another job"));
}

TEST(TcpConnect, RefusesAnOlderGeneration) {
  Two two;

  auto newer = connect_async(*two.second, two.of(1, 2, 1), 200ms);
  const Connected refused = two.first->connect(two.of(0, 2, 0), soon(), {});

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kConflict);
  EXPECT_EQ(refused.error().message, name(1, two.ports[1]) + ": generation 2.0 is older than 2.1");
}

TEST(TcpConnect, ARankDoesNotGoBackItself) {
  Two two;
  ASSERT_FALSE(two.first->connect(two.of(0, 3), soon(10ms), {}));

  const Connected refused = two.first->connect(two.of(0, 2), soon(), {});

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kConflict);
}

TEST(TcpConnect, EarlyPeersOfANewerGenerationWaitForIt) {
  Two two;
  auto early = connect_async(*two.first, two.of(0, 2));

  // The second rank is still busy with generation 1, whose peer will not come.
  const Connected older = two.second->connect(two.of(1, 1), soon(100ms), {});
  const Connected newer = two.second->connect(two.of(1, 2), soon(), {});

  ASSERT_FALSE(older);
  ASSERT_TRUE(newer) << newer.error().message;
  const Connected first = early.get();
  ASSERT_TRUE(first) << first.error().message;
  (*first)->send(to(1), pattern(9, 9), 9);
  (*newer)->receive(from(0), make_buffer(9), 9);
  EXPECT_EQ(next(**newer).kind, Completion::Kind::kReceived);
}

TEST(TcpConnect, AnotherGenerationFollowsOnTheSamePorts) {
  Two two;
  for (std::uint16_t incarnation = 0; incarnation < 3; ++incarnation) {
    auto first = connect_async(*two.first, two.of(0, 1, incarnation));
    const Connected second = two.second->connect(two.of(1, 1, incarnation), soon(), {});
    const Connected other = first.get();

    ASSERT_TRUE(second) << second.error().message;
    ASSERT_TRUE(other) << other.error().message;
    (*second)->send(to(0, Channel::kBackward), pattern(9, 9), 9);
    (*other)->receive(from(1, Channel::kBackward), make_buffer(9), 9);
    EXPECT_EQ(next(**other).kind, Completion::Kind::kReceived);
  }
}

TEST(TcpConnect, TheSameGenerationMayBeTriedAgain) {
  Two two;
  ASSERT_FALSE(two.first->connect(two.of(0), soon(50ms), {}));

  auto again = connect_async(*two.first, two.of(0));
  const Connected second = two.second->connect(two.of(1), soon(), {});

  ASSERT_TRUE(second) << second.error().message;
  const Connected first = again.get();
  EXPECT_TRUE(first) << first.error().message;
}

TEST(TcpConnect, DeadlineNamesThePeerThatDidNotCome) {
  Two two;
  const int port = two.ports[1];
  two.second.reset();

  const Connected failed = two.first->connect(two.of(0), soon(1s), {});

  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kTimeout);
  EXPECT_EQ(failed.error().message,
            name(1, port) + ": Connection refused; no connection from " + name(1, port));
}

TEST(TcpConnect, DeadlineTellsAPeerThatIsNotReadyFromOneThatIsNotThere) {
  Two two;

  const Connected failed = two.first->connect(two.of(0), soon(1s), {});

  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("it has not opened this generation yet"));
}

TEST(TcpConnect, TellsOfAPeerWhosePortDoesNotAnswer) {
  std::stop_source told;
  PeerAddress silent;
  const auto rank = make_transport({.dead_after = 1s, .on_silent = [&](const PeerAddress& peer) {
                                      silent = peer;
                                      told.request_stop();
                                    }});
  const SilentPort port;
  const Generation generation = test::generation(0, {rank->data_port(), port.port()});
  EXPECT_EQ(rank->connect(generation, soon(), told.get_token()).error().code, Code::kCancelled);
  EXPECT_EQ(silent.stage, 1);
  EXPECT_EQ(silent.ip, "127.0.0.1");
  EXPECT_EQ(silent.data_port, port.port());
}

TEST(TcpConnect, APeerThatRefusesOrIsLateIsNotSilent) {
  std::atomic<int> told = 0;
  const auto rank =
      make_transport({.dead_after = 1s, .on_silent = [&](const PeerAddress&) { ++told; }});
  auto other = make_transport();
  const Generation generation = test::generation(0, {rank->data_port(), other->data_port()});
  EXPECT_FALSE(rank->connect(generation, soon(2500ms), {})) << "it has not opened the generation";
  other.reset();
  EXPECT_FALSE(rank->connect(generation, soon(2500ms), {})) << "it has ended";
  EXPECT_EQ(told, 0);
}

TEST(TcpConnect, UnknownHostIsNamed) {
  Two two;
  Generation generation = two.of(0);
  generation.next->ip = "no-such-host.invalid";

  const Connected failed = two.first->connect(generation, soon(500ms), {});

  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kTimeout);
  EXPECT_THAT(failed.error().message, HasSubstr("stage 1 at no-such-host.invalid:"));
}

TEST(TcpConnect, StopEndsTheWait) {
  Two two;
  std::stop_source stop;
  auto connecting = std::async(
      std::launch::async, [&] { return two.first->connect(two.of(0), soon(), stop.get_token()); });
  stop.request_stop();

  const Connected stopped = connecting.get();

  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
}

TEST(TcpConnect, PortInUseIsAClearError) {
  const auto [fd, port] = listen_anywhere();

  const auto transport = make_tcp_transport({.listen_ip = "127.0.0.1", .data_port = port});

  ASSERT_FALSE(transport);
  EXPECT_EQ(transport.error().code, Code::kUnavailable);
  EXPECT_EQ(transport.error().message,
            "data port " + std::to_string(port) + ": address already in use");
  ::close(fd);
}

TEST(TcpConnect, ListensOnAllAddressesByDefault) {
  const auto transport = make_tcp_transport({.data_port = 0});

  ASSERT_TRUE(transport) << transport.error().message;
  const int fd = dial((*transport)->data_port());
  EXPECT_GE(fd, 0);
  ::close(fd);
}

TEST(TcpConnect, StrangersOnTheDataPortDoNotDisturb) {
  Two two;
  std::vector<int> strangers;
  const std::string junk = "GET / HTTP/1.1\r\nHost: weir\r\n\r\n" + std::string(4000, '\xFF');
  for (int i = 0; i < 100; ++i) {
    const int fd = dial(two.ports[1]);
    if (i % 2 == 0) ::send(fd, junk.data(), junk.size(), MSG_NOSIGNAL);
    if (i % 3 == 0) {
      ::close(fd);
    } else {
      strangers.push_back(fd);  // silent, or waiting for an answer
    }
  }
  for (int i = 0; i < 10; ++i) {
    ::close(strangers.back());
    strangers.pop_back();
  }

  auto first = connect_async(*two.first, two.of(0));
  const Connected second = two.second->connect(two.of(1), soon(), {});

  EXPECT_TRUE(second) << second.error().message;
  EXPECT_TRUE(first.get());
  for (const int fd : strangers) ::close(fd);
}

// A port that gives its 64 places to whoever comes first, or keeps whoever knows the job's name,
// can be closed by one stranger.
TEST(TcpConnect, StrangersThatHoldConnectionsKeepNobodyOut) {
  const TcpOptions options{.job_uid = "job-1", .job_key = "a key of this job"};
  const auto first = make_transport(options), second = make_transport(options);
  const std::vector<int> ports = {first->data_port(), second->data_port()};
  std::vector<int> strangers;
  for (const int port : ports) {
    for (int i = 0; i < 200; ++i) {
      strangers.push_back(dial(port));
      if (i % 2 == 0) continue;
      const std::string hello = wire::encode_record(
          {wire::RecordType::kHello,
           wire::encode_hello(
               {.job_uid = "job-1",
                .body = tcp::encode_place(
                    {.generation = {9, 0}, .from_stage = static_cast<std::uint32_t>(i)}),
                .nonce = std::string(wire::kNonceBytes, 'n')})});
      ::send(strangers.back(), hello.data(), hello.size(), MSG_NOSIGNAL);
    }
  }

  auto connecting = connect_async(*first, generation(0, ports));
  const Connected connected = second->connect(generation(1, ports), soon(), {});

  EXPECT_TRUE(connected) << connected.error().message;
  EXPECT_TRUE(connecting.get());
  for (const int fd : strangers) ::close(fd);
}

TEST(TcpConnect, InvalidGenerationsAreNamed) {
  Two two;
  Generation no_key = two.of(0);
  no_key.job_key.clear();
  Generation far = two.of(0);
  far.next->stage = 2;

  EXPECT_EQ(two.first->connect(no_key, soon(), {}).error().message, "job key is empty");
  EXPECT_EQ(two.first->connect(far, soon(), {}).error().message,
            "the next peer is not the stage after");
}

}  // namespace connect_test
}  // namespace weir::transport::test
