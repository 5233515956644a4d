// SPDX-License-Identifier: Apache-2.0
// weir-operator's commands `plan` and `simulate` in the test's process, from a line as one types it
// at the root of the repository.
#pragma once

#include <string>

namespace weir::recorded {

// All that the program tells: exit code, where it is not 0, standard output, standard error.
std::string told_by(const std::string& command, const std::string& input = "");

}  // namespace weir::recorded
