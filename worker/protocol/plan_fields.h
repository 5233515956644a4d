// SPDX-License-Identifier: Apache-2.0
// Fields of the plan document. codec.cpp uses them for PREPARE. Internal to this room.
#pragma once

#include "worker/protocol/json_io.h"
#include "worker/schedule/plan.h"

namespace weir::protocol {

Names<schedule::StateMove, 4> state_names();

void fields(Reader& io, schedule::Codecs& codecs);
void fields(Writer& io, const schedule::Codecs& codecs);
void fields(Reader& io, schedule::Plan& plan);
void fields(Writer& io, const schedule::Plan& plan);

}  // namespace weir::protocol
