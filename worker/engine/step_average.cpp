// SPDX-License-Identifier: Apache-2.0
// The average of replicas behind or beside a step (sync.mode Partial).
#include <optional>
#include <string>

#include "worker/base/log.h"
#include "worker/base/units.h"
#include "worker/engine/state_average.h"
#include "worker/engine/step_runner.h"

namespace weir::engine {

using std::chrono::nanoseconds;

// Averages with the replicas that the coordinator names, once it has named them.
Status StepRunner::average() {
  watch().lap(StepPart::kOther);
  watch().begin_part(StepPart::kAverage);
  const SteadyTime since = watch().last();
  for (;;) {
    WEIR_TRY(const std::optional<protocol::Grant> grant,
             parts_.granted(parts_.clock.now() + kStepSlice));
    if (grant) {
      grant_ = *grant;
      break;
    }
    WEIR_OK(look_around(since, "no GRANT"));
  }
  const std::string wrong = objection(grant_, order_.replica, order_.plan.replica_count());
  if (!wrong.empty()) return invalid("GRANT: " + wrong);
  WEIR_OK(parts_.links.synchronize());
  if (parts_.links.on_device()) WEIR_OK(drain());
  bool met = true;
  if (!begin_beside()) {
    StateAverage average(*parts_.replicas, parts_.stage, parts_.links.device(), grant_);
    if (average.post_next()) {
      WEIR_TRY(met, meet(average));
    }
  }
  const nanoseconds took = waited(StepPart::kAverage);
  parts_.recorder.yielded(parts_.replicas->counters());
  parts_.recorder.averaged(took, met ? grant_.members.size() : 1, grant_.staleness,
                           grant_.node_bytes_per_second);
  return Unit{};
}

// Returns false if the average must be done before the next step. If the device itself moves
// data, transfers to other replicas and transfers to other stages of that step could wait for
// each other in a circle.
bool StepRunner::begin_beside() {
  if (!grant_.overlaps || grant_.all || grant_.members.size() < 2) return false;
  if (parts_.links.on_device()) return false;
  device::Device& device = parts_.links.device();
  device::Buffer& memory = parts_.beside->memory;
  if (!memory) {
    const std::size_t bytes = StateAverage::bytes(parts_.stage);
    memory = device.allocate(bytes);
    if (!memory) return false;
    log_info("engine", "averages run during steps", {{"memory_bytes", std::to_string(bytes)}});
  }
  parts_.beside->average.emplace(*parts_.replicas, parts_.stage, device, grant_, memory)
      .post_next();
  return true;
}

Status StepRunner::finish_beside() {
  std::optional<StateAverage>& average = parts_.beside->average;
  if (!average) return Unit{};
  watch().lap(StepPart::kOther);
  WEIR_TRY([[maybe_unused]] const bool met, meet(*average));
  average.reset();
  waited(StepPart::kAverage);
  return Unit{};
}

// Transfers by the device to other stages and to other replicas at the same time could wait for
// each other in a circle.
Status StepRunner::drain() {
  const SteadyTime since = parts_.clock.now();
  while (!parts_.links.drained()) {
    WEIR_OK(wait_for_peer(parts_, since, stop_));
  }
  return Unit{};
}

// Returns false if a member did not come and this rank keeps its model. Other ranks of this
// replica may have averaged; all continue at the same step. If all replicas must become equal, a
// missing member is an error.
Result<bool> StepRunner::meet(StateAverage& average) {
  const SteadyTime since = parts_.clock.now();
  const nanoseconds deadline = from_seconds(average.grant().deadline_seconds);
  const nanoseconds patience = deadline.count() > 0 ? deadline : parts_.progress_deadline;
  do {
    for (bool done = false; !done;) {
      const Result<bool> waited = parts_.replicas->wait(parts_.clock.now() + kStepSlice, stop_);
      const bool late = waited && !*waited && parts_.clock.now() - since >= patience;
      if (!waited || late) {
        const Error error =
            waited ? Error{Code::kTimeout, "not all members came in time"} : waited.error();
        return give_up(average, error);
      }
      done = *waited;
      if (!done) WEIR_OK(look_around(since, "nothing from the other replicas"));
    }
    WEIR_OK(average.take());
  } while (average.post_next());
  return true;
}

Result<bool> StepRunner::give_up(StateAverage& average, const Error& error) {
  if (!parts_.go_on()) return Error{Code::kCancelled, "step was stopped"};
  if (average.grant().all) return error;
  WEIR_TRY(const int missing, average.abandon());
  parts_.round_failed(average.grant(), missing, error.message);
  return false;
}

}  // namespace weir::engine
