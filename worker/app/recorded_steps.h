// SPDX-License-Identifier: Apache-2.0
// Some steps out of the flight recorder of this rank, as a record with its place and names: for
// --trace-file and for the coordinator. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "worker/app/options.h"
#include "worker/base/clock.h"
#include "worker/engine/engine.h"
#include "worker/protocol/messages.h"
#include "worker/timeline/record.h"

namespace weir::app {

struct RecordNames {
  std::string job, pod, node;
};

RecordNames record_names(const Options& options);

// The steps from..to, counted by the steps that are complete before them. open: with the part that
// is under way. Without events: the rank has no place, or keeps nothing of these steps.
timeline::RankRecord recorded_steps(const engine::Engine& engine, const Clock& clock,
                                    const RecordNames& names, std::int64_t from, std::int64_t to,
                                    bool open = false);

protocol::Steps answer(const protocol::StepsWanted& wanted, const engine::Engine& engine,
                       const Clock& clock, const RecordNames& names);

}  // namespace weir::app
