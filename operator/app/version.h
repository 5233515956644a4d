// SPDX-License-Identifier: Apache-2.0
// Version of this build; the build system sets both.
#pragma once

#ifndef WEIR_VERSION
#define WEIR_VERSION "0.0.0"
#endif
#ifndef WEIR_REVISION
#define WEIR_REVISION "unknown"
#endif

namespace weir::operator_app {

constexpr const char* kVersion = WEIR_VERSION;
constexpr const char* kRevision = WEIR_REVISION;

}  // namespace weir::operator_app
