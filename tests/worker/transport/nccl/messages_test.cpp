// SPDX-License-Identifier: Apache-2.0
// Messages by a fake NCCL beside real sockets: order, contents, credits, rates.
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/transport/nccl/nccl_rig.h"
#include "tests/worker/transport/tcp/exchange.h"
#include "worker/base/units.h"

namespace weir::transport::test {
namespace messages_test {

using Kind = Completion::Kind;
using ::testing::HasSubstr;

class NcclEverywhere : public ::testing::TestWithParam<std::tuple<int, std::size_t>> {};

TEST_P(NcclEverywhere, MessagesArriveWholeAndInOrder) {
  const auto [stages, bytes] = GetParam();
  NcclPipeline pipeline(stages);
  pipeline.connect();
  ASSERT_FALSE(HasFatalFailure());

  std::vector<std::future<std::string>> ranks;
  for (int s = 0; s < stages; ++s) {
    ranks.push_back(std::async(std::launch::async, [&, s, n = stages, size = bytes] {
      return Exchange(*pipeline.ranks[static_cast<std::size_t>(s)], s, n, size, on_device).run();
    }));
  }

  for (auto& rank : ranks) EXPECT_EQ(rank.get(), "");
}

INSTANTIATE_TEST_SUITE_P(NcclTransport, NcclEverywhere,
                         ::testing::Combine(::testing::Values(2, 3, 4),
                                            ::testing::Values(0, 1, 4096, 1'000'000, 17'000'000)));

class NcclMessages : public ::testing::Test {
 protected:
  void SetUp() override {
    pipeline_.connect();
    ASSERT_EQ(pipeline_.ranks.size(), 2U);
    sender_ = pipeline_.ranks[0].get();
    receiver_ = pipeline_.ranks[1].get();
  }
  LinkCounters counters() { return sender_->reports().at(0).counters; }
  FakeNccl& api(std::size_t rank) { return *pipeline_.hosts[rank]->api; }

