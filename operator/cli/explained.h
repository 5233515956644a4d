// SPDX-License-Identifier: Apache-2.0
// Lines of `why` about a step, from status.performance. Pure; empty where it tells nothing.
#pragma once

#include "operator/cli/job_view.h"
#include "operator/cli/text.h"

namespace weir::cli {

Lines cause_lines(const JobView& job);      // what makes it slow
Lines remedy_lines(const JobView& job);     // what would help
Lines waterfall_lines(const JobView& job);  // where it goes

}  // namespace weir::cli
