// SPDX-License-Identifier: Apache-2.0
// One block of Llama and its kin, (B,T,C) -> (B,T,C):
//   qkv = norm1(x) Wqkv [+ b];  qkv' = q and k [normed by head and] turned by their position
//   y = attention(qkv');        x2 = x + y Wo [+ b]
//   u = norm2(x2) Wgu;          out = x2 + swiglu(u) Wdown
// q, k and v, and gate and up, are neighbours in memory, so one product serves them. It keeps for
// backward, in numbers per token: x C, qkv (H+2G)D, y HD, x2 C, u 2F, and always in float32 the
// statistics of norms 2, log sums H and, where heads are normed, their statistics H+G. Without a
// norm by head, qkv is turned in place, and turning the gradient back needs no activation. With
// one, qkv' is made again from qkv. Between the parts of a split backward it holds what the
// products of weights are made of: x, x2, y and u, the statistics, and the gradients of qkv, x2, u
// and the output.
#include <algorithm>
#include <utility>

#include "worker/stage/models/decoder_layers.h"
#include "worker/stage/models/llama_weights.h"

namespace weir::stage {
namespace {

enum Kept : unsigned char {
  kInput,
  kQkv,
  kAttended,
  kMiddle,
  kGateUp,
  kStatistics,
  kLogSums,
  kHeadStatistics,  // if heads are normed
};
enum Held : unsigned char {  // the first ones and kStatistics lie where Kept says
  kQkvGradient = kQkv,
  kMiddleGradient = kLogSums,
  kGateUpGradient,
  kOutputGradient,
};

using ops::Element;

class LlamaBlock final : public Layer {
 public:
  LlamaBlock(const DecoderLayerShape& shape, int index)
      : shape_(shape),
        qkv_(ops::qkv_channels(attention(1))),
        attended_(shape.heads * shape.head_size),
        widest_(std::max(2 * shape.ffn, qkv_)),
        narrow_(std::max({shape.channels, attended_, shape.ffn})),
        weights_(llama_weights(shape, "model.layers." + std::to_string(index) + ".")) {
    const std::int64_t t = shape.sequence, c = shape.channels, e = shape.element;
    const std::int64_t prepared = shape.norms_heads ? qkv_ : 0;
    const std::int64_t kept = 2 * c + qkv_ + attended_ + 2 * std::int64_t{shape.ffn};
    const std::int64_t kept_floats =
        2 + shape.heads + (shape.norms_heads ? shape.heads + shape.kv_heads : 0);
    const std::int64_t held = 4 * c + qkv_ + attended_ + 4 * std::int64_t{shape.ffn};
    const std::int64_t split = qkv_ + c + 2 * std::int64_t{shape.ffn} + narrow_ + prepared;
    info_ = {.id = "block" + std::to_string(index),
             .description = "transformer block",
             .kind = "llama-block",
             .parameter_bytes = parameter_bytes(weights_.specs),
             .output_bytes_per_sample = e * t * c,
             .activation_bytes_per_sample = t * (e * kept + kFloat * kept_floats),
             .transient_bytes_per_sample =
                 e * t * (std::int64_t{widest_} + narrow_ + prepared) + kFloat * scratch(),
             .held_bytes_per_sample = t * (e * held + kFloat * 2),
             .split_transient_bytes_per_sample = e * t * split + kFloat * scratch()};
  }

  const LayerInfo& info() const override { return info_; }
  const std::vector<ParameterSpec>& parameters() const override { return weights_.specs; }
  std::int64_t input_bytes_per_sample() const override { return info_.output_bytes_per_sample; }

  Result<Forward> forward(const Pass& pass, const device::Buffer& input) const override {
    WEIR_TRY(KeptActivations activations, keep_activations(pass, input));
    WEIR_TRY(const Work work, work_for(pass));
    WEIR_TRY(device::Buffer output, tokens(pass, shape_.channels));
    attention_part(pass, activations, work);
    mlp_part(pass, activations, work, output.as<Element>());
    return Forward{.output = std::move(output), .activations = std::move(activations)};
  }

