// SPDX-License-Identifier: Apache-2.0
// Steps as Chrome trace events, which ui.perfetto.dev shows: simulated and real ones in the same
// shape. A replica is a process. Each of its stages has a track, and each direction of its links.
// Pure.
#pragma once

#include <span>
#include <string>

#include "worker/schedule/simulator.h"
#include "worker/timeline/record.h"

namespace weir::timeline {

// One simulated step; a timeline for each replica.
std::string chrome_trace(std::span<const schedule::Timeline* const> replicas);

// All events of the records, on one clock (align.h) that begins at the first of them. Arrows lead
// from the op that made a tensor over its transfer to the op that used it, where the records hold
// these three. A counter tells how many micro-batches are in flight on a stage. `records` belong
// together.
std::string chrome_trace(std::span<const RankRecord> records);

}  // namespace weir::timeline
