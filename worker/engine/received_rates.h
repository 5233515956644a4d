// SPDX-License-Identifier: Apache-2.0
// Rates of the links between the members of an average, from which the coordinator finds slow
// nodes.
#pragma once

#include <vector>

#include "worker/protocol/messages.h"
#include "worker/transport/collective.h"

namespace weir::engine {

// Rates of the average between the two counters. A member from which nothing came is left out, and
// so is one of whose bytes too few were timed. A few milliseconds of noise are added, so that all
// fast links count as equally fast.
std::vector<protocol::SyncReady::Received> received_rates(
    const transport::CollectiveCounters& before, const transport::CollectiveCounters& after);

}  // namespace weir::engine
