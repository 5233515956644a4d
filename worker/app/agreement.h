// SPDX-License-Identifier: Apache-2.0
// What decides the numbers of a training run, as named values: all ranks of a job must have them
// alike (HELLO), and a checkpoint tells those of the run that wrote it. Pure.
#pragma once

#include <optional>
#include <string>

#include "worker/app/options.h"
#include "worker/base/settings.h"
#include "worker/checkpoint/manifest.h"
#include "worker/data/dataset.h"
#include "worker/stage/stage.h"

namespace weir::app {

// Data by its content, not by its path. validation: null without an interval.
Settings settings_of_job(const Options& options, const stage::Model& model,
                         const data::Dataset& data, const data::Dataset* validation);
// Of these, what the trained parameters and moments depend on: not the number of steps where it
// decides no learning rate, nor validation.
Settings settings_of_checkpoint(const Options& options, const data::Dataset& data);

// What a run has to say to the newest checkpoint of its folder.
struct Verdict {
  std::string refusal;                // it cannot go on from there: why, to come behind the path
  std::vector<Difference> different;  // it can, with other options than the run before
};
// May `options` go on from there? The shapes decide what can be loaded, consent
// (--change-options) the rest. A checkpoint of a version that wrote no shapes tells of the
// optimizer and the seed; its digest, made anew with those, shows that nothing else differs.
Verdict compare(const checkpoint::Manifest& found, const Options& options,
                const stage::Model& model, const Settings& now);

}  // namespace weir::app
