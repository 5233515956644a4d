// SPDX-License-Identifier: Apache-2.0
// The plugin as NCCL drives it: found by name in the program, called by its table, in the order of
// NCCL's proxy (net.cc, send and receive).
#include "worker/transport/nccl/profiler_plugin.h"

#include <cstdlib>
#include <dlfcn.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace weir::transport::nccl {
namespace profiler_plugin_test {

// As src/plugin/plugin_open.cc and profiler_v5.cc do.
const abi::Profiler* found_by_nccl() {
  void* const program = ::dlopen(nullptr, RTLD_NOW | RTLD_LOCAL);
  return static_cast<const abi::Profiler*>(::dlsym(program, "ncclProfiler_v5"));
}

// One communicator, as NCCL sees it.
class Played {
 public:
  explicit Played(const char* name) {
    EXPECT_EQ(plugin_.init(&context, 1, &mask, name, 2, 2, 0, nullptr), 0);
  }
  void* start(std::uint64_t type, void* parent = nullptr, bool send = false,
              pid_t pid = ::getpid()) {
    abi::Descriptor descriptor{};
    descriptor.type = type;
    descriptor.parent = parent;
    if (type == abi::kEventProxyOp) {
      descriptor.proxy_op.pid = pid;
      descriptor.proxy_op.is_send = send ? 1 : 0;
    }
    void* event = &descriptor;  // NCCL does not clear it
    EXPECT_EQ(plugin_.start(context, &event, &descriptor), 0);
    return event;
  }
  void state(void* event, int state, std::size_t bytes = 0) {
    abi::StateArguments arguments{.step_bytes = bytes};
    EXPECT_EQ(plugin_.record(event, state, &arguments), 0);
  }
  void stop(void* event) { EXPECT_EQ(plugin_.stop(event), 0); }
  void finalize() { EXPECT_EQ(plugin_.finalize(context), 0); }

  void* context = nullptr;
  int mask = 0;

