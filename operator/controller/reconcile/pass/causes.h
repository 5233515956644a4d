// SPDX-License-Identifier: Apache-2.0
// Why a worker or the whole job must start again, and what the operator does about it
// (operator/controller/reconcile/README.md "What a failure leads to").
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "worker/protocol/exit_codes.h"

namespace weir::reconcile {

enum class Reaction : unsigned char {  // the first four are api::RuleAction, in its order
  kFailJob,
  kRestart,
  kRestartIgnoreMax,
  kAvoidNode,
  kAvoidNodeIgnoreMax,  // rules of users cannot choose it
};

enum class Cause : unsigned char {
  kCrashed,
  kOutOfMemory,
  kDeviceFault,
  kIoError,
  kConfiguration,
  kModelFailed,    // a layer that somebody else has written failed
  kDiverged,       // the loss of too many steps in a row is not finite
  kLimitExceeded,  // the pod has exceeded its own limit of disk or time
  kRejected,       // the kubelet has rejected the pod before any container ran
  kPeerLost,
  kTerminated,  // somebody else has sent SIGTERM
  kDisrupted,   // the pod has condition DisruptionTarget
  kPodDeleted,
  kNodeLost,
  kWorkerSilent,
  kLinkDead,  // it reaches the coordinator, but not another worker
  kEndedEarly,
  kNoProgress,       // of the whole job
  kStartupTimedOut,  // of the whole job
  kReplaced,         // tier replace moves the worker away from a slow node
};

struct CauseRow {
  Cause cause;
  const char* name;  // label reason of weir_job_restarts_total
  Reaction reaction;
  int weight;  // of failures at the same time, as times have whole seconds; the least comes first
  protocol::Exit exit = protocol::Exit::kFinished;  // how the worker ends; kFinished = otherwise
};
inline constexpr CauseRow kCauses[] = {
    {Cause::kCrashed, "Crashed", Reaction::kRestart, 2},
    {Cause::kOutOfMemory, "OutOfMemory", Reaction::kRestart, 1, protocol::Exit::kOutOfMemory},
    {Cause::kDeviceFault, "DeviceFault", Reaction::kAvoidNode, 1, protocol::Exit::kDeviceFault},
    {Cause::kIoError, "IoError", Reaction::kRestart, 1, protocol::Exit::kCheckpoint},
    {Cause::kConfiguration, "ConfigurationError", Reaction::kFailJob, 0,
     protocol::Exit::kConfiguration},
    {Cause::kModelFailed, "ModelFailed", Reaction::kRestart, 1, protocol::Exit::kModelFailed},
    {Cause::kDiverged, "Diverged", Reaction::kFailJob, 0, protocol::Exit::kDiverged},
    {Cause::kLimitExceeded, "LimitExceeded", Reaction::kRestart, 2},
    {Cause::kRejected, "Rejected", Reaction::kAvoidNodeIgnoreMax, 3},
    {Cause::kPeerLost, "PeerLost", Reaction::kRestart, 4, protocol::Exit::kPeerLost},
    {Cause::kTerminated, "Terminated", Reaction::kRestartIgnoreMax, 3, protocol::Exit::kTerminated},
    {Cause::kDisrupted, "Disrupted", Reaction::kRestartIgnoreMax, 3},
    {Cause::kPodDeleted, "PodDeleted", Reaction::kRestartIgnoreMax, 3},
    {Cause::kNodeLost, "NodeLost", Reaction::kRestartIgnoreMax, 3},
    {Cause::kWorkerSilent, "WorkerSilent", Reaction::kRestart, 2},
    {Cause::kLinkDead, "LinkDead", Reaction::kAvoidNodeIgnoreMax, 4},
    {Cause::kEndedEarly, "EndedEarly", Reaction::kRestart, 2},
    {Cause::kNoProgress, "NoProgress", Reaction::kRestart, 2},
    {Cause::kStartupTimedOut, "StartupTimedOut", Reaction::kRestart, 2},
    {Cause::kReplaced, "Replaced", Reaction::kRestartIgnoreMax, 4},
};

constexpr const CauseRow& row(Cause cause) {
  return *std::ranges::find(kCauses, cause, &CauseRow::cause);
}
static_assert(std::size(kCauses) == static_cast<std::size_t>(Cause::kReplaced) + 1);
constexpr const char* name(Cause cause) {
  return row(cause).name;
}

}  // namespace weir::reconcile
