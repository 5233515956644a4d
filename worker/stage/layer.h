// SPDX-License-Identifier: Apache-2.0
// One layer of a model: shapes, parameters, forward and backward. Holds no data: parameters and
// stashes come with each call, so that describing a model costs nothing and several micro-batches
// may be in flight. Driven by the thread that drives the stage.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/stage/ops/kernels.h"
#include "worker/stage/stage.h"

namespace weir::stage {

struct ParameterSpec {
  std::string name;  // "attn.qkv.weight"
  std::vector<std::int64_t> shape;
  float mean = 0;
  // Initial values are uniform with this standard deviation: exact on every machine, which a normal
  // distribution (logarithm, cosine) is not; training does not notice.
  float deviation = 0;

  std::int64_t count() const {
    std::int64_t product = 1;
    for (const auto extent : shape) product *= extent;
    return product;
  }
};

// Values, in the model's precision, and gradients in the order of parameters().
struct Pass {
  device::Device& device;
  ops::Kernels& ops;  // of that device
  const std::vector<ops::Element*>& value;
  const std::vector<float*>& gradient;  // backward adds
  int samples = 0;
  Tokens tokens;           // forward only, in the memory of `device`: the first layer reads inputs,
                           // the last targets
  float loss_scale = 0;    // weight of one token in the loss: 1 / (tokens of the global batch)
  double* loss = nullptr;  // the last layer's forward: over the tokens, not yet divided; staging
                           // memory
};

// What forward keeps for backward; its size is stash_bytes_per_sample x samples.
struct Stash {
  std::vector<device::Buffer> buffers;

  std::int64_t bytes() const {
    std::int64_t total = 0;
    for (const auto& buffer : buffers) total += static_cast<std::int64_t>(buffer.size());
    return total;
  }
};

struct Forward {
  device::Buffer output;  // empty from the last layer
  Stash stash;
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual const LayerInfo& info() const = 0;
  virtual const std::vector<ParameterSpec>& parameters() const = 0;
  virtual std::int64_t input_bytes_per_sample() const = 0;  // 0: the first layer
  // The only failure of both: kInternal, no memory left. Nothing is kept then.
  virtual Result<Forward> forward(const Pass& pass, const device::Buffer& input) const = 0;
  // Returns the gradient of the input, empty from the first layer.
  virtual Result<device::Buffer> backward(const Pass& pass, const Stash& stash,
                                          const device::Buffer& output_gradient) const = 0;
};

using Layers = std::vector<std::unique_ptr<Layer>>;

// kInternal: what was asked for, what is in use.
Error no_memory(const device::Device& device, std::size_t bytes);
// samples x values_per_sample numbers of value_bytes each, not initialised.
Result<device::Buffer> allocate_values(device::Device& device, int samples,
                                       std::int64_t values_per_sample, std::int64_t value_bytes);

// The sum of all parameters' counts, in bytes of float32.
std::int64_t parameter_bytes(const std::vector<ParameterSpec>& parameters);

}  // namespace weir::stage