 private:
  const abi::Profiler& plugin_ = ncclProfiler_v5;
};

TransferTimes sent_by(const CommProfile& profile) {
  return profile.sent(std::chrono::steady_clock::now());
}

TEST(NcclProfiler, IsASymbolOfTheProgramWhereNcclLooksForIt) {
  ASSERT_EQ(found_by_nccl(), &ncclProfiler_v5);
  EXPECT_STREQ(found_by_nccl()->name, "weir");
}

TEST(NcclProfiler, IsChosenUnlessTheUserHasChosen) {
  ::unsetenv("NCCL_PROFILER_PLUGIN");
  EXPECT_TRUE(choose_own_profiler());
  EXPECT_STREQ(std::getenv("NCCL_PROFILER_PLUGIN"), "STATIC_PLUGIN");

  ::setenv("NCCL_PROFILER_PLUGIN", "none", 1);
  EXPECT_FALSE(choose_own_profiler());
  EXPECT_STREQ(std::getenv("NCCL_PROFILER_PLUGIN"), "none");
  ::unsetenv("NCCL_PROFILER_PLUGIN");
}

TEST(NcclProfiler, AsksForProxiesAndKernels) {
  const auto profile = profile_of("job/1.0/0-1f");
  Played comm("job/1.0/0-1f");

  EXPECT_EQ(comm.mask, (1 << 3) | (1 << 4) | (1 << 6));
  EXPECT_EQ(comm.context, profile.get());
  comm.finalize();
}

TEST(NcclProfiler, GivesEachCommunicatorItsOwnTimes) {
  const auto first = profile_of("job/1.0/0-1f"), second = profile_of("job/1.0/0-1b");
  Played forward("job/1.0/0-1f"), backward("job/1.0/0-1b");

  void* const op = forward.start(abi::kEventProxyOp, nullptr, true);
  forward.state(op, 19);  // in progress
  void* const step = forward.start(abi::kEventProxyStep, op);
  forward.state(step, abi::kSendGpuWait);
  forward.state(step, abi::kSendPeerWait);
  forward.state(step, abi::kSendWait, 4096);
  forward.stop(step);
  forward.stop(op);

  EXPECT_EQ(sent_by(*first).bytes, 4096);
  EXPECT_GT((sent_by(*first).network + sent_by(*first).peer + sent_by(*first).gpu).count(), 0);
  EXPECT_EQ(sent_by(*second).bytes, 0);
  forward.finalize();
  backward.finalize();
}

TEST(NcclProfiler, TakesTheReceiversStates) {
  const auto profile = profile_of("sums");
  Played comm("sums");

  void* const op = comm.start(abi::kEventProxyOp, nullptr, false);
  void* const step = comm.start(abi::kEventProxyStep, op);
  comm.state(step, abi::kRecvWait);
  comm.state(step, abi::kRecvFlushWait);
  comm.state(step, abi::kRecvGpuWait);
  comm.stop(step);
  comm.stop(op);

  const TransferTimes received = profile->received(std::chrono::steady_clock::now());
  EXPECT_GT(received.network.count(), 0);
  EXPECT_GT(received.gpu.count(), 0);
  EXPECT_EQ(received.peer.count(), 0);
  comm.finalize();
}

TEST(NcclProfiler, TakesKernelsByTheClockOfTheGpu) {
  const auto profile = profile_of("link");
  Played comm("link");
  abi::Descriptor descriptor{};
  descriptor.type = abi::kEventKernelChannel;
  descriptor.kernel.timer = 5000;
  void* event = nullptr;

  ASSERT_EQ(ncclProfiler_v5.start(comm.context, &event, &descriptor), 0);
  abi::StateArguments arguments{.kernel_timer = 7000};
  ASSERT_EQ(ncclProfiler_v5.record(event, abi::kKernelStop, &arguments), 0);
  comm.stop(event);

  EXPECT_EQ(sent_by(*profile).kernel.count(), 2000);
  comm.finalize();
}

TEST(NcclProfiler, LeavesOutWhatItDidNotAskForAndWhatBelongsToAnotherProcess) {
  const auto profile = profile_of("link");
  Played comm("link");

  EXPECT_EQ(comm.start(1U << 0U), nullptr) << "a group";
  EXPECT_EQ(comm.start(1U << 2U), nullptr) << "a send";
  EXPECT_EQ(comm.start(1U << 10U), nullptr) << "a call of ncclSend";
  EXPECT_EQ(comm.start(abi::kEventProxyOp, nullptr, true, ::getpid() + 1), nullptr);
  EXPECT_EQ(comm.start(abi::kEventProxyStep, nullptr), nullptr) << "of an op that is not counted";
  comm.finalize();
}

TEST(NcclProfiler, IgnoresCommunicatorsThatAreNotOurs) {
  Played unknown("somebody else's"), unnamed(nullptr);

  EXPECT_EQ(unknown.context, nullptr);
  EXPECT_EQ(unknown.start(abi::kEventProxyOp, nullptr, true), nullptr);
  EXPECT_EQ(unnamed.start(abi::kEventKernelChannel), nullptr);
  unknown.stop(nullptr);
  unknown.state(nullptr, abi::kSendWait);
}

TEST(NcclProfiler, OutlivesItsOwnerWhileNcclUsesIt) {
  auto profile = profile_of("link");
  const std::weak_ptr<CommProfile> seen = profile;
  Played comm("link");

  profile.reset();  // an abort goes on behind its caller's back
  void* const op = comm.start(abi::kEventProxyOp, nullptr, true);
  comm.stop(op);
  EXPECT_FALSE(seen.expired());
  comm.finalize();

  EXPECT_TRUE(seen.expired());
}

TEST(NcclProfiler, TheNameOfAGenerationThatIsOverMeansTheNewOne) {
  auto old = profile_of("link");
  Played before("link");
  before.finalize();
  old = profile_of("link");

  Played comm("link");

  EXPECT_EQ(comm.context, old.get());
  comm.finalize();
}

}  // namespace profiler_plugin_test
}  // namespace weir::transport::nccl
