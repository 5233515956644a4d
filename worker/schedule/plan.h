// SPDX-License-Identifier: Apache-2.0
// The plan document as a struct: which layers form a stage, which rank runs a stage, and in which
// order micro-batches pass. Pure data. JSON: worker/protocol/README.md "Plan document". Legality:
// validate.h.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "worker/schedule/codecs.h"

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
  kCompress,
  kManual
};
// kRecover: what the ranks hold after a failure, else as kCheckpoint. The coordinator makes one of
// the others of it, so ranks never see it.
enum class StateMove : unsigned char { kKeep, kMove, kCheckpoint, kRecover };

// Backwards in two parts: B makes the gradient of the input, W those of the weights
// (worker/schedule/README.md "Split backward"). Both lists have a value per stage.
struct Split {
  std::vector<int> held;       // maximum of micro-batches from the start of F to the end of W
  std::vector<int> postponed;  // number of pending W for which an idle stage does not begin one
  bool operator==(const Split&) const = default;
};

// Order of the micro-batches on each replica.
struct Schedule {
  Family family = Family::kKfkb;
  // The dispatch in force: caps with k = 1 are always kStrict, unless backwards are split.
  Dispatch dispatch = Dispatch::kHint;
  int k = 1;
  int micro_batch_size = 1;         // samples
  std::vector<int> caps;            // per stage: maximum of micro-batches in flight; non-increasing
  std::optional<Split> split = {};  // empty: backwards are whole
  bool operator==(const Schedule&) const = default;
};

// How replicas keep their models together. Exact: gradients are all-reduced over all replicas in
// each step. Partial: replicas that are ready at the same time average their models
// (worker/groups).
enum class SyncMode : unsigned char { kExact, kPartial };
struct SyncPolicy {
  SyncMode mode = SyncMode::kExact;
  // Replicas. This field and the following ones: Partial only.
  int group_size_min = 2, group_size_max = 2;
  double max_staleness = 6;  // steps that a replica may be ahead of the slowest live replica
  // Percent of a step: time to wait for other replicas (worker/groups/README.md "Waiting").
  int grace_window_percent = 15;
  int connect_every = 10;  // steps within which the groups connect all live replicas
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
  int data_port = 7071;  // omitted in JSON if it is the default
  bool operator==(const RankPlace&) const = default;
};

// A rank that holds layers when a plan with state Move is committed.
struct LayerHolder {
  std::string pod, pod_uid, ip, node;
  int data_port = 7071;
  int replica = 0, stage = 0;  // in the parent plan
  LayerRange layers;
  bool copy = false;  // of another rank's state, beside what it holds itself
  bool operator==(const LayerHolder&) const = default;
};

struct Plan {
  std::string job_uid;
  std::uint32_t revision = 0;  // the epoch in messages; it only grows
  std::uint32_t parent = 0;
  Trigger trigger = Trigger::kInitial;
  Schedule schedule;
  // Per replica: its share M. The sum of the shares x micro_batch_size is the global batch.
  std::vector<int> micro_batches;
  std::vector<LayerRange> stages;
  Codecs codecs;                  // of the boundaries between them
  std::vector<RankPlace> ranks;   // one per (replica, stage)
  std::vector<std::string> idle;  // pods without a stage
  SyncPolicy sync;
  StateMove state = StateMove::kKeep;
  // With kCheckpoint: the step of the checkpoint to load, or -1 for a start at step 0. Set by the
  // coordinator.
  std::int64_t checkpoint_step = -1;
  std::vector<LayerHolder> holders;  // with kMove; set by the coordinator
  int prepare_timeout_seconds = 10;
  double predicted_step_seconds = 0;         // 0 = unknown
  double predicted_gain = 0;                 // fraction over the parent
  std::string links_digest, profile_digest;  // of the planner's inputs; may be empty

  int stage_count() const { return static_cast<int>(stages.size()); }
  int replica_count() const { return static_cast<int>(micro_batches.size()); }
  // The sum of the shares. At most kMostMicroBatches (validate.h) in a plan that is legal.
  std::int64_t step_micro_batches() const {
    return std::accumulate(micro_batches.begin(), micro_batches.end(), std::int64_t{0});
  }
  bool operator==(const Plan&) const = default;
};

// True if b can replace a between two steps without new connections: members, rank map and layer
// cut are equal.
bool same_generation(const Plan& a, const Plan& b);
// Whether a change of this tier leaves members, rank map and layer cut as they are.
bool in_band_tier(Trigger trigger);
// Decides whether `next` needs new connections; coordinator and ranks use the same rule. A change
// is in band only if its tier changes nothing but the schedule and the generation is alive
// (worker/coordinator/README.md "Plan switch"). `current` is null if no plan is in force. An
// incarnation above 0 is a rejoin and always a new generation.
bool starts_generation(const Plan* current, const Plan& next, int incarnation);
// True if the plan is Partial and has several replicas. They then average parameters and need not
// be at the same step.
bool averages(const Plan& plan);

const char* name(Family family);      // "KFKB" "OneFOneB" "GPipe"
const char* name(Dispatch dispatch);  // "Hint" "Strict"
const char* name(SyncMode mode);      // "Exact" "Partial"
const char* name(Trigger trigger);    // "Initial" ...
const char* name(StateMove state);    // "Keep" "Move" "Checkpoint" "Recover"

}  // namespace weir::schedule
