// SPDX-License-Identifier: Apache-2.0
// A Stage without arithmetic, for emulated stages of which only the time counts, so that the host
// need not repeat a device's work.
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "worker/base/random.h"
#include "worker/emulate/stage_around.h"
#include "worker/emulate/stages.h"
#include "worker/stage/layer.h"
#include "worker/stage/measure.h"

namespace weir::emulate {
namespace {

using device::Buffer;
using stage::Precision;

class IdleStage final : public StageAround {
 public:
  IdleStage(std::unique_ptr<Stage> inner, Precision precision)
      : StageAround(std::move(inner)), precision_(precision) {}

  Result<Buffer> forward(int /*micro_batch*/, const Buffer& /*input*/,
                         const Tokens& tokens) override {
    samples_ = tokens.samples;
    return numbers(output_bytes(samples_), kForward);
  }
  Result<Buffer> backward(int /*micro_batch*/, const Buffer& /*output_gradient*/) override {
    return numbers(input_bytes(samples_), kBackward);
  }
  Result<Buffer> backward_input(int /*micro_batch*/, const Buffer& /*output_gradient*/) override {
    return numbers(input_bytes(samples_), kBackward);
  }
  Status backward_weights(int /*micro_batch*/) override { return Unit{}; }
  void begin_evaluation() override {}
  Result<Evaluated> evaluate(const Buffer& /*input*/, const Tokens& tokens) override {
    WEIR_TRY(Buffer output, numbers(output_bytes(tokens.samples), kForward));
    return Evaluated{.output = std::move(output),
                     .loss_sum = std::numeric_limits<double>::quiet_NaN()};
  }
  void begin_step(std::int64_t /*step*/, int /*step_samples*/) override {}
  void resume_step(std::int64_t /*step*/, int /*step_samples*/) override {}
  void optimizer_step() override {}
  Result<std::vector<double>> gradient_squares() override {
    return std::vector<double>(layer_sums().size(), 0.0);
  }
  bool trains() const override { return false; }

 private:
  enum Way : unsigned char { kForward, kBackward };

  // The numbers are made once. Each message is a copy, because an earlier one may still be read.
  Result<Buffer> numbers(std::int64_t bytes, Way way) {
    const auto size = static_cast<std::size_t>(bytes);
    Buffer& made = made_.at(way);
    if (made.size() != size) {
      Random random(1 + std::uint64_t{way});
      WEIR_TRY(made, stage::random_values(device(), bytes, precision_, random));
    }
    if (size == 0) return Buffer();
    Buffer copy = device().allocate(size);
    if (!copy) return stage::no_memory(device(), size);
    WEIR_TRY([[maybe_unused]] const Unit copied, device().copy(copy.data(), made.data(), size));
    return copy;
  }

  const Precision precision_;
  int samples_ = 1;  // micro-batches of a step have equal sizes
  std::array<Buffer, 2> made_;
};

}  // namespace

std::unique_ptr<Stage> idle_stage(std::unique_ptr<Stage> inner, Precision precision) {
  return std::make_unique<IdleStage>(std::move(inner), precision);
}

}  // namespace weir::emulate
