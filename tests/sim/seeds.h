// SPDX-License-Identifier: Apache-2.0
// Which seeds a run of a simulation takes, by its environment.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace weir::sim {

// True with WEIR_FULL=1: the long runs.
inline bool full_run() {
  const char* value = std::getenv("WEIR_FULL");
  return value != nullptr && std::string_view(value) == "1";
}

struct Seeds {
  std::uint64_t first = 1, last = 0;
  bool alone = false;  // WEIR_SEED=<seed>, to be printed
};

// That of WEIR_SEED, else so many from 1 on.
inline Seeds seeds_of_run(std::uint64_t usual, std::uint64_t full,
                          [[maybe_unused]] std::uint64_t sanitized) {
  if (const char* one = std::getenv("WEIR_SEED"); one != nullptr) {
    const std::uint64_t seed = std::strtoull(one, nullptr, 10);
    return {seed, seed, true};
  }
#ifdef WEIR_SANITIZED
  return {1, sanitized};
#else
  return {1, full_run() ? full : usual};
#endif
}

}  // namespace weir::sim
