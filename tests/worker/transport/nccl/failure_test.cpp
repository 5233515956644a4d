// SPDX-License-Identifier: Apache-2.0
// What breaks a generation that goes by NCCL: it ends in time at both ends, names the peer and the
// link, aborts every communicator, and the next generation works.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/transport/nccl/nccl_rig.h"

namespace weir::transport::test {
namespace failure_test {

using Kind = Completion::Kind;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kBytes = 1000;

Completion end_of(Communicator& rank) {
  Completion completion = next(rank);
  while (completion.kind != Kind::kFailed) completion = next(rank);
  return completion;
}

class NcclFailure : public ::testing::Test {
 protected:
  void SetUp() override { start(1); }
  void start(std::uint32_t revision) {
    pipeline_.connect(revision);
    ASSERT_EQ(pipeline_.ranks.size(), 2U);
    sender_ = pipeline_.ranks[0].get();
    receiver_ = pipeline_.ranks[1].get();
  }
  Faults& faults(std::size_t rank) { return pipeline_.hosts[rank]->api->faults(); }
  void post_and_send() {
    receiver_->receive(from(0), empty_tensor(kBytes), kBytes);
    sender_->send(to(1), tensor(kBytes, 1), kBytes);
  }
  // Both ends have failed; nothing is left open, and a new generation carries messages.
  void expect_recovery() {
    EXPECT_EQ(end_of(*sender_).kind, Kind::kFailed);
    EXPECT_EQ(end_of(*receiver_).kind, Kind::kFailed);
    pipeline_.ranks.clear();
    for (const auto& host : pipeline_.hosts) {
      EXPECT_EQ(host->api->aborted(), host->api->opened());
      EXPECT_EQ(host->api->abort_calls(), 1) << "all links of the generation together";
      host->api->faults().async_error = host->api->faults().silent = host->api->faults().blocks =
          false;
    }
    start(2);
    const device::Buffer memory = make_buffer(kBytes);
    receiver_->receive(from(0), on_device(memory), kBytes);
    sender_->send(to(1), tensor(kBytes, 5), kBytes);
    EXPECT_EQ(next(*receiver_).kind, Kind::kReceived);
    EXPECT_TRUE(equal(memory, pattern(kBytes, 5)));
  }

  NcclPipeline pipeline_{2, {.transfer = 1500ms, .watch_interval = 20ms}};
  Communicator* sender_ = nullptr;
  Communicator* receiver_ = nullptr;
};

TEST_F(NcclFailure, AnAsynchronousErrorEndsBothRanksAndNamesTheLink) {
  faults(0).async_error = true;

  const Completion own = next(*sender_);
  const Completion theirs = next(*receiver_);

  EXPECT_THAT(own.reason, AllOf(HasSubstr("stage 1 at"), HasSubstr("link 0-1"),
                                HasSubstr("remote process exited")));
  EXPECT_THAT(theirs.reason, HasSubstr("stage 0 at"));
  expect_recovery();
}

TEST_F(NcclFailure, AMessageThatNeverArrivesEndsAtItsTimeLimit) {
  faults(1).silent = true;
  const Time begin = std::chrono::steady_clock::now();

  post_and_send();
  const Completion own = end_of(*sender_);

  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_THAT(own.reason, HasSubstr("stage 1 at"));
  const std::string both = own.reason + end_of(*receiver_).reason;
  EXPECT_THAT(both, AllOf(HasSubstr("link 0-1 forward"), HasSubstr("time limit")));
  expect_recovery();
}

TEST_F(NcclFailure, ACallOfNcclThatHangsIsAbortedToo) {
  faults(0).blocks = true;

  post_and_send();

  EXPECT_THAT(end_of(*sender_).reason, AllOf(HasSubstr("stage 1 at"), HasSubstr("link 0-1")));
  expect_recovery();
}

TEST_F(NcclFailure, APeerThatDiesBetweenItsCreditAndTheLaunchIsNamed) {
  faults(0).silent = faults(1).silent = true;
  post_and_send();

  receiver_->abort("killed");

  EXPECT_THAT(end_of(*sender_).reason, HasSubstr("stage 1 at"));
  expect_recovery();
}

TEST_F(NcclFailure, AMessageOfAnotherSizeIsRefusedBeforeItIsLaunched) {
  receiver_->receive(from(0), empty_tensor(2 * kBytes), 2 * kBytes);
  sender_->send(to(1), tensor(kBytes, 1), kBytes);

  const Completion theirs = end_of(*receiver_);

  EXPECT_THAT(theirs.reason,
              AllOf(HasSubstr("stage 0 at"), HasSubstr("link 0-1 forward"),
                    HasSubstr("message 0 has 1000 bytes, the receiver expects 2000")));
  expect_recovery();
}

TEST_F(NcclFailure, HostMemoryWhereDeviceMemoryIsDueIsRefused) {
  receiver_->receive(from(0), empty_tensor(kBytes), kBytes);
  sender_->send(to(1), pattern(kBytes, 1), kBytes);

  EXPECT_THAT(end_of(*receiver_).reason, HasSubstr("comes from host memory"));
  expect_recovery();
}

TEST_F(NcclFailure, AbortFromAnotherThreadWakesTheWait) {
  std::jthread other([this] { sender_->abort("the coordinator said so"); });

  EXPECT_EQ(next(*sender_).reason, "the coordinator said so");
  EXPECT_EQ(next(*sender_).kind, Kind::kFailed) << "for ever";
  other.join();
  expect_recovery();
}

TEST_F(NcclFailure, ARankThatEndsWithACallThatHangsDoesNotHang) {
  faults(0).blocks = true;
  post_and_send();
  while (!faults(0).stuck) std::this_thread::sleep_for(1ms);  // else it may leave before its launch
  const Time begin = std::chrono::steady_clock::now();

  pipeline_.ranks[0].reset();

  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_EQ(end_of(*receiver_).kind, Kind::kFailed);
}

TEST_F(NcclFailure, APeerThatLeavesWhileMessagesAreDueIsAFailure) {
  faults(0).silent = faults(1).silent = true;
  post_and_send();
  EXPECT_FALSE(sender_->wait(soon(50ms), {}));

  pipeline_.ranks[1].reset();

  EXPECT_THAT(end_of(*sender_).reason, HasSubstr("stage 1 at"));
}

}  // namespace failure_test
}  // namespace weir::transport::test
