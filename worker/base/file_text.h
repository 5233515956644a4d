// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace weir {

// The text of a small file of the system, e.g. under /proc; "" if it cannot be read. Files of users
// need the reason: file_error.h.
std::string file_text(const char* path);

}  // namespace weir
