// SPDX-License-Identifier: Apache-2.0
// weir-worker export --checkpoint=DIR[/step-N] --to=DIR [--dtype=bf16]: a checkpoint becomes a
// folder of Hugging Face. Neither the model nor a device is needed.
#pragma once

#include <string>

#include "worker/base/result.h"

namespace weir::app {

// True if the arguments ask for it.
bool is_export(int argc, const char* const* argv);
// Returns the text for standard output. Every error is kInvalid with one line.
Result<std::string> run_export(int argc, const char* const* argv);

}  // namespace weir::app
