// SPDX-License-Identifier: Apache-2.0
#include "operator/app/version.h"

#ifndef WEIR_REVISION
#define WEIR_REVISION "unknown"
#endif

namespace weir::operator_app {

const char* revision() {
  return WEIR_REVISION;
}

}  // namespace weir::operator_app
