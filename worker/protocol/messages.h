// SPDX-License-Identifier: Apache-2.0
// Messages between operator, coordinator and ranks, as structs. Who sends them, when, and until
// when they are answered: worker/protocol/README.md. JSON: codec.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "worker/base/settings.h"
#include "worker/protocol/step_part.h"
#include "worker/schedule/plan.h"
#include "worker/schedule/step_ids.h"

namespace weir::protocol {

constexpr int kProtocolMin = 1, kProtocolMax = 1;  // versions of the protocol of /join
// Versions of plan documents: with split backwards; with state Recover.
constexpr int kSplitPlanVersion = 2, kRecoverPlanVersion = 3, kCodecPlanVersion = 4;
constexpr int kNewestPlanVersion = kCodecPlanVersion;  // newest one that this program reads
// The term of the worker of index 0 (worker/protocol/README.md "Terms").
constexpr std::int64_t kFirstTerm = 1;
constexpr char kTermHeader[] = "Weir-Term";  // of the answer to a call of another one's
constexpr int kControlPort = 7070, kDataPort = 7071, kMetricsPort = 9400;

struct RankDevice {
  std::string device;  // device class: CUDA name, emulated name or "cpu"
  std::int64_t memory_bytes = 0;
};

// TCP congestion control that a node does not allow to a worker, whose sockets keep another.
struct TransportFallback {
  std::string wanted, allowed, in_use;  // allowed: names, with spaces between them
  bool operator==(const TransportFallback&) const = default;
};
// "congestion control bbr is not allowed on node n2 (allowed: reno cubic); cubic stays in use"
inline std::string text_of(const TransportFallback& fallback, const std::string& node) {
  return "congestion control " + fallback.wanted + " is not allowed" +
         (node.empty() ? "" : " on node " + node) + " (allowed: " + fallback.allowed + "); " +
         fallback.in_use + " stays in use";
}

struct Member {
  std::string pod, pod_uid;
  int worker_index = 0;
  std::vector<std::string> ips;
  std::string node;
  int data_port = kDataPort;
  std::vector<RankDevice> ranks;
  int plan_version =
      kNewestPlanVersion;  // newest plan document that it reads; programs before say none
  std::optional<TransportFallback> fallback = {};
};

struct ModelInfo {
  std::string name;
  int layers = 0;
  std::string digest;
  std::int64_t parameters = 0;  // their number; 0 = not told, by an older worker
  std::string engine, note;     // of layers of one's own: what computes them, and what it says
};

struct ProbedLink {  // from one node to another, one direction
  std::string from_node, to_node;
  double bytes_per_second = 0, rtt_seconds = 0;
};

// The worker that coordinates. Terms count the coordinators of a job.
struct CoordinatorPlace {
  std::string pod, pod_uid;
  std::string address;  // of its control port, "10.1.2.3:7070"; "" = not known yet
  std::int64_t term = kFirstTerm;
  // The pod that coordinated before; "" = nobody did, or an operator of an older release does not
  // tell.
  std::string lost_pod_uid = {};
};

// POST /join
struct Join {
  std::string job_uid, pod, pod_uid;
  int worker_index = 0, attempt = 0;
  int protocol_min = kProtocolMin, protocol_max = kProtocolMax;
  // A claim: the worker does not hear the coordinator of this term.
  std::optional<std::int64_t> lost_term = {};
};
struct JoinAnswer {
  std::string job_key;  // hex in JSON, raw bytes here
  // Nothing, from an operator of an older release: the worker of index 0 coordinates.
  std::optional<CoordinatorPlace> coordinator = {};
};

// POST /register
struct Register {
  std::string job_uid;
  std::vector<Member> members;
  ModelInfo model;
  std::string profile_json;  // weir.dev/profile/v1 as text; empty: not measured
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
  std::int64_t moved_bytes = 0;  // with state Move: bytes over all ranks
  // Where the state came from; never kRecover, of which the coordinator has made another.
  schedule::StateMove state = schedule::StateMove::kKeep;
  std::int64_t repeated_steps = 0;  // that were complete before, and are done again
  int incarnation = 0;              // counts how often the ranks have joined this plan again
  bool snapshots = false;           // with kKeep or kMove: some rank went back to its snapshot
};

struct MemberReport {
  std::string pod, pod_uid;
  bool ready = false;
  double step_seconds = 0, compute_seconds = 0, idle_seconds = 0;
  std::int64_t memory_peak_bytes = 0, memory_limit_bytes = 0;
  std::int64_t memory_free_bytes = -1;  // of the device, minimum of the last step; < 0 = unknown
  // For so long nothing has come from it, so that its session has ended: its machine is gone, or it
  // hangs. 0 = it is connected, or its process has ended.
  double silent_seconds = 0;
};

struct SyncGroups {  // of this generation; Partial only
  std::int64_t rounds = 0;
  double mean_group_size = 0;
  double max_staleness = 0;  // steps ahead of the slowest replica, after an average
};

struct Exported {  // the trained model as a Hugging Face folder
  std::string folder;
  std::int64_t step = 0, bytes = 0;
};

struct Validation {
  std::int64_t step = 0;  // completed steps before it
  double loss = 0;        // NaN = not finite
};

// The newest steps of one plan since network or devices have last changed, at most 64
// (worker/coordinator/README.md "Segments"). Means over these steps; an error is the standard error
// of a mean.
struct SegmentLink {
  int replica = 0, boundary = 0;
  bool forward = true;
  double seconds = 0, error = 0;  // of one message, without latency; 0 = none was timed
  double latency_seconds = 0;     // half of a small round trip
  std::int64_t timed = 0, transfers = 0;
  double rounding_error = 0, zeroed = 0;  // as in Sent
  int connections = 1;                    // in the last step
};
// Seconds of each part of a step, by StepPart. Parts without time are not sent.
struct PartSeconds {
  std::array<double, kStepParts> seconds{};
  double of(StepPart part) const { return seconds[static_cast<std::size_t>(part)]; }
};
struct SegmentRank {
  int replica = 0, stage = 0;
  double forward_seconds = 0, backward_seconds = 0;  // of one micro-batch
  std::optional<PartSeconds> parts = {};             // of the replica that waits least for others
  double save_seconds = 0;                           // of copying its state for one save
  double queued_seconds = 0, throttled_seconds = 0;  // of a step, as in StageStatus
};
struct Segment {
  std::uint32_t revision = 0;
  std::int64_t first_step = 0;  // completed steps after it
  int steps = 0;
  double step_seconds = 0, step_error = 0;
  // Saves, of which no step is counted above: steps from one to the next, and seconds that one adds
  // to them. 0 = unknown, or there are none.
  double save_every = 0, save_seconds = 0;
  std::vector<SegmentLink> links;
  std::vector<SegmentRank> ranks;
};

// No step has been completed for some time, and who waits for whom (worker/timeline/waits.h).
struct StalledRank {
  int replica = 0, stage = 0;
  std::string part;      // one of kStepPartNames; empty: the rank does not answer
  int micro_batch = -1;  // < 0: of none
  double seconds = 0;    // in that part
};
struct Stall {
  double seconds = 0;  // without a step, when the ranks were asked
  int waiting = 0;     // ranks that wait for those in `ranks`
  // Without waiting ones: ranks that wait for each other, or the one that is longest in its part.
  std::vector<StalledRank> ranks;
};
inline constexpr std::size_t kMostStalledRanks = 16, kMostDeadLinks = 16;

// One of two connected workers gets no answer from the data port of the other.
struct DeadLink {
  std::string from, to;  // pods
  double seconds = 0;    // for so long
};

// The operator refuses a longer body of POST /report. That of 512 ranks has about 300 KiB.
inline constexpr std::size_t kMaxReportBytes = std::size_t{512} * 1024;
// Therefore a segment has at most so many links and ranks, and parts of a step in plans of at most
// so many ranks and stages.
inline constexpr int kMostSegmentRanks = 256, kMostSegmentStages = 64;

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
  // Steps without an update, because their loss or gradient was not finite: all of them, and those
  // since the last step with an update.
  std::int64_t skipped_steps = 0;
  int skipped_in_row = 0;
  std::int64_t last_checkpoint_step = -1;
  // How many of `step` were trained with codecs, as they are now: without what was rolled back.
  // Nothing from a coordinator of an older release.
  std::optional<std::int64_t> compressed_steps = {};
  std::vector<MemberReport> members;
  std::optional<SyncGroups> sync;
  std::string snapshots;  // "each 4 steps", or "none of step 8: " and why; empty: nothing is known
  std::optional<Validation> validation;              // the newest one
  std::optional<Exported> exported;                  // in the last reports of a run with --export
  std::optional<Segment> segment, previous_segment;  // of the plan in force, of the one before it
  std::optional<Stall> stall = {};                   // nothing: steps come, or have not begun
  std::vector<int> lost_replicas = {};               // without which training goes on
  std::vector<DeadLink> dead_links = {};             // at most kMostDeadLinks, the oldest first
};
// A user wants to see the newest steps of all ranks, or of those of one replica.
struct TraceWanted {
  std::string id;  // of the user's request; named in POST /trace
  int steps = 0;
  int replica = -1;  // < 0: all of them
  bool operator==(const TraceWanted&) const = default;
};
// The body of the 202, from an operator of an older release none.
struct ReportAnswer {
  std::optional<TraceWanted> trace;
};

