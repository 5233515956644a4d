// SPDX-License-Identifier: Apache-2.0
// Reads the files of the CPU controller as they are mounted in a container.
#include "worker/base/cpus.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <string>
#include <thread>

#include "worker/base/file_text.h"

namespace weir {
namespace {

std::optional<std::int64_t> positive(std::string_view text) {
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc{} && value > 0 ? std::optional(value) : std::nullopt;
}

int affinity() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  // It fails on machines with more CPUs than the mask has bits.
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return CPU_COUNT(&mask);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

std::optional<double> cpu_quota(std::string_view quota_us, std::string_view period_us) {
  const auto quota = positive(quota_us), period = positive(period_us);
  if (!quota || !period) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> cpu_quota(std::string_view cpu_max) {
  const std::size_t space = cpu_max.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  return cpu_quota(cpu_max.substr(0, space), cpu_max.substr(space + 1));
}

int usable_cpus(int affinity, std::optional<double> quota) {
  double cpus = std::max(affinity, 1);
  if (quota) cpus = std::min(cpus, std::max(std::ceil(*quota), 1.0));
  return static_cast<int>(cpus);
}

int usable_cpus() {
  std::optional<double> quota = cpu_quota(file_text("/sys/fs/cgroup/cpu.max"));
  if (!quota) {
    quota = cpu_quota(file_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
                      file_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
  }
  return usable_cpus(affinity(), quota);
}

}  // namespace weir
