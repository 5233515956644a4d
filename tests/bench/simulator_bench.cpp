// SPDX-License-Identifier: Apache-2.0
// Time of one simulated step and of one whole evaluation by the tuner: 20 plans x 16 rate vectors.
//   simulator_bench
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "operator/adaptation/retune/tune.h"
#include "worker/base/random.h"
#include "worker/base/units.h"
#include "worker/schedule/search_caps.h"

namespace weir::bench {
namespace {

using namespace std::chrono_literals;

// Median over `rounds` of the microseconds that `work` takes.
template <class Work>
double microseconds(int rounds, Work work) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    times.push_back(1e6 * to_seconds(std::chrono::steady_clock::now() - start));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

schedule::Schedule plan_of(std::vector<int> caps, schedule::Dispatch dispatch) {
  schedule::Schedule plan;
  plan.dispatch = dispatch;
  plan.k = schedule::k_of_caps(caps);
  plan.caps = std::move(caps);
  return plan;
}

schedule::PipelineModel model_of(int stages, double c) {
  schedule::PipelineModel model;
  model.stages.assign(
      static_cast<std::size_t>(stages),
      {.forward = 10ms, .backward = 20ms, .backward_input = 10ms, .backward_weights = 10ms});
  model.forward.assign(static_cast<std::size_t>(stages - 1),
                       {.transfer = from_seconds(c), .latency = 100us, .trace = {}});
  model.backward = model.forward;
  return model;
}

void simulator(int stages, int micro_batches) {
  const schedule::PipelineModel model = model_of(stages, 0.012);
  double last = 0;
  for (const auto dispatch : {schedule::Dispatch::kStrict, schedule::Dispatch::kHint}) {
    const auto plan = plan_of(schedule::kfkb_caps(stages, micro_batches, 2), dispatch);
    last = microseconds(300, [&] { (void)schedule::simulate(plan, micro_batches, model); });
    std::printf("one step, S=%d M=%d %s: %.1f us\n", stages, micro_batches,
                schedule::name(dispatch), last);
  }
  const std::vector<int> most(static_cast<std::size_t>(stages), micro_batches);
  std::printf("20 plans x 16 vectors, S=%d M=%d: %.1f ms\n", stages, micro_batches,
              20 * 16 * last / 1e3);
  std::printf("search for caps, S=%d M=%d: %.0f us\n", stages, micro_batches,
              microseconds(20, [&] { (void)schedule::opt_caps(model, micro_batches, most); }));
}

retune::Input input_of(int stages, bool sizes, bool splits) {
  Random random(1);
  retune::Input input;
  input.current = plan_of(schedule::kfkb_caps(stages, 32, 1), schedule::Dispatch::kStrict);
  input.current.micro_batch_size = 4;
  input.micro_batches = 32;
  input.settings.splits = splits;
  input.stages = model_of(stages, 0).stages;
  input.boundary_bytes.assign(static_cast<std::size_t>(stages - 1), 1'000'000);
  for (int i = 0; i < 16; ++i) input.rates.times.push_back(retune::SystemTime(1h) + 5s * i);
  for (int b = 0; b + 1 < stages; ++b) {
    for (const auto direction : {estimator::Direction::kForward, estimator::Direction::kBackward}) {
      auto& rates = input.rates.rates[{0, b, direction}];
      for (int i = 0; i < 16; ++i) rates.push_back(3e7 + 3e8 * random.uniform());  // no two alike
    }
  }
  for (const int size : {1, 2, 8, 16}) {
    if (!sizes) break;
    retune::Size other{.micro_batch_size = size, .micro_batches = 128 / size};
    for (const auto& stage : input.stages)
      other.stages.push_back({.forward = stage.forward * size / 4,
                              .backward = stage.backward * size / 4,
                              .backward_input = stage.backward_input * size / 4,
                              .backward_weights = stage.backward_weights * size / 4});
    other.boundary_bytes.assign(input.boundary_bytes.size(), 250'000 * size);
    input.other_sizes.push_back(std::move(other));
  }
  return input;
}

void evaluation(int stages, bool sizes, bool splits) {
  const retune::Input input = input_of(stages, sizes, splits);
  retune::Tuned tuned;
  const double time = microseconds(5, [&] { tuned = retune::tune(input, retune::State{}); });
  std::printf(
      "evaluation, S=%d M=32%s%s, 16 different vectors: %.1f ms, %zu plans costed, %d steps "
      "simulated\n",
      stages, sizes ? " and 4 other sizes" : "", splits ? ", backwards may be split" : "",
      time / 1e3, tuned.decision.candidates.size(), tuned.decision.simulations);
  retune::State state = tuned.state;
  state.record.wins_in_row = 0;  // a wanted change is costed again, whatever moved
  retune::Input later = input;
  later.step = 100;
  for (auto& at : later.rates.times) at += 60s;
  const double quiet = microseconds(50, [&] { tuned = retune::tune(later, state); });
  std::printf("  again while no rate moved: %.0f us, %d steps simulated\n", quiet,
              tuned.decision.simulations);
}

}  // namespace
}  // namespace weir::bench

int main() {
  weir::bench::simulator(4, 32);
  weir::bench::simulator(8, 32);
  for (const bool splits : {false, true}) {
    weir::bench::evaluation(4, false, splits);
    weir::bench::evaluation(8, false, splits);
    weir::bench::evaluation(16, false, splits);
    weir::bench::evaluation(4, true, splits);
  }
  return 0;
}
