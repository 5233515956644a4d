// SPDX-License-Identifier: Apache-2.0
// Times each layer on scratch data (the Measure phase before step 0), layer by layer, so that
// memory is that of one layer.
#pragma once

#include <chrono>
#include <stop_token>
#include <vector>

#include "worker/base/random.h"
#include "worker/base/result.h"
#include "worker/stage/stage.h"

namespace weir::stage {

struct LayerTiming {
  int samples = 1;
  std::chrono::nanoseconds forward{0}, backward{0}, update{0};  // medians over the rounds
};

// One list per layer, one entry per element of `samples`. Layers of equal kind are timed once.
// Checks stop between ops.
Result<std::vector<std::vector<LayerTiming>>> measure(const Model& model, device::Device& device,
                                                      const std::vector<int>& samples, int rounds,
                                                      const std::stop_token& stop);

// Memory of the device with so many bytes of numbers on [-1, 1), of that precision. None for 0.
Result<device::Buffer> random_values(device::Device& device, std::int64_t bytes,
                                     Precision precision, Random& random);

}  // namespace weir::stage
