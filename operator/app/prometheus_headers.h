// SPDX-License-Identifier: Apache-2.0
// Headers of requests to Prometheus: credentials (a bearer token from a file, or name and password
// from the folder of a mounted kubernetes.io/basic-auth Secret; the files are read again each
// minute), and the headers of --prometheus-header, such as a tenant's.
#pragma once

#include <functional>

#include "operator/app/options.h"
#include "worker/base/clock.h"
#include "worker/http/transport.h"

namespace weir::operator_app {

// The answer is called before each request; if it is empty, no headers are needed. The clock must
// outlive it. Thread-safe.
std::function<http::Headers()> prometheus_headers(const Options& options, Clock& clock);

}  // namespace weir::operator_app
