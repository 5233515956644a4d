// SPDX-License-Identifier: Apache-2.0
// Three kinds of layers with (B,T,H) between them. H = context x embedding, so that every hidden
// layer is square.
#include "worker/stage/models/mlp.h"

#include <cmath>
#include <memory>
#include <utility>

#include "worker/base/check.h"

namespace weir::stage {
namespace {

constexpr int kContext = 8, kEmbedding = 16, kHiddenLayers = 6;
constexpr int kWidth = kContext * kEmbedding;  // H

constexpr std::int64_t kTokenBytes = sizeof(std::int32_t);

// Bytes of a sample with `values` activations per token.
std::int64_t token_bytes(const ModelOptions& options, int values) {
  return element_bytes(options.precision) * options.sequence * values;
}

// Common part of the three layers.
class MlpLayer : public Layer {
 public:
  const LayerInfo& info() const override { return info_; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  std::int64_t input_bytes_per_sample() const override { return element_ * sequence_ * kWidth; }

 protected:
  MlpLayer(const ModelOptions& options, LayerInfo info, std::vector<ParameterSpec> parameters)
      : sequence_(options.sequence),
        element_(element_bytes(options.precision)),
        info_(std::move(info)),
        parameters_(std::move(parameters)) {
    info_.parameter_bytes = parameter_bytes(parameters_);
  }
  int rows(const Pass& pass) const { return pass.samples * sequence_; }
  Result<device::Buffer> tokens(const Pass& pass, int values) const {
    return allocate_values(pass.device, pass.samples, std::int64_t{sequence_} * values, element_);
  }

  int sequence_;

 private:
  std::int64_t element_;  // bytes of an activation
  LayerInfo info_;
  std::vector<ParameterSpec> parameters_;
};

class MlpEmbed final : public MlpLayer {
 public:
  explicit MlpEmbed(const ModelOptions& options)
      : MlpLayer(options,
                 {.id = "embed",
                  .description = "embeddings of the last 8 tokens",
                  .kind = "mlp-embed",
                  .output_bytes_per_sample = token_bytes(options, kWidth),
                  .activation_bytes_per_sample = kTokenBytes * options.sequence,
                  .held_bytes_per_sample =
                      kTokenBytes * options.sequence + token_bytes(options, kWidth)},
                 {{"token.weight", {options.vocabulary + 1, kEmbedding}, 0, 1.0F, true}}),
        vocabulary_(options.vocabulary) {}

  std::int64_t input_bytes_per_sample() const override { return 0; }
  bool adds_gradients() const override { return true; }

  Result<Forward> forward(const Pass& pass, const device::Buffer&) const override {
    const auto& inputs = pass.tokens.inputs;
    WEIR_CHECK(inputs.size() == static_cast<std::size_t>(rows(pass)),
               "one input token for each position");
    WEIR_TRY(device::Buffer kept,
             allocate_values(pass.device, pass.samples, sequence_, kTokenBytes));
    WEIR_TRY(device::Buffer output, tokens(pass, kWidth));
    pass.ops.run(ops::Copy{kept.data(), inputs.data(), inputs.size_bytes()});
    pass.ops.run(ops::ContextEmbeddingForward{shape(pass), inputs.data(), pass.value[0],
                                              output.as<ops::Element>()});
    return Forward{.output = std::move(output), .activations = {{std::move(kept)}}};
  }

  Result<device::Buffer> backward(const Pass& pass, const KeptActivations& activations,
                                  const device::Buffer& output_gradient) const override {
    pass.ops.run(
        ops::ContextEmbeddingBackward{shape(pass), activations.buffers[0].as<std::int32_t>(),
                                      output_gradient.as<ops::Element>(), pass.gradient[0]});
    return device::Buffer();
  }

 private:
  ops::ContextShape shape(const Pass& pass) const {
    return {pass.samples, sequence_, kEmbedding, kContext, vocabulary_};
  }
  int vocabulary_;
};

// y = relu(z), z = x W + b. Keeps x and z for backward.
class MlpHidden final : public MlpLayer {
 public:
  MlpHidden(const ModelOptions& options, int index)
      : MlpLayer(options,
                 {.id = "hidden" + std::to_string(index),
                  .description = "hidden layer with ReLU",
                  .kind = "mlp-hidden",
                  .output_bytes_per_sample = token_bytes(options, kWidth),
                  .activation_bytes_per_sample = token_bytes(options, 2 * kWidth),
                  .transient_bytes_per_sample = token_bytes(options, kWidth),
                  .held_bytes_per_sample = token_bytes(options, 2 * kWidth),
                  .split_transient_bytes_per_sample = token_bytes(options, kWidth)},
                 // Keeps the variance through ReLU (He et al., 2015).
                 {{"weight", {kWidth, kWidth}, 0, std::sqrt(2.0F / kWidth), true},
                  {"bias", {kWidth}, 0, 0, true}}) {}

  Result<Forward> forward(const Pass& pass, const device::Buffer& input) const override {
    WEIR_TRY(device::Buffer z, tokens(pass, kWidth));
    WEIR_TRY(device::Buffer output, tokens(pass, kWidth));
    pass.ops.run(ops::LinearForward{shape(pass), input.as<ops::Element>(), pass.value[0],
                                    pass.value[1], nullptr, z.as<ops::Element>()});
    pass.ops.run(ops::ReluForward{count(pass), z.as<ops::Element>(), output.as<ops::Element>()});
    return Forward{.output = std::move(output), .activations = {{input, std::move(z)}}};
  }