// A trace is posted in parts of this size; the operator keeps so many of a job.
inline constexpr std::size_t kMaxTracePartBytes = std::size_t{900} * 1024;
inline constexpr int kMaxTraceParts = 4;
inline constexpr int kMostTraceSteps = 1000;
// Records of the ranks that the coordinator has read by itself. One part.
struct FlightDump {
  std::string id;   // [a-z0-9-]{1,40}
  std::string why;  // one line, at most kMostWhyBytes
  std::string octets;
};
inline constexpr std::size_t kMostWhyBytes = 512;

// ---- port 7070: frames between a rank and the coordinator ----
// How a step ended, for all ranks of its replica (worker/engine/verdict.h). A number that is not
// finite means that no rank has changed its parameters.
struct Verdict {
  double squares = 0;  // of the step's gradient, over all layers
  double loss = 0;
};
// A feature in HELLO: the rank answers STEPS_WANTED. A program that does not know a message ends
// the connection, so only ranks that name the feature are asked.
inline constexpr char kStepsFeature[] = "steps";

// A feature in HELLO: the rank can go on with sums of gradients that it has kept (KeptSums).
inline constexpr char kSumsFeature[] = "sums";

// Gradients of a step that was interrupted, which a rank has summed: of whole micro-batches, in all
// layers that it holds.
struct KeptSums {
  schedule::Ids ids;  // of the micro-batches
  // Ids mean nothing without: samples of one, and their number in the step, over all replicas.
  int micro_batch_size = 0, micro_batches = 0;
  schedule::Codecs codecs = {};  // with which they were computed: others give other gradients
};

