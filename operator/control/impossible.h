// SPDX-License-Identifier: Apache-2.0
// Reports come from a job's pods, so their numbers are not trusted: what a segment or a stall
// cannot hold is left out before anybody reads it. Pure. Whether a rank or a link is one of the
// plan is decided by those who know the plan.
#pragma once

#include "worker/protocol/messages.h"

namespace weir::control_server {

// Returns the number of fields and entries that were left out.
int drop_impossible(protocol::Report& report);

}  // namespace weir::control_server
