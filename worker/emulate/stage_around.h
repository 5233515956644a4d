// SPDX-License-Identifier: Apache-2.0
// A stage around another one that passes on all calls; derived classes change some.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "worker/base/check.h"
#include "worker/stage/stage.h"

namespace weir::emulate {

using stage::Evaluated, stage::LayerSum, stage::Parameter, stage::Stage, stage::TiedSum,
    stage::Tokens;

class StageAround : public Stage {
 public:
  explicit StageAround(std::unique_ptr<Stage> inner) : inner_(std::move(inner)) {
    WEIR_CHECK(inner_ != nullptr, "there is a stage inside");
  }

  Result<device::Buffer> forward(int micro_batch, const device::Buffer& input,
                                 const Tokens& tokens) override {
    return inner_->forward(micro_batch, input, tokens);
  }
  Result<device::Buffer> backward(int micro_batch, const device::Buffer& output_gradient) override {
    return inner_->backward(micro_batch, output_gradient);
  }
  Result<device::Buffer> backward_input(int micro_batch,
                                        const device::Buffer& output_gradient) override {
    return inner_->backward_input(micro_batch, output_gradient);
  }
  Status backward_weights(int micro_batch) override {
    return inner_->backward_weights(micro_batch);
  }
  void begin_evaluation() override { inner_->begin_evaluation(); }
  Result<Evaluated> evaluate(const device::Buffer& input, const Tokens& tokens) override {
    return inner_->evaluate(input, tokens);
  }
  Status warm_up(int samples) override { return inner_->warm_up(samples); }
  void begin_step(std::int64_t step, int step_samples) override {
    inner_->begin_step(step, step_samples);
  }
  void resume_step(std::int64_t step, int step_samples) override {
    inner_->resume_step(step, step_samples);
  }
  void optimizer_step() override { inner_->optimizer_step(); }
  double loss() const override { return inner_->loss(); }
  std::int64_t output_bytes(int samples) const override { return inner_->output_bytes(samples); }
  std::int64_t input_bytes(int samples) const override { return inner_->input_bytes(samples); }
  bool needs_inputs() const override { return inner_->needs_inputs(); }
  std::int64_t activation_bytes() const override { return inner_->activation_bytes(); }
  device::Device& device() override { return inner_->device(); }
  std::vector<Parameter> parameters() override { return inner_->parameters(); }
  std::vector<LayerSum> layer_sums() override { return inner_->layer_sums(); }
  void finish_gradients() override { inner_->finish_gradients(); }
  void gradients_are_set() override { inner_->gradients_are_set(); }
  std::vector<TiedSum> tied_sums() override { return inner_->tied_sums(); }
  void join_ties() override { inner_->join_ties(); }
  void on_layer_summed(std::function<void(std::size_t index)> hook) override {
    inner_->on_layer_summed(std::move(hook));
  }
  Result<std::vector<double>> gradient_squares() override { return inner_->gradient_squares(); }
  void scale_gradients(float factor) override { inner_->scale_gradients(factor); }
  std::vector<double> loss_sums() const override { return inner_->loss_sums(); }
  double mean_loss(std::span<const double> sums) const override { return inner_->mean_loss(sums); }
  std::int64_t graph_launches() const override { return inner_->graph_launches(); }
  bool trains() const override { return inner_->trains(); }

 protected:
  Stage& inner() { return *inner_; }

 private:
  std::unique_ptr<Stage> inner_;
};

}  // namespace weir::emulate