// The state of some layers that a rank holds.
struct Held {
  int first = 0, last = 0;   // layers, inclusive
  std::int64_t step = 0;     // completed steps
  std::int64_t history = 0;  // counts generations; state of one history belongs together
  std::int64_t pending = 0;  // it belongs to this history, too, whose GO the rank awaits; 0 = none
  int replica = -1;  // whose model it is, where replicas have models of their own; -1: of all
  // With complete gradients of the next step, so that only the update of that step lacks.
  bool summed = false;
  bool snapshot = false;  // a copy besides what the rank trains with, which outlives its process
  bool copy = false;      // of another rank's snapshot, for others to fetch
  std::int64_t compressed_steps = 0;  // those of `step` in which the plan had codecs
  std::optional<KeptSums> sums = {};  // of the next step, with the codecs of the plan in force
};
// Tells what a rank holds once it has dropped its step. Nothing changes until the next COMMIT.
struct Inventory {
  std::int64_t history = 0;  // the highest whose GO the rank has seen
  std::vector<Held> held;
  std::optional<Verdict> verdict = {};  // of the last step of what is held
  bool running = false;                 // the rank trains: this is what it held before
  // The last plan that began in this place, as snapshots tell it; 0 = unknown.
  std::uint32_t revision = 0;
  int incarnation = 0;
};
struct Hello {
  Member member;
  int incarnation = 0;         // of the plan in force on this rank
  std::uint32_t revision = 0;  // of the plan in force; 0 = a new process without state
  std::int64_t step = 0;       // completed steps
  Inventory inventory = {};
  // Settings that must be equal on all ranks: model, data and the options that affect results.
  // Versions of the program may send different names; only names that both sides have are compared.
  // Old versions send none.
  Settings settings = {};
  std::vector<std::string> features = {};
  bool leaving = false;  // it has been told to end, and perhaps its LEAVE went to nobody
  bool has(std::string_view feature) const {
    return std::ranges::find(features, feature) != features.end();
  }
};
// Answer to a HELLO that cannot succeed later either: the rank ends with exit code 2.
struct Refused {
  std::string reason;  // names the setting and its values on both sides
};
struct Measure {
  std::vector<int> samples;
  int rounds = 5;
};
struct Measured {
  std::string profile_json;
  std::string error;  // set: could not measure
};
struct Probe {
  std::string ip;
  int data_port = kDataPort;
  std::int64_t bytes = 0;
};
struct Probed {
  double bytes_per_second = 0, rtt_seconds = 0;
};
// No answer comes from the data port of another rank, or from its kernel when a step ended.
struct Unanswered {
  std::string ip;
  int data_port = kDataPort;
};
struct Prepare {
  schedule::Plan plan;
  int incarnation = 0;
};
struct Ready {
  std::uint32_t revision = 0;
  int incarnation = 0;  // of the PREPARE that is answered
};
struct Reject {
  std::uint32_t revision = 0;
  std::string reason;
  int incarnation = 0;
};
// A replica of a new generation keeps its sums of the first step, and computes none of these
// micro-batches again (worker/schedule/step_ids.h).
struct KeptIds {
  int replica = 0;
  schedule::Ids ids;
};
struct Commit {
  std::uint32_t revision = 0;
  std::int64_t at_step = 0;
  // The end of the step before at_step. A rank that lacks only its update of that step makes it.
  std::optional<Verdict> verdict = {};
  std::int64_t history = 0;           // that begins with the GO; 0: the plan begins no generation
  std::int64_t compressed_steps = 0;  // before its first step, of a new generation
  std::vector<KeptIds> kept = {};     // of a new generation; all others compute the rest
};
struct ReadyState {
  std::uint32_t revision = 0;
  std::string error;      // if set: the rank could not build, load or connect
  std::int64_t step = 0;  // completed steps of the state that the rank now holds
  bool holds = false;     // with an error: it holds its layers of that plan all the same
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
// A rank has sent this to a stage beside it since its last STATUS, as the receiver timed it.
struct Sent {
  bool forward = true;                    // to the next stage
  std::int64_t transfers = 0, timed = 0;  // messages; the others came in one piece
  double seconds = 0;                     // of the timed ones
  double rtt_seconds = 0;                 // the smallest of late; 0 = unknown
  // In the last step, by a codec: relative error, and part of the numbers that became 0.
  double rounding_error = 0, zeroed = 0;
  int connections = 1;  // that share the messages now
};
struct StageStatus {  // sent after each step
  std::uint32_t epoch = 0;
  std::int64_t step = 0;  // completed steps
  int replica = 0, stage = 0;
  double loss = 0;  // last stage; NaN on others
  double step_seconds = 0, compute_seconds = 0, idle_seconds = 0;
  std::int64_t samples = 0;  // of this step; stage 0 only
  std::int64_t memory_peak_bytes = 0, memory_limit_bytes = 0;
  std::int64_t memory_free_bytes = -1;  // of the device; < 0 = unknown
  int skipped_in_row = 0;  // steps without an update up to this one (loss or gradient not finite)
  std::int64_t skipped_steps = 0;                    // since the start of the process
  double forward_seconds = 0, backward_seconds = 0;  // of all ops; the latter with weights
  // A save, a validation or another plan came into this step or directly before it.
  bool interrupted = false;
  // Since the end of the step before; nothing from a worker of an older release.
  std::optional<PartSeconds> parts = {};
  // In which the engine's thread had work and no processor (worker/base/cpu_shortage.h). Short
  // steps tell them together.
  double queued_seconds = 0, throttled_seconds = 0;
  std::vector<Sent> sent;
  // The newest validation, if it was not told yet; last stage of replica 0 only.
  std::optional<Validation> validation;
};
struct PeerLost {
  int replica = 0, stage = 0;  // < 0: no rank is lost
  std::uint32_t revision = 0;
  std::string reason;
  // No rank of the receiver's replica is known to be lost, whatever `replica` says: it first
  // finishes its part of the step, as it does where `replica` is another one than its own.
  bool finish_part = false;
};
struct Leave {
  std::string reason;                    // "finished" or "SIGTERM"
  std::optional<Validation> validation;  // as in STATUS, after the last step
};
struct Heartbeat {};
struct SavedFile {  // a file of one layer
  std::string name;
  std::int64_t bytes = 0;
  std::string sha256;  // hex
};
// The snapshot of another rank, which the receiver is to fetch and keep.
struct CopySource {
  std::string ip;
  int data_port = kDataPort;
  int first_layer = 0;
  std::vector<SavedFile> files;  // by layer, from first_layer on
};
struct Save {  // asks for the state after `step` completed steps
  std::int64_t step = 0;
  std::vector<int> replicas;  // replicas that divide the layers among them; empty: all of the plan
  bool snapshot = false;      // each rank keeps a copy of all its layers for itself
  std::optional<CopySource> copy = {};  // or this one, when all ranks have theirs
};
enum class SaveTrouble : unsigned char {
  kNone,
  kFull,  // the disk is full; a smaller save may succeed
  kBusy,  // the disk is too slow: an earlier save is not done yet
};
// From a rank: its files are on disk, or the error. From the coordinator: the checkpoint is
// complete, or has failed.
struct Saved {
  std::int64_t step = 0;
  std::string error;
  bool late = false;  // the rank is already at step `at`; it asks for a checkpoint of a later step
  std::int64_t at = 0;  // completed steps
  bool leave = false;   // from the coordinator: a rank that has sent LEAVE may end now
  std::vector<SavedFile> files;
  SaveTrouble trouble = SaveTrouble::kNone;  // kind of the error, if it matters
  // The answer to a SAVE of a snapshot. From the coordinator: all ranks have theirs of this step,
  // so older ones go; or they do not, so this one goes.
  bool snapshot = false;
  bool copy = false;   // the answer to a SAVE with a source
  double seconds = 0;  // of a snapshot: for so long it may have delayed training
};
struct BadCheckpoint {  // from a rank that could not load the checkpoint because of its content
  std::int64_t step = 0;
  std::string reason;
};

struct Moved {  // bytes that a rank has fetched from others; sent before its READY_STATE
  std::uint32_t revision = 0;
  std::int64_t bytes = 0;
};

// From the last stage of a replica, Partial only: the step is done except for the average.
struct SyncReady {
  int replica = 0;
  std::int64_t step = 0;    // completed steps, including this one
  double step_seconds = 0;  // without waiting for other replicas
  // Rates at which this rank received in the previous average. Empty if there was none or if the
  // transport does not measure them. Members send at the same time and share the receiver's
  // bandwidth. The rate of one member is therefore scaled up to the bytes received from all
  // members.
  struct Received {
    int from = 0;  // replica
    double bytes_per_second = 0;
  };
  std::vector<Received> received;
  // Duration of the previous average after all members had begun; 0 if there was none, or if
  // averages cannot overlap with a step.
  double average_seconds = 0;
};
// The answer to SYNC_READY, sent to all ranks of all members: average, then continue at next_step.
struct Grant {
  std::int64_t round = 0;       // only grows
  std::int64_t step = 0;        // step of the SYNC_READY of the receiver's replica
  std::int64_t next_step = 0;   // completed steps of all members after the round
  std::vector<int> members;     // replicas in rising order
  std::vector<double> weights;  // of each member; sum 1
  bool all = false;             // all replicas take part and average the optimizer state, too
  bool overlaps = false;        // the average may run during the next step, until its update
  double staleness = 0;         // steps that the receiver's replica is ahead of the slowest
  // Bandwidth of the receiver's node, estimated from averages; 0 = unknown.
  double node_bytes_per_second = 0;
  // Time for all members to begin. Afterwards the others abandon the round.
  double deadline_seconds = 0;
};
// From each rank that has abandoned a round. It keeps its model and continues at next_step.
struct RoundFailed {
  int replica = 0;
  std::int64_t round = 0;
  int missing = -1;  // the replica that did not come; -1 = unknown
  std::string reason;
};
// Asks for what the flight recorder of a rank holds of some steps.
struct StepsWanted {
  std::string id;                 // named in the answer
  std::int64_t from = 0, to = 0;  // completed before the first and the last step
  bool open = false;              // with the part that is under way, which is said to end now
  std::int64_t most_bytes = 0;    // of the answer; the oldest events are left out
};
struct Steps {
  std::string id;
  std::string octets;  // one record (worker/timeline/codec.h), or nothing; base64 in JSON
};

using Message = std::variant<Hello, Measure, Measured, Probe, Probed, Prepare, Ready, Reject,
                             Commit, ReadyState, Go, Abort, Applied, StageStatus, PeerLost, Leave,
                             Heartbeat, Save, Saved, BadCheckpoint, Moved, SyncReady, Grant,
                             RoundFailed, Refused, Inventory, StepsWanted, Steps, Unanswered>;

}  // namespace weir::protocol
