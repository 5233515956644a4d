// SPDX-License-Identifier: Apache-2.0
// A slow disk of training data, and a slow copy of a device's state.

#include <thread>
#include <utility>

#include "worker/base/check.h"
#include "worker/emulate/emulate.h"

namespace weir::emulate {
namespace {

class SlowDataset : public data::Dataset {
 public:
  SlowDataset(std::unique_ptr<data::Dataset> inner, std::chrono::nanoseconds delay)
      : inner_(std::move(inner)), delay_(delay) {
    WEIR_CHECK(inner_ != nullptr, "there is a dataset inside");
  }

  Status sample(std::int64_t step, int index, int global_batch, std::span<std::int32_t> inputs,
                std::span<std::int32_t> targets) const override {
    std::this_thread::sleep_for(delay_);
    return inner_->sample(step, index, global_batch, inputs, targets);
  }
  std::string description() const override { return inner_->description(); }
  std::string content() const override { return inner_->content(); }

 private:
  const std::unique_ptr<data::Dataset> inner_;
  const std::chrono::nanoseconds delay_;
};

}  // namespace

std::unique_ptr<data::Dataset> around(std::unique_ptr<data::Dataset> inner,
                                      std::chrono::nanoseconds delay) {
  if (delay.count() <= 0) return inner;
  return std::make_unique<SlowDataset>(std::move(inner), delay);
}

void delay_copy(std::chrono::nanoseconds delay) {
  if (delay.count() > 0) std::this_thread::sleep_for(delay);
}

}  // namespace weir::emulate
