// SPDX-License-Identifier: Apache-2.0
#include "worker/telemetry/process.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace weir::telemetry {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Reads "btime 1700000000" of /proc/stat: the start of the machine in seconds since 1970.
double boot_seconds() {
  std::ifstream file("/proc/stat");
  for (std::string word; file >> word;) {
    double value = 0;
    if (word == "btime" && file >> value) return value;
  }
  return 0;
}

double open_descriptors() {
  std::error_code ec;
  double count = -1;  // not counting the descriptor that lists them
  for (std::filesystem::directory_iterator entry("/proc/self/fd", ec), end; !ec && entry != end;
       entry.increment(ec)) {
    ++count;
  }
  return count < 0 ? 0 : count;
}

Family one(const char* name, const char* help, Type type, double value) {
  return {name, help, type, {{{}, value, {}}}};
}

}  // namespace

std::optional<ProcessStat> parse_stat(std::string_view line, double ticks_per_second,
                                      double page_bytes) {
  const auto after_name = line.rfind(')');
  if (after_name == line.npos) return std::nullopt;
  // The words begin with field 3 of proc(5): utime 14, stime 15, threads 20, start 22, vsize 23,
  // rss 24.
  constexpr std::size_t kFirst = 3, kLast = 24;
  std::array<double, kLast + 1> field{};
  std::istringstream words{std::string(line.substr(after_name + 1))};
  std::string word;
  for (std::size_t i = kFirst; i <= kLast; ++i) {
    if (!(words >> word)) return std::nullopt;
    field[i] = std::strtod(word.c_str(), nullptr);
  }
  return ProcessStat{.cpu_seconds = (field[14] + field[15]) / ticks_per_second,
                     .threads = field[20],
                     .start_seconds = field[22] / ticks_per_second,
                     .virtual_bytes = field[23],
                     .resident_bytes = field[24] * page_bytes};
}

std::vector<Family> process_families() {
  std::vector<Family> out;
  const auto stat =
      parse_stat(first_line("/proc/self/stat"), static_cast<double>(sysconf(_SC_CLK_TCK)),
                 static_cast<double>(sysconf(_SC_PAGESIZE)));
  if (stat) {
    out.push_back(one("process_cpu_seconds_total", "User and system CPU time.", Type::kCounter,
                      stat->cpu_seconds));
    out.push_back(one("process_resident_memory_bytes", "Resident memory.", Type::kGauge,
                      stat->resident_bytes));
    out.push_back(
        one("process_virtual_memory_bytes", "Virtual memory.", Type::kGauge, stat->virtual_bytes));
    out.push_back(one("process_threads", "Threads.", Type::kGauge, stat->threads));
    out.push_back(one("process_start_time_seconds", "Start time since 1970.", Type::kGauge,
                      boot_seconds() + stat->start_seconds));
  }
  out.push_back(
      one("process_open_fds", "Open file descriptors.", Type::kGauge, open_descriptors()));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    out.push_back(one("process_max_fds", "Most file descriptors allowed.", Type::kGauge,
                      static_cast<double>(limit.rlim_cur)));
  }
  return out;
}

}  // namespace weir::telemetry
