// SPDX-License-Identifier: Apache-2.0
#include "worker/base/exception_text.h"

#include <new>
#include <system_error>

namespace weir {

std::string describe(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "not enough memory (limits of the container, ulimit -v)";
  }
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  // In our programs only the start of a thread throws this error.
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    return "no more threads can be started (pids limit of the container, ulimit -u, ulimit -v): " +
           std::string(error.what());
  }
  return error.what();
}

}  // namespace weir
