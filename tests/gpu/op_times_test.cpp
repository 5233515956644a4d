// SPDX-License-Identifier: Apache-2.0
// Where the time of a transformer block and of the head goes on the GPU, op by op at the sizes of
// gpt-125m, and what is left between the ops: numbers for tests/gpu/report.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "tests/gpu/gpu.h"
#include "tests/worker/stage/stage_testing.h"
#include "worker/base/random.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/stage/builtin_stage.h"
#include "worker/stage/measure.h"

namespace weir::test {
namespace op_times_test {

using stage::Precision;
using namespace stage::ops;

// Runs every op and notes events of the stream before and after it. Nothing waits, so that ops
// follow each other as they do without.
class TimedKernels final : public Kernels {
 public:
  TimedKernels(std::unique_ptr<Kernels> inner, cudaStream_t stream)
      : inner_(std::move(inner)), stream_(stream) {}
  ~TimedKernels() override { take(); }
  TimedKernels(const TimedKernels&) = delete;
  TimedKernels& operator=(const TimedKernels&) = delete;

  void run(const Op& op) override {
    Span span{.name = name_of(op)};
    cudaEventCreate(&span.before);
    cudaEventCreate(&span.after);
    cudaEventRecord(span.before, stream_);
    inner_->run(op);
    cudaEventRecord(span.after, stream_);
    spans_.push_back(std::move(span));
  }
  // Milliseconds by op since the last call; the device has run all of them.
  std::map<std::string, double> take() {
    std::map<std::string, double> times;
    for (const auto& [name, before, after] : spans_) {
      float milliseconds = 0;
      cudaEventElapsedTime(&milliseconds, before, after);
      times[name] += static_cast<double>(milliseconds);
      cudaEventDestroy(before);
      cudaEventDestroy(after);
    }
    spans_.clear();
    return times;
  }
  Status status() const override { return inner_->status(); }

 private:
  struct Span {
    std::string name;
    cudaEvent_t before = nullptr, after = nullptr;
  };

  const std::unique_ptr<Kernels> inner_;
  const cudaStream_t stream_;
  std::vector<Span> spans_;
};

class GpuTimes : public OnGpu, public testing::WithParamInterface<Precision> {
 protected:
  // Of layers first..last in one micro-batch, by op; "whole": from the call of forward to the end
  // of backward; "update": a step's own ops.
  void tell(int first, int last, const std::string& what) {
    stage::ModelOptions options{.name = "gpt-125m", .sequence = 1024, .vocabulary = 50304};
    options.precision = GetParam();
    const stage::Model model = model_of(options);
    auto kernels = kernels_of(*device_, options.precision);
    ASSERT_TRUE(kernels) << kernels.error().message;
    auto own = std::make_unique<TimedKernels>(*std::move(kernels),
                                              dynamic_cast<device::CudaDevice&>(*device_).stream());
    TimedKernels& timed = *own;
    auto made = stage::make_builtin_stage(model, first, last, *device_, std::move(own));
    ASSERT_TRUE(made) << made.error().message;
    stage::Stage& stage = **made;
    constexpr int kSamples = 4;
    const Batch batch(options, kSamples, 1);
    Random random(1);
    auto input =
        stage::random_values(*device_, stage.input_bytes(kSamples), options.precision, random);
    auto gradient =
        stage::random_values(*device_, stage.output_bytes(kSamples), options.precision, random);
    ASSERT_TRUE(input && gradient);

    constexpr int kRounds = 5;
    std::map<std::string, double> least;  // of the rounds
    for (int round = 0; round < kRounds; ++round) {
      stage.begin_step(round, kSamples);
      ASSERT_TRUE(device_->synchronize());
      timed.take();
      const auto begin = std::chrono::steady_clock::now();
      forward(stage, 0, *input, batch.tokens());
      backward(stage, 0, *gradient);
      const std::chrono::duration<double, std::milli> whole =
          std::chrono::steady_clock::now() - begin;
      auto times = timed.take();
      double sum = 0;
      for (const auto& [name, time] : times) sum += time;
      EXPECT_GT(sum, 0);
      EXPECT_LT(sum, 1.2 * whole.count());
      times["whole"] = whole.count();
      stage.optimizer_step();
      for (const auto& [name, time] : timed.take()) times["update"] += time;
      for (const auto& [name, time] : times) {
        const auto known = least.find(name);
        least[name] = known == least.end() ? time : std::min(known->second, time);
      }
    }
    for (const auto& [name, time] : least) {
      RecordProperty("time_of_" + what + " " + name, std::to_string(time));
    }
  }
};

TEST_P(GpuTimes, OfOneBlock) {
  tell(1, 1, "block");
}
TEST_P(GpuTimes, OfTheHead) {
  tell(13, 13, "head");
}
TEST_P(GpuTimes, OfTheEmbedding) {
  tell(0, 0, "embed");
}

INSTANTIATE_TEST_SUITE_P(Models, GpuTimes, testing::Values(Precision::kFp32, Precision::kBf16),
                         [](const auto& tested) {
                           return tested.param == Precision::kBf16 ? "Bf16" : "Fp32";
                         });

// What a job's first plan is made from.
using GpuProfile = OnGpu;

TEST_F(GpuProfile, TimesEveryLayerForEachNumberOfSamples) {
  const stage::Model model = model_of(small_options("gpt-mini"));

  const auto times = stage::measure(model, *device_, {1, 4}, 3, {});

  ASSERT_TRUE(times) << times.error().message;
  ASSERT_EQ(times->size(), model.layers.size());
  for (const auto& layer : *times) {
    ASSERT_EQ(layer.size(), 2U);
    for (const auto& one : layer) {
      EXPECT_GT(one.forward.count(), 0);
      EXPECT_GT(one.backward.count(), 0);
    }
  }
}

}  // namespace op_times_test
}  // namespace weir::test
