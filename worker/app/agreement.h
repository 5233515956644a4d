// SPDX-License-Identifier: Apache-2.0
// The settings on which the results of training depend, as named values. They must be equal on all
// ranks of a job (HELLO), and a checkpoint stores those of the run that wrote it. Pure.
#pragma once

#include <optional>
#include <string>

#include "worker/app/options.h"
#include "worker/base/settings.h"
#include "worker/checkpoint/manifest.h"
#include "worker/data/dataset.h"
#include "worker/stage/stage.h"

namespace weir::app {

// Data is named by its content, not by its path. validation: null without an interval.
Settings settings_of_job(const Options& options, const stage::Model& model,
                         const data::Dataset& data, const data::Dataset* validation);
// The subset on which trained parameters and moments depend: without the validation, and without
// the number of steps if it does not affect the learning rate.
Settings settings_of_checkpoint(const Options& options, const data::Dataset& data);

// Result of comparing a run with the newest checkpoint of its folder.
struct Verdict {
  std::string refusal;  // why the run cannot continue from it; text for behind the path
  std::vector<Difference> different;  // the run can continue, but these options differ
};
// Compares a run with a checkpoint. The shapes decide whether it can be loaded; the user's consent
// (--change-options) covers all other differences. A checkpoint of an old version without shapes
// has the optimizer and the seed. If its digest can be reproduced with them, nothing else differs.
Verdict compare(const checkpoint::Manifest& found, const Options& options,
                const stage::Model& model, const Settings& now);

}  // namespace weir::app
