// SPDX-License-Identifier: Apache-2.0
// The metrics process_* of this process, read from /proc/self, with the names that every Prometheus
// client uses.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "worker/telemetry/metric.h"

namespace weir::telemetry {

struct ProcessStat {
  double cpu_seconds = 0;  // user and system
  double threads = 0;
  double start_seconds = 0;  // since the start of the machine
  double virtual_bytes = 0, resident_bytes = 0;
};

// Parses /proc/<pid>/stat (proc(5)). Nothing if the line has another form. The program's name in it
// may contain spaces and parentheses.
std::optional<ProcessStat> parse_stat(std::string_view line, double ticks_per_second,
                                      double page_bytes);

// Metrics that /proc does not provide are left out.
std::vector<Family> process_families();

}  // namespace weir::telemetry
