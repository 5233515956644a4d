// SPDX-License-Identifier: Apache-2.0
#include "worker/base/cpu_shortage.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <utility>

#include "worker/base/file_text.h"

namespace weir {
namespace {

// The number at the beginning, after spaces.
double number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return static_cast<double>(value);
}

double number_behind(std::string_view text, std::string_view name) {
  for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
    const bool begins = at == 0 || text[at - 1] == '\n';
    const std::string_view rest = text.substr(at + name.size());
    if (begins && rest.starts_with(' ')) return number_in(rest);
  }
  return 0;
}

CpuShortage total() {
  std::string cpu_stat = file_text("/sys/fs/cgroup/cpu.stat");
  if (cpu_stat.empty()) cpu_stat = file_text("/sys/fs/cgroup/cpu/cpu.stat");
  return {.queued_seconds = queued_seconds(file_text("/proc/thread-self/schedstat")),
          .throttled_seconds = throttled_seconds(cpu_stat)};
}

}  // namespace

double queued_seconds(std::string_view schedstat) {
  const std::size_t space = schedstat.find(' ');
  return space == schedstat.npos ? 0 : 1e-9 * number_in(schedstat.substr(space));
}

double throttled_seconds(std::string_view cpu_stat) {
  return 1e-6 * number_behind(cpu_stat, "throttled_usec") +
         1e-9 * number_behind(cpu_stat, "throttled_time");
}

CpuShortage CpuShortageMeter::take(SteadyTime now) {
  constexpr auto kEvery = std::chrono::milliseconds(50);
  const bool first = measured_ == SteadyTime{};
  if (!first && now - measured_ < kEvery) return {};
  measured_ = now;
  const CpuShortage before = std::exchange(total_, total());
  if (first) return {};
  return {.queued_seconds = std::max(0.0, total_.queued_seconds - before.queued_seconds),
          .throttled_seconds = std::max(0.0, total_.throttled_seconds - before.throttled_seconds)};
}

}  // namespace weir
