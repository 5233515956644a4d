// SPDX-License-Identifier: Apache-2.0
#include "operator/api/plain_line.h"

#include <algorithm>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "worker/base/utf8.h"

namespace weir::api {
namespace {

using nlohmann::json;

std::string_view trimmed(std::string_view line) {
  constexpr auto kSpace = " \t\r\n";
  const auto first = line.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(kSpace) - first + 1);
}

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Message and fields of a log line (worker/base/log.h), e.g. "cannot be written: step 40, No space
// left on device".
std::string message_and_fields(const json& line) {
  static const std::set<std::string> kLeftOut = {"ts", "time", "level", "component", "msg"};
  static const std::set<std::string> kWithoutName = {"error", "reason"};
  std::string fields;
  for (const auto& [name, value] : line.items()) {
    if (kLeftOut.contains(name)) continue;
    fields += fields.empty() ? "" : ", ";
    fields += (kWithoutName.contains(name) ? "" : name + " ") + text_of(value);
  }
  const std::string message = line.contains("msg") ? text_of(line["msg"]) : "";
  if (message.empty() || fields.empty()) return message + fields;
  return message + ": " + fields;
}

// Whether the line is the end of a JSON line whose beginning is missing.
bool is_cut_json(std::string_view line) {
  return line.ends_with('}') && line.find('{') == std::string_view::npos;
}

}  // namespace

std::string plain_line(std::string_view output) {
  std::string plain, logged, remains;
  while (!output.empty()) {
    const auto begin = output.find_last_of('\n');
    const std::string_view line =
        trimmed(begin == std::string_view::npos ? output : output.substr(begin + 1));
    output = output.substr(0, begin == std::string_view::npos ? 0 : begin);
    if (line.empty()) continue;
    const json object = line.starts_with('{') ? json::parse(line, nullptr, false) : json();
    if (object.is_object()) {
      const auto level = object.find("level");
      if (level != object.end() && *level == "error")
        return one_line(message_and_fields(object), kLongestPlainLine);
      if (logged.empty()) logged = message_and_fields(object);
    } else if (is_cut_json(line)) {
      if (remains.empty()) remains = trimmed(line.substr(0, line.find_last_not_of("\"}") + 1));
    } else if (plain.empty()) {
      plain = line;
    }
  }
  for (std::string* found : {&plain, &logged, &remains}) {
    if (!found->empty()) return one_line(*found, kLongestPlainLine);
  }
  return "";
}

}  // namespace weir::api
