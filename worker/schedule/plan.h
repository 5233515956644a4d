// SPDX-License-Identifier: Apache-2.0
// The plan document as a struct: which layers form which stage, which rank runs it, in which order
// micro-batches pass. Pure data; its JSON: worker/protocol/README.md "Plan document"; its legality:
// validate.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weir::schedule {

enum class Family : unsigned char { kKfkb, kOneFOneB, kGpipe };
enum class Dispatch : unsigned char { kHint, kStrict };
enum class Trigger : unsigned char {
  kInitial,
  kRetune,
  kRegroup,
  kReplace,
  kRestart,
  kResize,
  kManual
};
enum class StateMove : unsigned char { kKeep, kMove, kCheckpoint };

// The order of micro-batches on one replica.
struct Schedule {
  Family family = Family::kKfkb;
  Dispatch dispatch = Dispatch::kHint;  // the one in force: caps of k=1 are always kStrict
  int k = 1;
  int micro_batch_size = 1;  // samples
  std::vector<int> caps;     // per stage: most micro-batches in flight; non-increasing
  bool operator==(const Schedule&) const = default;
};

// How replicas keep one model. Exact: gradients are all-reduced over all replicas each step.
// Partial: replicas that are ready together average their models (worker/groups).
enum class SyncMode : unsigned char { kExact, kPartial };
struct SyncPolicy {
  SyncMode mode = SyncMode::kExact;
  int group_size_min = 2, group_size_max = 2;  // replicas; from here on: Partial only
  double max_staleness = 6;       // steps of progress ahead of the slowest live replica
  int grace_window_percent = 15;  // of a step: about how long one waits for the news of another
  int connect_every = 10;         // steps within which all live replicas are connected by groups
  bool operator==(const SyncPolicy&) const = default;
};

struct LayerRange {
  int first = 0, last = 0;  // inclusive
  bool operator==(const LayerRange&) const = default;
};

struct RankPlace {
  std::string pod, pod_uid, ip, node;
  int local = 0;
  int replica = 0;
  int stage = 0;
  int data_port = 7071;  // not in the document when it is the usual one
  bool operator==(const RankPlace&) const = default;
};

// Who holds which layers when a plan with state Move is committed.
struct LayerHolder {
  std::string pod, pod_uid, ip, node;
  int data_port = 7071;
  int replica = 0, stage = 0;  // in the plan that ends
  LayerRange layers;
  bool operator==(const LayerHolder&) const = default;
};

struct Plan {
  std::string job_uid;
  std::uint32_t revision = 0;  // the epoch of messages; only grows
  std::uint32_t parent = 0;
  Trigger trigger = Trigger::kInitial;
  Schedule schedule;
  std::vector<int>
      micro_batches;  // per replica: its share M; sum x micro_batch_size = global batch
  std::vector<LayerRange> stages;
  std::vector<RankPlace> ranks;   // one per (replica, stage)
  std::vector<std::string> idle;  // pods without a stage
  SyncPolicy sync;
  StateMove state = StateMove::kKeep;
  // With kCheckpoint: which one to load; -1: none, begin at step 0. Filled in by the coordinator.
  std::int64_t checkpoint_step = -1;
  std::vector<LayerHolder> holders;  // with kMove. Filled in by the coordinator
  int prepare_timeout_seconds = 10;
  double predicted_step_seconds = 0;         // 0 = unknown
  double predicted_gain = 0;                 // fraction over the parent
  std::string links_digest, profile_digest;  // of the inputs; may be empty

  int stage_count() const { return static_cast<int>(stages.size()); }
  int replica_count() const { return static_cast<int>(micro_batches.size()); }
  bool operator==(const Plan&) const = default;
};

// True when b can replace a between two steps without new connections: same members, rank map and
// layer cut.
bool same_generation(const Plan& a, const Plan& b);
// Partial with several replicas: they average parameters and need not stand at the same step.
bool averages(const Plan& plan);

const char* name(Family family);      // "KFKB" "OneFOneB" "GPipe"
const char* name(Dispatch dispatch);  // "Hint" "Strict"
const char* name(SyncMode mode);      // "Exact" "Partial"
const char* name(Trigger trigger);    // "Initial" ...
const char* name(StateMove state);    // "Keep" "Move" "Checkpoint"

}  // namespace weir::schedule
