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

}  // namespace

std::string find_termination_log() {
  if (const char* named = std::getenv("WEIR_TERMINATION_LOG"))
    return named;  // NOLINT(concurrency-mt-unsafe)
  return access(kUsual, W_OK) == 0 ? kUsual : "";
}

void set_termination_log(std::string path) {
  termination_log() = std::move(path);
}

void write_termination_message(std::string_view line) {
  if (termination_log().empty()) return;
  const std::string text = one_line(line, kMaxTerminationMessage);
  const int file =
      open(termination_log().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644);
  if (file < 0) return;
  static_cast<void>(!write(file, text.data(), text.size()));
  close(file);
}

}  // namespace weir
