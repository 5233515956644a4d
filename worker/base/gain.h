// SPDX-License-Identifier: Apache-2.0
// The one definition of a gain: the relative change of throughput. 0.25 means a quarter more, -0.2
// a fifth less. Every gain that is compared with minGainPercent, shown in events or written to
// status is computed here.
#pragma once

namespace weir {

// Gain of a change from steps of `before_seconds` to steps of `after_seconds`. Both are > 0.
constexpr double throughput_gain(double before_seconds, double after_seconds) {
  return before_seconds / after_seconds - 1;
}

// Part of the time that such a gain saves: a gain of 0.25 saves 0.2 of the time.
constexpr double saved_part(double gain) {
  return gain / (1 + gain);
}

}  // namespace weir
