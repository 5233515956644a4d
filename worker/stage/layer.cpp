// SPDX-License-Identifier: Apache-2.0
// Functions that all layers share.
#include "worker/stage/layer.h"

#include <algorithm>
#include <utility>

namespace weir::stage {
namespace {

// A first layer sends no gradient. If all its parameters are late, nobody waits for its backward.
bool is_late(const Layer& layer) {
  return layer.input_bytes_per_sample() == 0 && !layer.parameters().empty() &&
         std::ranges::all_of(layer.parameters(), &ParameterSpec::late);
}

std::int64_t bytes_of(const std::vector<ParameterSpec>& parameters, bool trainable) {
  std::int64_t count = 0;
  for (const auto& parameter : parameters) {
    if (parameter.trainable == trainable) count += parameter.count_with_gap();
  }
  return count * std::int64_t{sizeof(float)};
}

}  // namespace

Result<InputGradient> Layer::backward_input(const Pass& pass, KeptActivations activations,
                                            const device::Buffer& output_gradient) const {
  if (is_late(*this)) {
    activations.buffers.push_back(output_gradient);
    return InputGradient{.gradient = {}, .held = std::move(activations)};
  }
  WEIR_TRY(device::Buffer gradient, backward(pass, activations, output_gradient));
  return InputGradient{.gradient = std::move(gradient), .held = {}};
}

Status Layer::backward_weights(const Pass& pass, const KeptActivations& held) const {
  if (!is_late(*this)) return Unit{};
  WEIR_TRY([[maybe_unused]] const device::Buffer none, backward(pass, held, held.buffers.back()));
  return Unit{};
}

Error no_memory(const device::Device& device, std::size_t bytes) {
  return {Code::kInternal, "device " + device.name() +
                               " has no memory left: " + std::to_string(bytes) + " bytes wanted, " +
                               std::to_string(device.bytes_in_use()) + " of " +
                               std::to_string(device.memory_bytes()) + " in use"};
}

Result<device::Buffer> allocate_values(device::Device& device, int samples,
                                       std::int64_t values_per_sample, std::int64_t value_bytes) {
  const auto bytes = static_cast<std::size_t>(samples * values_per_sample * value_bytes);
  device::Buffer buffer = device.allocate(bytes);
  if (!buffer) return no_memory(device, bytes);
  return buffer;
}

std::int64_t parameter_bytes(const std::vector<ParameterSpec>& parameters) {
  return bytes_of(parameters, true);
}

std::int64_t frozen_bytes(const std::vector<ParameterSpec>& parameters) {
  return bytes_of(parameters, false);
}

}  // namespace weir::stage
