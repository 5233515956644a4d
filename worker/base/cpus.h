// SPDX-License-Identifier: Apache-2.0
// CPUs that this process may use: those of its affinity mask, or its container's quota (cgroup v2
// or v1) rounded up, whichever is less. The parsers take text, so that tests need no container.
// Thread-safe.
#pragma once

#include <optional>
#include <string_view>

namespace weir {

int usable_cpus();  // at least 1

// The quota in CPUs of cgroup v2's cpu.max, e.g. 1.5 of "150000 100000". Nothing for "max 100000"
// and for other text.
std::optional<double> cpu_quota(std::string_view cpu_max);
// The same of cgroup v1's cpu.cfs_quota_us and cpu.cfs_period_us. Nothing for a quota of -1.
std::optional<double> cpu_quota(std::string_view quota_us, std::string_view period_us);

// affinity: number of CPUs of the mask.
int usable_cpus(int affinity, std::optional<double> quota);

}  // namespace weir
