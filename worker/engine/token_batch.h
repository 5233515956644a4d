// SPDX-License-Identifier: Apache-2.0
// The tokens of one micro-batch, in memory that is reused. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/stage/stage.h"

namespace weir::engine {

class TokenBatch {
 public:
  // Loads samples first .. first + samples - 1 of a step, with inputs, targets, both or neither;
  // all stages read the same samples. Valid until the next call. Returns errors of the dataset.
  Result<stage::Tokens> load(const data::Dataset& dataset, std::int64_t step, int first,
                             int samples, int step_samples, int sequence, bool inputs,
                             bool targets) {
    stage::Tokens tokens{.samples = samples, .first_sample = first};
    if (!inputs && !targets) return tokens;
    const auto length = static_cast<std::size_t>(sequence);
    inputs_.resize(static_cast<std::size_t>(samples) * length);
    targets_.resize(inputs_.size());
    for (int i = 0; i < samples; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * length;
      WEIR_OK(dataset.sample(step, first + i, step_samples, std::span(inputs_).subspan(at, length),
                             std::span(targets_).subspan(at, length)));
    }
    if (inputs) tokens.inputs = inputs_;
    if (targets) tokens.targets = targets_;
    return tokens;
  }

 private:
  std::vector<std::int32_t> inputs_, targets_;
};

}  // namespace weir::engine
