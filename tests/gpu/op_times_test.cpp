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
namespace {

using stage::Precision;
using namespace stage::ops;

// Hands on every call and notes events of the stream before and after it. Nothing waits, so that
// ops follow each other as they do without.
class TimedKernels final : public Kernels {
 public:
  TimedKernels(std::unique_ptr<Kernels> inner, cudaStream_t stream)
      : inner_(std::move(inner)), stream_(stream) {}
  ~TimedKernels() override { take(); }
  TimedKernels(const TimedKernels&) = delete;
  TimedKernels& operator=(const TimedKernels&) = delete;

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

  void zero(float* values, std::size_t count) override {
    timed("zero", [&] { inner_->zero(values, count); });
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    timed("copy", [&] { inner_->copy(to, from, bytes); });
  }
  void linear_forward(LinearShape s, const Element* x, const Element* weight, const Element* bias,
                      const Element* residual, Element* y) override {
    timed(named("linear_forward", s),
          [&] { inner_->linear_forward(s, x, weight, bias, residual, y); });
  }
  void linear_backward_parameters(LinearShape s, const Element* x, const Element* dy,
                                  float* dweight, float* dbias) override {
    timed(named("linear_backward_parameters", s),
          [&] { inner_->linear_backward_parameters(s, x, dy, dweight, dbias); });
  }
  void linear_backward_input(LinearShape s, const Element* dy, const Element* weight,
                             Element* dx) override {
    timed(named("linear_backward_input", s),
          [&] { inner_->linear_backward_input(s, dy, weight, dx); });
  }
  void layernorm_forward(LayerNormShape s, const Element* x, const Element* gamma,
                         const Element* beta, Element* y, float* statistics) override {
    timed("layernorm_forward",
          [&] { inner_->layernorm_forward(s, x, gamma, beta, y, statistics); });
  }
  void layernorm_apply(LayerNormShape s, const Element* x, const float* statistics,
                       const Element* gamma, const Element* beta, Element* y) override {
    timed("layernorm_apply", [&] { inner_->layernorm_apply(s, x, statistics, gamma, beta, y); });
  }
  void layernorm_backward(LayerNormShape s, const Element* x, const float* statistics,
                          const Element* gamma, const Element* dy, const Element* residual,
                          Element* dx, float* dgamma, float* dbeta) override {
    timed("layernorm_backward", [&] {
      inner_->layernorm_backward(s, x, statistics, gamma, dy, residual, dx, dgamma, dbeta);
    });
  }
  void attention_forward(AttentionShape s, const Element* qkv, Element* y, float* log_sums,
                         float* scratch) override {
    timed("attention_forward", [&] { inner_->attention_forward(s, qkv, y, log_sums, scratch); });
  }
  void attention_backward(AttentionShape s, const Element* qkv, const Element* y,
                          const float* log_sums, const Element* dy, Element* dqkv,
                          float* scratch) override {
    timed("attention_backward",
          [&] { inner_->attention_backward(s, qkv, y, log_sums, dy, dqkv, scratch); });
  }
  void gelu_forward(std::size_t count, const Element* x, Element* y) override {
    timed("gelu_forward", [&] { inner_->gelu_forward(count, x, y); });
  }
  void gelu_backward(std::size_t count, const Element* x, const Element* dy, Element* dx) override {
    timed("gelu_backward", [&] { inner_->gelu_backward(count, x, dy, dx); });
  }
  void relu_forward(std::size_t count, const Element* x, Element* y) override {
    timed("relu_forward", [&] { inner_->relu_forward(count, x, y); });
  }
  void relu_backward(std::size_t count, const Element* x, const Element* dy, Element* dx) override {
    timed("relu_backward", [&] { inner_->relu_backward(count, x, dy, dx); });
  }
  void embedding_forward(EmbeddingShape s, const std::int32_t* tokens, const Element* token_table,
                         const Element* position_table, Element* y) override {
    timed("embedding_forward",
          [&] { inner_->embedding_forward(s, tokens, token_table, position_table, y); });
  }
  void embedding_backward(EmbeddingShape s, const std::int32_t* tokens, const Element* dy,
                          float* dtoken_table, float* dposition_table) override {
    timed("embedding_backward",
          [&] { inner_->embedding_backward(s, tokens, dy, dtoken_table, dposition_table); });
  }
  void context_embedding_forward(ContextShape s, const std::int32_t* tokens, const Element* table,
                                 Element* y) override {
    timed("context_embedding_forward",
          [&] { inner_->context_embedding_forward(s, tokens, table, y); });
  }
  void context_embedding_backward(ContextShape s, const std::int32_t* tokens, const Element* dy,
                                  float* dtable) override {
    timed("context_embedding_backward",
          [&] { inner_->context_embedding_backward(s, tokens, dy, dtable); });
  }
  double softmax_loss(int rows, int vocabulary, const std::int32_t* targets, float scale,
                      Element* logits) override {
    double loss = 0;
    timed("softmax_loss",
          [&] { loss = inner_->softmax_loss(rows, vocabulary, targets, scale, logits); });
    return loss;
  }
  void adamw(const AdamWStep& step, std::size_t count, const float* gradient, float* value,
             float* m, float* v) override {
    timed("adamw", [&] { inner_->adamw(step, count, gradient, value, m, v); });
  }
  void add_exactly(std::size_t count, float* terms, double* sums) override {
    timed("add_exactly", [&] { inner_->add_exactly(count, terms, sums); });
  }
  void round_sums(std::size_t count, const double* sums, float* values) override {
    timed("round_sums", [&] { inner_->round_sums(count, sums, values); });
  }
  void sum_squares(std::size_t count, const float* values, double* sum) override {
    timed("sum_squares", [&] { inner_->sum_squares(count, values, sum); });
  }
  void round_values(std::size_t count, const float* from, Element* to) override {
    timed("round_values", [&] { inner_->round_values(count, from, to); });
  }
  Status status() const override { return inner_->status(); }

 private:
  struct Span {
    std::string name;
    cudaEvent_t before = nullptr, after = nullptr;
  };
  static std::string named(const char* name, LinearShape s) {
    return std::string(name) + " " + std::to_string(s.inputs) + "x" + std::to_string(s.outputs);
  }
  template <class Call>
  void timed(std::string name, Call call) {
    Span span{.name = std::move(name)};
    cudaEventCreate(&span.before);
    cudaEventCreate(&span.after);
    cudaEventRecord(span.before, stream_);
    call();
    cudaEventRecord(span.after, stream_);
    spans_.push_back(std::move(span));
  }

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

}  // namespace
}  // namespace weir::test
