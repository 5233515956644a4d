// SPDX-License-Identifier: Apache-2.0
// Messages over real sockets: order, contents, credits, rates.
#include "worker/transport/tcp/tcp_transport.h"

#include <array>
#include <cmath>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/worker/transport/tcp/exchange.h"
#include "tests/worker/transport/tcp/rig.h"
#include "worker/base/units.h"

namespace weir::transport::test {
namespace tcp_transport_test {

using Kind = Completion::Kind;

std::vector<TcpOptions> every_rank(int stages, int connections) {
  return std::vector<TcpOptions>(static_cast<std::size_t>(stages), {.connections = connections});
}

// Stages, bytes of a message, connections of a link.
class Everywhere : public ::testing::TestWithParam<std::tuple<int, std::size_t, int>> {};

TEST_P(Everywhere, MessagesArriveWholeAndInOrder) {
  const auto [stages, bytes, connections] = GetParam();
  Pipeline pipeline(stages, every_rank(stages, connections));

  std::vector<std::future<std::string>> ranks;
  for (int s = 0; s < stages; ++s) {
    ranks.push_back(std::async(std::launch::async, [&, s, n = stages, size = bytes] {
      return Exchange(*pipeline.ranks[static_cast<std::size_t>(s)], s, n, size).run();
    }));
  }

  for (auto& rank : ranks) EXPECT_EQ(rank.get(), "");
}

INSTANTIATE_TEST_SUITE_P(TcpTransport, Everywhere,
                         ::testing::Combine(::testing::Values(2, 3, 4),
                                            ::testing::Values(0, 1, 4096, 1'000'000, 17'000'000),
                                            ::testing::Values(1)));
INSTANTIATE_TEST_SUITE_P(SeveralConnections, Everywhere,
                         ::testing::Combine(::testing::Values(2, 3),
                                            ::testing::Values(4096, 262'144, 262'145, 17'000'000),
                                            ::testing::Values(2, 8)));

TEST(TcpTransport, EachEndDecidesHowManyConnectionsItSendsOn) {
  Pipeline pipeline(2, {{.connections = 3}, {.connections = 1}});

  std::vector<std::future<std::string>> ranks;
  for (int s = 0; s < 2; ++s) {
    ranks.push_back(std::async(std::launch::async, [&, s] {
      return Exchange(*pipeline.ranks[static_cast<std::size_t>(s)], s, 2, 1'000'000).run();
    }));
  }
  for (auto& rank : ranks) EXPECT_EQ(rank.get(), "");

  EXPECT_EQ(pipeline.ranks[0]->reports().at(0).counters.connections, 3);
  EXPECT_EQ(pipeline.ranks[1]->reports().at(0).counters.connections, 1);
}

TEST(TcpTransport, APacedLinkHasOneConnection) {
  Pipeline pipeline(2, {{.connections = 4, .pacing = {{.bytes_per_second = 1e9}}}});
  EXPECT_EQ(pipeline.ranks[0]->reports().at(0).counters.connections, 1);
}

TEST(TcpTransport, WorksForAPipelineOfOneStage) {
  const Pipeline pipeline(1);

  ASSERT_TRUE(pipeline.ranks[0]);
  EXPECT_TRUE(pipeline.ranks[0]->reports().empty());
  EXPECT_FALSE(pipeline.ranks[0]->wait(soon(0s), {}));
}

TEST(TcpTransport, NothingIsSentWithoutAPostedReceiveAndTheWaitIsNoNetworkTime) {
  Pipeline pipeline(2);
  Communicator& sender = *pipeline.ranks[0];
  Communicator& receiver = *pipeline.ranks[1];
  const auto counters = [&] { return sender.reports().at(0).counters; };

  sender.send(to(1), pattern(1'000'000, 1), 1'000'000);
  const auto begin = std::chrono::steady_clock::now();
  while (counters().credit_wait < 100ms && std::chrono::steady_clock::now() < begin + 30s) {
    EXPECT_FALSE(sender.wait(soon(1ms), {}));
  }
  EXPECT_EQ(counters().transfers, 0);
  EXPECT_FALSE(receiver.wait(soon(0s), {}));

  receiver.receive(from(0), make_buffer(1'000'000), 1'000'000);
  EXPECT_EQ(next(receiver).kind, Kind::kReceived);
  const Completion sent = next(sender);
  EXPECT_EQ(sent.kind, Kind::kSent);

  ASSERT_TRUE(sent.transfer);
  EXPECT_GE(sent.transfer->begin, begin + 100ms) << "it had no credit before";
  EXPECT_GE(sent.transfer->end, sent.transfer->begin);
  EXPECT_GE(counters().credit_wait, 100ms);
  EXPECT_LT(counters().busy, 50ms) << "a megabyte over loopback";
  const auto waited = counters().credit_wait;
  EXPECT_FALSE(sender.wait(soon(20ms), {}));
  EXPECT_EQ(counters().credit_wait, waited) << "nothing waits now";
}

TEST(TcpTransport, ASendIsDoneWhenThePeerHasItNotWhenItIsWritten) {
  Pipeline pipeline(2);

  pipeline.ranks[0]->send(to(1), pattern(4, 1), 4);
  EXPECT_FALSE(pipeline.ranks[0]->wait(soon(20ms), {}));
  pipeline.ranks[1]->receive(from(0), make_buffer(4), 4);

  const Completion sent = next(*pipeline.ranks[0]);
  EXPECT_EQ(sent.kind, Kind::kSent);
  EXPECT_EQ(sent.end, to(1));
  EXPECT_EQ(sent.sequence, 0);
}

TEST(TcpTransport, AcknowledgementsAndCreditsDoNotNeedAnEngineThatWaits) {
  Pipeline pipeline(2);
  for (int i = 0; i < 3; ++i) pipeline.ranks[0]->send(to(1), pattern(4, 1), 4);

  // The receiver takes the first message, posts for the others, and then only computes.
  pipeline.ranks[1]->receive(from(0), make_buffer(4), 4);
  ASSERT_EQ(next(*pipeline.ranks[1]).kind, Kind::kReceived);
  pipeline.ranks[1]->receive(from(0), make_buffer(4), 4);
  pipeline.ranks[1]->receive(from(0), make_buffer(4), 4);

  for (int i = 0; i < 3; ++i) EXPECT_EQ(next(*pipeline.ranks[0]).kind, Kind::kSent);
}

TEST(TcpTransport, AnEngineThatOnlyPollsGetsEverything) {
  constexpr int kCount = 200;
  Pipeline pipeline(2);
  for (int i = 0; i < kCount; ++i) {
    pipeline.ranks[0]->send(to(1), pattern(70'000, 1), 70'000);
    pipeline.ranks[1]->receive(from(0), make_buffer(70'000), 70'000);
  }

  int received = 0;
  const Time deadline = soon();
  while (received < kCount && std::chrono::steady_clock::now() < deadline) {
    const auto completion = pipeline.ranks[1]->wait(Time{}, {});
    if (!completion) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(completion->kind, Kind::kReceived);
    ++received;
  }

  EXPECT_EQ(received, kCount);
}

// After waits that drove the sockets themselves, nobody but the io thread reads them: it must take
// them over although the engine comes by all the time.
TEST(TcpTransport, AnEngineThatWaitedAndThenPollsGetsEverything) {
  constexpr int kWaited = 20, kPolled = 50;
  Pipeline pipeline(2);
  Communicator& receiver = *pipeline.ranks[1];
  const device::Buffer in = make_buffer(4);
  const std::jthread sending([&sender = *pipeline.ranks[0]] {
    for (int i = 0; i < kWaited + kPolled; ++i) {
      sender.send(to(1), pattern(4, 1), 4);
      EXPECT_EQ(next(sender).kind, Kind::kSent);
    }
  });
  for (int i = 0; i < kWaited; ++i) {
    receiver.receive(from(0), in, 4);
    EXPECT_EQ(next(receiver).kind, Kind::kReceived);
  }
  for (int i = 0; i < kPolled; ++i) receiver.receive(from(0), in, 4);

  int received = 0;
  const Time deadline = soon();
  while (received < kPolled && std::chrono::steady_clock::now() < deadline) {
    const auto completion = receiver.wait(Time{}, {});
    if (completion && completion->kind == Kind::kReceived) ++received;
  }

  EXPECT_EQ(received, kPolled);
}

// Reads that end in a payload, a header, or many small frames at once, in one stream.
class LargeAndSmall : public ::testing::TestWithParam<int> {};

TEST_P(LargeAndSmall, MessagesFollowEachOther) {
  constexpr std::size_t kCount = 400;
  constexpr std::array<std::size_t, 7> kSizes{0, 1, 4064, 4096, 70'000, 16'384, 600'000};
  Pipeline pipeline(2, every_rank(2, GetParam()));
  std::vector<device::Buffer> in;
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t bytes = kSizes[i * i % kSizes.size()];
    in.push_back(make_buffer(bytes));
    pipeline.ranks[1]->receive(from(0), in.back(), bytes);
    pipeline.ranks[0]->send(to(1), pattern(bytes, i), bytes);
  }
  std::jthread sender([&] {
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(next(*pipeline.ranks[0]).kind, Kind::kSent);
  });

  for (std::size_t i = 0; i < kCount; ++i) {
    const Completion received = next(*pipeline.ranks[1]);
    ASSERT_EQ(received.kind, Kind::kReceived) << received.reason;
    EXPECT_EQ(received.sequence, static_cast<std::int64_t>(i));
    EXPECT_TRUE(equal(in[i], pattern(in[i].size(), i))) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(TcpTransport, LargeAndSmall, ::testing::Values(1, 2, 5));

TEST(TcpTransport, CreditsOfOneChannelDoNotServeTheOther) {
  Pipeline pipeline(3);
  Communicator& middle = *pipeline.ranks[1];

  middle.send(to(2), pattern(8, 1), 8);
  middle.send(to(0, Channel::kBackward), pattern(8, 2), 8);
  pipeline.ranks[0]->receive(from(1, Channel::kBackward), make_buffer(8), 8);

  const Completion sent = next(middle);
  EXPECT_EQ(sent.end, to(0, Channel::kBackward));
  EXPECT_FALSE(middle.wait(soon(20ms), {}));
}

TEST(TcpTransport, ABufferMayBeLargerThanItsMessage) {
  Pipeline pipeline(2);
  device::Buffer in = make_buffer(100);
  in.data()[50] = std::byte{7};

  pipeline.ranks[0]->send(to(1), pattern(80, 1), 50);
  pipeline.ranks[1]->receive(from(0), in, 50);

  EXPECT_EQ(next(*pipeline.ranks[1]).kind, Kind::kReceived);
  EXPECT_EQ(std::memcmp(in.data(), pattern(80, 1).data(), 50), 0);
  EXPECT_EQ(in.data()[50], std::byte{7});
}

constexpr int kCount = 8;

// What the sender's counters say of a link that is limited to `rate`, after kCount messages of
// 50 ms.
LinkCounters counters_of_paced_link(double rate) {
  const auto bytes = static_cast<std::size_t>(rate / 20);
  TcpOptions paced;
  paced.pacing = {{.bytes_per_second = rate, .boundary = 0, .channel = 0}};
  Pipeline pipeline(2, {paced});
  for (int i = 0; i < kCount; ++i) {
    pipeline.ranks[0]->send(to(1), pattern(bytes, 1), bytes);
    pipeline.ranks[1]->receive(from(0), make_buffer(bytes), bytes);
  }
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(next(*pipeline.ranks[0]).kind, Kind::kSent);
  const LinkCounters counters = pipeline.ranks[0]->reports().at(0).counters;
  EXPECT_EQ(counters.transfers, kCount);
  return counters;
}

TEST(TcpTransport, GoodputOfAPacedLinkIsTheSetRate) {
  constexpr double kRate = 20e6;
  constexpr double kBytes = kCount * kRate / 20;
  double ratio = 0, timed = 0;
  // A busy machine may disturb one run, not what is measured: a receiver that gets no core finds a
  // message whole, and such a one is not timed.
  const Time until = std::chrono::steady_clock::now() + 60s;
  while ((std::abs(ratio - 1) > 0.1 || timed < 1) && std::chrono::steady_clock::now() < until) {
    const LinkCounters counters = counters_of_paced_link(kRate);
    ratio = static_cast<double>(counters.bytes) / to_seconds(counters.busy) / kRate;
    timed = static_cast<double>(counters.bytes) / kBytes;
  }

  EXPECT_NEAR(ratio, 1, 0.1);
  EXPECT_EQ(timed, 1);
}

// Two messages of 20 ms each that follow a pause of the sender: whether their times say so.
bool times_are_those_of_the_link() {
  constexpr std::size_t kBytes = 200'000;
  TcpOptions paced;
  paced.pacing = {{.bytes_per_second = 10e6, .boundary = 0, .channel = 0}};
  Pipeline pipeline(2, {paced});
  for (int i = 0; i < 2; ++i) pipeline.ranks[1]->receive(from(0), make_buffer(kBytes), kBytes);
  std::this_thread::sleep_for(50ms);
  Time before = std::chrono::steady_clock::now();
  for (int i = 0; i < 2; ++i) pipeline.ranks[0]->send(to(1), pattern(kBytes, 1), kBytes);
  bool right = true;
  for (int i = 0; i < 2; ++i) {
    const Completion completion = next(*pipeline.ranks[1]);
    EXPECT_EQ(completion.kind, Kind::kReceived) << completion.reason;
    EXPECT_TRUE(completion.transfer);
    const Transfer times = completion.transfer.value_or(Transfer{});
    EXPECT_LE(times.begin, times.end);
    EXPECT_LE(times.end, std::chrono::steady_clock::now());
    right = right && times.begin + 5ms > before && times.end - times.begin > 10ms;
    before = times.end;
  }
  return right;
}

TEST(TcpTransport, AMessageTellsWhenTheLinkCarriedIt) {
  bool right = false;  // a receiver that gets no core finds a message whole
  const Time until = std::chrono::steady_clock::now() + 60s;
  while (!right && std::chrono::steady_clock::now() < until) right = times_are_those_of_the_link();
  EXPECT_TRUE(right);
}

TEST(TcpTransport, PacingLeavesOtherBoundariesAlone) {
  TcpOptions paced;
  paced.pacing = {{.bytes_per_second = 1, .boundary = 5}, {.bytes_per_second = 1, .channel = 1}};
  Pipeline pipeline(2, {paced, paced});

  pipeline.ranks[1]->receive(from(0), make_buffer(1'000'000), 1'000'000);
  pipeline.ranks[0]->send(to(1), pattern(1'000'000, 1), 1'000'000);

  EXPECT_EQ(next(*pipeline.ranks[0]).kind, Kind::kSent) << "at 1 B/s this would take days";
}

TEST(TcpTransport, ReportsNameTheLinkAndKnowItsRoundTrip) {
  Pipeline pipeline(3);
  std::vector<LinkReport> reports;
  const Time deadline = soon();
  do {
    reports = pipeline.ranks[1]->reports();
    EXPECT_FALSE(pipeline.ranks[1]->wait(soon(1ms), {}));
  } while ((reports.at(0).counters.rtt_seconds == 0 || reports.at(1).counters.rtt_seconds == 0) &&
           std::chrono::steady_clock::now() < deadline);

  ASSERT_EQ(reports.size(), 2U) << "only what this rank sends";
  EXPECT_EQ(reports[0].channel, Channel::kForward);
  EXPECT_EQ(reports[0].boundary, 1);
  EXPECT_EQ(reports[0].from_node, "node-1");
  EXPECT_EQ(reports[0].to_node, "node-2");
  EXPECT_EQ(reports[1].channel, Channel::kBackward);
  EXPECT_EQ(reports[1].boundary, 0);
  EXPECT_EQ(reports[1].to_node, "node-0");
  EXPECT_GT(reports[0].counters.rtt_seconds, 0);
  EXPECT_LT(reports[0].counters.rtt_seconds, 1);
}

}  // namespace tcp_transport_test
}  // namespace weir::transport::test
