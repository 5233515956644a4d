// SPDX-License-Identifier: Apache-2.0
// `trace --from`: files that workers wrote become one trace. It asks no cluster.
#pragma once

#include <ostream>

#include "operator/cli/options.h"

namespace weir::cli {

// Returns the exit code: 0, or 1 after a line on `err`, which names the file and, where it is
// damaged, the byte.
int convert_trace(const Options& options, std::ostream& out, std::ostream& err);

}  // namespace weir::cli
