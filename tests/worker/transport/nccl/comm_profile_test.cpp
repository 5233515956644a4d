// SPDX-License-Identifier: Apache-2.0
// NCCL's events become times: network before peer before GPU, each moment once.
#include "worker/transport/nccl/comm_profile.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace weir::transport::nccl {
namespace comm_profile_test {

using namespace std::chrono_literals;
using Waits = CommProfile::Waits;
using std::chrono::nanoseconds;

CommProfile::Time at(std::chrono::milliseconds since) {
  return CommProfile::Time{} + since;
}

TEST(CommProfile, DividesTheLifeOfAStepByWhatItWaitedFor) {
  CommProfile profile;
  auto* const op = profile.start_op(true);
  auto* const step = profile.start_step(*op);

  profile.waits(*step, Waits::kGpu, at(10ms));
  profile.waits(*step, Waits::kPeer, at(13ms));
  profile.waits(*step, Waits::kNetwork, at(18ms), 1000);
  profile.stop(*step, at(25ms));
  profile.stop(*op, at(25ms));

  const TransferTimes sent = profile.sent(at(100ms));
  EXPECT_EQ(sent.gpu, nanoseconds(3ms));
  EXPECT_EQ(sent.peer, nanoseconds(5ms));
  EXPECT_EQ(sent.network, nanoseconds(7ms));
  EXPECT_EQ(sent.bytes, 1000);
  EXPECT_EQ(profile.received(at(100ms)).network, nanoseconds(0));
}

TEST(CommProfile, CountsAMomentOnceHoweverManyStepsAreUnderWay) {
  CommProfile profile;
  auto* const op = profile.start_op(true);
  std::vector<CommProfile::Event*> steps;
  for (int i = 0; i < 4; ++i) {
    steps.push_back(profile.start_step(*op));
    profile.waits(*steps.back(), Waits::kGpu, at(0ms));
  }

  profile.waits(*steps[0], Waits::kNetwork, at(2ms), 10);  // 2 ms of GPU
  profile.waits(*steps[1], Waits::kPeer, at(3ms));         // on the network all the same
  profile.stop(*steps[0], at(6ms));                        // 4 ms of network
  profile.waits(*steps[1], Waits::kNetwork, at(7ms), 10);  // 1 ms of peer
  profile.stop(*steps[1], at(9ms));                        // 2 ms of network
  profile.stop(*steps[2], at(10ms));                       // 1 ms of GPU
  profile.stop(*steps[3], at(10ms));

  const TransferTimes sent = profile.sent(at(20ms));
  EXPECT_EQ(sent.gpu, nanoseconds(3ms));
  EXPECT_EQ(sent.peer, nanoseconds(1ms));
  EXPECT_EQ(sent.network, nanoseconds(6ms));
  EXPECT_EQ(sent.bytes, 20);
}

TEST(CommProfile, TakesARepeatedStateForTheSame) {
  CommProfile profile;
  auto* const step = profile.start_step(*profile.start_op(true));

  profile.waits(*step, Waits::kPeer, at(0ms));
  profile.waits(*step, Waits::kPeer, at(4ms));  // NCCL says it at each try
  profile.waits(*step, Waits::kNetwork, at(5ms), 7);
  profile.waits(*step, Waits::kNetwork, at(6ms), 7);
  profile.stop(*step, at(8ms));

  const TransferTimes sent = profile.sent(at(8ms));
  EXPECT_EQ(sent.peer, nanoseconds(5ms));
  EXPECT_EQ(sent.network, nanoseconds(3ms));
  EXPECT_EQ(sent.bytes, 7);
}

TEST(CommProfile, KeepsSendingAndReceivingApart) {
  CommProfile profile;
  auto* const sends = profile.start_step(*profile.start_op(true));
  auto* const receives = profile.start_step(*profile.start_op(false));

  profile.waits(*sends, Waits::kGpu, at(0ms));
  profile.waits(*receives, Waits::kNetwork, at(1ms));
  profile.waits(*receives, Waits::kGpu, at(4ms));
  profile.stop(*receives, at(5ms));

  EXPECT_EQ(profile.received(at(5ms)).network, nanoseconds(3ms));
  EXPECT_EQ(profile.received(at(5ms)).gpu, nanoseconds(1ms));
  EXPECT_EQ(profile.sent(at(5ms)).gpu, nanoseconds(5ms)) << "what has not ended counts until now";
}

TEST(CommProfile, GoesOnAfterIdleTimes) {
  CommProfile profile;
  for (const auto begin : {0ms, 100ms, 200ms}) {
    auto* const op = profile.start_op(true);
    auto* const step = profile.start_step(*op);
    profile.waits(*step, Waits::kNetwork, at(begin), 5);
    profile.stop(*step, at(begin + 2ms));
    profile.stop(*op, at(begin + 2ms));
  }

  EXPECT_EQ(profile.sent(at(1000ms)).network, nanoseconds(6ms));
  EXPECT_EQ(profile.sent(at(1000ms)).bytes, 15);
}

TEST(CommProfile, CountsKernelsByWhatTheirBlocksCover) {
  CommProfile profile;
  auto* const first = profile.start_kernel(1000);
  auto* const second = profile.start_kernel(1100);

  profile.kernel_ends(*first, 3000);
  profile.kernel_ends(*second, 3400);
  profile.stop(*first, at(1ms));
  profile.stop(*second, at(1ms));
  auto* const later = profile.start_kernel(10'000);
  profile.kernel_ends(*later, 10'500);

  EXPECT_EQ(profile.sent(at(1ms)).kernel, nanoseconds(2900));
}

TEST(CommProfile, CountsWhatIsTooMuchAtOnceAndGoesOn) {
  CommProfile profile;
  std::vector<CommProfile::Event*> ops;
  while (auto* const op = profile.start_op(true)) ops.push_back(op);
  ASSERT_GE(ops.size(), 256U);
  EXPECT_EQ(profile.dropped(), 1);

  profile.stop(*ops.front(), at(0ms));

  EXPECT_NE(profile.start_op(true), nullptr);
  EXPECT_EQ(profile.start_op(true), nullptr);
}

TEST(CommProfile, IsReadWhileNcclsThreadsWrite) {
  CommProfile profile;
  constexpr int kSteps = 5000;
  {
    std::vector<std::jthread> proxies;
    for (const bool sending : {true, false}) {
      proxies.emplace_back([&profile, sending] {
        for (int i = 0; i < kSteps; ++i) {
          auto* const op = profile.start_op(sending);
          auto* const step = profile.start_step(*op);
          profile.waits(*step, Waits::kNetwork, at(std::chrono::milliseconds(2 * i)), 1);
          profile.stop(*step, at(std::chrono::milliseconds(2 * i + 1)));
          profile.stop(*op, at(std::chrono::milliseconds(2 * i + 1)));
        }
      });
    }
    for (int i = 0; i < 1000; ++i) static_cast<void>(profile.sent(at(0ms)));
  }

  EXPECT_EQ(profile.sent(at(0ms)).network, nanoseconds(kSteps * 1ms));
  EXPECT_EQ(profile.received(at(0ms)).bytes, kSteps);
  EXPECT_EQ(profile.dropped(), 0);
}

}  // namespace comm_profile_test
}  // namespace weir::transport::nccl
