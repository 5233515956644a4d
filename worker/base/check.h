// SPDX-License-Identifier: Apache-2.0
// WEIR_CHECK(condition, "why") is for our own mistakes only. It prints the place and aborts; both
// programs restart safely. Input from outside must never reach it: use Result (result.h).
#pragma once

#include <cstdio>
#include <cstdlib>

namespace weir {

[[noreturn]] inline void check_failed(const char* condition, const char* why, const char* file,
                                      int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s (%s)\n", file, line, why, condition);
  std::abort();
}

}  // namespace weir

#define WEIR_CHECK(condition, why)        \
  (static_cast<bool>(condition) ? void(0) \
                                : ::weir::check_failed(#condition, why, __FILE__, __LINE__))
