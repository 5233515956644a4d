// SPDX-License-Identifier: Apache-2.0
// The model mlp as somebody would train adapters: its embedding and all matrices of hidden layers
// are frozen, biases and the head are trained. Built-in layers make every gradient, so those of
// frozen parameters get memory here. On the host only.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/stage/layer.h"
#include "worker/stage/models/mlp.h"
#include "worker/stage/stage.h"

namespace weir::test {

inline constexpr const char* kFrozenMlp = "mlp-with-frozen-layers";

class FrozenLayer final : public stage::Layer {
 public:
  FrozenLayer(std::unique_ptr<stage::Layer> layer, bool is_first)
      : layer_(std::move(layer)), specs_(layer_->parameters()), info_(layer_->info()) {
    for (stage::ParameterSpec& spec : specs_) spec.trainable = !is_first && spec.shape.size() < 2;
    info_.parameter_bytes = stage::parameter_bytes(specs_);
    info_.frozen_bytes = stage::frozen_bytes(specs_);
  }

  const stage::LayerInfo& info() const override { return info_; }
  const std::vector<stage::ParameterSpec>& parameters() const override { return specs_; }
  std::int64_t input_bytes_per_sample() const override { return layer_->input_bytes_per_sample(); }
  bool adds_gradients() const override { return layer_->adds_gradients(); }
  Status attach(const std::vector<stage::ops::Element*>& value,
                const std::vector<float*>& gradient) override {
    memory_.resize(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      memory_[i].resize(gradient[i] ? 0 : static_cast<std::size_t>(specs_[i].count()));
      gradients_.push_back(gradient[i] ? gradient[i] : memory_[i].data());
    }
    return layer_->attach(value, gradients_);
  }
  Result<stage::Forward> forward(const stage::Pass& pass,
                                 const device::Buffer& input) const override {
    return layer_->forward(pass, input);
  }
  Result<device::Buffer> backward(const stage::Pass& pass, const stage::KeptActivations& kept,
                                  const device::Buffer& output_gradient) const override {
    return layer_->backward(with_memory(pass), kept, output_gradient);
  }
  Result<stage::InputGradient> backward_input(
      const stage::Pass& pass, stage::KeptActivations kept,
      const device::Buffer& output_gradient) const override {
    return layer_->backward_input(with_memory(pass), std::move(kept), output_gradient);
  }
  Status backward_weights(const stage::Pass& pass,
                          const stage::KeptActivations& held) const override {
    return layer_->backward_weights(with_memory(pass), held);
  }

 private:
  stage::Pass with_memory(const stage::Pass& pass) const {
    return {.device = pass.device,
            .ops = pass.ops,
            .value = pass.value,
            .gradient = gradients_,
            .samples = pass.samples,
            .step = pass.step,
            .seed = pass.seed,
            .training = pass.training,
            .keeps = pass.keeps,
            .tokens = pass.tokens,
            .loss_scale = pass.loss_scale,
            .loss = pass.loss};
  }

  const std::unique_ptr<stage::Layer> layer_;
  std::vector<stage::ParameterSpec> specs_;
  stage::LayerInfo info_;
  std::vector<std::vector<float>> memory_;
  std::vector<float*> gradients_;
};

class FrozenMlp final : public stage::LayerSource {
 public:
  explicit FrozenMlp(stage::ModelOptions options) : options_(std::move(options)) {}
  std::string name() const override { return kFrozenMlp; }
  std::string engine() const override { return ""; }
  stage::Layers layers() const override {
    stage::Layers made = stage::build_mlp(options_);
    for (std::size_t i = 0; i + 1 < made.size(); ++i) {
      made[i] = std::make_unique<FrozenLayer>(std::move(made[i]), i == 0);
    }
    return made;
  }

 private:
  const stage::ModelOptions options_;
};

}  // namespace weir::test
