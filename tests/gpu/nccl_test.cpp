// SPDX-License-Identifier: Apache-2.0
// The seam to NCCL on a GPU, as far as one rank goes: NCCL refuses two ranks on one GPU within a
// process; tests/gpu/report runs several in processes of their own.
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/gpu.h"
#include "tests/worker/stage/stage_testing.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/transport/nccl/cuda_nccl_api.h"

namespace weir::test {
namespace nccl_test {

using std::chrono::steady_clock;
using transport::nccl::NcclComm;

constexpr std::chrono::seconds kLimit{30};

class GpuNccl : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    api_ = transport::nccl::make_cuda_nccl_api(dynamic_cast<device::CudaDevice&>(*device_));
  }
  std::unique_ptr<NcclComm> open(int ranks) {
    const auto id = api_->make_id();
    EXPECT_TRUE(id) << id.error().message;
    opened_ = steady_clock::now();
    auto made = api_->open({.id = *id, .rank = 0, .ranks = ranks, .name = "gpu-test"});
    EXPECT_TRUE(made) << made.error().message;
    return made ? *std::move(made) : nullptr;
  }
  static bool becomes_ready(NcclComm& comm) {
    const auto until = steady_clock::now() + kLimit;
    while (steady_clock::now() < until) {
      const Result<bool> ready = comm.ready();
      EXPECT_TRUE(ready) << ready.error().message;
      if (!ready || *ready) return ready.ok();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  static bool finishes(NcclComm& comm) {
    const auto until = steady_clock::now() + kLimit;
    while (steady_clock::now() < until) {
      const auto timing = comm.take_finished();
      EXPECT_TRUE(timing) << timing.error().message;
      if (!timing || timing->has_value()) return timing.ok();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  void end(NcclComm& comm) {
    NcclComm* const one = &comm;
    const auto begin = steady_clock::now();
    api_->abort({&one, 1});
    while (!comm.drained() && steady_clock::now() - begin < kLimit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(comm.drained());
    EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(10));
    tell("abort_ms", milliseconds_since(begin));
    EXPECT_FALSE(comm.ready()) << "aborted";
  }

  static double milliseconds_since(steady_clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(steady_clock::now() - begin).count();
  }
  // For tests/gpu/report.
  static void tell(const std::string& what, double value) {
    RecordProperty(what, std::to_string(value));
  }

  std::shared_ptr<transport::nccl::NcclApi> api_;
  steady_clock::time_point opened_;  // when the last communicator was asked for
};

TEST_F(GpuNccl, MovesAndAveragesInTheOrderOfTheCalls) {
  const auto comm = open(1);
  ASSERT_TRUE(comm && becomes_ready(*comm));
  tell("open_ms", milliseconds_since(opened_));
  constexpr std::size_t kCount = 1'000'003;
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 1000);
  const device::Buffer from = to_device(values);
  const device::Buffer to = device_->allocate(kCount * sizeof(float));
  const device::Buffer mean = device_->allocate(kCount * sizeof(float));

  const std::vector<transport::nccl::Transfer> transfers = {
      {.rank = 0, .from = from.data(), .bytes = from.size()},
      {.rank = 0, .to = to.data(), .bytes = to.size()}};
  ASSERT_TRUE(comm->exchange(transfers));
  ASSERT_TRUE(becomes_ready(*comm));
  const std::vector<const float*> inputs = {from.as<float>(), to.as<float>()};
  const std::vector<double> weights = {0.25, 0.5};
  ASSERT_TRUE(
      comm->mean({.inputs = inputs, .weights = weights, .count = kCount, .out = mean.as<float>()}));
  ASSERT_TRUE(finishes(*comm));
  ASSERT_TRUE(finishes(*comm));

  const std::vector<float> means = floats_of(mean);
  for (const std::size_t i : {std::size_t{0}, std::size_t{999}, kCount - 1}) {
    EXPECT_EQ(means[i], 0.75F * static_cast<float>(i % 1000));
  }
  end(*comm);
}

TEST_F(GpuNccl, ACommunicatorWhoseOtherRankNeverComesCanBeEnded) {
  const auto comm = open(2);
  ASSERT_TRUE(comm);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const Result<bool> ready = comm->ready();
  ASSERT_TRUE(ready) << ready.error().message;
  EXPECT_FALSE(*ready);

  end(*comm);
}

// The watchdog asks while the driver does.
TEST_F(GpuNccl, TwoThreadsMayAskForTheStateAtOnce) {
  const auto comm = open(1);
  ASSERT_TRUE(comm && becomes_ready(*comm));
  const device::Buffer from = device_->allocate(4), to = device_->allocate(4);
  std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) EXPECT_TRUE(comm->ready());
  });
  for (int i = 0; i < 200; ++i) {
    const std::vector<transport::nccl::Transfer> transfers = {
        {.rank = 0, .from = from.data(), .bytes = 4}, {.rank = 0, .to = to.data(), .bytes = 4}};
    ASSERT_TRUE(becomes_ready(*comm));
    ASSERT_TRUE(comm->exchange(transfers));
    ASSERT_TRUE(finishes(*comm));
  }
  other.request_stop();
  other.join();
  end(*comm);
}

// How much longer ops take while NCCL moves data without a pause, as a number for tests/gpu/report.
// Of one rank: its copies take the same blocks of the GPU as a link's, and no network.
TEST_F(GpuNccl, TransfersBesideComputeDoNotChangeIt) {
  const auto comm = open(1);
  ASSERT_TRUE(comm && becomes_ready(*comm));
  auto options = small_options("gpt-mini");
  options.sequence = 256;
  const stage::Model model = model_of(options);
  const auto stage = stage_of(model, 0, last_layer(model), *device_);
  const Batch batch(options, 8, 1);
  constexpr int kRounds = 40;
  const auto train = [&] {
    const auto begin = steady_clock::now();
    stage->begin_step(0, 8 * kRounds);
    for (int m = 0; m < kRounds; ++m) {
      forward(*stage, m, {}, batch.tokens());
      backward(*stage, m, {});
    }
    return std::pair{milliseconds_since(begin), stage->loss()};
  };
  train();  // loads kernels
  const auto [alone, loss] = train();

  const device::Buffer from = device_->allocate(16 << 20), to = device_->allocate(16 << 20);
  const std::vector<transport::nccl::Transfer> transfers = {
      {.rank = 0, .from = from.data(), .bytes = from.size()},
      {.rank = 0, .to = to.data(), .bytes = to.size()}};
  std::atomic<int> moved = 0;
  std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && becomes_ready(*comm)) {
      const Status sent = comm->exchange(transfers);
      EXPECT_TRUE(sent);
      if (!sent || !finishes(*comm)) return;
      ++moved;
    }
  });
  const auto [beside, same_loss] = train();
  other.request_stop();
  other.join();

  EXPECT_EQ(same_loss, loss);
  EXPECT_GT(moved, 0);
  tell("beside_transfers", beside / alone);
  end(*comm);
}

}  // namespace nccl_test
}  // namespace weir::test
