// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <string>

#include "worker/base/text.h"
#include "worker/protocol/codec.h"
#include "worker/protocol/messages.h"
#include "worker/protocol/plan_fields.h"
#include "worker/schedule/families.h"

namespace weir::protocol {
namespace {

// A plan has the lowest version that has its fields, so a worker that would ignore one of them
// refuses it.
constexpr const char* kVersions[] = {"weir.dev/plan/v1", "weir.dev/plan/v2", "weir.dev/plan/v3",
                                     "weir.dev/plan/v4"};
static_assert(std::size(kVersions) == kNewestPlanVersion);

int version_of(const schedule::Plan& plan) {
  if (!plan.codecs.raw()) return kCodecPlanVersion;
  if (plan.state == schedule::StateMove::kRecover) return kRecoverPlanVersion;
  return plan.schedule.split ? kSplitPlanVersion : 1;
}

using schedule::Dispatch;
using schedule::Family;
using schedule::StateMove;
using schedule::SyncMode;
using schedule::Trigger;

template <class E, std::size_t N>
Names<E, N> names_of(const E (&values)[N]) {
  Names<E, N> out;
  for (std::size_t i = 0; i < N; ++i) out[i] = {values[i], name(values[i])};
  return out;
}
std::vector<std::pair<Family, const char*>> family_names() {
  std::vector<std::pair<Family, const char*>> out;
  for (const schedule::FamilyRules& rules : schedule::families()) {
    out.emplace_back(rules.family, rules.name);
  }
  return out;
}
constexpr Dispatch kDispatches[] = {Dispatch::kHint, Dispatch::kStrict};
constexpr StateMove kStates[] = {StateMove::kKeep, StateMove::kMove, StateMove::kCheckpoint,
                                 StateMove::kRecover};
constexpr SyncMode kSyncModes[] = {SyncMode::kExact, SyncMode::kPartial};
constexpr Trigger kTriggers[] = {Trigger::kInitial,  Trigger::kRetune,  Trigger::kRegroup,
                                 Trigger::kReplace,  Trigger::kRestart, Trigger::kResize,
                                 Trigger::kCompress, Trigger::kManual};

// JSON objects whose fields are flat in the struct.
struct StageEntry {
  int index = 0;
  std::vector<int> layers;  // first, last
};
struct Prediction {
  double step_seconds = 0, gain = 0;
};
struct Inputs {
  std::string links, profile;
};

void fields(auto& io, Is<StageEntry> auto& stage) {
  io.required("index", stage.index);
  io.required("layers", stage.layers);
}
void fields(auto& io, Is<Prediction> auto& prediction) {
  io("stepSeconds", prediction.step_seconds);
  io("gain", prediction.gain);
}
void fields(auto& io, Is<Inputs> auto& inputs) {
  io("links", inputs.links);
  io("profile", inputs.profile);
}

}  // namespace

Names<StateMove, 4> state_names() {
  return names_of(kStates);
}

void fields(auto& io, Is<schedule::SyncPolicy> auto& sync) {
  io.choice("mode", sync.mode, names_of(kSyncModes));
  io("groupSizeMin", sync.group_size_min);
  io("groupSizeMax", sync.group_size_max);
  io("maxStaleness", sync.max_staleness);
  io("graceWindowPercent", sync.grace_window_percent);
  io("connectEvery", sync.connect_every);
}

void fields(auto& io, Is<schedule::Split> auto& split) {
  io.required("held", split.held);
  io.required("postponed", split.postponed);
}

void fields(auto& io, Is<schedule::Schedule> auto& schedule) {
  io.choice("type", schedule.family, family_names());
  io.choice("dispatch", schedule.dispatch, names_of(kDispatches));
  io.required("k", schedule.k);
  io.required("microBatchSize", schedule.micro_batch_size);
  io.required("caps", schedule.caps);
  io("split", schedule.split);
}

void fields(auto& io, Is<schedule::RankPlace> auto& rank) {
  io("pod", rank.pod);
  io("podUid", rank.pod_uid);
  io("ip", rank.ip);
  io("node", rank.node);
  io("local", rank.local);
  io.required("replica", rank.replica);
  io.required("stage", rank.stage);
  if (io.kReads || rank.data_port != schedule::RankPlace{}.data_port) {
    io("dataPort", rank.data_port);
  }
}

void fields(auto& io, Is<schedule::LayerHolder> auto& holder) {
  io.required("pod", holder.pod);
  io("podUid", holder.pod_uid);
  io.required("ip", holder.ip);
  io("node", holder.node);
  io("dataPort", holder.data_port);
  io("replica", holder.replica);
  io("stage", holder.stage);
  io.required("firstLayer", holder.layers.first);
  io.required("lastLayer", holder.layers.last);
  if (io.kReads || holder.copy) io("copy", holder.copy);
}

namespace {

// One direction of `codecs`.
template <class Io>
void codec_list(Io& io, const char* key, auto& codecs) {
  std::vector<std::string> names;
  if constexpr (!Io::kReads) {
    for (const schedule::Codec codec : codecs) names.emplace_back(name(codec));
  }
  io.required(key, names);
  if constexpr (Io::kReads) {
    codecs.clear();
    for (std::size_t i = 0; i < names.size() && io.ok(); ++i) {
      const auto known = std::ranges::find_if(
          schedule::kCodecs, [&](schedule::Codec codec) { return name(codec) == names[i]; });
      if (known == schedule::kCodecs.end()) {
        const std::string here = std::string(key) + "[" + std::to_string(i) + "]";
        return io.fail(here.c_str(), "\"" + names[i] + "\" is not known to this worker");
      }
      codecs.push_back(*known);
    }
  }
}

void codec_lists(auto& io, auto& codecs) {
  codec_list(io, "forward", codecs.forward);
  codec_list(io, "backward", codecs.backward);
}

}  // namespace

void fields(Reader& io, schedule::Codecs& codecs) {
  codec_lists(io, codecs);
}
void fields(Writer& io, const schedule::Codecs& codecs) {
  codec_lists(io, codecs);
}

namespace {

// The part of the document that is read and written in the same form.
template <class Io, Is<schedule::Plan> T>
void plain_fields(Io& io, T& plan) {
  io("jobUid", plan.job_uid);
  io.required("revision", plan.revision);
  io("parent", plan.parent);
  io.choice("trigger", plan.trigger, names_of(kTriggers));
  io.required("schedule", plan.schedule);
  io.required("microBatches", plan.micro_batches);
  if (Io::kReads || !plan.codecs.raw()) io("codecs", plan.codecs);
  io("ranks", plan.ranks);
  io("idle", plan.idle);
  io.choice("state", plan.state, state_names());
  if (Io::kReads || plan.checkpoint_step >= 0) io("checkpointStep", plan.checkpoint_step);
  if (Io::kReads || !plan.holders.empty()) io("holders", plan.holders);
  io("prepareTimeoutSeconds", plan.prepare_timeout_seconds);
}

}  // namespace

void fields(Reader& io, schedule::Plan& plan) {
  std::string version;
  io.required("apiVersion", version);
  const auto known = std::ranges::find(kVersions, version);
  if (io.ok() && known == std::end(kVersions)) {
    return io.fail("apiVersion",
                   "\"" + version + "\" is not known, only " + joined(kVersions, ", "));
  }
  plain_fields(io, plan);
  if (io.ok() && plan.schedule.split && known == std::begin(kVersions)) {
    return io.fail("schedule.split",
                   std::string("needs apiVersion ") + kVersions[kSplitPlanVersion - 1]);
  }
  if (io.ok() && !plan.codecs.raw() && known - std::begin(kVersions) < kCodecPlanVersion - 1) {
    return io.fail("codecs", std::string("needs apiVersion ") + kVersions[kCodecPlanVersion - 1]);
  }

  std::vector<StageEntry> stages;
  io.required("stages", stages);
  plan.stages.clear();
  for (std::size_t i = 0; i < stages.size() && io.ok(); ++i) {
    const std::string name = "stages[" + std::to_string(i) + "]";
    if (stages[i].index != static_cast<int>(i)) {
      return io.fail((name + ".index").c_str(), "is not its place in the list");
    }
    if (stages[i].layers.size() != 2) {
      return io.fail((name + ".layers").c_str(), "is not [first, last]");
    }
    plan.stages.push_back({stages[i].layers[0], stages[i].layers[1]});
  }

  io("sync", plan.sync);
  Prediction prediction;
  io("prediction", prediction);
  plan.predicted_step_seconds = prediction.step_seconds;
  plan.predicted_gain = prediction.gain;
  Inputs inputs;
  io("inputs", inputs);
  plan.links_digest = inputs.links;
  plan.profile_digest = inputs.profile;
}

void fields(Writer& io, const schedule::Plan& plan) {
  io("apiVersion", kVersions[version_of(plan) - 1]);
  plain_fields(io, plan);
  std::vector<StageEntry> stages;
  for (const auto& range : plan.stages) {
    stages.push_back({static_cast<int>(stages.size()), {range.first, range.last}});
  }
  io("stages", stages);
  io("sync", plan.sync);
  io("prediction", Prediction{plan.predicted_step_seconds, plan.predicted_gain});
  io("inputs", Inputs{plan.links_digest, plan.profile_digest});
}

std::string encode_plan(const schedule::Plan& plan) {
  return encode_struct(plan);
}

Result<schedule::Plan> decode_plan(std::string_view json) {
  return decode_struct<schedule::Plan>(json);
}

}  // namespace weir::protocol
