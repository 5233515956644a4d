// SPDX-License-Identifier: Apache-2.0
#include "worker/base/file_error.h"

#include <cerrno>
#include <system_error>

namespace weir {
namespace {

Error file_error(const std::string& path, const char* what) {
  const int number = errno;
  std::string message = (path.empty() ? "''" : path) + ": " + what;
  if (number != 0) message += ": " + std::generic_category().message(number);
  return {Code::kInvalid, std::move(message)};
}

}  // namespace

Error unreadable(const std::string& path) {
  return file_error(path, "cannot be read");
}

Error unwritable(const std::string& path) {
  return file_error(path, "cannot be written");
}

}  // namespace weir
