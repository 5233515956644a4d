// SPDX-License-Identifier: Apache-2.0
// The demo as the tuner sees it, for its tests: quiet, and with a link that another tenant has
// taken.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "operator/adaptation/retune/tune.h"

namespace weir::retune::test {

using namespace std::chrono_literals;
using estimator::Direction;

inline constexpr std::int64_t kBytes = 120'000;
inline const double kNoTraffic = std::numeric_limits<double>::quiet_NaN();

// S=4, M=16, f=20 ms, b=40 ms, every transfer 0.4 ms: the quiet demo at k=1.
inline Input quiet_demo() {
  Input input;
  input.micro_batches = 16;
  input.current.dispatch = schedule::Dispatch::kStrict;
  input.current.caps = schedule::kfkb_caps(4, 16, 1);
  input.stages.assign(4, {20ms, 40ms});
  input.boundary_bytes.assign(3, kBytes);
  input.step = 1000;
  input.now = SystemTime(1000h);
  for (int i = 0; i < 16; ++i) input.rates.times.push_back(input.now + 5s * (i - 16));
  for (int b = 0; b < 3; ++b)
    for (const Direction direction : {Direction::kForward, Direction::kBackward})
      input.rates.rates[{0, b, direction}].assign(16, kBytes / 0.0004);
  return input;
}

inline void set_transfer(Input& input, int boundary, double seconds) {
  for (const Direction direction : {Direction::kForward, Direction::kBackward})
    input.rates.rates[{0, boundary, direction}].assign(input.rates.times.size(), kBytes / seconds);
}
inline Input preempted_demo() {
  Input input = quiet_demo();
  set_transfer(input, 1, 0.024);
  return input;
}
// One evaluation later: 15 s, 3 scrapes, 4 steps.
inline void pass_time(Input& input) {
  input.now += 15s;
  input.step += 4;
  for (SystemTime& time : input.rates.times) time += 15s;
}
// Evaluates the same rates `times` times; the first after what the state saw last.
inline Tuned evaluate(Input input, int times = 1, State state = {}) {
  while (state.evaluated_scrape && input.rates.times.size() >= 2 &&
         *state.evaluated_scrape >= input.rates.times[input.rates.times.size() - 2])
    pass_time(input);
  Tuned tuned{{}, std::move(state)};
  for (int i = 0; i < times; ++i) {
    tuned = tune(input, tuned.state);
    pass_time(input);
  }
  return tuned;
}
inline void set_current(Input& input, std::vector<int> caps, schedule::Dispatch dispatch) {
  input.current.k = schedule::k_of_caps(caps);
  input.current.caps = std::move(caps);
  input.current.dispatch = dispatch;
}

}  // namespace weir::retune::test
