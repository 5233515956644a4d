// SPDX-License-Identifier: Apache-2.0
// Runs each kind of layer as a stage of its own on random data. The first round warms caches and
// does not count.
#include "worker/stage/measure.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/clock.h"
#include "worker/stage/ops/kernels.h"
#include "worker/stage/ops/memory.h"

namespace weir::stage {
namespace {

using std::chrono::nanoseconds;

nanoseconds median(std::vector<nanoseconds> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// Data for the rounds of a layer with one number of samples.
struct Scratch {
  device::Buffer input, output_gradient;
  std::vector<std::int32_t> tokens;
};

Result<Scratch> make_scratch(const Model& model, const Stage& stage, int samples,
                             device::Device& device) {
  Random random(1);  // any data works, but it is equal in every run
  Scratch scratch;
  const Precision precision = model.options.precision;
  WEIR_TRY(scratch.input, random_values(device, stage.input_bytes(samples), precision, random));
  WEIR_TRY(scratch.output_gradient,
           random_values(device, stage.output_bytes(samples), precision, random));
  scratch.tokens.resize(static_cast<std::size_t>(samples) *
                        static_cast<std::size_t>(model.options.sequence));
  for (auto& token : scratch.tokens) {
    token = static_cast<std::int32_t>(
        random.below(static_cast<std::uint64_t>(model.options.vocabulary)));
  }
  return scratch;
}

// Times of the ops of one layer, by round.
struct Rounds {
  std::vector<nanoseconds> forward, backward, backward_input, backward_weights, update;
};

// A step of one micro-batch, with a whole backward or a split one.
Status time_step(Stage& stage, const Scratch& scratch, int samples, bool split, Rounds& rounds) {
  const SystemClock clock;
  SteadyTime last;
  const auto lap = [&](std::vector<nanoseconds>& times) {
    const SteadyTime now = clock.now();
    times.push_back(now - std::exchange(last, now));
  };
  stage.begin_step(0, samples);
  const Tokens tokens{.inputs = scratch.tokens, .targets = scratch.tokens, .samples = samples};
  last = clock.now();
  WEIR_TRY([[maybe_unused]] device::Buffer output, stage.forward(0, scratch.input, tokens));
  lap(rounds.forward);
  output = device::Buffer();
  last = clock.now();
  if (split) {
    WEIR_TRY([[maybe_unused]] const device::Buffer gradient,
             stage.backward_input(0, scratch.output_gradient));
    lap(rounds.backward_input);
    WEIR_OK(stage.backward_weights(0));
    lap(rounds.backward_weights);
  } else {
    WEIR_TRY([[maybe_unused]] const device::Buffer gradient,
             stage.backward(0, scratch.output_gradient));
    lap(rounds.backward);
  }
  stage.optimizer_step();
  lap(rounds.update);
  return Unit{};
}

Result<LayerTiming> time_layer(Stage& stage, const Scratch& scratch, int samples, int rounds,
                               const std::stop_token& stop) {
  Rounds warm, timed;
  for (int round = 0; round <= rounds; ++round) {
    for (const bool split : {false, true}) {
      if (stop.stop_requested()) return Error{Code::kCancelled, "measuring was stopped"};
      WEIR_OK(time_step(stage, scratch, samples, split, round == 0 ? warm : timed));
    }
  }
  return LayerTiming{.samples = samples,
                     .forward = median(timed.forward),
                     .backward = median(timed.backward),
                     .update = median(timed.update),
                     .backward_input = median(timed.backward_input),
                     .backward_weights = median(timed.backward_weights)};
}

}  // namespace

Result<std::vector<std::vector<LayerTiming>>> measure(const Model& model, device::Device& device,
                                                      const std::vector<int>& samples, int rounds,
                                                      const std::stop_token& stop) {
  WEIR_CHECK(rounds >= 1, "at least one round");
  std::map<std::string, std::vector<LayerTiming>> by_kind;
  std::vector<std::vector<LayerTiming>> result;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const auto [entry, is_new] = by_kind.try_emplace(model.layers[i].kind);
    if (is_new) {
      const int layer = static_cast<int>(i);
      WEIR_TRY(const std::unique_ptr<Stage> stage, make_stage(model, layer, layer, device));
      for (const int count : samples) {
        WEIR_CHECK(count >= 1, "at least one sample");
        WEIR_TRY(const Scratch scratch, make_scratch(model, *stage, count, device));
        WEIR_TRY(const LayerTiming timing, time_layer(*stage, scratch, count, rounds, stop));
        entry->second.push_back(timing);
      }
    }
    result.push_back(entry->second);
  }
  return result;
}

Result<device::Buffer> random_values(device::Device& device, std::int64_t bytes,
                                     Precision precision, Random& random) {
  if (bytes == 0) return device::Buffer();
  device::Buffer buffer = device.allocate_staging(static_cast<std::size_t>(bytes));
  if (!buffer) return Error{Code::kInternal, "device " + device.name() + " has no memory left"};
  std::vector<float> values(static_cast<std::size_t>(bytes / element_bytes(precision)));
  for (auto& value : values) value = static_cast<float>(2 * random.uniform() - 1);
  ops::make_host_kernels(precision)->run(
      ops::RoundValues{values.size(), values.data(), buffer.as<ops::Element>()});
  return device.upload(std::move(buffer));
}

}  // namespace weir::stage
