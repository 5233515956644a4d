// SPDX-License-Identifier: Apache-2.0
// How a statically linked program resolves host names.
#pragma once

#include <nss.h>

namespace weir::cli {

// A static program must not load the plugins that /etc/nsswitch.conf names: they belong to the C
// library of the machine. Files and DNS are built in. A program with shared libraries stays as it
// is.
inline void use_built_in_lookups() {
#ifdef WEIR_STATIC_PROGRAM
  __nss_configure_lookup("hosts", "files dns");
#endif
}

}  // namespace weir::cli
