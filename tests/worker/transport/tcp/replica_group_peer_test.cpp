// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/replica_group_peer.h"

#include <chrono>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace weir::transport::tcp {
namespace replica_group_peer_test {

constexpr ReplicaGroupFrame kFrame{.phase = ReplicaGroupPhase::kResult,
                                   .session = 0xFFFFFFFF,
                                   .tag = {.step = 1ULL << 60U, .part = 7},
                                   .length = 12345};

TEST(ReplicaGroupFrame, ComesBackAsItWas) {
  const auto back = decode_replica_group_frame(encode_replica_group_frame(kFrame));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, kFrame);
}

TEST(ReplicaGroupFrame, IsRefusedWithAnyByteChanged) {
  const auto good = encode_replica_group_frame(kFrame);
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto bad = good;
    bad[i] ^= std::byte{0x10};
    EXPECT_FALSE(decode_replica_group_frame(bad)) << "byte " << i;
  }
  EXPECT_FALSE(decode_replica_group_frame(std::span(good).first(good.size() - 1)));
}

TEST(ReplicaGroupFrame, OfAnotherReleaseIsRefusedWithBothVersions) {
  auto other = encode_replica_group_frame(kFrame);
  other[4] = std::byte{2};
  EXPECT_EQ(decode_replica_group_frame(other).error().message,
            "collective frame: the peer speaks version 2, this worker 1");
}

TEST(ReplicaGroupFrame, IsRefusedWithAnImpossibleLength) {
  ReplicaGroupFrame frame = kFrame;
  frame.length = 1ULL << 40U;
  EXPECT_FALSE(decode_replica_group_frame(encode_replica_group_frame(frame)));
}

// A peer of which the test writes the other end itself.
class TimedPeer : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 1000;

  TimedPeer() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends_), 0);
    peer_.emplace(1, "replica 1", ends_[0]);
  }
  ~TimedPeer() override { ::close(ends_[1]); }

  void send(const void* from, std::size_t bytes) {
    ASSERT_EQ(::write(ends_[1], from, bytes), static_cast<ssize_t>(bytes));
    const ReplicaGroupPeer::Callbacks callbacks{
        .begin =
            [this](const ReplicaGroupFrame&) -> Result<std::optional<ReplicaGroupPeer::Place>> {
          return std::optional(
              ReplicaGroupPeer::Place{.to = std::as_writable_bytes(std::span(to_))});
        },
        .complete = [this](const ReplicaGroupFrame&, const Arrival& arrival) -> Status {
          arrivals_.push_back(arrival);
          return Unit{};
        }};
    const auto state = peer_->read(callbacks, kBytes * 2);
    ASSERT_TRUE(state) << state.error().message;
  }
  void send_header() {
    ReplicaGroupFrame frame = kFrame;
    frame.length = kBytes;
    const auto header = encode_replica_group_frame(frame);
    send(header.data(), header.size());
  }

  int ends_[2] = {-1, -1};
  std::optional<ReplicaGroupPeer> peer_;
  std::vector<char> to_ = std::vector<char>(kBytes);
  std::vector<Arrival> arrivals_;
};

TEST_F(TimedPeer, TellsHowLongAFrameTookToCome) {
  const std::vector<char> payload(kBytes);
  send_header();
  send(payload.data(), kBytes / 4);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  send(payload.data(), kBytes - kBytes / 4);
  ASSERT_EQ(arrivals_.size(), 1U);
  EXPECT_EQ(arrivals_[0].counted_bytes, static_cast<std::int64_t>(kBytes));
  EXPECT_GE(arrivals_[0].busy, std::chrono::milliseconds(40)) << "30 ms for three quarters";
}

TEST_F(TimedPeer, TellsNothingOfAFrameThatIsThereWhenItIsLookedFor) {
  const std::vector<char> payload(kBytes);
  send_header();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // its sender was not ready
  send(payload.data(), kBytes);
  ASSERT_EQ(arrivals_.size(), 1U);
  EXPECT_EQ(arrivals_[0].counted_bytes, 0);
  EXPECT_EQ(arrivals_[0].busy.count(), 0);
}

}  // namespace replica_group_peer_test
}  // namespace weir::transport::tcp
