// SPDX-License-Identifier: Apache-2.0
// Errors for files that the system did not open, read or write.
#pragma once

#include <string>

#include "worker/base/result.h"

namespace weir {

// Both return kInvalid, e.g. "PATH: cannot be read: No such file or directory". Call them right
// after the failure: they take the reason from errno, which streams leave unchanged.
Error unreadable(const std::string& path);
Error unwritable(const std::string& path);

}  // namespace weir
