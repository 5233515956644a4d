// SPDX-License-Identifier: Apache-2.0
// One layer of a model: shapes, parameters, forward and backward. A layer holds no data: parameters
// and kept activations are passed with each call. So describing a model needs no memory, and
// several micro-batches can be in flight. Called by the thread that calls the stage.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/stage/ops/kernels.h"
#include "worker/stage/stage.h"

namespace weir::stage {

struct ParameterSpec {
  std::string name;  // e.g. "attn.qkv.weight"
  std::vector<std::int64_t> shape;
  float mean = 0;
  // Initial values are uniform with this standard deviation. Uniform values are exact on every
  // machine; a normal distribution (logarithm, cosine) is not, and training works as well.
  float deviation = 0;
  // backward_weights() makes its gradient instead of backward_input(). A layer none of whose
  // parameters says so cannot split its backward.
  bool late = false;
  // Whether weight decay applies; unset: to two or more dimensions, not to biases and norms.
  std::optional<bool> decay = std::nullopt;
  // It begins at a multiple of so many values, counted from the layer's first one; the gap before
  // the next parameter is zero.
  std::int64_t alignment = 1;
  // Files of Hugging Face have it with its two dimensions exchanged.
  bool transposed = false;
  // Frozen: it has a value only, which no step changes. Its gradient is a null pointer.
  bool trainable = true;
  // A parameter of the last layer: the one of the first layer whose table it is (Model::ties).
  std::string tied_to = "";

  bool decays() const { return decay.value_or(shape.size() >= 2); }
  std::int64_t count() const {
    std::int64_t product = 1;
    for (const auto extent : shape) product *= extent;
    return product;
  }
  std::int64_t count_with_gap() const { return (count() + alignment - 1) / alignment * alignment; }
};

// Values are in the model's precision. Values and gradients are in the order of parameters().
struct Pass {
  device::Device& device;
  ops::Kernels& ops;  // of that device
  const std::vector<ops::Element*>& value;
  const std::vector<float*>& gradient;  // of this micro-batch: Layer::adds_gradients()
  int samples = 0;
  std::int64_t step = 0;
  std::uint64_t seed = 0;  // of random numbers: from the job's seed, step and first sample
  bool training = true;    // false: an evaluation
  // Forward only. False: no backward follows, and what forward keeps is dropped at once.
  bool keeps = true;
  // Forward only, in memory of `device`. Layers that need them read the inputs, the last one the
  // targets.
  Tokens tokens;
  float loss_scale = 0;  // weight of one token in the loss: 1 / (tokens of the global batch)
  // Forward of the last layer: sum over the tokens, not yet divided; in staging memory.
  double* loss = nullptr;
};

// Activations that forward keeps for backward. Their size is activation_bytes_per_sample x samples,
// and between the parts of a split backward held_bytes_per_sample x samples.
struct KeptActivations {
  std::vector<device::Buffer> buffers;
  // A layer that keeps activations in memory of its own: its predicted bytes, and the object whose
  // end frees it. It ends before the buffers do.
  std::int64_t others_bytes = 0;
  std::shared_ptr<void> owner;

  std::int64_t bytes() const {
    std::int64_t total = others_bytes;
    for (const auto& buffer : buffers) total += static_cast<std::int64_t>(buffer.size());
    return total;
  }
};

struct Forward {
  device::Buffer output;  // empty for the last layer
  KeptActivations activations;
};

struct InputGradient {
  device::Buffer gradient;  // empty for the first layer
  KeptActivations held;     // for backward_weights
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual const LayerInfo& info() const = 0;
  virtual const std::vector<ParameterSpec>& parameters() const = 0;
  virtual std::int64_t input_bytes_per_sample() const = 0;  // 0 for the first layer
  // For layers that keep the addresses of their parameters: called once, before all calls below.
  // The addresses are valid until the layer ends. Fails as a forward does.
  virtual Status attach(const std::vector<ops::Element*>& /*value*/,
                        const std::vector<float*>& /*gradient*/) {
    return Unit{};
  }
  // For layers with initial values of their own, in memory of the host.
  virtual bool has_initial_values() const { return false; }
  virtual Status set_initial(std::size_t /*parameter*/, std::span<float> /*values*/) {
    return Unit{};
  }
  // False: a backward writes the gradients of all parameters that are trained, whatever they were.
  // True: it adds to them, and the stage zeroes them before.
  virtual bool adds_gradients() const { return false; }
  // All fail only with kInternal, if no memory is left, and with kModel, if the layer is somebody
  // else's code. Nothing is kept then.
  virtual Result<Forward> forward(const Pass& pass, const device::Buffer& input) const = 0;
  // Returns the gradient of the input; empty for the first layer.
  virtual Result<device::Buffer> backward(const Pass& pass, const KeptActivations& activations,
                                          const device::Buffer& output_gradient) const = 0;
  // The same backward in two calls, which give the same bits (worker/stage/README.md "Split
  // backward"). The first one returns the gradient of the input, the second one makes the
  // gradients of the parameters that are `late`. A layer that cannot split does all in the first; a
  // first layer whose parameters are all late leaves all to the second.
  virtual Result<InputGradient> backward_input(const Pass& pass, KeptActivations activations,
                                               const device::Buffer& output_gradient) const;
  virtual Status backward_weights(const Pass& pass, const KeptActivations& held) const;
};

using Layers = std::vector<std::unique_ptr<Layer>>;

// A model whose layers do not come from the registry.
class LayerSource {
 public:
  virtual ~LayerSource() = default;
  virtual std::string name() const = 0;
  virtual std::string engine() const = 0;          // the program that computes; "" = unknown
  virtual std::string note() const { return ""; }  // a remark for the user
  virtual Layers layers() const = 0;               // all layers, made anew
  // Text for the digest: facts of the model that its parameters do not show.
  virtual std::string facts() const { return ""; }
  // The section `export` of checkpoints (worker/checkpoint/README.md); "" = no export.
  virtual std::string export_json() const { return ""; }
  // Text of where initial values come from, which ranks compare; "" = they follow from the options.
  virtual std::string content() const { return ""; }
  // Initial values of parameters, in memory of the host, if the layers themselves have none.
  virtual bool has_initial_values() const { return false; }
  virtual Status set_initial(const ParameterSpec& /*parameter*/,
                             std::span<float> /*values*/) const {
    return Unit{};
  }
};

// kInternal with the requested size and the memory in use.
Error no_memory(const device::Device& device, std::size_t bytes);
// Memory for samples x values_per_sample numbers of value_bytes each, not initialised.
Result<device::Buffer> allocate_values(device::Device& device, int samples,
                                       std::int64_t values_per_sample, std::int64_t value_bytes);

// The sums of the counts of the parameters that are trained, and of those that are frozen, in bytes
// of float32.
std::int64_t parameter_bytes(const std::vector<ParameterSpec>& parameters);
std::int64_t frozen_bytes(const std::vector<ParameterSpec>& parameters);

}  // namespace weir::stage
