// SPDX-License-Identifier: Apache-2.0
// A worker's place, and why a worker or the job has to start again. Private to this room.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "operator/api/objects.h"
#include "operator/controller/reconcile/snapshot.h"

namespace weir::reconcile {

// A place for one worker: pods of the same slot differ in their attempt.
struct Slot {
  std::string group;
  int index_in_group = 0;
  int worker_index = 0;
  int replica = 0;  // the how-manieth set of one replica's workers; a plan may mix them
  std::shared_ptr<const api::Pod> pod;  // the newest attempt, null = none
  int next_attempt = 0;                 // 1 + highest existing
};

enum class Cause : unsigned char {
  kCrashed,
  kOutOfMemory,
  kDeviceFault,
  kIoError,
  kConfiguration,
  kDiverged,       // steps whose loss is not finite, too many in a row
  kLimitExceeded,  // of the pod's own: disk, time
  kRejected,       // by the kubelet, before any container ran
  kPeerLost,
  kTerminated,  // SIGTERM that somebody else sent
  kDisrupted,   // DisruptionTarget
  kPodDeleted,
  kNodeLost,
  kWorkerSilent,
  kEndedEarly,
  kNoProgress,       // of the job
  kStartupTimedOut,  // of the job
  kReplaced,         // told to leave a node whose links are slow (tier replace); the last one
};
const char* name(Cause cause);  // the reason of weir_job_restarts_total

// Why a worker, or the job as a whole, has to start again.
struct Failure {
  const Slot* slot = nullptr;  // null: the job
  Cause cause = Cause::kCrashed;
  std::optional<int> exit_code;
  // When it happened, always the same for one failure; nothing for a pod that is gone.
  std::optional<Time> time;
  std::string text;  // "pod x-gpu-1: exit code 137 (OOMKilled)"
  // Something was not heard until then, which counts once Snapshot.pods_confirmed is as late.
  std::optional<Time> unheard_until;
  bool recorded = false;  // belongs to the last recorded episode: acted on, not counted again
};

}  // namespace weir::reconcile
