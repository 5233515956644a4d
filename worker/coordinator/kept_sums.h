// SPDX-License-Identifier: Apache-2.0
// Which replicas of a new generation go on with what they have computed of the step that a failure
// has interrupted. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::coordinator {

// held: for each of the plan's ranks, with which state after `step` steps it begins; null: it takes
// it from elsewhere. A replica keeps its sums if all of its ranks have those of the same
// micro-batches, of the batch and with the codecs that the plan has, and no replica before it keeps
// one of these. So in the sum over all replicas each micro-batch counts once, and no step has two
// codecs on a boundary. Replicas that average keep none.
std::vector<protocol::KeptIds> kept_sums(const schedule::Plan& plan, std::int64_t step,
                                         const std::vector<const protocol::Held*>& held);

}  // namespace weir::coordinator
