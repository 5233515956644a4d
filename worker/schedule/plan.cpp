// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/plan.h"

namespace weir::schedule {

bool same_generation(const Plan& a, const Plan& b) {
  return a.job_uid == b.job_uid && a.stages == b.stages && a.ranks == b.ranks && a.idle == b.idle &&
         a.micro_batches.size() == b.micro_batches.size();
}

bool in_band_tier(Trigger trigger) {
  return trigger == Trigger::kRetune || trigger == Trigger::kCompress ||
         trigger == Trigger::kManual;
}

bool starts_generation(const Plan* current, const Plan& next, int incarnation) {
  return current == nullptr || incarnation > 0 || !in_band_tier(next.trigger) ||
         !same_generation(*current, next);
}

bool averages(const Plan& plan) {
  return plan.sync.mode == SyncMode::kPartial && plan.replica_count() > 1;
}

const char* name(Dispatch dispatch) {
  switch (dispatch) {
    case Dispatch::kHint:
      return "Hint";
    case Dispatch::kStrict:
      return "Strict";
  }
  return "?";
}

const char* name(SyncMode mode) {
  switch (mode) {
    case SyncMode::kExact:
      return "Exact";
    case SyncMode::kPartial:
      return "Partial";
  }
  return "?";
}

const char* name(Trigger trigger) {
  switch (trigger) {
    case Trigger::kInitial:
      return "Initial";
    case Trigger::kRetune:
      return "Retune";
    case Trigger::kRegroup:
      return "Regroup";
    case Trigger::kReplace:
      return "Replace";
    case Trigger::kRestart:
      return "Restart";
    case Trigger::kResize:
      return "Resize";
    case Trigger::kCompress:
      return "Compress";
    case Trigger::kManual:
      return "Manual";
  }
  return "?";
}

const char* name(StateMove state) {
  switch (state) {
    case StateMove::kKeep:
      return "Keep";
    case StateMove::kMove:
      return "Move";
    case StateMove::kCheckpoint:
      return "Checkpoint";
    case StateMove::kRecover:
      return "Recover";
  }
  return "?";
}

}  // namespace weir::schedule
