// SPDX-License-Identifier: Apache-2.0
// This worker's calls to the operator: how it is reached, and /join.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>

#include "worker/app/state.h"
#include "worker/coordinator/operator_line.h"

namespace weir::app {

coordinator::LineOptions line_options(const Options& options);
coordinator::TransportFactory transport_factory(const Options& options);

// Blocks until the operator answers; errors as of coordinator::join.
Result<protocol::JoinAnswer> join(const State& state, std::stop_token stop);

// Asks once who coordinates, since this worker does not hear the coordinator of that term. Blocks
// for some seconds at most.
Result<protocol::JoinAnswer> claim(const State& state, std::int64_t lost_term,
                                   std::stop_token stop);

}  // namespace weir::app
