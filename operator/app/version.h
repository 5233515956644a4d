// SPDX-License-Identifier: Apache-2.0
// Version and revision of this build. The build system sets both.
#pragma once

#ifndef WEIR_VERSION
#define WEIR_VERSION "0.0.0"
#endif

namespace weir::operator_app {

constexpr const char* kVersion = WEIR_VERSION;
// `git describe` of the sources when the build was configured, or the cache variable WEIR_REVISION;
// "unknown" outside of a checkout. It has its own source file, the only one that a new commit
// compiles anew.
const char* revision();

}  // namespace weir::operator_app
