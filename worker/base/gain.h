// SPDX-License-Identifier: Apache-2.0
// The one meaning of every gain that is compared with minGainPercent, shown in events or written to
// status: throughput, as a fraction. 0.25 = a quarter more, -0.2 = a fifth less.
#pragma once

namespace weir {

// What a change from steps of `before` seconds to steps of `after` gains. Both > 0.
constexpr double throughput_gain(double before_seconds, double after_seconds) {
  return before_seconds / after_seconds - 1;
}

// The part of the time that such a gain saves: 0.2 of 0.25.
constexpr double saved_part(double gain) {
  return gain / (1 + gain);
}

}  // namespace weir
