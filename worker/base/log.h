// SPDX-License-Identifier: Apache-2.0
// Writes one line per event to standard error: JSON (ts, level, component, msg, then the fields) or
// text for people. Thread-safe. Callers must not log secrets, tokens or whole objects. Per second,
// at most kMaxPerSite lines with the same message text are written.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace weir {

enum class LogLevel : unsigned char { kDebug, kInfo, kWarn, kError };
enum class LogFormat : unsigned char { kJson, kText };

// A field's value, already as JSON text.
class LogValue {
 public:
  // NOLINTBEGIN(google-explicit-constructor)
  LogValue(std::string_view text);
  LogValue(const char* text) : LogValue(std::string_view(text)) {}
  LogValue(const std::string& text) : LogValue(std::string_view(text)) {}
  LogValue(bool value) : json_(value ? "true" : "false") {}
  LogValue(double value);
  template <class T>
    requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
  LogValue(T value) : json_(std::to_string(value)) {}
  // NOLINTEND(google-explicit-constructor)
  const std::string& json() const { return json_; }

 private:
  std::string json_;
};

using LogFields = std::initializer_list<std::pair<std::string_view, LogValue>>;

// Set the log of the whole process once at start, before any thread exists. Default: info, JSON.
void set_log(LogLevel least, LogFormat format);
bool log_enabled(LogLevel level);
void log(LogLevel level, std::string_view component, std::string_view message, LogFields fields);

inline void log_debug(std::string_view component, std::string_view message, LogFields fields = {}) {
  if (log_enabled(LogLevel::kDebug)) log(LogLevel::kDebug, component, message, fields);
}
inline void log_info(std::string_view component, std::string_view message, LogFields fields = {}) {
  log(LogLevel::kInfo, component, message, fields);
}
inline void log_warn(std::string_view component, std::string_view message, LogFields fields = {}) {
  log(LogLevel::kWarn, component, message, fields);
}
inline void log_error(std::string_view component, std::string_view message, LogFields fields = {}) {
  log(LogLevel::kError, component, message, fields);
}

// Returns the text as a quoted JSON string. Bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

}  // namespace weir
