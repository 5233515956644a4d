// SPDX-License-Identifier: Apache-2.0
#include "worker/protocol/codec.h"

#include <limits>

#include "worker/base/digest.h"
#include "worker/protocol/json_io.h"
#include "worker/protocol/plan_fields.h"

namespace weir::protocol {

namespace {

constexpr Names<Outcome, 3> kOutcomes{{{Outcome::kApplied, "Applied"},
                                       {Outcome::kRefused, "Refused"},
                                       {Outcome::kAborted, "Aborted"}}};
constexpr Names<SaveTrouble, 3> kTroubles{
    {{SaveTrouble::kNone, ""}, {SaveTrouble::kFull, "Full"}, {SaveTrouble::kBusy, "Busy"}}};
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct Protocol {
  int min = kProtocolMin, max = kProtocolMax;
};
struct KeyText {
  std::string job_key;
  std::optional<CoordinatorPlace> coordinator;
};

void fields(auto& io, Is<Protocol> auto& protocol) {
  io.required("min", protocol.min);
  io.required("max", protocol.max);
}
void fields(auto& io, Is<KeyText> auto& answer) {
  io.required("jobKey", answer.job_key);
  io("coordinator", answer.coordinator);
}

}  // namespace

// ---- control API ----

void fields(auto& io, Is<CoordinatorPlace> auto& place) {
  io.required("pod", place.pod);
  io.required("podUid", place.pod_uid);
  io("address", place.address);
  io.required("term", place.term);
  io("lostPodUid", place.lost_pod_uid);
}

template <class Io, Is<Join> T>
void fields(Io& io, T& join) {
  io.required("jobUid", join.job_uid);
  io.required("pod", join.pod);
  io.required("podUid", join.pod_uid);
  io.required("workerIndex", join.worker_index);
  io("attempt", join.attempt);
  Protocol protocol{join.protocol_min, join.protocol_max};
  io.required("protocol", protocol);
  if constexpr (Io::kReads) {
    join.protocol_min = protocol.min;
    join.protocol_max = protocol.max;
  }
  io("lostTerm", join.lost_term);
}

void fields(auto& io, Is<RankDevice> auto& rank) {
  io("device", rank.device);
  io("memoryBytes", rank.memory_bytes);
}

void fields(auto& io, Is<TransportFallback> auto& fallback) {
  io.required("wanted", fallback.wanted);
  io("allowed", fallback.allowed);
  io("inUse", fallback.in_use);
}

template <class Io, Is<Member> T>
void fields(Io& io, T& member) {
  io.required("pod", member.pod);
  io.required("podUid", member.pod_uid);
  io("workerIndex", member.worker_index);
  io("ips", member.ips);
  io("node", member.node);
  if (Io::kReads || member.data_port != kDataPort) io("dataPort", member.data_port);
  io("ranks", member.ranks);
  if constexpr (Io::kReads) member.plan_version = 1;
  io("planVersion", member.plan_version);
  io("fallback", member.fallback);
}

void fields(auto& io, Is<ModelInfo> auto& model) {
  io.required("name", model.name);
  io.required("layers", model.layers);
  io("digest", model.digest);
  if (io.kReads || model.parameters != 0) io("parameters", model.parameters);
  io("engine", model.engine);
  io("note", model.note);
}

void fields(auto& io, Is<ProbedLink> auto& link) {
  io.required("fromNode", link.from_node);
  io.required("toNode", link.to_node);
  io("bytesPerSecond", link.bytes_per_second);
  io("rttSeconds", link.rtt_seconds);
}

void fields(auto& io, Is<Register> auto& body) {
  io.required("jobUid", body.job_uid);
  io.required("members", body.members);
  io.required("model", body.model);
  if (io.kReads || !body.profile_json.empty()) io.document("profile", body.profile_json);
  io("links", body.links);
  io("lastCheckpointStep", body.last_checkpoint_step);
}

void fields(auto& io, Is<LastSwitch> auto& last) {
  io.required("revision", last.revision);
  io.choice("outcome", last.outcome, kOutcomes);
  io("step", last.step);
  io("pauseSeconds", last.pause_seconds);
  if (io.kReads || last.moved_bytes != 0) io("movedBytes", last.moved_bytes);
  if (io.kReads || last.state != schedule::StateMove::kKeep) {
    io.choice("state", last.state, state_names());
  }
  if (io.kReads || last.repeated_steps != 0) io("repeatedSteps", last.repeated_steps);
  if (io.kReads || last.incarnation != 0) io("incarnation", last.incarnation);
  if (io.kReads || last.snapshots) io("snapshots", last.snapshots);
  io("reason", last.reason);
}

void fields(auto& io, Is<MemberReport> auto& member) {
  io("pod", member.pod);
  io.required("podUid", member.pod_uid);
  io("ready", member.ready);
  if (io.kReads || member.silent_seconds > 0) io("silentSeconds", member.silent_seconds);
  io("stepSeconds", member.step_seconds);
  io("computeSeconds", member.compute_seconds);
  io("idleSeconds", member.idle_seconds);
  io("memoryPeakBytes", member.memory_peak_bytes);
  io("memoryLimitBytes", member.memory_limit_bytes);
  io("memoryFreeBytes", member.memory_free_bytes);
}

void fields(auto& io, Is<SyncGroups> auto& sync) {
  io("rounds", sync.rounds);
  io("meanGroupSize", sync.mean_group_size);
  io("maxStaleness", sync.max_staleness);
}

void fields(auto& io, Is<Exported> auto& exported) {
  io.required("folder", exported.folder);
  io("step", exported.step);
  io("bytes", exported.bytes);
}

void fields(auto& io, Is<Validation> auto& validation) {
  io.required("step", validation.step);
  io("loss", validation.loss);
}

void fields(auto& io, Is<SegmentLink> auto& link) {
  io("replica", link.replica);
  io.required("boundary", link.boundary);
  io("forward", link.forward);
  io("seconds", link.seconds);
  io("error", link.error);
  io("latencySeconds", link.latency_seconds);
  io("timed", link.timed);
  io("transfers", link.transfers);
  if (io.kReads || link.rounding_error != 0) io("roundingError", link.rounding_error);
  if (io.kReads || link.zeroed != 0) io("zeroed", link.zeroed);
  if (io.kReads || link.connections != 1) io("connections", link.connections);
}

void fields(auto& io, Is<PartSeconds> auto& parts) {
  for (std::size_t i = 0; i < kStepParts; ++i) {
    if (io.kReads || parts.seconds[i] != 0) io(kStepPartNames[i], parts.seconds[i]);
  }
}

void shortage(auto& io, auto& of) {
  if (io.kReads || of.queued_seconds != 0) io("queuedSeconds", of.queued_seconds);
  if (io.kReads || of.throttled_seconds != 0) io("throttledSeconds", of.throttled_seconds);
}

void fields(auto& io, Is<SegmentRank> auto& rank) {
  io("replica", rank.replica);
  io.required("stage", rank.stage);
  io("forwardSeconds", rank.forward_seconds);
  io("backwardSeconds", rank.backward_seconds);
  io("parts", rank.parts);
  if (io.kReads || rank.save_seconds != 0) io("saveSeconds", rank.save_seconds);
  shortage(io, rank);
}

void fields(auto& io, Is<Segment> auto& segment) {
  io.required("revision", segment.revision);
  io("firstStep", segment.first_step);
  io("steps", segment.steps);
  io("stepSeconds", segment.step_seconds);
  io("stepError", segment.step_error);
  if (io.kReads || segment.save_every != 0) io("saveEvery", segment.save_every);
  if (io.kReads || segment.save_seconds != 0) io("saveSeconds", segment.save_seconds);
  io("links", segment.links);
  io("ranks", segment.ranks);
}

void fields(auto& io, Is<StalledRank> auto& rank) {
  io("replica", rank.replica);
  io.required("stage", rank.stage);
  io("part", rank.part);
  io("microBatch", rank.micro_batch);
  io("seconds", rank.seconds);
}

void fields(auto& io, Is<Stall> auto& stall) {
  io("seconds", stall.seconds);
  io("waiting", stall.waiting);
  io("ranks", stall.ranks);
}

void fields(auto& io, Is<DeadLink> auto& link) {
  io.required("from", link.from);
  io.required("to", link.to);
  io("seconds", link.seconds);
}

void fields(auto& io, Is<Report> auto& report) {
  io.required("jobUid", report.job_uid);
  io.required("sequence", report.sequence);
  io.required("planRevision", report.plan_revision);
  io("incarnation", report.incarnation);
  io("lastSwitch", report.last_switch);
  io("step", report.step);
  io("totalSteps", report.total_steps);
  io("samplesPerSecond", report.samples_per_second);
  io("loss", report.loss);
  io("bubbleRatio", report.bubble_ratio);
  if (io.kReads || report.skipped_steps != 0) io("skippedSteps", report.skipped_steps);
  if (io.kReads || report.skipped_in_row != 0) io("skippedInRow", report.skipped_in_row);
  io("lastCheckpointStep", report.last_checkpoint_step);
  io("compressedSteps", report.compressed_steps);
  io("members", report.members);
  io("sync", report.sync);
  if (io.kReads || !report.snapshots.empty()) io("snapshots", report.snapshots);
  io("exported", report.exported);
  io("validation", report.validation);
  io("segment", report.segment);
  io("previousSegment", report.previous_segment);
  io("stall", report.stall);
  if (io.kReads || !report.lost_replicas.empty()) io("lostReplicas", report.lost_replicas);
  if (io.kReads || !report.dead_links.empty()) io("deadLinks", report.dead_links);
}

void fields(auto& io, Is<TraceWanted> auto& wanted) {
  io.required("id", wanted.id);
  io.required("steps", wanted.steps);
  if (io.kReads || wanted.replica >= 0) io("replica", wanted.replica);
}
void fields(auto& io, Is<ReportAnswer> auto& answer) {
  io("trace", answer.trace);
}

// ---- port 7070 ----

void fields(auto& io, Is<Setting> auto& setting) {
  io.required("name", setting.name);
  io.required("value", setting.value);
}
void fields(auto& io, Is<Verdict> auto& verdict) {
  io.required("squares", verdict.squares);
  io("loss", verdict.loss);
}
void fields(auto& io, Is<schedule::IdRange> auto& ids) {
  io.required("first", ids.first);
  io.required("count", ids.count);
}
void fields(auto& io, Is<KeptSums> auto& sums) {
  io.required("ids", sums.ids);
  io.required("microBatchSize", sums.micro_batch_size);
  io.required("microBatches", sums.micro_batches);
  if (io.kReads || !sums.codecs.raw()) io("codecs", sums.codecs);
}
void fields(auto& io, Is<KeptIds> auto& kept) {
  io.required("replica", kept.replica);
  io.required("ids", kept.ids);
}
void fields(auto& io, Is<Held> auto& held) {
  io.required("first", held.first);
  io.required("last", held.last);
  io.required("step", held.step);
  io("history", held.history);
  io("pending", held.pending);
  io("replica", held.replica);
  io("summed", held.summed);
  if (io.kReads || held.snapshot) io("snapshot", held.snapshot);
  if (io.kReads || held.copy) io("copy", held.copy);
  if (io.kReads || held.compressed_steps != 0) io("compressedSteps", held.compressed_steps);
  if (io.kReads || held.sums) io("sums", held.sums);
}
void fields(auto& io, Is<Inventory> auto& inventory) {
  io("history", inventory.history);
  io("held", inventory.held);
  io("verdict", inventory.verdict);
  io("running", inventory.running);
  if (io.kReads || inventory.revision != 0) {
    io("revision", inventory.revision);
    io("incarnation", inventory.incarnation);
  }
}
void fields(auto& io, Is<Hello> auto& hello) {
  io.required("member", hello.member);
  io("incarnation", hello.incarnation);
  io("revision", hello.revision);
  io("step", hello.step);
  const bool tells = hello.inventory.history != 0 || !hello.inventory.held.empty();
  if (io.kReads || tells || hello.inventory.running) io("inventory", hello.inventory);
  io("settings", hello.settings);
  if (io.kReads || !hello.features.empty()) io("features", hello.features);
  if (io.kReads || hello.leaving) io("leaving", hello.leaving);
}
void fields(auto& io, Is<Refused> auto& refused) {
  io("reason", refused.reason);
}
void fields(auto& io, Is<Measure> auto& measure) {
  io.required("samples", measure.samples);
  io("rounds", measure.rounds);
}
void fields(auto& io, Is<Measured> auto& measured) {
  if (io.kReads || !measured.profile_json.empty()) io.document("profile", measured.profile_json);
  io("error", measured.error);
}
void fields(auto& io, Is<Probe> auto& probe) {
  io.required("ip", probe.ip);
  io("dataPort", probe.data_port);
  io.required("bytes", probe.bytes);
}
void fields(auto& io, Is<Unanswered> auto& unanswered) {
  io.required("ip", unanswered.ip);
  io.required("dataPort", unanswered.data_port);
}
void fields(auto& io, Is<Probed> auto& probed) {
  io("bytesPerSecond", probed.bytes_per_second);
  io("rttSeconds", probed.rtt_seconds);
}
void fields(auto& io, Is<Prepare> auto& prepare) {
  io.required("plan", prepare.plan);
  io("incarnation", prepare.incarnation);
}
void fields(auto& io, Is<Ready> auto& ready) {
  io.required("revision", ready.revision);
  io("incarnation", ready.incarnation);
}
void fields(auto& io, Is<Reject> auto& reject) {
  io.required("revision", reject.revision);
  io("reason", reject.reason);
  io("incarnation", reject.incarnation);
}
void fields(auto& io, Is<Commit> auto& commit) {
  io.required("revision", commit.revision);
  io.required("atStep", commit.at_step);
  io("verdict", commit.verdict);
  if (io.kReads || commit.history != 0) io("history", commit.history);
  if (io.kReads || commit.compressed_steps != 0) io("compressedSteps", commit.compressed_steps);
  if (io.kReads || !commit.kept.empty()) io("kept", commit.kept);
}
void fields(auto& io, Is<ReadyState> auto& ready) {
  io.required("revision", ready.revision);
  io("error", ready.error);
  io("step", ready.step);
  if (io.kReads || ready.holds) io("holds", ready.holds);
}
template <class Io, class T>
  requires Is<T, Go> || Is<T, Abort>
void fields(Io& io, T& order) {
  io.required("revision", order.revision);
}
void fields(auto& io, Is<Applied> auto& applied) {
  io.required("revision", applied.revision);
  io.required("step", applied.step);
}
void fields(auto& io, Is<Sent> auto& sent) {
  io.required("forward", sent.forward);
  io.required("transfers", sent.transfers);
  io("timed", sent.timed);
  io("seconds", sent.seconds);
  io("rttSeconds", sent.rtt_seconds);
  if (io.kReads || sent.rounding_error != 0) io("roundingError", sent.rounding_error);
  if (io.kReads || sent.zeroed != 0) io("zeroed", sent.zeroed);
  if (io.kReads || sent.connections != 1) io("connections", sent.connections);
}
void fields(auto& io, Is<StageStatus> auto& status) {
  io.required("epoch", status.epoch);
  io.required("step", status.step);
  io.required("replica", status.replica);
  io.required("stage", status.stage);
  io("loss", status.loss);
  io("stepSeconds", status.step_seconds);
  io("computeSeconds", status.compute_seconds);
  io("idleSeconds", status.idle_seconds);
  if (io.kReads || status.skipped_in_row != 0) io("skippedInRow", status.skipped_in_row);
  if (io.kReads || status.skipped_steps != 0) io("skippedSteps", status.skipped_steps);
  io("samples", status.samples);
  io("memoryPeakBytes", status.memory_peak_bytes);
  io("memoryLimitBytes", status.memory_limit_bytes);
  io("memoryFreeBytes", status.memory_free_bytes);
  io("forwardSeconds", status.forward_seconds);
  io("backwardSeconds", status.backward_seconds);
  if (io.kReads || status.interrupted) io("interrupted", status.interrupted);
  io("parts", status.parts);
  shortage(io, status);
  if (io.kReads || !status.sent.empty()) io("sent", status.sent);
  io("validation", status.validation);
}
void fields(auto& io, Is<PeerLost> auto& lost) {
  io.required("replica", lost.replica);
  io.required("stage", lost.stage);
  io("revision", lost.revision);
  io("reason", lost.reason);
  if (io.kReads || lost.finish_part) io("finishPart", lost.finish_part);
}
void fields(auto& io, Is<Leave> auto& leave) {
  io("reason", leave.reason);
  io("validation", leave.validation);
}
void fields(auto&, Is<Heartbeat> auto&) {}
void fields(auto& io, Is<SavedFile> auto& file) {
  io.required("name", file.name);
  io.required("bytes", file.bytes);
  io.required("sha256", file.sha256);
}
void fields(auto& io, Is<CopySource> auto& source) {
  io.required("ip", source.ip);
  io.required("dataPort", source.data_port);
  io.required("firstLayer", source.first_layer);
  io("files", source.files);
}
void fields(auto& io, Is<Save> auto& save) {
  io.required("step", save.step);
  io("replicas", save.replicas);
  if (io.kReads || save.snapshot) io("snapshot", save.snapshot);
  io("copy", save.copy);
}
void fields(auto& io, Is<Saved> auto& saved) {
  io.required("step", saved.step);
  io("error", saved.error);
  io("late", saved.late);
  io("at", saved.at);
  io("leave", saved.leave);
  io("files", saved.files);
  io.choice("trouble", saved.trouble, kTroubles);
  if (io.kReads || saved.snapshot) io("snapshot", saved.snapshot);
  if (io.kReads || saved.copy) io("copy", saved.copy);
  if (io.kReads || saved.seconds != 0) io("seconds", saved.seconds);
}
void fields(auto& io, Is<BadCheckpoint> auto& bad) {
  io.required("step", bad.step);
  io("reason", bad.reason);
}
void fields(auto& io, Is<Moved> auto& moved) {
  io.required("revision", moved.revision);
  io.required("bytes", moved.bytes);
}
void fields(auto& io, Is<SyncReady::Received> auto& received) {
  io.required("from", received.from);
  io.required("bytesPerSecond", received.bytes_per_second);
}
void fields(auto& io, Is<SyncReady> auto& ready) {
  io.required("replica", ready.replica);
  io.required("step", ready.step);
  io("stepSeconds", ready.step_seconds);
  io("received", ready.received);
  io("averageSeconds", ready.average_seconds);
}
void fields(auto& io, Is<Grant> auto& grant) {
  io.required("round", grant.round);
  io.required("step", grant.step);
  io.required("nextStep", grant.next_step);
  io.required("members", grant.members);
  io.required("weights", grant.weights);
  io("all", grant.all);
  io("overlaps", grant.overlaps);
  io("staleness", grant.staleness);
  io("portBytesPerSecond", grant.node_bytes_per_second);
  io("deadlineSeconds", grant.deadline_seconds);
}
void fields(auto& io, Is<RoundFailed> auto& failed) {
  io.required("replica", failed.replica);
  io.required("round", failed.round);
  io("missing", failed.missing);
  io("reason", failed.reason);
}
void fields(auto& io, Is<StepsWanted> auto& wanted) {
  io.required("id", wanted.id);
  io.required("from", wanted.from);
  io.required("to", wanted.to);
  io("open", wanted.open);
  io.required("mostBytes", wanted.most_bytes);
}
template <class Io, Is<Steps> T>
void fields(Io& io, T& steps) {
  io.required("id", steps.id);
  std::string text = to_base64(steps.octets);
  io.required("data", text);
  if constexpr (Io::kReads) {
    auto octets = from_base64(text);
    if (!octets) return io.fail("data", "not base64");
    steps.octets = *std::move(octets);
  }
}

namespace {

// In the order of the alternatives of Message.
constexpr const char* kTypes[] = {
    "HELLO",   "MEASURE",        "MEASURED",     "PROBE",       "PROBED",    "PREPARE",
    "READY",   "REJECT",         "COMMIT",       "READY_STATE", "GO",        "ABORT",
    "APPLIED", "STATUS",         "PEER_LOST",    "LEAVE",       "HEARTBEAT", "SAVE",
    "SAVED",   "BAD_CHECKPOINT", "MOVED",        "SYNC_READY",  "GRANT",     "ROUND_FAILED",
    "REFUSED", "INVENTORY",      "STEPS_WANTED", "STEPS",       "UNANSWERED"};
static_assert(std::size(kTypes) == std::variant_size_v<Message>);

void read_message(Reader& io, const std::string& type, std::optional<Message>& out) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const auto try_one = [&]<std::size_t N>(std::integral_constant<std::size_t, N>) {
      if (type != kTypes[N]) return;
      std::variant_alternative_t<N, Message> body{};
      if constexpr (std::is_same_v<decltype(body), StageStatus>) body.loss = kUnknown;
      fields(io, body);
      out = std::move(body);
    };
    (try_one(std::integral_constant<std::size_t, I>{}), ...);
  }(std::make_index_sequence<std::variant_size_v<Message>>{});
}

}  // namespace

