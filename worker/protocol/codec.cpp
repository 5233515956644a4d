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
};

template <class Io, Is<Protocol> T>
void fields(Io& io, T& protocol) {
  io.required("min", protocol.min);
  io.required("max", protocol.max);
}
template <class Io, Is<KeyText> T>
void fields(Io& io, T& answer) {
  io.required("jobKey", answer.job_key);
}

}  // namespace

// ---- control API ----

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
}

template <class Io, Is<RankDevice> T>
void fields(Io& io, T& rank) {
  io("device", rank.device);
  io("memoryBytes", rank.memory_bytes);
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
}

template <class Io, Is<ModelInfo> T>
void fields(Io& io, T& model) {
  io.required("name", model.name);
  io.required("layers", model.layers);
  io("digest", model.digest);
}

template <class Io, Is<ProbedLink> T>
void fields(Io& io, T& link) {
  io.required("fromNode", link.from_node);
  io.required("toNode", link.to_node);
  io("bytesPerSecond", link.bytes_per_second);
  io("rttSeconds", link.rtt_seconds);
}

template <class Io, Is<Register> T>
void fields(Io& io, T& body) {
  io.required("jobUid", body.job_uid);
  io.required("members", body.members);
  io.required("model", body.model);
  if (Io::kReads || !body.profile_json.empty()) io.document("profile", body.profile_json);
  io("links", body.links);
  io("lastCheckpointStep", body.last_checkpoint_step);
}

template <class Io, Is<LastSwitch> T>
void fields(Io& io, T& last) {
  io.required("revision", last.revision);
  io.choice("outcome", last.outcome, kOutcomes);
  io("step", last.step);
  io("pauseSeconds", last.pause_seconds);
  if (Io::kReads || last.moved_bytes != 0) io("movedBytes", last.moved_bytes);
  io("reason", last.reason);
}

template <class Io, Is<MemberReport> T>
void fields(Io& io, T& member) {
  io("pod", member.pod);
  io.required("podUid", member.pod_uid);
  io("ready", member.ready);
  io("stepSeconds", member.step_seconds);
  io("computeSeconds", member.compute_seconds);
  io("idleSeconds", member.idle_seconds);
  io("memoryPeakBytes", member.memory_peak_bytes);
  io("memoryLimitBytes", member.memory_limit_bytes);
  io("memoryFreeBytes", member.memory_free_bytes);
}

template <class Io, Is<LinkTotals> T>
void fields(Io& io, T& link) {
  io("replica", link.replica);
  io.required("link", link.link);
  io.required("dir", link.dir);
  io("fromNode", link.from_node);
  io("toNode", link.to_node);
  io("bytes", link.bytes);
  io("busySeconds", link.busy_seconds);
  io("transfers", link.transfers);
  io("rttSeconds", link.rtt_seconds);
}

template <class Io, Is<SyncGroups> T>
void fields(Io& io, T& sync) {
  io("rounds", sync.rounds);
  io("meanGroupSize", sync.mean_group_size);
  io("maxStaleness", sync.max_staleness);
}

template <class Io, Is<Report> T>
void fields(Io& io, T& report) {
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
  if (Io::kReads || report.skipped_steps != 0) io("skippedSteps", report.skipped_steps);
  if (Io::kReads || report.skipped_in_row != 0) io("skippedInRow", report.skipped_in_row);
  io("lastCheckpointStep", report.last_checkpoint_step);
  io("members", report.members);
  io("links", report.links);
  io("sync", report.sync);
}

// ---- port 7070 ----

template <class Io, Is<Setting> T>
void fields(Io& io, T& setting) {
  io.required("name", setting.name);
  io.required("value", setting.value);
}
template <class Io, Is<Hello> T>
void fields(Io& io, T& hello) {
  io.required("member", hello.member);
  io("incarnation", hello.incarnation);
  io("revision", hello.revision);
  io("step", hello.step);
  io("settings", hello.settings);
}
template <class Io, Is<Refused> T>
void fields(Io& io, T& refused) {
  io("reason", refused.reason);
}
template <class Io, Is<Measure> T>
void fields(Io& io, T& measure) {
  io.required("samples", measure.samples);
  io("rounds", measure.rounds);
}
template <class Io, Is<Measured> T>
void fields(Io& io, T& measured) {
  if (Io::kReads || !measured.profile_json.empty()) io.document("profile", measured.profile_json);
  io("error", measured.error);
}
template <class Io, Is<Probe> T>
void fields(Io& io, T& probe) {
  io.required("ip", probe.ip);
  io("dataPort", probe.data_port);
  io.required("bytes", probe.bytes);
}
template <class Io, Is<Probed> T>
void fields(Io& io, T& probed) {
  io("bytesPerSecond", probed.bytes_per_second);
  io("rttSeconds", probed.rtt_seconds);
}
template <class Io, Is<Prepare> T>
void fields(Io& io, T& prepare) {
  io.required("plan", prepare.plan);
  io("incarnation", prepare.incarnation);
}
template <class Io, Is<Ready> T>
void fields(Io& io, T& ready) {
  io.required("revision", ready.revision);
  io("incarnation", ready.incarnation);
}
template <class Io, Is<Reject> T>
void fields(Io& io, T& reject) {
  io.required("revision", reject.revision);
  io("reason", reject.reason);
  io("incarnation", reject.incarnation);
}
template <class Io, Is<Commit> T>
void fields(Io& io, T& commit) {
  io.required("revision", commit.revision);
  io.required("atStep", commit.at_step);
}
template <class Io, Is<ReadyState> T>
void fields(Io& io, T& ready) {
  io.required("revision", ready.revision);
  io("error", ready.error);
  io("step", ready.step);
}
template <class Io, class T>
  requires Is<T, Go> || Is<T, Abort>
