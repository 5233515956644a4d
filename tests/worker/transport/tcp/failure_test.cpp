// SPDX-License-Identifier: Apache-2.0
// What breaks a generation, how soon it is known, and what the reason says.
#include <atomic>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/broken_connections.h"
#include "tests/worker/transport/tcp/relay.h"
#include "tests/worker/transport/tcp/rig.h"

namespace weir::transport::test {
namespace failure_test {

using Kind = Completion::Kind;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Two ranks with a wire between them that the test can break.
struct Wired {
  std::unique_ptr<TcpTransport> transports[2];
  std::unique_ptr<Relay> to_first, to_second;
  std::unique_ptr<Communicator> first, second;

  explicit Wired(const TcpOptions& options = {})
      : transports{make_transport(options), make_transport(options)},
        to_first(std::make_unique<Relay>(transports[0]->data_port())),
        to_second(std::make_unique<Relay>(transports[1]->data_port())) {
    const std::vector<int> ports{to_first->port(), to_second->port()};
    auto connecting = connect_async(*transports[0], generation(0, ports));
    Connected other = transports[1]->connect(generation(1, ports), soon(), {});
    Connected one = connecting.get();
    EXPECT_TRUE(one && other);
    first = *std::move(one);
    second = *std::move(other);
  }
};

// Only what ends it matters.
Completion end_of(Communicator& rank) {
  Completion completion = next(rank);
  while (completion.kind != Kind::kFailed) completion = next(rank);
  return completion;
}

TEST(TcpFailure, APeerThatClosesInMidMessageIsNamedAtOnce) {
  TcpOptions paced;
  paced.pacing = {{.bytes_per_second = 1e6}};
  Wired wired(paced);
  wired.first->send(to(1), pattern(8'000'000, 1), 8'000'000);
  wired.second->receive(from(0), make_buffer(8'000'000), 8'000'000);
  const Time deadline = soon();
  while (wired.to_second->forwarded() < 100'000 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }

  const Time begin = std::chrono::steady_clock::now();
  wired.to_second->cut();
  const Completion failed = end_of(*wired.second);

  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  EXPECT_THAT(failed.reason,
              AllOf(StartsWith("stage 0 at 127.0.0.1:" + std::to_string(wired.to_first->port()) +
                               ", link 0-1 "),
                    HasSubstr("ward: closed by the peer")));
  EXPECT_EQ(failed.end.peer_stage, 0);
  EXPECT_THAT(end_of(*wired.first).reason, StartsWith("stage 1 at 127.0.0.1:"));
}

TEST(TcpFailure, OneOfSeveralConnectionsThatEndsIsNamed) {
  Wired wired({.connections = 3});

  wired.to_second->cut_one();

  const std::string reason = end_of(*wired.second).reason;
  EXPECT_THAT(reason, AllOf(StartsWith("stage 0 at "), HasSubstr(", connection "),
                            HasSubstr(" of 3: closed by the peer")));
  EXPECT_THAT(end_of(*wired.first).reason, StartsWith("stage 1 at "));
}

TEST(TcpFailure, OneOfSeveralConnectionsThatIsResetIsNamed) {
  Wired wired({.connections = 3});

  wired.to_second->reset_one();

  // The end that finds it first tells; the other one may see that it closes.
  const std::vector<std::string> reasons{end_of(*wired.second).reason, end_of(*wired.first).reason};
  EXPECT_THAT(reasons, Contains(AllOf(StartsWith("stage "), HasSubstr(", link 0-1 "),
                                      HasSubstr(", connection "),
                                      HasSubstr(" of 3: Connection reset by peer"))));
}

TEST(TcpFailure, OneOfSeveralConnectionsThatStallsIsNamed) {
  Wired wired({.connections = 3, .dead_after = 1s});
  wired.to_second->freeze_one();

  constexpr std::size_t kBytes = 12 * 256 * 1024;
  wired.first->send(to(1), pattern(kBytes, 1), kBytes);
  wired.second->receive(from(0), make_buffer(kBytes), kBytes);

  // The end that finds it first tells; the other one sees that it closes.
  const std::vector<std::string> reasons{end_of(*wired.second).reason, end_of(*wired.first).reason};
  EXPECT_THAT(reasons, Contains(AllOf(StartsWith("stage "), HasSubstr(", connection "),
                                      HasSubstr(" of 3: no byte for 1 s"))));
}

TEST(TcpFailure, ASilentPeerIsDeadAfterTheLimit) {
  Wired wired({.dead_after = 1s});
  const Time begin = std::chrono::steady_clock::now();
  wired.to_first->freeze();
  wired.to_second->freeze();

  const Completion first = end_of(*wired.first);
  const Completion second = end_of(*wired.second);

  EXPECT_THAT(first.reason, AllOf(StartsWith("stage 1 at"), HasSubstr("no byte for 1 s")));
  EXPECT_THAT(second.reason, AllOf(StartsWith("stage 0 at"), HasSubstr("no byte for 1 s")));
  EXPECT_GT(std::chrono::steady_clock::now() - begin, 500ms);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

// What a transport has told of a peer that nothing on the way to answers.
struct Told {
  std::atomic<int> times = 0, stage = -1;
  TcpOptions options(std::chrono::seconds dead_after) {
    return {.dead_after = dead_after, .on_silent = [this](const PeerAddress& peer) {
              ++times;
              stage = peer.stage;
            }};
  }
};

TEST(TcpFailure, ADeadPathIsToldOfItsPeer) {
  Told first, second;
  Pipeline pipeline(2, {first.options(3s), second.options(3s)});
  if (!weir::test::cut_connections(
          getpid(), {pipeline.transports[0]->data_port(), pipeline.transports[1]->data_port()}))
    GTEST_SKIP() << "this system does not allow to cut a connection";

  EXPECT_THAT(end_of(*pipeline.ranks[0]).reason, StartsWith("stage 1 at "));
  EXPECT_THAT(end_of(*pipeline.ranks[1]).reason, StartsWith("stage 0 at "));
  pipeline.ranks.clear();
  EXPECT_GE(first.times, 1);
  EXPECT_EQ(first.stage, 1);
  EXPECT_GE(second.times, 1);
  EXPECT_EQ(second.stage, 0);
}

// Its machine answers.
TEST(TcpFailure, OfAPeerThatIsStoppedNoDeadPathIsTold) {
  Told told;
  Wired wired(told.options(3s));
  wired.to_first->freeze();
  wired.to_second->freeze();
  EXPECT_THAT(end_of(*wired.first).reason, HasSubstr("no byte for 3 s"));
  EXPECT_THAT(end_of(*wired.second).reason, HasSubstr("no byte for 3 s"));
  wired.first.reset();
  wired.second.reset();
  EXPECT_EQ(told.times, 0);
}

TEST(TcpFailure, AQuietButLivingPeerIsNotDead) {
  Pipeline pipeline(2, {{.dead_after = 1s}, {.dead_after = 1s}});

  EXPECT_FALSE(pipeline.ranks[0]->wait(soon(1500ms), {}));
  EXPECT_FALSE(pipeline.ranks[1]->wait(soon(0s), {}));
}

TEST(TcpFailure, ASlowMessageIsNotSilence) {
  TcpOptions slow{.dead_after = 1s};
  slow.pacing = {{.bytes_per_second = 1000, .channel = 0}};
  Pipeline pipeline(2, {slow, {.dead_after = 1s}});

  pipeline.ranks[0]->send(to(1), pattern(1800, 1), 1800);
  pipeline.ranks[1]->receive(from(0), make_buffer(1800), 1800);

  EXPECT_EQ(next(*pipeline.ranks[1]).kind, Kind::kReceived);
  EXPECT_EQ(next(*pipeline.ranks[0]).kind, Kind::kSent);
}

TEST(TcpFailure, BothEndsOfALinkNameItAlike) {
  for (const bool sending : {false, true}) {
    const int next = sending ? 2 : 1, previous = sending ? 1 : 2;  // stage of the peer
    EXPECT_EQ(name_of(LinkEnd{next, Channel::kForward, sending}), "link 1-2 forward");
    EXPECT_EQ(name_of(LinkEnd{previous, Channel::kBackward, sending}), "link 1-2 backward");
  }
}

TEST(TcpFailure, AMessageOfAnotherSizeIsAProtocolError) {
  Pipeline pipeline(2);

  pipeline.ranks[0]->send(to(1), pattern(100, 1), 100);
  pipeline.ranks[1]->receive(from(0), make_buffer(50), 50);

  const Completion failed = next(*pipeline.ranks[1]);
  EXPECT_EQ(failed.kind, Kind::kFailed);
  EXPECT_THAT(failed.reason, HasSubstr(", link 0-1 forward: message 0 has 100 bytes, the receiver "
                                       "expects 50 (generation 1.0)"));
  EXPECT_THAT(end_of(*pipeline.ranks[0]).reason, StartsWith("stage 1 at"));
}

TEST(TcpFailure, AfterAFailureEveryWaitFails) {
  Pipeline pipeline(2);
  pipeline.ranks[0]->abort("plan changed");

  for (int i = 0; i < 3; ++i) {
    const Completion failed = next(*pipeline.ranks[0]);
    EXPECT_EQ(failed.kind, Kind::kFailed);
    EXPECT_EQ(failed.reason, "plan changed");
  }
  pipeline.ranks[0]->send(to(1), pattern(1, 1), 1);
  EXPECT_EQ(next(*pipeline.ranks[0]).kind, Kind::kFailed);
  EXPECT_EQ(end_of(*pipeline.ranks[1]).end.peer_stage, 0);
}

TEST(TcpFailure, AbortFromAnotherThreadWakesTheWait) {
  Pipeline pipeline(2);
  pipeline.ranks[0]->receive(from(1, Channel::kBackward), make_buffer(1), 1);

  const std::jthread other([&] { pipeline.ranks[0]->abort("stopped by the user"); });
  const Completion failed = next(*pipeline.ranks[0]);

  EXPECT_EQ(failed.kind, Kind::kFailed);
  EXPECT_EQ(failed.reason, "stopped by the user");
}

TEST(TcpFailure, StopEndsTheWaitAndTheGenerationLives) {
  Pipeline pipeline(2);
  std::stop_source stop;
  const std::jthread other([&] { stop.request_stop(); });

  EXPECT_FALSE(pipeline.ranks[0]->wait(soon(), stop.get_token()));

  pipeline.ranks[0]->send(to(1), pattern(1, 1), 1);
  pipeline.ranks[1]->receive(from(0), make_buffer(1), 1);
  EXPECT_EQ(next(*pipeline.ranks[1]).kind, Kind::kReceived);
}

TEST(TcpFailure, APeerThatLeavesWhenAllIsDoneBreaksNothing) {
  Pipeline pipeline(3);
  pipeline.ranks[1]->receive(from(2, Channel::kBackward), make_buffer(1), 1);  // of the next step
  EXPECT_FALSE(pipeline.ranks[1]->peer_left(from(2, Channel::kBackward)));
  pipeline.ranks[2].reset();

  // The others still work with one another.
  pipeline.ranks[1]->send(to(0, Channel::kBackward), pattern(5, 5), 5);
  pipeline.ranks[0]->receive(from(1, Channel::kBackward), make_buffer(5), 5);
  EXPECT_EQ(next(*pipeline.ranks[0]).kind, Kind::kReceived);
  EXPECT_EQ(next(*pipeline.ranks[1]).kind, Kind::kSent);
  const std::clock_t used = std::clock();
  EXPECT_FALSE(pipeline.ranks[1]->wait(soon(100ms), {}));
  EXPECT_LT(std::clock() - used, CLOCKS_PER_SEC / 20) << "the closed sockets must not keep it busy";
  EXPECT_TRUE(pipeline.ranks[1]->peer_left(from(2, Channel::kBackward)));
  EXPECT_FALSE(pipeline.ranks[1]->peer_left(from(0)));

  // A message for the one that left can never arrive.
  pipeline.ranks[1]->send(to(2), pattern(5, 5), 5);
  const Completion failed = next(*pipeline.ranks[1]);
  EXPECT_EQ(failed.kind, Kind::kFailed);
  EXPECT_THAT(failed.reason, AllOf(StartsWith("stage 2 at"), HasSubstr("left")));
}

TEST(TcpFailure, APeerThatLeavesWhileMessagesAreDueIsAFailure) {
  Pipeline pipeline(2);
  pipeline.ranks[0]->send(to(1), pattern(5, 5), 5);
  pipeline.ranks[1].reset();

  EXPECT_THAT(next(*pipeline.ranks[0]).reason, StartsWith("stage 1 at"));
}

}  // namespace failure_test
}  // namespace weir::transport::test
