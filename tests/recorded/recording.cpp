// SPDX-License-Identifier: Apache-2.0
#include "tests/recorded/recording.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include <gnu/libc-version.h>
#include <gtest/gtest.h>

namespace weir::recorded {
namespace {

constexpr std::string_view kHoldsFor = "# Holds for ";

constexpr const char* kFolder = "tests/data/recorded/";

std::string path_of(const std::string& file) {
  return std::string(WEIR_SOURCE_DIR) + "/" + file;
}

// The command that writes the file of the test that runs.
std::string command() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(test->test_suite_name()) + "." + test->name();
  if (test->value_param() != nullptr) name.erase(name.rfind('/')) += "/*";
  return "WEIR_RECORD=1 build/ci/tests/recorded/recorded_tests --gtest_filter='" + name + "'";
}

std::string head_of(const std::string& what) {
  return "# " + what + "\n# Made by " + command() + "\n";
}

std::string read(const std::string& file) {
  std::ifstream opened(path_of(file), std::ios::binary);
  std::ostringstream text;
  text << opened.rdbuf();
  return text.str();
}

void write(const std::string& file, const std::string& text) {
  std::ofstream opened(path_of(file), std::ios::binary);
  opened << text;
  ASSERT_TRUE(opened.flush()) << path_of(file) << " cannot be written";
}

void compare(const std::string& file, const std::string& recorded_text,
             const std::string& now_text) {
  if (records()) return write(file, now_text);
  std::istringstream recorded(recorded_text), now(now_text);
  std::string line, now_line;
  for (int number = 1;; ++number) {
    const bool more = !std::getline(recorded, line).fail();
    const bool now_more = !std::getline(now, now_line).fail();
    if (!more && !now_more) return;
    if (more == now_more && line == now_line) continue;
    ADD_FAILURE() << file << ":" << number << ": recorded: " << (more ? line : "nothing more")
                  << "\nnow: " << (now_more ? now_line : "nothing more")
                  << "\nall differences: git diff after " << command();
    return;
  }
}

}  // namespace

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

std::string machine() {
#ifdef __x86_64__
  // By these two glibc chooses how it computes exp, log, pow, sin and cos.
  const bool fused = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  const std::string processor = fused ? "x86-64 with AVX2 and FMA" : "x86-64 without AVX2 and FMA";
#else
  const std::string processor = "another processor than x86-64";
#endif
  return std::string("glibc ") + gnu_get_libc_version() + ", " + processor;
}

std::string spread(const std::string& json) {
  std::string out;
  std::size_t depth = 0;
  bool inside = false;  // a text
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (inside) {
      out += c;
      if (c == '\\' && i + 1 < json.size()) out += json[++i];
      inside = c != '"';
      continue;
    }
    inside = c == '"';
    const bool opens = c == '{' || c == '[', closes = c == '}' || c == ']';
    const bool empty = opens && i + 1 < json.size() && (json[i + 1] == '}' || json[i + 1] == ']');
    if (empty) {
      out += c;
      out += json[++i];
      continue;
    }
    if (opens) ++depth;
    if (closes) out += "\n" + std::string(--depth, ' ');
    out += c;
    if (opens || c == ',') out += "\n" + std::string(depth, ' ');
  }
  return out;
}

void compare_text(const std::string& file, const std::string& what, const std::string& text) {
  compare(kFolder + file, read(kFolder + file), head_of(what) + text);
}

void compare_section(const std::string& document, const std::string& text) {
  const std::string whole = read(document), begin = "<!-- Made by " + command() + " -->\n";
  const std::size_t from = whole.find(begin), to = whole.find("<!-- End -->\n", from);
  if (from == whole.npos || to == whole.npos) {
    ADD_FAILURE() << document << " has no part that begins with " << begin;
    return;
  }
  const std::size_t first = from + begin.size();
  compare(document, whole, whole.substr(0, first) + text + whole.substr(to));
}

Table::Table(std::string file, std::string what, bool adds)
    : file_(kFolder + std::move(file)), what_(std::move(what)), adds_(adds) {
  std::istringstream text(read(file_));
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with(kHoldsFor)) machine_ = line.substr(kHoldsFor.size());
    if (line.empty() || line.front() == '#') continue;
    const std::size_t gap = line.find("  ");
    if (gap == line.npos) {
      ADD_FAILURE() << file_ << ": expected VALUE  KEY, found " << line;
      continue;
    }
    lines_.emplace_back(line.substr(gap + 2), line.substr(0, gap));
  }
}

std::optional<std::string> Table::elsewhere() const {
  if (records() || machine_.empty() || machine_ == machine()) return std::nullopt;
  return file_ + " holds for " + machine_ + "; this is " + machine();
}

std::vector<std::string> Table::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : lines_) keys.push_back(key);
  return keys;
}

void Table::check(const std::string& key, const std::string& value, const std::string& repeat) {
  made_.emplace_back(key, value);
  if (records()) return;
  const auto line = std::ranges::find(lines_, key, &Line::first);
  if (line == lines_.end()) {
    ADD_FAILURE() << file_ << " has no line for: " << key;
    return;
  }
  EXPECT_EQ(value, line->second) << file_ << ": " << key
                                 << (repeat.empty() ? "" : "\nlook closer: ") << repeat;
}

void Table::finish(bool part) {
  const auto line_of = [](auto& lines, const std::string& key) {
    return std::ranges::find(lines, key, &Line::first);
  };
  if (!records()) {
    for (const auto& [key, value] : lines_) {
      EXPECT_TRUE(part || line_of(made_, key) != made_.end())
          << file_ << " has a line that nothing makes: " << key;
    }
    return;
  }
  std::vector<Line> lines = adds_ ? lines_ : std::vector<Line>();
  for (const Line& made : made_) {
    const auto old = line_of(lines, made.first);
    if (old == lines.end()) {
      lines.push_back(made);
    } else {
      old->second = made.second;
    }
  }
  if (adds_) std::ranges::sort(lines, {}, &Line::first);
  std::string text = head_of(what_) + std::string(kHoldsFor) + machine() + "\n";
  for (const auto& [key, value] : lines) text += value + "  " + key + "\n";
  write(file_, text);
}

}  // namespace weir::recorded
