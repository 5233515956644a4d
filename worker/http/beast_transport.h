// SPDX-License-Identifier: Apache-2.0
// The worker's HTTP client: a Transport on Boost.Beast. One connection per request, plain or TLS.
// Only the given CA is trusted, and the host name is checked. Redirects are not followed. The CA
// file is read for each connection, so a rotated CA takes effect at once.
#pragma once

#include <memory>

#include "worker/base/result.h"
#include "worker/http/transport.h"

namespace weir::http {

// kInvalid: a malformed base_url or an unreadable CA file.
Result<std::unique_ptr<Transport>> make_beast_transport(const Options& options);

}  // namespace weir::http