  NcclPipeline pipeline_{2};
  Communicator* sender_ = nullptr;
  Communicator* receiver_ = nullptr;
};

// A step: header, tensors, a note. Headers and notes lie in host memory, a long one in parts.
TEST_F(NcclMessages, OfHostAndDeviceMemoryKeepOneOrder) {
  const std::vector<std::size_t> sizes = {32, 100'000, 100'000, 1000, 0};
  std::vector<device::Buffer> sent, received;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool device = sizes[i] == 100'000;
    sent.push_back(pattern(sizes[i], i));
    received.push_back(make_buffer(sizes[i]));
    sender_->send(to(1), device ? on_device(sent[i]) : sent[i], sizes[i]);
    receiver_->receive(from(0), device ? on_device(received[i]) : received[i], sizes[i]);
  }

  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Completion completion = next(*receiver_);
    ASSERT_EQ(completion.kind, Kind::kReceived) << completion.reason;
    EXPECT_EQ(completion.sequence, static_cast<std::int64_t>(i));
    EXPECT_TRUE(equal(received[i], sent[i])) << i;
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(next(*sender_).kind, Kind::kSent);
}

TEST_F(NcclMessages, NothingIsLaunchedWithoutACreditAndTheWaitIsNoNetworkTime) {
  sender_->send(to(1), tensor(1'000'000, 1), 1'000'000);
  const Time end = soon();
  while (counters().credit_wait < 100ms && std::chrono::steady_clock::now() < end) {
    EXPECT_FALSE(sender_->wait(soon(1ms), {}));
  }
  EXPECT_EQ(counters().transfers, 0);

  receiver_->receive(from(0), empty_tensor(1'000'000), 1'000'000);

  EXPECT_EQ(next(*receiver_).kind, Kind::kReceived);
  EXPECT_EQ(next(*sender_).kind, Kind::kSent);
  EXPECT_GE(counters().credit_wait, 100ms);
  EXPECT_LT(counters().busy, 50ms);
}

TEST_F(NcclMessages, ATensorThatIsStillComputedIsNotAnnounced) {
  api(0).computing() = true;
  receiver_->receive(from(0), empty_tensor(1000), 1000);
  sender_->send(to(1), tensor(1000, 1), 1000);
  EXPECT_FALSE(receiver_->wait(soon(100ms), {}));
  EXPECT_EQ(counters().credit_wait, 0ns) << "the credit is there";

  api(0).computing() = false;

  EXPECT_EQ(next(*receiver_).kind, Kind::kReceived);
}

TEST_F(NcclMessages, MemoryThatAnOpStillUsesIsNoSlot) {
  api(1).computing() = true;
  receiver_->receive(from(0), empty_tensor(1000), 1000);
  sender_->send(to(1), tensor(1000, 1), 1000);
  EXPECT_FALSE(receiver_->wait(soon(100ms), {}));

  api(1).computing() = false;

  EXPECT_EQ(next(*receiver_).kind, Kind::kReceived);
}

TEST_F(NcclMessages, AChannelWithoutCreditsDoesNotHoldUpTheOther) {
  sender_->send(to(1), tensor(1000, 1), 1000);
  receiver_->send(to(0, Channel::kBackward), tensor(2000, 2), 2000);
  const device::Buffer memory = make_buffer(2000);

  sender_->receive(from(1, Channel::kBackward), on_device(memory), 2000);

  EXPECT_EQ(next(*sender_).kind, Kind::kReceived);
  EXPECT_TRUE(equal(memory, pattern(2000, 2)));
}

TEST_F(NcclMessages, GoodputIsTheRateThatEventsShow) {
  constexpr std::size_t kBytes = 500'000;
  for (int i = 0; i < 4; ++i) {
    sender_->send(to(1), tensor(kBytes, 1), kBytes);
    receiver_->receive(from(0), empty_tensor(kBytes), kBytes);
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(next(*sender_).kind, Kind::kSent);

  const LinkCounters seen = counters();

  EXPECT_EQ(seen.transfers, 4);
  EXPECT_EQ(seen.bytes, 4 * static_cast<std::int64_t>(kBytes));
  EXPECT_NEAR(static_cast<double>(seen.bytes) / to_seconds(seen.busy), 1e9, 1e6);
}

TEST_F(NcclMessages, ReportsNameTheLinkAndKnowItsRoundTrip) {
  const Time end = soon();
  while (counters().rtt_seconds == 0 && std::chrono::steady_clock::now() < end) {
    EXPECT_FALSE(sender_->wait(soon(1ms), {}));
  }

  const std::vector<LinkReport> reports = sender_->reports();

  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].boundary, 0);
  EXPECT_EQ(reports[0].from_node, "node-0");
  EXPECT_EQ(reports[0].to_node, "node-1");
  EXPECT_GT(reports[0].counters.rtt_seconds, 0);
}

TEST_F(NcclMessages, ReportsHoldTheSendersOwnAccount) {
  const std::int64_t before = counters().nccl.value().bytes;
  receiver_->receive(from(0), empty_tensor(1000), 1000);
  sender_->send(to(1), tensor(1000, 1), 1000);
  ASSERT_EQ(next(*sender_).kind, Kind::kSent);

  EXPECT_EQ(counters().nccl.value().bytes - before, 1000);
  EXPECT_GT(counters().nccl.value().network.count(), 0);
}

TEST_F(NcclMessages, APeerThatLeavesWhenAllIsDoneBreaksNothing) {
  receiver_->receive(from(0), empty_tensor(1000), 1000);
  receiver_->receive(from(0), empty_tensor(1000), 1000);  // a slot that is never used
  sender_->send(to(1), tensor(1000, 1), 1000);
  ASSERT_EQ(next(*sender_).kind, Kind::kSent);

  pipeline_.ranks[0].reset();

  EXPECT_EQ(next(*receiver_).kind, Kind::kReceived);
  const Time end = soon();
  while (!receiver_->peer_left(from(0)) && std::chrono::steady_clock::now() < end) {
    EXPECT_FALSE(receiver_->wait(soon(1ms), {}));
  }
  EXPECT_TRUE(receiver_->peer_left(from(0)));
}

TEST_F(NcclMessages, ASendToAPeerThatLeftFails) {
  pipeline_.ranks[1].reset();

  sender_->send(to(1), tensor(1000, 1), 1000);

  const Completion completion = next(*sender_);
  EXPECT_EQ(completion.kind, Kind::kFailed);
  EXPECT_THAT(completion.reason, HasSubstr("left"));
}

}  // namespace messages_test
}  // namespace weir::transport::test
