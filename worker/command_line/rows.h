// SPDX-License-Identifier: Apache-2.0
// A table of options for CLI11. A row is the name of an option, the place of its value, which holds
// the default, its help, and then its environment variable and its check, if it has them.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "worker/base/units.h"

namespace weir {

template <class E>
using Words = std::vector<std::pair<std::string, E>>;

class Rows {
 public:
  explicit Rows(CLI::App& app) : app_(app) {}

  CLI::App& app() { return app_; }
  // The heading in --help of the rows that follow.
  void group(const char* name) { group_ = name; }

  template <class T, class... More>
  CLI::Option* add(const char* name, T& value, const std::string& help, const More&... more) {
    CLI::Option* option = app_.add_option(name, value, help);
    // Users do not set an option without help; optional values and lists are unset.
    if (!help.empty() && requires { value = T{} + T{}; }) option->capture_default_str();
    return finish(option, more...);
  }
  template <class... More>
  CLI::Option* add(const char* name, bool& value, const std::string& help, const More&... more) {
    return finish(app_.add_flag(name, value, help), more...);
  }
  template <class E, class... More>
  CLI::Option* add(const char* name, E& value, const Words<E>& words, const std::string& help,
                   const More&... more) {
    std::map<std::string, E> values(words.begin(), words.end());
    std::vector<std::string> names;
    for (const auto& [word, each] : words) names.push_back(word);
    const auto now = std::ranges::find(words, value, &std::pair<std::string, E>::second);
    CLI::Option* option = app_.add_option_function<std::string>(
        name, [&value, values](const std::string& word) { value = values.at(word); }, help);
    return finish(option->default_str(now->first), CLI::IsMember(names), more...);
  }
  // A value of another type than the number that the user gives; `now` is its default.
  template <class T, class Number, class Read, class... More>
  CLI::Option* add_read(const char* name, T& value, Number now, Read read, const std::string& help,
                        const More&... more) {
    CLI::Option* option = app_.add_option_function<Number>(
        name, [&value, read](const Number& given) { value = read(given); }, help);
    return finish(option->default_str(CLI::detail::to_string(now)), more...);
  }
  // A time in seconds.
  template <class... More>
  CLI::Option* add_time(const char* name, std::chrono::nanoseconds& value, const More&... more) {
    return add_read(name, value, to_seconds(value), more...);
  }

 private:
  template <class... More>
  CLI::Option* finish(CLI::Option* option, const More&... more) {
    if (!group_.empty()) option->group(group_);
    (apply(option, more), ...);
    return option;
  }
  static void apply(CLI::Option* option, const char* variable) { option->envname(variable); }
  static void apply(CLI::Option* option, const CLI::Validator& check) { option->transform(check); }

  CLI::App& app_;
  std::string group_;
};

}  // namespace weir
