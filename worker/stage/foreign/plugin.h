// SPDX-License-Identifier: Apache-2.0
// Loads a shared library that exports weir_open (weir_layers.h). It stays loaded until the process
// ends, because its code may run until then.
#pragma once

#include <string>

#include "worker/base/result.h"
#include "worker/stage/foreign/weir_layers.h"

namespace weir::stage {

// kInvalid with the path, and the missing symbol, function or version.
Result<const weir_layers*> open_plugin(const std::string& path);

// Whether a table of functions can be used. kInvalid names the function or version.
Status check_table(const weir_layers* table);

}  // namespace weir::stage