  Result<device::Buffer> backward(const Pass& pass, const KeptActivations& activations,
                                  const device::Buffer& output_gradient) const override {
    WEIR_TRY(device::Buffer dx, tokens(pass, shape_.channels));
    WEIR_TRY(const device::Buffer wide, tokens(pass, widest_));
    WEIR_TRY(const Work work, work_for(pass));
    auto* const gradient = wide.as<Element>();
    const auto* const dout = output_gradient.as<Element>();
    down_weights(pass, activations, dout, work);
    mlp_input(pass, activations, dout, gradient, dx.as<Element>(), work);
    gate_up_weights(pass, activations, gradient, work);
    // The gradient of x2 is dx from here on.
    output_weights(pass, activations, dx.as<Element>());
    attention_input(pass, activations, dx.as<Element>(), gradient, work);
    qkv_weights(pass, activations, gradient, work);
    norm1_input(pass, activations, gradient, dx.as<Element>(), dx.as<Element>(), work);
    return dx;
  }

  Result<InputGradient> backward_input(const Pass& pass, KeptActivations activations,
                                       const device::Buffer& output_gradient) const override {
    WEIR_TRY(device::Buffer dx, tokens(pass, shape_.channels));
    WEIR_TRY(device::Buffer dqkv, tokens(pass, qkv_));
    WEIR_TRY(device::Buffer dmiddle, tokens(pass, shape_.channels));
    WEIR_TRY(device::Buffer dgate_up, tokens(pass, 2 * shape_.ffn));
    WEIR_TRY(const Work work, work_for(pass));
    mlp_input(pass, activations, output_gradient.as<Element>(), dgate_up.as<Element>(),
              dmiddle.as<Element>(), work);
    attention_input(pass, activations, dmiddle.as<Element>(), dqkv.as<Element>(), work);
    norm1_input(pass, activations, dqkv.as<Element>(), dmiddle.as<Element>(), dx.as<Element>(),
                work);
    activations.buffers.resize(kHeadStatistics);
    activations.buffers[kQkvGradient] = std::move(dqkv);
    activations.buffers[kMiddleGradient] = std::move(dmiddle);
    activations.buffers.push_back(std::move(dgate_up));
    activations.buffers.push_back(output_gradient);
    return InputGradient{.gradient = std::move(dx), .held = std::move(activations)};
  }

  Status backward_weights(const Pass& pass, const KeptActivations& held) const override {
    WEIR_TRY(const device::Buffer narrow, tokens(pass, narrow_));
    const Work work{.narrow = narrow};
    down_weights(pass, held, kept(held, kOutputGradient), work);
    gate_up_weights(pass, held, kept(held, kGateUpGradient), work);
    output_weights(pass, held, kept(held, kMiddleGradient));
    qkv_weights(pass, held, kept(held, kQkvGradient), work);
    return Unit{};
  }

