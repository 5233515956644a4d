// SPDX-License-Identifier: Apache-2.0
// Checks of the options that depend on several of them, or that CLI11 cannot make. Pure.
#pragma once

#include <string>

#include "worker/app/options.h"

namespace weir::app {

// The first contradiction, as one line that names the option and the reason; "" if there is none.
std::string contradiction(const Options& options);

}  // namespace weir::app
