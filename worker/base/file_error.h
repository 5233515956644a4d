// SPDX-License-Identifier: Apache-2.0
// Why the system did not open, read or write a file.
#pragma once

#include <string>

#include "worker/base/result.h"

namespace weir {

// kInvalid: "PATH: cannot be read: No such file or directory". Called right after the failure: the
// reason is that of errno, which streams leave alone.
Error unreadable(const std::string& path);
Error unwritable(const std::string& path);

}  // namespace weir
