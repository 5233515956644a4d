// SPDX-License-Identifier: Apache-2.0
// Times each layer on scratch data (the Measure phase before step 0), one after the other, so that
// only one layer's memory is used.
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
  std::chrono::nanoseconds forward{0}, backward{0}, update{0};      // medians over the rounds
  std::chrono::nanoseconds backward_input{0}, backward_weights{0};  // a split backward
};

// Returns a list per layer with an entry per element of `samples`. Layers of equal kind are timed
// once. Checks `stop` between ops.
Result<std::vector<std::vector<LayerTiming>>> measure(const Model& model, device::Device& device,
                                                      const std::vector<int>& samples, int rounds,
                                                      const std::stop_token& stop);

// Memory of the device with `bytes` bytes of random numbers in [-1, 1) in that precision. An empty
// Buffer for 0 bytes.
Result<device::Buffer> random_values(device::Device& device, std::int64_t bytes,
                                     Precision precision, Random& random);

}  // namespace weir::stage
