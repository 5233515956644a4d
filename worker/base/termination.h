// SPDX-License-Identifier: Apache-2.0
// Writes the termination message of the process: Kubernetes reads the container's termination log
// and shows it as terminated.message in the container's status. Process-wide.
#pragma once

#include <string>
#include <string_view>

namespace weir {

constexpr std::size_t kMaxTerminationMessage = 1024;

// WEIR_TERMINATION_LOG, or /dev/termination-log if that file is writable, or "" for none.
std::string find_termination_log();
// Call this once at the start, before any thread exists.
void set_termination_log(std::string path);
// Replaces the content of the file by one plain line. Does nothing if there is no file or if it
// cannot be written. May be called from any thread.
void write_termination_message(std::string_view line);

}  // namespace weir
