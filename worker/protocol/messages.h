// SPDX-License-Identifier: Apache-2.0
// What operator, coordinator and ranks say to each other, as structs; who, when and by when is in
// worker/protocol/README.md. JSON of all of them: codec.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "worker/base/settings.h"
#include "worker/schedule/plan.h"

namespace weir::protocol {

constexpr int kProtocolMin = 1, kProtocolMax = 1;  // of /join
constexpr int kControlPort = 7070, kDataPort = 7071, kMetricsPort = 9400;

struct RankDevice {
  std::string device;  // class: CUDA name, emulated name or "cpu"
  std::int64_t memory_bytes = 0;
};

struct Member {
  std::string pod, pod_uid;
  int worker_index = 0;
  std::vector<std::string> ips;
  std::string node;
  int data_port = kDataPort;
  std::vector<RankDevice> ranks;
};

struct ModelInfo {
  std::string name;
  int layers = 0;
  std::string digest;
};

struct ProbedLink {  // between two nodes, one direction
  std::string from_node, to_node;
  double bytes_per_second = 0, rtt_seconds = 0;
};

// POST /join
struct Join {
  std::string job_uid, pod, pod_uid;
  int worker_index = 0, attempt = 0;
  int protocol_min = kProtocolMin, protocol_max = kProtocolMax;
};
struct JoinAnswer {
  std::string job_key;  // hex in JSON, raw here
};

// POST /register
struct Register {
  std::string job_uid;
  std::vector<Member> members;
  ModelInfo model;
  std::string profile_json;  // weir.dev/profile/v1 text, empty = not measured
  std::vector<ProbedLink> links;
  std::int64_t last_checkpoint_step = -1;
};

enum class Outcome : unsigned char { kApplied, kRefused, kAborted };

struct LastSwitch {
  std::uint32_t revision = 0;
  Outcome outcome = Outcome::kApplied;
  std::int64_t step = 0;
  double pause_seconds = 0;
  std::string reason;
  std::int64_t moved_bytes = 0;  // with state Move: over all ranks
};

struct MemberReport {
  std::string pod, pod_uid;
  bool ready = false;
  double step_seconds = 0, compute_seconds = 0, idle_seconds = 0;
  std::int64_t memory_peak_bytes = 0, memory_limit_bytes = 0;
  std::int64_t memory_free_bytes = -1;  // of the device, least of the last step; < 0 = unknown
};

struct LinkTotals {  // counters since the worker's start
  int replica = 0;
  std::string link;  // "1-2"
  std::string dir;   // "fwd" or "bwd"
  std::string from_node, to_node;
  std::int64_t bytes = 0;
  double busy_seconds = 0;
  std::int64_t transfers = 0;
  double rtt_seconds = 0;
};

struct SyncGroups {  // Partial: of this generation
  std::int64_t rounds = 0;
  double mean_group_size = 0;
  double max_staleness = 0;  // steps of progress ahead of the slowest, after an average
};

// POST /report
struct Report {
  std::string job_uid;
  std::int64_t sequence = 0;
  std::uint32_t plan_revision = 0;
  int incarnation = 0;
  std::optional<LastSwitch> last_switch;
  std::int64_t step = 0, total_steps = 0;  // completed steps
  double samples_per_second = 0;
  double loss = 0;  // NaN = unknown
  double bubble_ratio = 0;
  // Steps that changed no parameter, for their loss or gradient was no finite number; in all, and
  // those without a good one since.
  std::int64_t skipped_steps = 0;
  int skipped_in_row = 0;
  std::int64_t last_checkpoint_step = -1;
  std::vector<MemberReport> members;
  std::vector<LinkTotals> links;
  std::optional<SyncGroups> sync;
};

// ---- port 7070: frames between a rank and the coordinator ----
struct Hello {
  Member member;
  int incarnation = 0;         // of the plan in force on this rank
  std::uint32_t revision = 0;  // likewise; 0 = a fresh process without state
  std::int64_t step = 0;       // completed steps
  // What must be the same on all ranks: model, data, options that decide the numbers. A version
  // that knows more or fewer of them is compared by those that both know; one from before there
  // were any says none.
  Settings settings = {};
};
// The coordinator's answer to a HELLO that no later one can mend: the rank ends with exit code 2.
struct Refused {
  std::string reason;  // names the setting, its value there and here
};
struct Measure {
  std::vector<int> samples;
  int rounds = 5;
};
struct Measured {
  std::string profile_json;
  std::string error;
};  // error set: could not
struct Probe {
  std::string ip;
  int data_port = kDataPort;
  std::int64_t bytes = 0;
};
struct Probed {
  double bytes_per_second = 0, rtt_seconds = 0;
};
struct Prepare {
  schedule::Plan plan;
  int incarnation = 0;
};
struct Ready {
  std::uint32_t revision = 0;
  int incarnation = 0;  // of the PREPARE that it answers
};
struct Reject {
  std::uint32_t revision = 0;
  std::string reason;
  int incarnation = 0;
};
struct Commit {
  std::uint32_t revision = 0;
  std::int64_t at_step = 0;
};
struct ReadyState {
  std::uint32_t revision = 0;
  std::string error;      // set: could not build, load or connect; its state is gone
  std::int64_t step = 0;  // completed steps of the state that it holds now
};
struct Go {
  std::uint32_t revision = 0;
};
struct Abort {
  std::uint32_t revision = 0;
};
struct Applied {
  std::uint32_t revision = 0;
  std::int64_t step = 0;
};
struct StageStatus {  // after each step
  std::uint32_t epoch = 0;
  std::int64_t step = 0;  // completed steps
  int replica = 0, stage = 0;
  double loss = 0;  // last stage; NaN elsewhere
  double step_seconds = 0, compute_seconds = 0, idle_seconds = 0;
  std::int64_t samples = 0;  // of this step; stage 0 only
  std::int64_t memory_peak_bytes = 0, memory_limit_bytes = 0;
  std::vector<LinkTotals> links;
  std::int64_t memory_free_bytes = -1;  // of the device; < 0 = unknown
  int skipped_in_row = 0;  // steps up to this one that changed no parameter (loss, gradient)
  std::int64_t skipped_steps = 0;  // of this process, in all
};
struct PeerLost {
  int replica = 0, stage = 0;
  std::uint32_t revision = 0;
  std::string reason;
};
struct Leave {
  std::string reason;
};  // "finished" or "SIGTERM"
struct Heartbeat {};
struct SavedFile {  // of one layer
  std::string name;
  std::int64_t bytes = 0;
  std::string sha256;  // hex
};
struct Save {  // the state after `step` completed steps
  std::int64_t step = 0;
  std::vector<int> replicas;  // that share the layers among them; empty: all of the plan
};
enum class SaveTrouble : unsigned char {
  kNone,
  kFull,  // the disk has no room left: with less on it the save may succeed
  kBusy,  // the disk does not keep up: a save before is not done yet
};
// From a rank: its files lie on disk, or why not. From the coordinator: the checkpoint is complete,
// or has failed.
struct Saved {
  std::int64_t step = 0;
  std::string error;
  bool late = false;    // the rank is beyond that step, at `at`: another one is wanted
  std::int64_t at = 0;  // completed steps
  bool leave = false;   // from the coordinator: who has said LEAVE may end now
  std::vector<SavedFile> files;
  SaveTrouble trouble = SaveTrouble::kNone;  // the kind of the error, where it matters
};
struct BadCheckpoint {  // a rank could not load it, for its content
  std::int64_t step = 0;
  std::string reason;
};

struct Moved {  // before its READY_STATE: what a rank has fetched from others
  std::uint32_t revision = 0;
  std::int64_t bytes = 0;
};

// Partial only, from the last stage of a replica: its step is done but for the average.
struct SyncReady {
  int replica = 0;
  std::int64_t step = 0;    // completed steps, this one counted
  double step_seconds = 0;  // without waiting for other replicas
  // In the average after the step before, by its rank of the last stage; none: it had none, or it
  // does not measure them.
  struct Received {
    int from = 0;                 // another replica
    double bytes_per_second = 0;  // as if all that came from everybody had come at its rate
  };
  std::vector<Received> received;
  // That average, when all members had begun; 0 = there was none, or it cannot go on beside a step.
  double average_seconds = 0;
};
// The answer, to all ranks of all members: average, then go on at next_step.
struct Grant {
  std::int64_t round = 0;            // only grows
  std::int64_t step = 0;             // of the SYNC_READY of the receiver's replica
  std::int64_t next_step = 0;        // completed steps of all members after it
  std::vector<int> members;          // replicas in rising order
  std::vector<double> weights;       // of each member; sum 1
  bool all = false;                  // everybody's state becomes one, the optimizer's too
  bool overlaps = false;             // may go on beside the next step, until that one's update
  double staleness = 0;              // of the receiver's replica: progress ahead of the slowest
  double port_bytes_per_second = 0;  // of its replica, as averages show it; 0 = unknown
  double deadline_seconds = 0;       // for a member to come; then the others give the round up
};
// From each rank that has given a round up: it keeps its model and goes on at next_step.
struct RoundFailed {
  int replica = 0;
  std::int64_t round = 0;
  int missing = -1;  // the replica that did not come; -1: not known
  std::string reason;
};

using Message =
    std::variant<Hello, Measure, Measured, Probe, Probed, Prepare, Ready, Reject, Commit,
                 ReadyState, Go, Abort, Applied, StageStatus, PeerLost, Leave, Heartbeat, Save,
                 Saved, BadCheckpoint, Moved, SyncReady, Grant, RoundFailed, Refused>;

}  // namespace weir::protocol
