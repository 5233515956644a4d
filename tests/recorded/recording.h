// SPDX-License-Identifier: Apache-2.0
// Files of recorded behaviour, tests/data/recorded: compared with what the program does now, or
// written anew with WEIR_RECORD=1 (tests/recorded/README.md). One test has one file, except that
// recordings of single seeds share one.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weir::recorded {

#ifdef WEIR_SANITIZED
constexpr bool kSanitized = true;  // ten to forty times slower
#else
constexpr bool kSanitized = false;
#endif

bool is_set(const char* variable);  // to 1, in the environment
inline bool records() {
  return is_set("WEIR_RECORD");
}
inline bool full() {
  return is_set("WEIR_FULL");
}

// What the last bits of floating-point results depend on: "glibc 2.36, x86-64 with AVX2 and FMA".
std::string machine();

// JSON with a line for each value; but for these breaks and blanks its bytes are the same, so a
// diff shows which value has changed.
std::string spread(const std::string& json);

// Compares a text as it is. `what`: a sentence for the head of the file.
void compare_text(const std::string& file, const std::string& what, const std::string& text);

// Compares a part of a document: the lines between "<!-- Made by COMMAND -->", with the command of
// this test, and "<!-- End -->".
void compare_section(const std::string& document, const std::string& text);

// A file of lines "VALUE  KEY", whose values hold for one machine.
class Table {
 public:
  // adds: recording keeps the lines whose keys this run does not have, all sorted by key.
  Table(std::string file, std::string what, bool adds = false);

  // Why nothing can be compared here; nothing: it can.
  std::optional<std::string> elsewhere() const;
  std::vector<std::string> keys() const;  // of the file, in its order
  // Fails when another value is recorded, or none. `repeat` says how to look closer.
  void check(const std::string& key, const std::string& value, const std::string& repeat = "");
  // After the last check: writes the file when this run records. Else fails for lines that were not
  // checked, unless only a part was to be.
  void finish(bool part = false);

 private:
  using Line = std::pair<std::string, std::string>;  // key, value

  const std::string file_, what_;
  const bool adds_;
  std::string machine_;  // for which the file holds
  std::vector<Line> lines_, made_;
};

}  // namespace weir::recorded
