// SPDX-License-Identifier: Apache-2.0
// A Stage that takes as long as a profile says. The deadline counts from the real start of the op,
// so the worker's own overhead remains visible (worker/transport/README.md "Traps of measuring").
#include <algorithm>
#include <cerrno>
#include <sys/prctl.h>
#include <time.h>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/clock.h"
#include "worker/base/units.h"
#include "worker/emulate/stage_around.h"
#include "worker/emulate/stages.h"
#include "worker/emulate/usual_lateness.h"

namespace weir::emulate {
namespace {

using std::chrono::nanoseconds;

constexpr std::size_t kMostSamples = 1 << 16;  // of lateness; beyond this the older half is dropped

void sleep(SteadyTime deadline) {
  const auto since_epoch =
      std::chrono::duration_cast<nanoseconds>(deadline.time_since_epoch()).count();
  constexpr std::int64_t kSecond = 1'000'000'000;
  const timespec until{.tv_sec = since_epoch / kSecond, .tv_nsec = since_epoch % kSecond};
  // libstdc++'s steady_clock is CLOCK_MONOTONIC.
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

class EmulatedStage final : public StageAround {
 public:
  EmulatedStage(std::unique_ptr<Stage> inner, StageTimes times,
                std::shared_ptr<stage::Lateness> lateness)
      : StageAround(std::move(inner)), times_(std::move(times)), lateness_(std::move(lateness)) {
    WEIR_CHECK(times_.forward && times_.backward && lateness_, "all parts are given");
    WEIR_CHECK(!times_.backward_input == !times_.backward_weights, "both parts, or neither");
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // for this thread; others set their own
  }

  Result<device::Buffer> forward(int micro_batch, const device::Buffer& input,
                                 const Tokens& tokens) override {
    const SteadyTime start = clock_.now();
    samples_ = tokens.samples;
    auto result = StageAround::forward(micro_batch, input, tokens);
    wait_until(start + slowed(times_.forward(samples_), start));
    return result;
  }
  // Micro-batches of a step have equal sizes, so the size is that of the last forward.
  Result<device::Buffer> backward(int micro_batch, const device::Buffer& output_gradient) override {
    const SteadyTime start = clock_.now();
    summing_ = {start, &times_.backward_until};
    auto result = StageAround::backward(micro_batch, output_gradient);
    wait_until(start + slowed(times_.backward(samples_), start));
    return result;
  }
  Result<device::Buffer> backward_input(int micro_batch,
                                        const device::Buffer& output_gradient) override {
    const SteadyTime start = clock_.now();
    auto result = StageAround::backward_input(micro_batch, output_gradient);
    const auto& time = times_.backward_input ? times_.backward_input : times_.backward;
    wait_until(start + slowed(time(samples_), start));
    return result;
  }
  Status backward_weights(int micro_batch) override {
    const SteadyTime start = clock_.now();
    summing_ = {start, &times_.weights_until};
    auto result = StageAround::backward_weights(micro_batch);
    if (times_.backward_weights) {
      wait_until(start + slowed(times_.backward_weights(samples_), start));
    }
    return result;
  }
  Result<Evaluated> evaluate(const device::Buffer& input, const Tokens& tokens) override {
    const SteadyTime start = clock_.now();
    auto result = StageAround::evaluate(input, tokens);
    wait_until(start + slowed(times_.forward(tokens.samples), start));
    return result;
  }
  void on_layer_summed(std::function<void(std::size_t)> hook) override {
    StageAround::on_layer_summed([this, hook = std::move(hook)](std::size_t layer) {
      const auto& [start, until] = summing_;
      if (*until) {
        const SteadyTime deadline = start + slowed((*until)(layer, samples_), start);
        // The op ends with the gradients of its first layer.
        layer == 0 ? wait_until(deadline) : static_cast<void>(sleep_until(deadline));
      }
      hook(layer);
    });
  }
  void begin_step(std::int64_t step, int step_samples) override {
    if (++steps_ == 1) first_begin_ = clock_.now();
    StageAround::begin_step(step, step_samples);
  }
  void optimizer_step() override {
    const SteadyTime start = clock_.now();
    StageAround::optimizer_step();
    if (times_.update > nanoseconds(0)) wait_until(start + slowed(times_.update, start));
  }

 private:
  nanoseconds slowed(nanoseconds time, SteadyTime start) const {
    if (!times_.slowness) return time;
    return from_seconds(times_.slowness(steps_, start - first_begin_) * to_seconds(time));
  }

  // False: it is over.
  bool sleep_until(SteadyTime deadline) {
    if (clock_.now() >= deadline) return false;
    const SteadyTime wanted = deadline - usual_.early();
    if (clock_.now() < wanted) {
      sleep(wanted);
      usual_.add(clock_.now() - wanted);
    }
    while (clock_.now() < deadline) {  // less than UsualLateness::kMost
    }
    return true;
  }

  void wait_until(SteadyTime deadline) {
    if (std::exchange(newest_, deadline) == deadline) return;
    if (!sleep_until(deadline)) {
      ++lateness_->overruns;
      return;
    }
    auto& kept = lateness_->samples;
    if (kept.size() >= kMostSamples) {
      kept.erase(kept.begin(), kept.begin() + kMostSamples / 2);
    }
    kept.push_back(clock_.now() - deadline);
  }

  SystemClock clock_;
  UsualLateness usual_;
  StageTimes times_;
  std::shared_ptr<stage::Lateness> lateness_;
  int samples_ = 1;
  std::int64_t steps_ = 0;  // number of steps that have begun
  SteadyTime first_begin_{};
  SteadyTime newest_{};  // deadline
  // The op under way that completes sums of layers.
  struct Summing {
    SteadyTime start{};
    const std::function<nanoseconds(std::size_t, int)>* until = nullptr;
  } summing_;
};

}  // namespace

std::unique_ptr<Stage> emulated_stage(std::unique_ptr<Stage> inner, StageTimes times,
                                      std::shared_ptr<stage::Lateness> lateness) {
  return std::make_unique<EmulatedStage>(std::move(inner), std::move(times), std::move(lateness));
}

}  // namespace weir::emulate
