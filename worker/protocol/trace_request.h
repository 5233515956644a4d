// SPDX-License-Identifier: Apache-2.0
// The steps that a user wants to see, as one line: "<id> steps=3" or "<id> steps=3 replica=0". It
// is the value of a job's annotation. Pure.
#pragma once

#include <string>
#include <string_view>

#include "worker/base/result.h"
#include "worker/protocol/messages.h"

namespace weir::protocol {

// [a-z0-9-]{1,40}
bool is_trace_id(std::string_view text);
std::string trace_request(const TraceWanted& wanted);
// kInvalid tells what was expected.
Result<TraceWanted> read_trace_request(std::string_view text);

}  // namespace weir::protocol
