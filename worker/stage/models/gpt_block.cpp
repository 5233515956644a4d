// SPDX-License-Identifier: Apache-2.0
// One transformer block, (B,T,C) -> (B,T,C):
//   qkv = ln1(x) Wqkv + b;  y = attention(qkv);  x2 = x + y Wproj + b
//   f = ln2(x2) Wfc + b;    out = x2 + gelu(f) Wout + b
// It keeps for backward, in numbers per token: x C, qkv 3C, y C, x2 C, f 4C, and always in float32
// the statistics 4 and log sums H. Cheap results (norms, GELU) are computed again.
// Between the parts of a split backward it holds what the four products of weights are made of: x,
// x2, y and f, the statistics, and the gradients of qkv, x2, f and the output.
#include <cmath>
#include <utility>

#include "worker/base/check.h"
#include "worker/stage/models/decoder_layers.h"

namespace weir::stage {
namespace {

enum Weight : unsigned char {  // index in parameters()
  kNorm1Weight,
  kNorm1Bias,
  kQkvWeight,
  kQkvBias,
  kProjectWeight,
  kProjectBias,
  kNorm2Weight,
  kNorm2Bias,
  kExpandWeight,
  kExpandBias,
  kContractWeight,
  kContractBias,
};

enum Kept : unsigned char { kInput, kQkv, kAttended, kMiddle, kExpanded, kStatistics, kLogSums };
enum Held : unsigned char {  // the first ones and kStatistics lie where Kept says
  kQkvGradient = kQkv,
  kMiddleGradient = kLogSums,
  kExpandedGradient,
  kOutputGradient,
};

using ops::Element;

class GptBlock final : public Layer {
 public:
  GptBlock(const DecoderLayerShape& shape, int index) : shape_(shape) {
    WEIR_CHECK(shape.channels % shape.heads == 0, "heads of equal size");
    const std::int64_t c = shape.channels;
    // Weights into the residual stream shrink with depth (GPT-2).
    const float deviation = shape.deviation;
    const float residual = deviation / std::sqrt(2.0F * static_cast<float>(shape.blocks));
    const std::string path = "transformer.h." + std::to_string(index) + ".";
    const auto name = [&](const char* own, const char* full) {
      return shape.full_names ? path + full : std::string(own);
    };
    parameters_ = {{name("ln1.weight", "ln_1.weight"), {c}, 1, 0},
                   {name("ln1.bias", "ln_1.bias"), {c}},
                   {name("attn.qkv.weight", "attn.c_attn.weight"), {3 * c, c}, 0, deviation, true},
                   {name("attn.qkv.bias", "attn.c_attn.bias"), {3 * c}, 0, 0, true},
                   {name("attn.proj.weight", "attn.c_proj.weight"), {c, c}, 0, residual, true},
                   {name("attn.proj.bias", "attn.c_proj.bias"), {c}, 0, 0, true},
                   {name("ln2.weight", "ln_2.weight"), {c}, 1, 0},
                   {name("ln2.bias", "ln_2.bias"), {c}},
                   {name("mlp.fc.weight", "mlp.c_fc.weight"), {4 * c, c}, 0, deviation, true},
                   {name("mlp.fc.bias", "mlp.c_fc.bias"), {4 * c}, 0, 0, true},
                   {name("mlp.proj.weight", "mlp.c_proj.weight"), {c, 4 * c}, 0, residual, true},
                   {name("mlp.proj.bias", "mlp.c_proj.bias"), {c}, 0, 0, true}};
    for (const Weight one : {kQkvWeight, kProjectWeight, kExpandWeight, kContractWeight}) {
      parameters_[one].transposed = shape.full_names;  // Conv1D of Hugging Face
    }
    const std::int64_t t = shape.sequence;
    info_ = {
        .id = "block" + std::to_string(index),
        .description = "transformer block",
        .kind = "gpt-block",
        .parameter_bytes = parameter_bytes(parameters_),
        .output_bytes_per_sample = shape.element * t * c,
        .activation_bytes_per_sample = t * (shape.element * 10 * c + kFloat * (4 + shape.heads)),
        .transient_bytes_per_sample = shape.element * 5 * t * c + kFloat * scratch(),
        .held_bytes_per_sample = t * (shape.element * 16 * c + kFloat * 4),
        .split_transient_bytes_per_sample = shape.element * 9 * t * c + kFloat * scratch()};
  }

