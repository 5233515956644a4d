// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/json_lines.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <iterator>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/planner/model/limits.h"

namespace weir::planner {
namespace {

using nlohmann::json;

constexpr std::size_t kMostDepth = 32;

struct Position {
  int line = 1;
  bool after_newline = false;
};

// Counts lines of what the parser has read. The parser reads one character past a number: a new
// line counts only when the character behind it is read.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, Position* position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    if (position_->after_newline) ++position_->line;
    position_->after_newline = *at_ == '\n';
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  Position* position_;
};

std::string escaped(const std::string& key) {  // RFC 6901
  std::string result;
  for (const char c : key) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

// Follows the path of the parser; stops at the wanted value, too deep nesting, or an error.
class Tracker : public nlohmann::json_sax<json> {
 public:
  Tracker(const Position& position, std::string_view wanted)
      : position_(position), wanted_(wanted) {}

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open(false); }
  bool start_array(std::size_t) override { return open(true); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    levels_.back().key = escaped(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what is wrong"
    const std::string text = e.what();
    const std::size_t reason = text.find(": ");
    problem = reason == std::string::npos ? text : text.substr(reason + 2);
    // A number out of range has no such position.
    if (problem.empty()) problem = text;
    return false;
  }

  std::string problem;
  int line = 1;  // of the wanted value or its nearest parent seen

 private:
  struct Level {
    bool array = false;
    std::size_t index = 0;
    std::string key;
  };

  bool value() {
    enter();
    const bool go_on = !found_;
    leave();
    return go_on;
  }
  bool open(bool array) {
    if (levels_.size() == kMostDepth) {
      problem = "nested deeper than " + std::to_string(kMostDepth) + " levels";
      return false;
    }
    enter();
    levels_.push_back({array, 0, {}});
    return !found_;
  }
  bool close() {
    levels_.pop_back();
    leave();
    return true;
  }
  void enter() {
    sizes_.push_back(path_.size());
    if (!levels_.empty()) {
      const Level& level = levels_.back();
      path_ += '/';
      path_ += level.array ? std::to_string(level.index) : level.key;
    }
    const bool inside = wanted_.starts_with(path_) &&
                        (wanted_.size() == path_.size() || wanted_[path_.size()] == '/');
    if (!inside || path_.size() < deepest_) return;
    deepest_ = path_.size();
    line = position_.line;
    found_ = wanted_.size() == path_.size() && !wanted_.empty();
  }
  void leave() {
    path_.resize(sizes_.back());
    sizes_.pop_back();
    if (!levels_.empty()) ++levels_.back().index;
  }

  const Position& position_;
  const std::string_view wanted_;
  std::vector<Level> levels_;
  std::vector<std::size_t> sizes_;
  std::string path_;
  std::size_t deepest_ = 0;
  bool found_ = false;
};

}  // namespace

Status parse_json(std::string_view text, const std::string& name, json& document) {
  if (text.size() > kMostTextBytes) return invalid(name + ": longer than 64 MiB");
  Position position;
  Tracker tracker(position, "");
  const bool good =
      json::sax_parse(CountingIterator(text.data(), &position),
                      CountingIterator(text.data() + text.size(), &position), &tracker);
  if (!good) {
    const int line =
        std::min<int>(position.line, 1 + static_cast<int>(std::ranges::count(text, '\n')));
    return invalid(name + ":" + std::to_string(line) + ": " + tracker.problem);
  }
  document = json::parse(text, nullptr, false);
  return Unit{};
}

int line_of(std::string_view text, std::string_view pointer) {
  Position position;
  Tracker tracker(position, pointer);
  json::sax_parse(CountingIterator(text.data(), &position),
                  CountingIterator(text.data() + text.size(), &position), &tracker);
  return tracker.line;
}

Error json_error(std::string_view text, const std::string& name, const std::string& pointer,
                 const std::string& reason) {
  std::string message =
      name + ":" + std::to_string(line_of(text, pointer)) + ": " + pointer + ": " + reason;
  for (char& c : message) {  // names in the text may hold anything; an error is one line
    if (static_cast<unsigned char>(c) < 0x20 || c == '\x7f') c = '?';
  }
  return {Code::kInvalid, std::move(message)};
}

}  // namespace weir::planner
