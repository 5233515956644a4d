// SPDX-License-Identifier: Apache-2.0
// Final norm, untied projection to the vocabulary, and loss: (B,T,C) and targets -> loss. In
// forward the logits are replaced by their gradient, which is kept for backward.
#include <cstddef>

#include "worker/base/check.h"
#include "worker/stage/models/decoder_layers.h"

namespace weir::stage {
namespace {

enum HeadWeight : unsigned char { kFinalNormWeight, kFinalNormBias, kHeadWeight };
enum HeadKept : unsigned char { kHeadInput, kHeadStatistics, kLogitGradient };

class GptHead final : public Layer {
 public:
  explicit GptHead(const GptShape& shape) : shape_(shape) {
    const std::int64_t c = shape.channels;
    const std::int64_t t = shape.sequence;
    const std::int64_t v = shape.vocabulary;
    parameters_ = {
        {"ln.weight", {c}, 1, 0}, {"ln.bias", {c}}, {"weight", {v, c}, 0, kGptDeviation, true}};
    info_ = {.id = "head",
             .description = "final norm, projection to the vocabulary and loss",
             .kind = "gpt-head",
             .parameter_bytes = parameter_bytes(parameters_),
             .output_bytes_per_sample = 0,
             .activation_bytes_per_sample = t * (shape.element * (c + v) + 4 * 2),
             .transient_bytes_per_sample = shape.element * t * c,
             .held_bytes_per_sample = t * (shape.element * (c + v) + 4 * 2),
             .split_transient_bytes_per_sample = shape.element * t * c};
  }

  const LayerInfo& info() const override { return info_; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  std::int64_t input_bytes_per_sample() const override {
    return shape_.element * shape_.sequence * shape_.channels;
  }

  Result<Forward> forward(const Pass& pass, const device::Buffer& input) const override {
    const auto& targets = pass.tokens.targets;
    WEIR_CHECK(targets.size() == static_cast<std::size_t>(rows(pass)),
               "one target for each position");
    WEIR_TRY(device::Buffer statistics, tokens(pass, 2, sizeof(float)));
    WEIR_TRY(device::Buffer logits, tokens(pass, shape_.vocabulary, shape_.element));
    WEIR_TRY(const device::Buffer normed, tokens(pass, shape_.channels, shape_.element));
    const auto& w = pass.value;
    pass.ops.run(ops::LayerNormForward{norm(pass), input.as<ops::Element>(), w[kFinalNormWeight],
                                       w[kFinalNormBias], normed.as<ops::Element>(),
                                       statistics.as<float>()});
    pass.ops.run(ops::LinearForward{linear(pass), normed.as<ops::Element>(), w[kHeadWeight],
                                    nullptr, nullptr, logits.as<ops::Element>()});
    pass.ops.run(ops::SoftmaxLoss{rows(pass), shape_.vocabulary, targets.data(), pass.loss_scale,
                                  logits.as<ops::Element>(), pass.loss});
    return Forward{.activations = {{input, std::move(statistics), std::move(logits)}}};
  }

  Result<device::Buffer> backward(const Pass& pass, const KeptActivations& activations,
                                  const device::Buffer&) const override {
    WEIR_TRY(device::Buffer dx, tokens(pass, shape_.channels, shape_.element));
    WEIR_TRY(const device::Buffer narrow, tokens(pass, shape_.channels, shape_.element));
    weight_gradients(pass, activations, narrow);
    input_gradient(pass, activations, narrow, dx);
    return dx;
  }
  // Holds all that the forward kept.
  Result<InputGradient> backward_input(const Pass& pass, KeptActivations activations,
                                       const device::Buffer&) const override {
    WEIR_TRY(device::Buffer dx, tokens(pass, shape_.channels, shape_.element));
    WEIR_TRY(const device::Buffer narrow, tokens(pass, shape_.channels, shape_.element));
    input_gradient(pass, activations, narrow, dx);
    return InputGradient{.gradient = std::move(dx), .held = std::move(activations)};
  }
  Status backward_weights(const Pass& pass, const KeptActivations& held) const override {
    WEIR_TRY(const device::Buffer narrow, tokens(pass, shape_.channels, shape_.element));
    weight_gradients(pass, held, narrow);
    return Unit{};
  }

 private:
  // narrow: (R,C), overwritten.
  void weight_gradients(const Pass& pass, const KeptActivations& kept,
                        const device::Buffer& narrow) const {
    const auto& w = pass.value;
    pass.ops.run(ops::LayerNormApply{norm(pass), kept.buffers[kHeadInput].as<ops::Element>(),
                                     kept.buffers[kHeadStatistics].as<float>(), w[kFinalNormWeight],
                                     w[kFinalNormBias], narrow.as<ops::Element>()});
    pass.ops.run(ops::LinearBackwardParameters{linear(pass), narrow.as<ops::Element>(),
                                               kept.buffers[kLogitGradient].as<ops::Element>(),
                                               pass.gradient[kHeadWeight], nullptr});
  }
  void input_gradient(const Pass& pass, const KeptActivations& kept, const device::Buffer& narrow,
                      const device::Buffer& dx) const {
    const auto& w = pass.value;
    pass.ops.run(ops::LinearBackwardInput{linear(pass),
                                          kept.buffers[kLogitGradient].as<ops::Element>(),
                                          w[kHeadWeight], narrow.as<ops::Element>()});
    pass.ops.run(ops::LayerNormBackward{norm(pass), kept.buffers[kHeadInput].as<ops::Element>(),
                                        kept.buffers[kHeadStatistics].as<float>(),
                                        w[kFinalNormWeight], narrow.as<ops::Element>(), nullptr,
                                        dx.as<ops::Element>(), pass.gradient[kFinalNormWeight],
                                        pass.gradient[kFinalNormBias]});
  }
  int rows(const Pass& pass) const { return pass.samples * shape_.sequence; }
  ops::LayerNormShape norm(const Pass& pass) const { return {rows(pass), shape_.channels}; }
  ops::LinearShape linear(const Pass& pass) const {
    return {rows(pass), shape_.channels, shape_.vocabulary};
  }
  Result<device::Buffer> tokens(const Pass& pass, int values, std::int64_t value_bytes) const {
    return allocate_values(pass.device, pass.samples, std::int64_t{shape_.sequence} * values,
                           value_bytes);
  }

  GptShape shape_;
  LayerInfo info_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::unique_ptr<Layer> make_gpt_head(const GptShape& shape) {
  return std::make_unique<GptHead>(shape);
}

}  // namespace weir::stage
