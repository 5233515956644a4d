// SPDX-License-Identifier: Apache-2.0
// /healthz and /readyz. Readiness does not depend on leadership, because followers keep warm caches
// and answer the control API.
#pragma once

#include <memory>
#include <string>

#include "operator/app/run_state.h"
#include "worker/base/result.h"
#include "worker/http/server.h"

namespace weir::operator_app {

// The reason why the program is not healthy or not ready; "" = it is.
std::string health_problem(const RunState& state);
std::string readiness_problem(const RunState& state);

Result<std::unique_ptr<http::Server>> serve_health(RunState& state);

}  // namespace weir::operator_app
