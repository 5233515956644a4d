// SPDX-License-Identifier: Apache-2.0
// How we show Prometheus who we are: a bearer token from a file, or name and password from the
// folder of a mounted kubernetes.io/basic-auth Secret. Files are read again each minute.
#pragma once

#include <functional>
#include <string>

#include "operator/app/options.h"
#include "worker/base/clock.h"

namespace weir::operator_app {

// Value of the Authorization header, asked before each request; empty function: none is sent. The
// clock must outlive it. Thread-safe.
std::function<std::string()> prometheus_authorization(const Options& options, Clock& clock);

}  // namespace weir::operator_app