  Result<device::Buffer> backward(const Pass& pass, const KeptActivations& activations,
                                  const device::Buffer& output_gradient) const override {
    WEIR_TRY(device::Buffer dx, tokens(pass, kWidth));
    WEIR_TRY(const device::Buffer dz, tokens(pass, kWidth));
    relu_backward(pass, activations.buffers[1], output_gradient, dz);
    weight_gradients(pass, activations.buffers[0], dz);
    input_gradient(pass, dz, dx);
    return dx;
  }
  // Holds x and dz.
  Result<InputGradient> backward_input(const Pass& pass, KeptActivations activations,
                                       const device::Buffer& output_gradient) const override {
    WEIR_TRY(device::Buffer dx, tokens(pass, kWidth));
    WEIR_TRY(device::Buffer dz, tokens(pass, kWidth));
    relu_backward(pass, activations.buffers[1], output_gradient, dz);
    input_gradient(pass, dz, dx);
    activations.buffers[1] = std::move(dz);
    return InputGradient{.gradient = std::move(dx), .held = std::move(activations)};
  }
  Status backward_weights(const Pass& pass, const KeptActivations& held) const override {
    weight_gradients(pass, held.buffers[0], held.buffers[1]);
    return Unit{};
  }

 private:
  void relu_backward(const Pass& pass, const device::Buffer& z, const device::Buffer& dy,
                     const device::Buffer& dz) const {
    pass.ops.run(ops::ReluBackward{count(pass), z.as<ops::Element>(), dy.as<ops::Element>(),
                                   dz.as<ops::Element>()});
  }
  void weight_gradients(const Pass& pass, const device::Buffer& x, const device::Buffer& dz) const {
    pass.ops.run(ops::LinearBackwardParameters{shape(pass), x.as<ops::Element>(),
                                               dz.as<ops::Element>(), pass.gradient[0],
                                               pass.gradient[1]});
  }
  void input_gradient(const Pass& pass, const device::Buffer& dz, const device::Buffer& dx) const {
    pass.ops.run(ops::LinearBackwardInput{shape(pass), dz.as<ops::Element>(), pass.value[0],
                                          dx.as<ops::Element>()});
  }
  ops::LinearShape shape(const Pass& pass) const { return {rows(pass), kWidth, kWidth}; }
  std::size_t count(const Pass& pass) const {
    return static_cast<std::size_t>(rows(pass)) * kWidth;
  }
};

class MlpHead final : public MlpLayer {
 public:
  explicit MlpHead(const ModelOptions& options)
      : MlpLayer(options,
                 {.id = "head",
                  .description = "projection to the vocabulary and loss",
                  .kind = "mlp-head",
                  .output_bytes_per_sample = 0,
                  .activation_bytes_per_sample = token_bytes(options, kWidth + options.vocabulary),
                  .held_bytes_per_sample = token_bytes(options, kWidth + options.vocabulary)},
                 {{"weight", {options.vocabulary, kWidth}, 0, std::sqrt(1.0F / kWidth), true},
                  {"bias", {options.vocabulary}, 0, 0, true}}),
        vocabulary_(options.vocabulary) {}

  Result<Forward> forward(const Pass& pass, const device::Buffer& input) const override {
    const auto& targets = pass.tokens.targets;
    WEIR_CHECK(targets.size() == static_cast<std::size_t>(rows(pass)),
               "one target for each position");
    WEIR_TRY(device::Buffer logits, tokens(pass, vocabulary_));
    pass.ops.run(ops::LinearForward{shape(pass), input.as<ops::Element>(), pass.value[0],
                                    pass.value[1], nullptr, logits.as<ops::Element>()});
    pass.ops.run(ops::SoftmaxLoss{rows(pass), vocabulary_, targets.data(), pass.loss_scale,
                                  logits.as<ops::Element>(), pass.loss});
    return Forward{.activations = {{input, std::move(logits)}}};
  }

  Result<device::Buffer> backward(const Pass& pass, const KeptActivations& activations,
                                  const device::Buffer&) const override {
    weight_gradients(pass, activations);
    return input_gradient(pass, activations);
  }
  Result<InputGradient> backward_input(const Pass& pass, KeptActivations activations,
                                       const device::Buffer&) const override {
    WEIR_TRY(device::Buffer dx, input_gradient(pass, activations));
    return InputGradient{.gradient = std::move(dx), .held = std::move(activations)};
  }
  Status backward_weights(const Pass& pass, const KeptActivations& held) const override {
    weight_gradients(pass, held);
    return Unit{};
  }

 private:
  void weight_gradients(const Pass& pass, const KeptActivations& kept) const {
    pass.ops.run(ops::LinearBackwardParameters{shape(pass), kept.buffers[0].as<ops::Element>(),
                                               kept.buffers[1].as<ops::Element>(), pass.gradient[0],
                                               pass.gradient[1]});
  }
  Result<device::Buffer> input_gradient(const Pass& pass, const KeptActivations& kept) const {
    WEIR_TRY(device::Buffer dx, tokens(pass, kWidth));
    pass.ops.run(ops::LinearBackwardInput{shape(pass), kept.buffers[1].as<ops::Element>(),
                                          pass.value[0], dx.as<ops::Element>()});
    return dx;
  }
  ops::LinearShape shape(const Pass& pass) const { return {rows(pass), kWidth, vocabulary_}; }
  int vocabulary_;
};

}  // namespace

Layers build_mlp(const ModelOptions& options) {
  Layers layers;
  layers.push_back(std::make_unique<MlpEmbed>(options));
  for (int i = 0; i < kHiddenLayers; ++i) {
    layers.push_back(std::make_unique<MlpHidden>(options, i));
  }
  layers.push_back(std::make_unique<MlpHead>(options));
  return layers;
}

}  // namespace weir::stage