std::string encode(const Join& join) {
  return encode_struct(join);
}
Result<Join> decode_join(std::string_view json) {
  return decode_struct<Join>(json);
}

std::string encode(const JoinAnswer& answer) {
  return encode_struct(KeyText{to_hex(answer.job_key), answer.coordinator});
}
Result<JoinAnswer> decode_join_answer(std::string_view json) {
  WEIR_TRY(const KeyText text, decode_struct<KeyText>(json));
  const auto key = from_hex(text.job_key);
  if (!key) return invalid("jobKey: not hexadecimal");
  return JoinAnswer{*key, text.coordinator};
}

std::string encode(const Register& body) {
  return encode_struct(body);
}
Result<Register> decode_register(std::string_view json) {
  return decode_struct<Register>(json);
}

std::string encode(const Report& report) {
  return encode_struct(report);
}
Result<Report> decode_report(std::string_view json) {
  Report empty;
  empty.loss = kUnknown;
  return decode_struct<Report>(json, std::move(empty));
}

std::string encode(const ReportAnswer& answer) {
  return encode_struct(answer);
}
Result<ReportAnswer> decode_report_answer(std::string_view json) {
  return decode_struct<ReportAnswer>(json);
}

const char* type_name(const Message& message) {
  return kTypes[message.index()];
}

std::string encode(const Message& message) {
  Writer writer;
  writer("type", type_name(message));
  std::visit([&writer](const auto& body) { fields(writer, body); }, message);
  return writer.text();
}

Result<Message> decode_message(std::string_view json) {
  WEIR_TRY(const Document document, Document::parse(json));
  Reader reader(document.root());
  std::string type;
  reader.required("type", type);
  std::optional<Message> message;
  if (reader.ok()) read_message(reader, type, message);
  if (reader.ok() && !message) reader.fail("type", "\"" + type + "\" is not known");
  if (const auto error = reader.error()) return *error;
  return *std::move(message);
}

}  // namespace weir::protocol