 private:
  // Memory of a pass that nobody keeps.
  struct Work {
    device::Buffer narrow, prepared, scratch;  // prepared: qkv' where heads are normed
    Element* rows() const { return narrow.as<Element>(); }
  };
  std::int64_t scratch() const {
    return static_cast<std::int64_t>(ops::attention_scratch_floats(attention(1)));
  }
  Result<Work> work_for(const Pass& pass) const {
    Work work;
    WEIR_TRY(work.narrow, tokens(pass, narrow_));
    if (shape_.norms_heads) {
      WEIR_TRY(work.prepared, tokens(pass, qkv_));
    }
    // For all samples, although the attention works on one at a time, so that the transient memory
    // is proportional to the samples.
    WEIR_TRY(work.scratch, allocate_values(pass.device, pass.samples, scratch(), kFloat));
    return work;
  }
  ops::AttentionShape attention(int samples) const {
    return {samples,         shape_.sequence,  shape_.heads,
            shape_.kv_heads, shape_.head_size, shape_.window < shape_.sequence ? shape_.window : 0};
  }
  int rows(const Pass& pass) const { return pass.samples * shape_.sequence; }
  ops::RmsNormShape norm(const Pass& pass) const {
    return ops::rms_norm_of_rows(rows(pass), shape_.channels, shape_.epsilon);
  }
  ops::RmsNormShape head_norm(const Pass& pass, int heads) const {
    return {rows(pass), heads, shape_.head_size, qkv_, shape_.epsilon};
  }
  ops::Rotary rotary(const Pass& pass, int direction, Element* qkv) const {
    return {{pass.samples, shape_.sequence, shape_.heads + shape_.kv_heads, shape_.head_size, qkv_,
             direction, shape_.theta, shape_.rope_factor, shape_.rope_low, shape_.rope_high,
             shape_.rope_original},
            qkv};
  }
  ops::SwigluShape swiglu(const Pass& pass) const { return {rows(pass), shape_.ffn}; }
  Result<device::Buffer> tokens(const Pass& pass, int values) const {
    return allocate_values(pass.device, pass.samples, std::int64_t{shape_.sequence} * values,
                           shape_.element);
  }
  Result<device::Buffer> float_tokens(const Pass& pass, int values) const {
    return allocate_values(pass.device, pass.samples, std::int64_t{shape_.sequence} * values,
                           kFloat);
  }
  Result<KeptActivations> keep_activations(const Pass& pass, const device::Buffer& input) const {
    KeptActivations activations{{input}};
    for (const int values : {qkv_, attended_, shape_.channels, 2 * shape_.ffn}) {
      WEIR_TRY(device::Buffer buffer, tokens(pass, values));
      activations.buffers.push_back(std::move(buffer));
    }
    const int of_heads = shape_.norms_heads ? shape_.heads + shape_.kv_heads : 0;
    for (const int floats : {2, shape_.heads, of_heads}) {
      if (floats == 0) continue;
      WEIR_TRY(device::Buffer buffer, float_tokens(pass, floats));
      activations.buffers.push_back(std::move(buffer));
    }
    return activations;
  }
  // K's first channel in a row of qkv, which lies behind all heads of Q.
  Element* keys_of(Element* qkv) const {
    return reinterpret_cast<Element*>(reinterpret_cast<std::byte*>(qkv) +
                                      attended_ * shape_.element);
  }
  const Element* keys_of(const Element* qkv) const {
    return keys_of(const_cast<Element*>(qkv));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  }
  static Element* value_of(const Pass& pass, std::size_t index) {
    return index == kNoWeight ? nullptr : pass.value[index];
  }
  static float* gradient_of(const Pass& pass, std::size_t index) {
    return index == kNoWeight ? nullptr : pass.gradient[index];
  }

  Element* prepare(const Pass& pass, const KeptActivations& activations, const Work& work,
                   bool first_time) const;
  void attention_part(const Pass& pass, const KeptActivations& activations, const Work& work) const;
  void mlp_part(const Pass& pass, const KeptActivations& activations, const Work& work,
                Element* output) const;
  void mlp_input(const Pass& pass, const KeptActivations& activations, const Element* dout,
                 Element* dgate_up, Element* dmiddle, const Work& work) const;
  void attention_input(const Pass& pass, const KeptActivations& activations, const Element* dmiddle,
                       Element* dqkv, const Work& work) const;
  void norm1_input(const Pass& pass, const KeptActivations& activations, const Element* dqkv,
                   const Element* dmiddle, Element* dx, const Work& work) const;
  void down_weights(const Pass& pass, const KeptActivations& kept, const Element* dout,
                    const Work& work) const;
  void gate_up_weights(const Pass& pass, const KeptActivations& kept, const Element* dgate_up,
                       const Work& work) const;
  void output_weights(const Pass& pass, const KeptActivations& kept, const Element* dmiddle) const;
  void qkv_weights(const Pass& pass, const KeptActivations& kept, const Element* dqkv,
                   const Work& work) const;

