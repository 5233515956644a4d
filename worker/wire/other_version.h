// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace weir::wire {

// Why a peer of another release is refused; names both.
inline std::string other_version(int theirs, int own) {
  return "the peer speaks version " + std::to_string(theirs) + ", this worker " +
         std::to_string(own);
}

}  // namespace weir::wire