  const LayerInfo& info() const override { return info_; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  std::int64_t input_bytes_per_sample() const override { return info_.output_bytes_per_sample; }

  Result<Forward> forward(const Pass& pass, const device::Buffer& input) const override {
    WEIR_TRY(KeptActivations activations, keep_activations(pass, input));
    const int c = shape_.channels;
    WEIR_TRY(const device::Buffer wide, tokens(pass, 4 * c));
    WEIR_TRY(const device::Buffer scratch_memory, scratch_for(pass));
    WEIR_TRY(device::Buffer output, tokens(pass, c));
    attention_part(pass, activations, wide.as<Element>(), scratch_memory.as<float>());
    mlp_part(pass, activations, wide.as<Element>(), output.as<Element>());
    return Forward{.output = std::move(output), .activations = std::move(activations)};
  }

  Result<device::Buffer> backward(const Pass& pass, const KeptActivations& activations,
                                  const device::Buffer& output_gradient) const override {
    const int c = shape_.channels;
    WEIR_TRY(device::Buffer dx, tokens(pass, c));
    WEIR_TRY(const device::Buffer wide, tokens(pass, 4 * c));
    WEIR_TRY(const device::Buffer narrow, tokens(pass, c));
    WEIR_TRY(const device::Buffer scratch_memory, scratch_for(pass));
    const Work work{wide.as<Element>(), narrow.as<Element>(), dx.as<Element>(),
                    scratch_memory.as<float>()};
    mlp_backward(pass, activations, output_gradient.as<Element>(), work);
    attention_part_backward(pass, activations, work);
    return dx;
  }
  Result<InputGradient> backward_input(const Pass& pass, KeptActivations activations,
                                       const device::Buffer& output_gradient) const override;
  Status backward_weights(const Pass& pass, const KeptActivations& held) const override;

 private:
  struct Work {
    Element *wide, *narrow, *dx;  // (R,4C) (R,C) (R,C)
    float* scratch;
  };

  std::int64_t scratch() const {
    return static_cast<std::int64_t>(ops::attention_scratch_floats(attention(1)));
  }
  // The attention works on one sample at a time. The scratch of other samples is not used, but it
  // keeps the transient memory proportional to the samples, as the profile describes it.
  Result<device::Buffer> scratch_for(const Pass& pass) const {
    return allocate_values(pass.device, pass.samples, scratch(), kFloat);
  }
  ops::AttentionShape attention(int samples) const {
    return {samples, shape_.sequence, shape_.heads, shape_.heads, shape_.channels / shape_.heads};
  }
  int rows(const Pass& pass) const { return pass.samples * shape_.sequence; }
  ops::LayerNormShape norm(const Pass& pass) const {
    return {rows(pass), shape_.channels, shape_.epsilon};
  }
  Result<device::Buffer> tokens(const Pass& pass, int values, std::int64_t value_bytes) const {
    return allocate_values(pass.device, pass.samples, std::int64_t{shape_.sequence} * values,
                           value_bytes);
  }
  Result<device::Buffer> tokens(const Pass& pass, int values) const {
    return tokens(pass, values, shape_.element);
  }

  Result<KeptActivations> keep_activations(const Pass& pass, const device::Buffer& input) const {
    const int c = shape_.channels;
    KeptActivations activations{{input}};
    for (const int values : {3 * c, c, c, 4 * c}) {
      WEIR_TRY(device::Buffer buffer, tokens(pass, values));
      activations.buffers.push_back(std::move(buffer));
    }
    for (const int floats : {4, shape_.heads}) {
      WEIR_TRY(device::Buffer buffer, tokens(pass, floats, kFloat));
      activations.buffers.push_back(std::move(buffer));
    }
    return activations;
  }

  void attention_part(const Pass& pass, const KeptActivations& activations, Element* wide,
                      float* scratch) const;
  void mlp_part(const Pass& pass, const KeptActivations& activations, Element* wide,
                Element* output) const;
  void mlp_backward(const Pass& pass, const KeptActivations& activations, const Element* dout,
                    const Work& work) const;
  void attention_part_backward(const Pass& pass, const KeptActivations& activations,
                               const Work& work) const;

  DecoderLayerShape shape_;
  LayerInfo info_;
  std::vector<ParameterSpec> parameters_;
};

void GptBlock::attention_part(const Pass& pass, const KeptActivations& activations, Element* wide,
                              float* scratch) const {
  const int c = shape_.channels;
  const int r = rows(pass);
  const auto& w = pass.value;
  const Element* x = kept(activations, kInput);
  Element* qkv = kept(activations, kQkv);
  Element* attended = kept(activations, kAttended);
  pass.ops.run(ops::LayerNormForward{norm(pass), x, w[kNorm1Weight], w[kNorm1Bias], wide,
                                     kept_floats(activations, kStatistics)});
  pass.ops.run(ops::LinearForward{{r, c, 3 * c}, wide, w[kQkvWeight], w[kQkvBias], nullptr, qkv});
  pass.ops.run(ops::AttentionForward{attention(pass.samples), qkv, attended,
                                     kept_floats(activations, kLogSums), scratch});
  pass.ops.run(ops::LinearForward{
      {r, c, c}, attended, w[kProjectWeight], w[kProjectBias], x, kept(activations, kMiddle)});
}

void GptBlock::mlp_part(const Pass& pass, const KeptActivations& activations, Element* wide,
                        Element* output) const {
  const int c = shape_.channels;
  const int r = rows(pass);
  const auto& w = pass.value;
  const Element* middle = kept(activations, kMiddle);
  Element* expanded = kept(activations, kExpanded);
  pass.ops.run(
      ops::LayerNormForward{norm(pass), middle, w[kNorm2Weight], w[kNorm2Bias], wide,
                            kept_floats(activations, kStatistics) + 2 * std::ptrdiff_t{r}});
  pass.ops.run(
      ops::LinearForward{{r, c, 4 * c}, wide, w[kExpandWeight], w[kExpandBias], nullptr, expanded});
  pass.ops.run(ops::GeluForward{static_cast<std::size_t>(r) * 4 * static_cast<std::size_t>(c),
                                expanded, wide});
  pass.ops.run(ops::LinearForward{
      {r, 4 * c, c}, wide, w[kContractWeight], w[kContractBias], middle, output});
}

// Returns the gradient of x2 in work.dx.
void GptBlock::mlp_backward(const Pass& pass, const KeptActivations& activations,
                            const Element* dout, const Work& work) const {
  const int c = shape_.channels;
  const int r = rows(pass);
  const auto wide_count = static_cast<std::size_t>(r) * 4 * static_cast<std::size_t>(c);
  const auto& w = pass.value;
  const auto& dw = pass.gradient;
  const Element* middle = kept(activations, kMiddle);
  const Element* expanded = kept(activations, kExpanded);
  const float* statistics = kept_floats(activations, kStatistics) + 2 * std::ptrdiff_t{r};
  pass.ops.run(ops::GeluForward{wide_count, expanded, work.wide});
  pass.ops.run(ops::LinearBackwardParameters{
      {r, 4 * c, c}, work.wide, dout, dw[kContractWeight], dw[kContractBias]});
  pass.ops.run(ops::LinearBackwardInput{{r, 4 * c, c}, dout, w[kContractWeight], work.wide});
  pass.ops.run(ops::GeluBackward{wide_count, expanded, work.wide, work.wide});
  pass.ops.run(ops::LayerNormApply{norm(pass), middle, statistics, w[kNorm2Weight], w[kNorm2Bias],
                                   work.narrow});
  pass.ops.run(ops::LinearBackwardParameters{
      {r, c, 4 * c}, work.narrow, work.wide, dw[kExpandWeight], dw[kExpandBias]});
  pass.ops.run(ops::LinearBackwardInput{{r, c, 4 * c}, work.wide, w[kExpandWeight], work.narrow});
  pass.ops.run(ops::LayerNormBackward{norm(pass), middle, statistics, w[kNorm2Weight], work.narrow,
                                      dout, work.dx, dw[kNorm2Weight], dw[kNorm2Bias]});
}

// work.dx is the gradient of x2 on entry and that of x on return.
void GptBlock::attention_part_backward(const Pass& pass, const KeptActivations& activations,
                                       const Work& work) const {
  const int c = shape_.channels;
  const int r = rows(pass);
  const auto& w = pass.value;
  const auto& dw = pass.gradient;
  const Element* x = kept(activations, kInput);
  const Element* attended = kept(activations, kAttended);
  const float* statistics = kept_floats(activations, kStatistics);
  pass.ops.run(ops::LinearBackwardParameters{
      {r, c, c}, attended, work.dx, dw[kProjectWeight], dw[kProjectBias]});
  pass.ops.run(ops::LinearBackwardInput{{r, c, c}, work.dx, w[kProjectWeight], work.narrow});
  pass.ops.run(ops::AttentionBackward{attention(pass.samples), kept(activations, kQkv), attended,
                                      kept_floats(activations, kLogSums), work.narrow, work.wide,
                                      work.scratch});
  pass.ops.run(
      ops::LayerNormApply{norm(pass), x, statistics, w[kNorm1Weight], w[kNorm1Bias], work.narrow});
  pass.ops.run(ops::LinearBackwardParameters{
      {r, c, 3 * c}, work.narrow, work.wide, dw[kQkvWeight], dw[kQkvBias]});
  pass.ops.run(ops::LinearBackwardInput{{r, c, 3 * c}, work.wide, w[kQkvWeight], work.narrow});
  pass.ops.run(ops::LayerNormBackward{norm(pass), x, statistics, w[kNorm1Weight], work.narrow,
                                      work.dx, work.dx, dw[kNorm1Weight], dw[kNorm1Bias]});
}

Result<InputGradient> GptBlock::backward_input(const Pass& pass, KeptActivations activations,
                                               const device::Buffer& output_gradient) const {
  const int c = shape_.channels;
  const int r = rows(pass);
  const auto& w = pass.value;
  const auto& dw = pass.gradient;
  WEIR_TRY(device::Buffer dx, tokens(pass, c));
  WEIR_TRY(device::Buffer dqkv, tokens(pass, 3 * c));
  WEIR_TRY(device::Buffer dmiddle, tokens(pass, c));
  WEIR_TRY(device::Buffer dexpanded, tokens(pass, 4 * c));
  WEIR_TRY(const device::Buffer narrow_memory, tokens(pass, c));
  WEIR_TRY(const device::Buffer scratch_memory, scratch_for(pass));
  const auto* dout = output_gradient.as<Element>();
  auto* narrow = narrow_memory.as<Element>();
  auto* wide = dexpanded.as<Element>();
  const float* statistics = kept_floats(activations, kStatistics);
  pass.ops.run(ops::LinearBackwardInput{{r, 4 * c, c}, dout, w[kContractWeight], wide});
  pass.ops.run(ops::GeluBackward{static_cast<std::size_t>(r) * 4 * static_cast<std::size_t>(c),
                                 kept(activations, kExpanded), wide, wide});
  pass.ops.run(ops::LinearBackwardInput{{r, c, 4 * c}, wide, w[kExpandWeight], narrow});
  pass.ops.run(ops::LayerNormBackward{
      norm(pass), kept(activations, kMiddle), statistics + 2 * std::ptrdiff_t{r}, w[kNorm2Weight],
      narrow, dout, dmiddle.as<Element>(), dw[kNorm2Weight], dw[kNorm2Bias]});
  pass.ops.run(
      ops::LinearBackwardInput{{r, c, c}, dmiddle.as<Element>(), w[kProjectWeight], narrow});
  pass.ops.run(ops::AttentionBackward{
      attention(pass.samples), kept(activations, kQkv), kept(activations, kAttended),
      kept_floats(activations, kLogSums), narrow, dqkv.as<Element>(), scratch_memory.as<float>()});
  pass.ops.run(ops::LinearBackwardInput{{r, c, 3 * c}, dqkv.as<Element>(), w[kQkvWeight], narrow});
  pass.ops.run(ops::LayerNormBackward{norm(pass), kept(activations, kInput), statistics,
                                      w[kNorm1Weight], narrow, dmiddle.as<Element>(),
                                      dx.as<Element>(), dw[kNorm1Weight], dw[kNorm1Bias]});
  activations.buffers[kQkvGradient] = std::move(dqkv);
  activations.buffers[kMiddleGradient] = std::move(dmiddle);
  activations.buffers.push_back(std::move(dexpanded));
  activations.buffers.push_back(output_gradient);
  return InputGradient{.gradient = std::move(dx), .held = std::move(activations)};
}

Status GptBlock::backward_weights(const Pass& pass, const KeptActivations& held) const {
  const int c = shape_.channels;
  const int r = rows(pass);
  const auto& w = pass.value;
  const auto& dw = pass.gradient;
  WEIR_TRY(const device::Buffer wide_memory, tokens(pass, 4 * c));
  WEIR_TRY(const device::Buffer narrow_memory, tokens(pass, c));
  auto* wide = wide_memory.as<Element>();
  auto* narrow = narrow_memory.as<Element>();
  const float* statistics = kept_floats(held, kStatistics);
  pass.ops.run(ops::GeluForward{static_cast<std::size_t>(r) * 4 * static_cast<std::size_t>(c),
                                kept(held, kExpanded), wide});
  pass.ops.run(ops::LinearBackwardParameters{
      {r, 4 * c, c}, wide, kept(held, kOutputGradient), dw[kContractWeight], dw[kContractBias]});
  pass.ops.run(ops::LayerNormApply{norm(pass), kept(held, kMiddle),
                                   statistics + 2 * std::ptrdiff_t{r}, w[kNorm2Weight],
                                   w[kNorm2Bias], narrow});
  pass.ops.run(ops::LinearBackwardParameters{
      {r, c, 4 * c}, narrow, kept(held, kExpandedGradient), dw[kExpandWeight], dw[kExpandBias]});
  pass.ops.run(ops::LinearBackwardParameters{{r, c, c},
                                             kept(held, kAttended),
                                             kept(held, kMiddleGradient),
                                             dw[kProjectWeight],
                                             dw[kProjectBias]});
  pass.ops.run(ops::LayerNormApply{norm(pass), kept(held, kInput), statistics, w[kNorm1Weight],
                                   w[kNorm1Bias], narrow});
  pass.ops.run(ops::LinearBackwardParameters{
      {r, c, 3 * c}, narrow, kept(held, kQkvGradient), dw[kQkvWeight], dw[kQkvBias]});
  return Unit{};
}

}  // namespace

std::unique_ptr<Layer> make_gpt_block(const DecoderLayerShape& shape, int index) {
  return std::make_unique<GptBlock>(shape, index);
}

}  // namespace weir::stage
