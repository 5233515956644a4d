// SPDX-License-Identifier: Apache-2.0
// The slot of a worker, and the failure of a worker or of the job. Private to this room.
#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "operator/api/objects.h"
#include "operator/controller/reconcile/pass/causes.h"
#include "operator/controller/reconcile/pass/snapshot.h"

namespace weir::reconcile {

constexpr int kNoReplica = std::numeric_limits<int>::max();

// The slot of one worker. Pods of the same slot differ in their attempt.
struct Slot {
  std::string group;
  int index_in_group = 0;  // of spares from kFirstSpare on
  int worker_index = 0;
  int replica = 0;  // replica for which the pod is made; a plan may assign the pod to another one
  // It waits for the place of another one: no plan but with_substitutes gives it a stage, and it
  // has replica kNoReplica.
  bool spare = false;
  std::shared_ptr<const api::Pod> pod;  // pod of the newest attempt; null = none
  int next_attempt = 0;                 // highest existing attempt + 1
};

constexpr std::chrono::seconds kEpisode{30};  // failures within this time have one cause

// The reason why a worker or the whole job must start again.
struct Failure {
  const Slot* slot = nullptr;  // null = the whole job
  Cause cause = Cause::kCrashed;
  std::optional<int> exit_code;
  // When it happened; equal in all passes. Nothing if the pod does not exist any more.
  std::optional<Time> time;
  std::string text;  // e.g. "pod x-gpu-1: exit code 137 (OOMKilled)"
  // The failure rests on silence until this time. It counts when Snapshot.pods_confirmed is as
  // late.
  std::optional<Time> unheard_until;
  bool recorded = false;  // it belongs to the last recorded episode, so it is not counted again
};

}  // namespace weir::reconcile