void fields(Io& io, T& order) {
  io.required("revision", order.revision);
}
template <class Io, Is<Applied> T>
void fields(Io& io, T& applied) {
  io.required("revision", applied.revision);
  io.required("step", applied.step);
}
template <class Io, Is<StageStatus> T>
void fields(Io& io, T& status) {
  io.required("epoch", status.epoch);
  io.required("step", status.step);
  io.required("replica", status.replica);
  io.required("stage", status.stage);
  io("loss", status.loss);
  io("stepSeconds", status.step_seconds);
  io("computeSeconds", status.compute_seconds);
  io("idleSeconds", status.idle_seconds);
  if (Io::kReads || status.skipped_in_row != 0) io("skippedInRow", status.skipped_in_row);
  if (Io::kReads || status.skipped_steps != 0) io("skippedSteps", status.skipped_steps);
  io("samples", status.samples);
  io("memoryPeakBytes", status.memory_peak_bytes);
  io("memoryLimitBytes", status.memory_limit_bytes);
  io("memoryFreeBytes", status.memory_free_bytes);
  io("links", status.links);
}
template <class Io, Is<PeerLost> T>
void fields(Io& io, T& lost) {
  io.required("replica", lost.replica);
  io.required("stage", lost.stage);
  io("revision", lost.revision);
  io("reason", lost.reason);
}
template <class Io, Is<Leave> T>
void fields(Io& io, T& leave) {
  io("reason", leave.reason);
}
template <class Io, Is<Heartbeat> T>
void fields(Io&, T&) {}
template <class Io, Is<SavedFile> T>
void fields(Io& io, T& file) {
  io.required("name", file.name);
  io.required("bytes", file.bytes);
  io.required("sha256", file.sha256);
}
template <class Io, Is<Save> T>
void fields(Io& io, T& save) {
  io.required("step", save.step);
  io("replicas", save.replicas);
}
template <class Io, Is<Saved> T>
void fields(Io& io, T& saved) {
  io.required("step", saved.step);
  io("error", saved.error);
  io("late", saved.late);
  io("at", saved.at);
  io("leave", saved.leave);
  io("files", saved.files);
  io.choice("trouble", saved.trouble, kTroubles);
}
template <class Io, Is<BadCheckpoint> T>
void fields(Io& io, T& bad) {
  io.required("step", bad.step);
  io("reason", bad.reason);
}
template <class Io, Is<Moved> T>
void fields(Io& io, T& moved) {
  io.required("revision", moved.revision);
  io.required("bytes", moved.bytes);
}
template <class Io, Is<SyncReady::Received> T>
void fields(Io& io, T& received) {
  io.required("from", received.from);
  io.required("bytesPerSecond", received.bytes_per_second);
}
template <class Io, Is<SyncReady> T>
void fields(Io& io, T& ready) {
  io.required("replica", ready.replica);
  io.required("step", ready.step);
  io("stepSeconds", ready.step_seconds);
  io("received", ready.received);
  io("averageSeconds", ready.average_seconds);
}
template <class Io, Is<Grant> T>
void fields(Io& io, T& grant) {
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
template <class Io, Is<RoundFailed> T>
void fields(Io& io, T& failed) {
  io.required("replica", failed.replica);
  io.required("round", failed.round);
  io("missing", failed.missing);
  io("reason", failed.reason);
}

namespace {

// In the order of the alternatives of Message.
constexpr const char* kTypes[] = {
    "HELLO",      "MEASURE", "MEASURED",     "PROBE",  "PROBED", "PREPARE",        "READY",
    "REJECT",     "COMMIT",  "READY_STATE",  "GO",     "ABORT",  "APPLIED",        "STATUS",
    "PEER_LOST",  "LEAVE",   "HEARTBEAT",    "SAVE",   "SAVED",  "BAD_CHECKPOINT", "MOVED",
    "SYNC_READY", "GRANT",   "ROUND_FAILED", "REFUSED"};
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
  return encode_struct(KeyText{to_hex(answer.job_key)});
}
Result<JoinAnswer> decode_join_answer(std::string_view json) {
  WEIR_TRY(const KeyText text, decode_struct<KeyText>(json));
  const auto key = from_hex(text.job_key);
  if (!key) return invalid("jobKey: not hexadecimal");
  return JoinAnswer{*key};
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
