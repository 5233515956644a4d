// SPDX-License-Identifier: Apache-2.0
// How far the models of replicas are apart, for E9: takes the place of worker/stage/emulate.cpp in
// the workers of this bench. The emulated stage is that one, around a stage that writes down its
// parameters whenever they have changed: after its own update, and when the next step begins, that
// is after the average. Into the file that WEIR_BENCH_PARAMETERS names; read by disagreement.cpp.
// Every kStride-th parameter, so that 16 workers on two cores are not disturbed by it.
#define emulate emulate_unrecorded
#include "worker/stage/emulate.cpp"  // NOLINT(bugprone-suspicious-include)
#undef emulate

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "tests/bench/disagreement.h"

namespace weir::stage {
namespace {

class RecordingStage final : public Stage {
 public:
  RecordingStage(std::unique_ptr<Stage> inner, const char* file)
      : inner_(std::move(inner)), file_(std::fopen(file, "ab"), &std::fclose) {
    WEIR_CHECK(file_ != nullptr, "the file for parameters can be written");
  }

  Result<device::Buffer> forward(int micro_batch, const device::Buffer& input,
                                 const Tokens& tokens) override {
    return inner_->forward(micro_batch, input, tokens);
  }
  Result<device::Buffer> backward(int micro_batch, const device::Buffer& output_gradient) override {
    return inner_->backward(micro_batch, output_gradient);
  }
  void begin_step(std::int64_t step, int step_samples) override {
    inner_->begin_step(step, step_samples);
    record();
  }
  void optimizer_step() override {
    inner_->optimizer_step();
    record();
  }
  double loss() const override { return inner_->loss(); }
  std::int64_t output_bytes(int samples) const override { return inner_->output_bytes(samples); }
  std::int64_t input_bytes(int samples) const override { return inner_->input_bytes(samples); }
  std::int64_t stash_bytes() const override { return inner_->stash_bytes(); }
  std::vector<Parameter> parameters() override { return inner_->parameters(); }
  std::vector<LayerSum> layer_sums() override { return inner_->layer_sums(); }
  void finish_gradients() override { inner_->finish_gradients(); }
  void gradients_are_set() override { inner_->gradients_are_set(); }
  void on_layer_summed(std::function<void(std::size_t index)> hook, bool early) override {
    inner_->on_layer_summed(std::move(hook), early);
  }
  std::vector<double> loss_sums() const override { return inner_->loss_sums(); }
  double mean_loss(std::span<const double> sums) const override { return inner_->mean_loss(sums); }

 private:
  void record() {
    kept_.clear();
    std::size_t next = 0;  // of all parameters in a row
    for (const Parameter& one : inner_->parameters()) {
      for (; next < one.value.size(); next += bench::kStride) kept_.push_back(one.value[next]);
      next -= one.value.size();
    }
    const bench::RecordHead head{.seconds = to_seconds(clock_.now().time_since_epoch()),
                                 .count = kept_.size()};
    std::fwrite(&head, sizeof head, 1, file_.get());
    std::fwrite(kept_.data(), sizeof(float), kept_.size(), file_.get());
    std::fflush(file_.get());
  }

  SystemClock clock_;
  std::unique_ptr<Stage> inner_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::vector<float> kept_;
};

}  // namespace

std::unique_ptr<Stage> emulate(std::unique_ptr<Stage> inner, EmulatedTimes times,
                               std::shared_ptr<Lateness> lateness) {
  if (const char* file = std::getenv("WEIR_BENCH_PARAMETERS"); file != nullptr) {
    inner = std::make_unique<RecordingStage>(std::move(inner), file);
  }
  return emulate_unrecorded(std::move(inner), std::move(times), std::move(lateness));
}

}  // namespace weir::stage
