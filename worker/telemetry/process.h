// SPDX-License-Identifier: Apache-2.0
// process_* of this process from /proc/self, under the names that every Prometheus client uses.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "worker/telemetry/metric.h"

namespace weir::telemetry {

struct ProcessStat {
  double cpu_seconds = 0;  // user and system
  double threads = 0;
  double start_seconds = 0;  // after the machine's start
  double virtual_bytes = 0, resident_bytes = 0;
};

// One line of /proc/<pid>/stat (proc(5)); nothing when it is not one. The program's name in it may
// hold spaces and parentheses.
std::optional<ProcessStat> parse_stat(std::string_view line, double ticks_per_second,
                                      double page_bytes);

// What /proc does not give is left out.
std::vector<Family> process_families();

}  // namespace weir::telemetry
