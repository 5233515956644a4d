// SPDX-License-Identifier: Apache-2.0
// The last words of a process, where Kubernetes looks for them: terminated.message of a container's
// status is what its termination log holds at the end. Process-wide.
#pragma once

#include <string>
#include <string_view>

namespace weir {

constexpr std::size_t kMaxTerminationMessage = 1024;

// WEIR_TERMINATION_LOG, else /dev/termination-log where it can be written; "" = none.
std::string find_termination_log();
// Once at the start, before any thread.
void set_termination_log(std::string path);
// Replaces what the file holds by one plain line; without a file, or with one that cannot be
// written, nothing. Any thread.
void write_termination_message(std::string_view line);

}  // namespace weir
