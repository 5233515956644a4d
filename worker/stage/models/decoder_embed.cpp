// SPDX-License-Identifier: Apache-2.0
// (B,T) tokens -> (B,T,C), with learnt positions or without. Keeps the tokens for backward.

#include "worker/base/check.h"
#include "worker/stage/models/decoder_layers.h"

namespace weir::stage {
namespace {

class DecoderEmbed final : public Layer {
 public:
  explicit DecoderEmbed(const DecoderLayerShape& shape) : shape_(shape) {
    const bool gpt = shape.family == DecoderFamily::kGpt;
    const std::int64_t row = std::int64_t{shape.channels};
    const auto name = [&](const char* own, const char* full) {
      return shape.full_names ? full : own;
    };
    parameters_ = {{table_name(shape), {shape.vocabulary, row}, 0, shape.deviation, true}};
    if (gpt) {
      parameters_.push_back({name("position.weight", "transformer.wpe.weight"),
                             {shape.positions, row},
                             0,
                             shape.deviation,
                             true});
    }
    info_ = {.id = "embed",
             .description = gpt ? "token and position embedding" : "token embedding",
             .kind = gpt ? "gpt-embed" : "llama-embed",
             .parameter_bytes = parameter_bytes(parameters_),
             .output_bytes_per_sample = shape.element * shape.sequence * row,
             .activation_bytes_per_sample = 4 * std::int64_t{shape.sequence},
             .held_bytes_per_sample = shape.sequence * (4 + shape.element * row)};
  }

  const LayerInfo& info() const override { return info_; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  std::int64_t input_bytes_per_sample() const override { return 0; }
  bool adds_gradients() const override { return true; }

  Result<Forward> forward(const Pass& pass, const device::Buffer&) const override {
    const auto& inputs = pass.tokens.inputs;
    WEIR_CHECK(inputs.size() == static_cast<std::size_t>(pass.samples * shape_.sequence),
               "one input token for each position");
    WEIR_TRY(device::Buffer tokens,
             allocate_values(pass.device, pass.samples, shape_.sequence, sizeof(std::int32_t)));
    WEIR_TRY(device::Buffer output,
             allocate_values(pass.device, pass.samples,
                             std::int64_t{shape_.sequence} * shape_.channels, shape_.element));
    pass.ops.run(ops::Copy{tokens.data(), inputs.data(), inputs.size_bytes()});
    pass.ops.run(ops::EmbeddingForward{tokens_of(pass), inputs.data(), pass.value[0],
                                       has_positions() ? pass.value[1] : nullptr,
                                       output.as<ops::Element>()});
    return Forward{.output = std::move(output), .activations = {{std::move(tokens)}}};
  }

  Result<device::Buffer> backward(const Pass& pass, const KeptActivations& activations,
                                  const device::Buffer& output_gradient) const override {
    pass.ops.run(ops::EmbeddingBackward{tokens_of(pass), activations.buffers[0].as<std::int32_t>(),
                                        output_gradient.as<ops::Element>(), pass.gradient[0],
                                        has_positions() ? pass.gradient[1] : nullptr});
    return device::Buffer();
  }

 private:
  bool has_positions() const { return parameters_.size() > 1; }
  ops::EmbeddingShape tokens_of(const Pass& pass) const {
    return {pass.samples, shape_.sequence, shape_.channels};
  }

  DecoderLayerShape shape_;
  LayerInfo info_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace

std::unique_ptr<Layer> make_decoder_embed(const DecoderLayerShape& shape) {
  return std::make_unique<DecoderEmbed>(shape);
}

}  // namespace weir::stage
