// SPDX-License-Identifier: Apache-2.0
// `weir-operator check`: says what is missing in this cluster, one line each; for support and
// `helm test`.
#pragma once

#include "operator/app/options.h"

namespace weir::operator_app {

// 0: all is there; 1: something is missing; 2: the API server cannot be reached.
int check_command(const Options& options);

}  // namespace weir::operator_app
