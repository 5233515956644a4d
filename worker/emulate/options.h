// SPDX-License-Identifier: Apache-2.0
// The options of emulation.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "worker/base/result.h"
#include "worker/command_line/rows.h"

namespace weir::emulate {

struct Options {
  std::string profile;             // file; empty: compute is not emulated
  std::string device_class;        // one of the profile; may be empty if the profile has only one
  std::string slowness;            // file; may be empty
  bool idle = false;               // skip the arithmetic
  std::optional<int> send_window;  // a send blocks while more than this many are under way
  std::chrono::nanoseconds data_delay{0};  // of each sample
  std::chrono::nanoseconds save_delay{0};  // of each copy of the state for a checkpoint
  std::string pace_rate, pace_other_rate, pace_link, pace_trace;  // as given
  // The numbers are set by complete().
  double pace_bytes_per_second = 0;           // 0 = unlimited
  double pace_other_bytes_per_second = 0;     // for links other than the paced one; 0 = unlimited
  int pace_boundary = -1, pace_channel = -1;  // -1 = all
};

void add_options(Rows& rows, Options& options);
// Call when all options are known. kInvalid with one line that names the option.
Status complete(Options& options);

// A rate per second such as "40Mbit", "5MB" or "800kbit". The unit is required, because bits and
// bytes differ by 8.
Result<double> parse_rate(const std::string& text);

}  // namespace weir::emulate
