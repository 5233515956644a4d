// SPDX-License-Identifier: Apache-2.0
#include "worker/base/termination.h"

#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "worker/base/utf8.h"

namespace weir {
namespace {

constexpr char kUsual[] = "/dev/termination-log";

std::string& termination_log() {
  static std::string path;
  return path;
}

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

}  // namespace

std::string find_termination_log() {
  if (const char* named = std::getenv("WEIR_TERMINATION_LOG"))
    return named;  // NOLINT(concurrency-mt-unsafe)
  return access(kUsual, W_OK) == 0 ? kUsual : "";
}

void set_termination_log(std::string path) {
  termination_log() = std::move(path);
}

std::string plain_line(std::string_view text, std::size_t most) {
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  std::string out = valid_utf8(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  constexpr std::string_view kMore = " ...";
  if (out.size() <= most) return out;
  std::size_t end = most - kMore.size();
  while (end > 0 && is_continuation(out[end])) --end;
  return out.substr(0, end) + std::string(kMore);
}

void write_termination_message(std::string_view line) {
  if (termination_log().empty()) return;
  const std::string text = plain_line(line);
  const int file =
      open(termination_log().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644);
  if (file < 0) return;
  static_cast<void>(!write(file, text.data(), text.size()));
  close(file);
}

}  // namespace weir
