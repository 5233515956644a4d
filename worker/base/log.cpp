// SPDX-License-Identifier: Apache-2.0
#include "worker/base/log.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>

#include "worker/base/text.h"
#include "worker/base/time_text.h"
#include "worker/base/utf8.h"

namespace weir {
namespace {

// Lines per second with the same message text, so that no message floods the log.
constexpr int kMaxPerSite = 20;

std::atomic<LogLevel> least_level{LogLevel::kInfo};
std::atomic<LogFormat> log_format{LogFormat::kJson};

const char* level_name(LogLevel level) {
  constexpr std::array kNames = {"debug", "info", "warn", "error"};
  return kNames[static_cast<std::size_t>(level)];
}

// Returns false if the message has used up its lines of this second.
bool within_rate(std::string_view message, std::chrono::seconds second) {
  static std::mutex mutex;  // guards current and counts
  static std::chrono::seconds current{0};
  static std::map<std::string, int, std::less<>> counts;
  const std::lock_guard lock(mutex);
  if (current != second) {
    current = second;
    counts.clear();
  }
  const auto found = counts.find(message);
  if (found == counts.end()) {
    counts.emplace(message, 1);
    return true;
  }
  return ++found->second <= kMaxPerSite;
}

}  // namespace

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : valid_utf8(text)) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      out += escape.data();
    } else {
      out += c;
    }
  }
  return out += '"';
}

LogValue::LogValue(std::string_view text) : json_(json_quoted(text)) {}

LogValue::LogValue(double value) {
  json_ = format("%.6g", value);
  if (json_.find_first_of("in") != std::string::npos) json_ = json_quoted(json_);  // inf, nan
}

void set_log(LogLevel least, LogFormat format) {
  least_level = least;
  log_format = format;
}

bool log_enabled(LogLevel level) {
  return level >= least_level.load(std::memory_order_relaxed);
}

void log(LogLevel level, std::string_view component, std::string_view message, LogFields fields) {
  if (!log_enabled(level)) return;
  const auto now = std::chrono::system_clock::now();
  if (!within_rate(message,
                   std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()))) {
    return;
  }
  const bool json = log_format == LogFormat::kJson;
  std::string line;
  if (json) {
    line = "{\"ts\":\"" + to_rfc3339_micro(now) + "\",\"level\":\"" + level_name(level) +
           "\",\"component\":" + json_quoted(component) + ",\"msg\":" + json_quoted(message);
  } else {
    line = to_rfc3339_micro(now) + " " + level_name(level) + " " + std::string(component) + ": " +
           std::string(message);
  }
  for (const auto& [name, value] : fields) {
    line += json ? "," + json_quoted(name) + ":" : " " + std::string(name) + "=";
    line += value.json();
  }
  line += json ? "}\n" : "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);  // one call: lines of threads do not mix
}

}  // namespace weir
