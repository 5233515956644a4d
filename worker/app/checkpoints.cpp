// SPDX-License-Identifier: Apache-2.0
#include "worker/app/checkpoints.h"

#include <array>
#include <climits>
#include <memory>
#include <unistd.h>
#include <utility>

#include "worker/app/agreement.h"
#include "worker/app/coordination.h"
#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/checkpoint/folder_lock.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/save.h"
#include "worker/huggingface/model.h"
#include "worker/stage/layer.h"

namespace weir::app {
namespace {

constexpr const char* kRoom = "checkpoint";

checkpoint::Manifest manifest_of(const coordinator::CheckpointOrder& order, const std::string& job,
                                 const stage::Model& model, const Settings& settings) {
  const stage::ModelOptions& o = model.options;
  checkpoint::Manifest manifest{.step = order.checkpoint.step,
                                .samples = order.checkpoint.samples,
                                .compressed_steps = order.checkpoint.compressed_steps,
                                .job = job,
                                .model = o.name,
                                .digest = model.digest,
                                .shapes = model.shapes,
                                .settings = settings,
                                .seed = o.seed,
                                .optimizer = {.learning_rate = o.learning_rate,
                                              .beta1 = o.beta1,
                                              .beta2 = o.beta2,
                                              .epsilon = o.epsilon,
                                              .weight_decay = o.weight_decay,
                                              .schedule = o.schedule,
                                              .warmup_steps = o.warmup_steps},
                                .revision = order.revision,
                                .incarnation = order.incarnation,
                                .plan_json = order.plan_json,
                                .export_json = model.source
                                                   ? model.source->export_json()
                                                   : huggingface::export_section(model.options)};
  for (const auto& file : order.files) {
    manifest.files.push_back({.name = file.name, .bytes = file.bytes, .sha256 = file.sha256});
  }
  return manifest;
}

protocol::SaveTrouble trouble_of(const Error& error) {
  return error.code == checkpoint::kNoRoom ? protocol::SaveTrouble::kFull
                                           : protocol::SaveTrouble::kNone;
}

// Perhaps another worker of the job has taken it, which coordinates now: the operator knows.
void lost_folder(State& state, const std::string& reason) {
  if (state.options.standalone()) return end_with(state, Exit::kCheckpoint, reason);
  log_warn(kRoom, reason);
  state.doubts = true;
}

// Takes the lock before anything in the folder is changed.
std::optional<Failure> take_folder(State& state) {
  const Options& o = state.options;
  std::array<char, HOST_NAME_MAX + 1> host{};
  static_cast<void>(gethostname(host.data(), host.size() - 1));
  auto lock = checkpoint::FolderLock::take(
      o.checkpoint_dir,
      {.job = o.owner(),
       .uid = o.job_uid == Options().job_uid ? "" : o.job_uid,
       .pod = o.pod,
       .host = host.data(),
       .process = getpid()},
      {}, state.shutdown.token(),
      [&state](const std::string& reason) { lost_folder(state, reason); });
  if (lock) {
    state.folder_lock = *std::move(lock);
    return std::nullopt;
  }
  if (lock.error().code == Code::kCancelled) {
    return Failure{Exit::kTerminated, lock.error().message};
  }
  return Failure{Exit::kConfiguration, "--checkpoint-dir: " + lock.error().message};
}

Failure wrong_folder(const Error& error) {
  return {Exit::kConfiguration, "--checkpoint-dir: " + error.message};
}

// Checks whether this run may continue from the checkpoints. Owner and shapes are checked for all,
// the options for the newest.
std::optional<Failure> refusal_of(const std::vector<checkpoint::Manifest>& found,
                                  const State& state) {
  const Settings now = settings_of_checkpoint(state.options, *state.dataset);
  for (const checkpoint::Manifest& manifest : found) {
    Options options = state.options;
    const bool newest = &manifest == &found.back();
    if (!newest) options.change_options = true;
    const Verdict verdict = compare(manifest, options, *state.model, now);
    if (!verdict.refusal.empty()) {
      return Failure{Exit::kConfiguration,
                     "--checkpoint-dir: " + options.checkpoint_dir + " " + verdict.refusal};
    }
    if (!newest) continue;
    for (const Difference& one : verdict.different) {
      log_warn(kRoom, "option changed since the checkpoint",
               {{"option", one.name},
                {"now", one.here},
                {"checkpoint_has", one.there},
                {"step", manifest.step}});
    }
  }
  return std::nullopt;
}

}  // namespace

void Checkpoints::tell(Send send) {
  const std::lock_guard lock(send_mutex_);
  send_ = std::move(send);
}

void Checkpoints::guard(std::function<Status()> may) {
  const std::lock_guard lock(guard_mutex_);
  guard_ = std::move(may);
}

Status Checkpoints::may_commit() const {
  std::unique_lock lock(guard_mutex_);
  const auto may = guard_;
  lock.unlock();
  return may();
}

void Checkpoints::say(const protocol::Message& message) {
  const std::lock_guard lock(send_mutex_);
  if (send_) send_(message);
}

void Checkpoints::save(stage::Stage& stage, std::int64_t step,
                       const std::function<bool(int layer)>& mine, const Written& written) {
  const auto failed = [&](const std::string& error, protocol::SaveTrouble trouble) {
    say(protocol::Saved{.step = step, .error = error, .files = {}, .trouble = trouble});
  };
  if (writing_.exchange(true)) {
    return failed("the disk does not keep up: the save before is still being written",
                  protocol::SaveTrouble::kBusy);
  }
  const SystemClock clock;
  const SteadyTime start = clock.now();
  auto copied = checkpoint::copy_layers(stage, mine);
  if (!copied) {
    writing_ = false;
    return failed(copied.error().message, protocol::SaveTrouble::kNone);
  }
  auto images = std::make_shared<std::vector<checkpoint::LayerImage>>(*std::move(copied));
  const bool taken = writer_.post([this, images, step, start, written] {
    const protocol::Saved saved = write(step, *images, start, written);
    images->clear();
    writing_ = false;  // before the coordinator may order the next save
    say(saved);
  });
  if (taken) return;
  writing_ = false;
  failed("the disk does not keep up", protocol::SaveTrouble::kBusy);
}

protocol::Saved Checkpoints::write(std::int64_t step,
                                   const std::vector<checkpoint::LayerImage>& images,
                                   SteadyTime start, const Written& written) {
  const auto files = checkpoint::write_layers(disk_, folder_, step, images);
  if (!files) {
    log_error(kRoom, "cannot be written", {{"step", step}, {"reason", files.error().message}});
    return {.step = step,
            .error = files.error().message,
            .files = {},
            .trouble = trouble_of(files.error())};
  }
  written(SystemClock().now() - start);
  protocol::Saved saved{.step = step};
  for (const auto& file : *files) saved.files.push_back({file.name, file.bytes, file.sha256});
  return saved;
}

Status Checkpoints::load(stage::Stage& stage, std::int64_t step) const {
  return checkpoint::load_stage(folder_, step, stage, model_.shapes);
}

void Checkpoints::commit(const coordinator::CheckpointOrder& order,
                         std::function<void(coordinator::SaveResult)> done) {
  const bool taken = writer_.post([this, order, done] {
    Status status = may_commit();
    if (status) {
      status = checkpoint::commit(disk_, folder_, manifest_of(order, job_, model_, settings_));
    }
    if (!status)
      return done({.error = status.error().message, .trouble = trouble_of(status.error())});
    const Status removed = checkpoint::remove_others(disk_, folder_, order.keep, -1);
    if (!removed) log_warn(kRoom, "old ones stay", {{"reason", removed.error().message}});
    done({});
  });
  if (!taken) {
    done({.error = "the disk does not keep up", .trouble = protocol::SaveTrouble::kBusy});
  }
}

void Checkpoints::remove(const coordinator::CheckpointRemoval& removal,
                         std::function<void()> done) {
  const bool taken = writer_.post([this, removal, done] {
    Status removed = may_commit();
    if (removed) {
      removed = checkpoint::remove_steps(disk_, folder_, removal.complete, removal.unfinished);
    }
    if (!removed) log_warn(kRoom, "not removed", {{"reason", removed.error().message}});
    done();
  });
  if (!taken) done();
}

std::optional<Failure> find_checkpoints(State& state) {
  const std::string& folder = state.options.checkpoint_dir;
  checkpoint::Disk disk;
  const Status made = disk.make_folder(folder);
  if (!made) return wrong_folder(made.error());
  if (std::optional<Failure> failure = take_folder(state)) return failure;
  const Status repaired = checkpoint::repair(disk, folder);
  if (!repaired) return wrong_folder(repaired.error());
  const Result<checkpoint::Scan> found = checkpoint::scan(folder);
  if (!found) return wrong_folder(found.error());

  for (const std::string& one : found->damaged) {
    log_warn(kRoom, "damaged", {{"folder", folder}, {"reason", one}});
  }
  if (std::optional<Failure> failure = refusal_of(found->whole, state)) return failure;
  state.found_checkpoints.clear();
  for (const checkpoint::Manifest& manifest : found->whole) {
    state.found_checkpoints.push_back({.step = manifest.step,
                                       .samples = manifest.samples,
                                       .compressed_steps = manifest.compressed_steps});
  }
  if (found->whole.empty() && !found->damaged.empty()) {
    return Failure{Exit::kCheckpoint, "--checkpoint-dir: none of the checkpoints in " + folder +
                                          " is whole: " + found->damaged.front()};
  }
  log_info(
      kRoom, "checkpoint folder",
      {{"folder", folder}, {"newest_step", found->whole.empty() ? -1 : found->whole.back().step}});
  return std::nullopt;
}

}  // namespace weir::app