  DecoderLayerShape shape_;
  int qkv_, attended_, widest_, narrow_;  // (H+2G)D, HD, and numbers per token of what is shared
  const LlamaWeights weights_;
  LayerInfo info_;
};

// Returns qkv'. In backward, `first_time` is false: what has been turned in place is so already.
Element* LlamaBlock::prepare(const Pass& pass, const KeptActivations& activations, const Work& work,
                             bool first_time) const {
  Element* qkv = kept(activations, kQkv);
  if (!shape_.norms_heads) {
    if (first_time) pass.ops.run(rotary(pass, 1, qkv));
    return qkv;
  }
  const std::size_t bytes = activations.buffers[kQkv].size();
  auto* const prepared = work.prepared.as<Element>();
  float* const of_q = kept_floats(activations, kHeadStatistics);
  float* const of_k = of_q + std::ptrdiff_t{rows(pass)} * shape_.heads;
  pass.ops.run(ops::Copy{prepared, qkv, bytes});
  pass.ops.run(ops::RmsNormForward{head_norm(pass, shape_.heads), qkv, pass.value[weights_.q_norm],
                                   prepared, of_q});
  pass.ops.run(ops::RmsNormForward{head_norm(pass, shape_.kv_heads), keys_of(qkv),
                                   pass.value[weights_.k_norm], keys_of(prepared), of_k});
  pass.ops.run(rotary(pass, 1, prepared));
  return prepared;
}

void LlamaBlock::attention_part(const Pass& pass, const KeptActivations& activations,
                                const Work& work) const {
  const int c = shape_.channels, r = rows(pass);
  const auto& w = pass.value;
  const Element* x = kept(activations, kInput);
  pass.ops.run(ops::RmsNormForward{norm(pass), x, w[weights_.norm1], work.rows(),
                                   kept_floats(activations, kStatistics)});
  pass.ops.run(ops::LinearForward{{r, c, qkv_},
                                  work.rows(),
                                  w[weights_.qkv],
                                  value_of(pass, weights_.qkv_bias),
                                  nullptr,
                                  kept(activations, kQkv)});
  const Element* qkv = prepare(pass, activations, work, true);
  pass.ops.run(ops::AttentionForward{attention(pass.samples), qkv, kept(activations, kAttended),
                                     kept_floats(activations, kLogSums), work.scratch.as<float>()});
  pass.ops.run(ops::LinearForward{{r, attended_, c},
                                  kept(activations, kAttended),
                                  w[weights_.output],
                                  value_of(pass, weights_.output_bias),
                                  x,
                                  kept(activations, kMiddle)});
}

void LlamaBlock::mlp_part(const Pass& pass, const KeptActivations& activations, const Work& work,
                          Element* output) const {
  const int c = shape_.channels, f = shape_.ffn, r = rows(pass);
  const auto& w = pass.value;
  const Element* middle = kept(activations, kMiddle);
  Element* gate_up = kept(activations, kGateUp);
  pass.ops.run(ops::RmsNormForward{norm(pass), middle, w[weights_.norm2], work.rows(),
                                   kept_floats(activations, kStatistics) + r});
  pass.ops.run(ops::LinearForward{
      {r, c, 2 * f}, work.rows(), w[weights_.gate_up], nullptr, nullptr, gate_up});
  pass.ops.run(ops::SwigluForward{swiglu(pass), gate_up, work.rows()});
  pass.ops.run(
      ops::LinearForward{{r, f, c}, work.rows(), w[weights_.down], nullptr, middle, output});
}

void LlamaBlock::mlp_input(const Pass& pass, const KeptActivations& activations,
                           const Element* dout, Element* dgate_up, Element* dmiddle,
                           const Work& work) const {
  const int c = shape_.channels, f = shape_.ffn, r = rows(pass);
  const auto& w = pass.value;
  pass.ops.run(ops::LinearBackwardInput{{r, f, c}, dout, w[weights_.down], work.rows()});
  pass.ops.run(
      ops::SwigluBackward{swiglu(pass), kept(activations, kGateUp), work.rows(), dgate_up});
  pass.ops.run(ops::LinearBackwardInput{{r, c, 2 * f}, dgate_up, w[weights_.gate_up], work.rows()});
  pass.ops.run(ops::RmsNormBackward{norm(pass), kept(activations, kMiddle),
                                    kept_floats(activations, kStatistics) + r, w[weights_.norm2],
                                    work.rows(), dout, dmiddle, pass.gradient[weights_.norm2]});
}

void LlamaBlock::attention_input(const Pass& pass, const KeptActivations& activations,
                                 const Element* dmiddle, Element* dqkv, const Work& work) const {
  const int c = shape_.channels, r = rows(pass);
  const auto& w = pass.value;
  const auto& dw = pass.gradient;
  pass.ops.run(
      ops::LinearBackwardInput{{r, attended_, c}, dmiddle, w[weights_.output], work.rows()});
  const Element* qkv = prepare(pass, activations, work, false);
  pass.ops.run(ops::AttentionBackward{attention(pass.samples), qkv, kept(activations, kAttended),
                                      kept_floats(activations, kLogSums), work.rows(), dqkv,
                                      work.scratch.as<float>()});
  pass.ops.run(rotary(pass, -1, dqkv));
  if (!shape_.norms_heads) return;
  const Element* before = kept(activations, kQkv);
  const float* of_q = kept_floats(activations, kHeadStatistics);
  const float* of_k = of_q + std::ptrdiff_t{r} * shape_.heads;
  pass.ops.run(ops::RmsNormBackward{head_norm(pass, shape_.heads), before, of_q, w[weights_.q_norm],
                                    dqkv, nullptr, dqkv, dw[weights_.q_norm]});
  pass.ops.run(ops::RmsNormBackward{head_norm(pass, shape_.kv_heads), keys_of(before), of_k,
                                    w[weights_.k_norm], keys_of(dqkv), nullptr, keys_of(dqkv),
                                    dw[weights_.k_norm]});
}

void LlamaBlock::norm1_input(const Pass& pass, const KeptActivations& activations,
                             const Element* dqkv, const Element* dmiddle, Element* dx,
                             const Work& work) const {
  const auto& w = pass.value;
  pass.ops.run(ops::LinearBackwardInput{
      {rows(pass), shape_.channels, qkv_}, dqkv, w[weights_.qkv], work.rows()});
  pass.ops.run(ops::RmsNormBackward{norm(pass), kept(activations, kInput),
                                    kept_floats(activations, kStatistics), w[weights_.norm1],
                                    work.rows(), dmiddle, dx, pass.gradient[weights_.norm1]});
}

void LlamaBlock::down_weights(const Pass& pass, const KeptActivations& activations,
                              const Element* dout, const Work& work) const {
  pass.ops.run(ops::SwigluForward{swiglu(pass), kept(activations, kGateUp), work.rows()});
  pass.ops.run(ops::LinearBackwardParameters{{rows(pass), shape_.ffn, shape_.channels},
                                             work.rows(),
                                             dout,
                                             pass.gradient[weights_.down],
                                             nullptr});
}

void LlamaBlock::gate_up_weights(const Pass& pass, const KeptActivations& activations,
                                 const Element* dgate_up, const Work& work) const {
  pass.ops.run(ops::RmsNormApply{norm(pass), kept(activations, kMiddle),
                                 kept_floats(activations, kStatistics) + rows(pass),
                                 pass.value[weights_.norm2], work.rows()});
  pass.ops.run(ops::LinearBackwardParameters{{rows(pass), shape_.channels, 2 * shape_.ffn},
                                             work.rows(),
                                             dgate_up,
                                             pass.gradient[weights_.gate_up],
                                             nullptr});
}

void LlamaBlock::output_weights(const Pass& pass, const KeptActivations& activations,
                                const Element* dmiddle) const {
  pass.ops.run(ops::LinearBackwardParameters{{rows(pass), attended_, shape_.channels},
                                             kept(activations, kAttended),
                                             dmiddle,
                                             pass.gradient[weights_.output],
                                             gradient_of(pass, weights_.output_bias)});
}

void LlamaBlock::qkv_weights(const Pass& pass, const KeptActivations& activations,
                             const Element* dqkv, const Work& work) const {
  pass.ops.run(ops::RmsNormApply{norm(pass), kept(activations, kInput),
                                 kept_floats(activations, kStatistics), pass.value[weights_.norm1],
                                 work.rows()});
  pass.ops.run(ops::LinearBackwardParameters{{rows(pass), shape_.channels, qkv_},
                                             work.rows(),
                                             dqkv,
                                             pass.gradient[weights_.qkv],
                                             gradient_of(pass, weights_.qkv_bias)});
}

}  // namespace

std::unique_ptr<Layer> make_llama_block(const DecoderLayerShape& shape, int index) {
  return std::make_unique<LlamaBlock>(shape, index);
}

}  // namespace weir::stage
