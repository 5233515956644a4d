// SPDX-License-Identifier: Apache-2.0
#include "worker/emulate/emulate.h"

#include <utility>

#include "worker/emulate/stages.h"

namespace weir::emulate {

Result<Emulation> Emulation::open(const Options& options, const stage::Model& model) {
  auto times = ProfileTimes::read(options.profile, model, options.device_class);
  if (!times) return times.error().with("--emulate-profile");
  Emulation made(*std::move(times), model.options.precision);
  made.idle_ = options.idle;
  if (options.slowness.empty()) return made;
  auto slowness = Slowness::read(options.slowness);
  if (!slowness) return slowness.error().with("--emulate-slowness");
  made.slowness_ = *std::move(slowness);
  return made;
}

std::unique_ptr<stage::Stage> Emulation::around(std::unique_ptr<stage::Stage> stage,
                                                int first_layer, int last_layer) const {
  if (idle_) stage = idle_stage(std::move(stage), precision_);
  StageTimes times = times_.stage(first_layer, last_layer);
  if (slowness_) {
    times.slowness = [slowness = *slowness_](std::int64_t step, auto since_start) {
      return slowness.factor(step, since_start);
    };
  }
  return emulated_stage(std::move(stage), std::move(times), lateness_);
}

}  // namespace weir::emulate
