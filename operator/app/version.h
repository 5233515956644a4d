// SPDX-License-Identifier: Apache-2.0
// Version of this build; the build system sets both.
#pragma once

#ifndef WEIR_VERSION
#define WEIR_VERSION "0.0.0"
#endif

namespace weir::operator_app {

constexpr const char* kVersion = WEIR_VERSION;
// `git describe` of the sources when the build was configured, or the cache variable WEIR_REVISION;
// "unknown" outside of a checkout. In a file of its own: a new commit compiles that one anew.
const char* revision();

}  // namespace weir::operator_app
