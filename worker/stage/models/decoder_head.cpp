// SPDX-License-Identifier: Apache-2.0
// Final norm (of layers or RMS), projection to the vocabulary, and loss: (B,T,C) and targets
// -> loss. In forward the logits are replaced by their gradient, which is kept for backward.
#include <cstddef>

#include "worker/base/check.h"
#include "worker/stage/models/decoder_layers.h"

namespace weir::stage {
namespace {

enum HeadWeight : unsigned char { kFinalNormWeight, kFinalNormBias };  // the projection is the last
enum HeadKept : unsigned char { kHeadInput, kHeadStatistics, kLogitGradient };

class DecoderHead final : public Layer {
 public:
  explicit DecoderHead(const DecoderLayerShape& shape) : shape_(shape) {
    const std::int64_t c = shape.channels;
    const std::int64_t t = shape.sequence;
    const std::int64_t v = shape.vocabulary;
    const auto name = [&](const char* own, const char* full) {
      return shape.full_names ? full : own;
    };
    if (layer_norm()) {
      parameters_ = {{name("ln.weight", "transformer.ln_f.weight"), {c}, 1, 0},
                     {name("ln.bias", "transformer.ln_f.bias"), {c}}};
    } else {
      parameters_ = {{"model.norm.weight", {c}, 1, 0}};
    }
    parameters_.push_back({layer_norm() ? name("weight", "lm_head.weight") : "lm_head.weight",
                           {v, c},
                           0,
                           shape.deviation,
                           true});
    if (shape.tied) parameters_.back().tied_to = table_name(shape);
    const std::int64_t kept = t * (shape.element * (c + v) + std::int64_t{4} * statistics());
    info_ = {.id = "head",
             .description = "final norm, projection to the vocabulary and loss",
             .kind = layer_norm() ? "gpt-head" : "llama-head",
             .parameter_bytes = parameter_bytes(parameters_),
             .output_bytes_per_sample = 0,
             .activation_bytes_per_sample = kept,
             .transient_bytes_per_sample = shape.element * t * c,
             .held_bytes_per_sample = kept,
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
    WEIR_TRY(device::Buffer statistics, tokens(pass, this->statistics(), sizeof(float)));
    WEIR_TRY(device::Buffer logits, tokens(pass, shape_.vocabulary, shape_.element));
    WEIR_TRY(const device::Buffer normed, tokens(pass, shape_.channels, shape_.element));
    const auto& w = pass.value;
    norm_forward(pass, input.as<ops::Element>(), normed.as<ops::Element>(), statistics.as<float>());
    pass.ops.run(ops::LinearForward{linear(pass), normed.as<ops::Element>(), w.back(), nullptr,
                                    nullptr, logits.as<ops::Element>()});
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
    norm_again(pass, kept, narrow.as<ops::Element>());
    pass.ops.run(ops::LinearBackwardParameters{linear(pass), narrow.as<ops::Element>(),
                                               kept.buffers[kLogitGradient].as<ops::Element>(),
                                               pass.gradient.back(), nullptr});
  }
  void input_gradient(const Pass& pass, const KeptActivations& kept, const device::Buffer& narrow,
                      const device::Buffer& dx) const {
    const auto& w = pass.value;
    pass.ops.run(ops::LinearBackwardInput{linear(pass),
                                          kept.buffers[kLogitGradient].as<ops::Element>(), w.back(),
                                          narrow.as<ops::Element>()});
    norm_backward(pass, kept, narrow.as<ops::Element>(), dx.as<ops::Element>());
  }
  bool layer_norm() const { return shape_.family == DecoderFamily::kGpt; }
  int statistics() const { return layer_norm() ? 2 : 1; }  // of a token
  void norm_forward(const Pass& pass, const ops::Element* x, ops::Element* y,
                    float* statistics) const {
    const auto& w = pass.value;
    if (layer_norm()) {
      pass.ops.run(ops::LayerNormForward{norm(pass), x, w[kFinalNormWeight], w[kFinalNormBias], y,
                                         statistics});
    } else {
      pass.ops.run(ops::RmsNormForward{rms_norm(pass), x, w[kFinalNormWeight], y, statistics});
    }
  }
  void norm_again(const Pass& pass, const KeptActivations& kept, ops::Element* y) const {
    const auto& w = pass.value;
    const auto* x = kept.buffers[kHeadInput].as<ops::Element>();
    const auto* statistics = kept.buffers[kHeadStatistics].as<float>();
    if (layer_norm()) {
      pass.ops.run(ops::LayerNormApply{norm(pass), x, statistics, w[kFinalNormWeight],
                                       w[kFinalNormBias], y});
    } else {
      pass.ops.run(ops::RmsNormApply{rms_norm(pass), x, statistics, w[kFinalNormWeight], y});
    }
  }
  void norm_backward(const Pass& pass, const KeptActivations& kept, const ops::Element* dy,
                     ops::Element* dx) const {
    const auto& w = pass.value;
    const auto& dw = pass.gradient;
    const auto* x = kept.buffers[kHeadInput].as<ops::Element>();
    const auto* statistics = kept.buffers[kHeadStatistics].as<float>();
    if (layer_norm()) {
      pass.ops.run(ops::LayerNormBackward{norm(pass), x, statistics, w[kFinalNormWeight], dy,
                                          nullptr, dx, dw[kFinalNormWeight], dw[kFinalNormBias]});
    } else {
      pass.ops.run(ops::RmsNormBackward{rms_norm(pass), x, statistics, w[kFinalNormWeight], dy,
                                        nullptr, dx, dw[kFinalNormWeight]});
    }
  }
  int rows(const Pass& pass) const { return pass.samples * shape_.sequence; }
  ops::LayerNormShape norm(const Pass& pass) const {
    return {rows(pass), shape_.channels, shape_.epsilon};
  }
  ops::RmsNormShape rms_norm(const Pass& pass) const {
    return ops::rms_norm_of_rows(rows(pass), shape_.channels, shape_.epsilon);
  }
  ops::LinearShape linear(const Pass& pass) const {
    return {rows(pass), shape_.channels, shape_.vocabulary};
  }
  Result<device::Buffer> tokens(const Pass& pass, int values, std::int64_t value_bytes) const {
    return allocate_values(pass.device, pass.samples, std::int64_t{shape_.sequence} * values,
                           value_bytes);
  }

  DecoderLayerShape shape_;
  LayerInfo info_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::unique_ptr<Layer> make_decoder_head(const DecoderLayerShape& shape) {
  return std::make_unique<DecoderHead>(shape);
}

}  // namespace weir::stage
