// SPDX-License-Identifier: Apache-2.0
#include "worker/app/checkpoints.h"

#include <memory>
#include <utility>

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/save.h"

namespace weir::app {
namespace {

constexpr const char* kRoom = "checkpoint";

checkpoint::Manifest manifest_of(const coordinator::CheckpointOrder& order, const std::string& job,
                                 const stage::Model& model) {
  const stage::ModelOptions& o = model.options;
  checkpoint::Manifest manifest{.step = order.checkpoint.step,
                                .samples = order.checkpoint.samples,
                                .job = job,
                                .model = o.name,
                                .digest = model.digest,
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
                                .plan_json = order.plan_json};
  for (const auto& file : order.files) {
    manifest.files.push_back({.name = file.name, .bytes = file.bytes, .sha256 = file.sha256});
  }
  return manifest;
}

Failure wrong_folder(const Error& error) {
  return {Exit::kConfiguration, "--checkpoint-dir: " + error.message};
}

// Of this folder by this worker's options; nothing is wrong: "".
std::string refusal(const checkpoint::Manifest& found, const std::string& job,
                    const std::string& digest) {
  const std::string step = " holds step " + std::to_string(found.step) + " of ";
  if (!job.empty() && !found.job.empty() && found.job != job) {
    return step + "job " + found.job + ", this is " + job + ": give it a folder of its own; " +
           "--init-from takes the other job's parameters";
  }
  if (found.digest == digest) return "";
  return step + "another model or other options of training (" + found.model +
         "); --init-from takes its parameters";
}

}  // namespace

void Checkpoints::tell(Send send) {
  const std::lock_guard lock(send_mutex_);
  send_ = std::move(send);
}

void Checkpoints::say(const protocol::Message& message) {
  const std::lock_guard lock(send_mutex_);
  if (send_) send_(message);
}

void Checkpoints::save(stage::Stage& stage, std::int64_t step,
                       const std::function<bool(int layer)>& mine, const Written& written) {
  const SystemClock clock;
  const SteadyTime start = clock.now();
  auto copied = checkpoint::copy_layers(stage, mine);
  if (!copied) return say(protocol::Saved{.step = step, .error = copied.error().message});

  const auto images =
      std::make_shared<const std::vector<checkpoint::LayerImage>>(*std::move(copied));
  const bool taken = writer_.post([this, images, step, start, written] {
    const auto files = checkpoint::write_layers(disk_, folder_, step, *images);
    if (!files) {
      log_error(kRoom, "cannot be written", {{"step", step}, {"reason", files.error().message}});
      return say(protocol::Saved{.step = step, .error = files.error().message});
    }
    written(SystemClock().now() - start);
    protocol::Saved saved{.step = step};
    for (const auto& file : *files) saved.files.push_back({file.name, file.bytes, file.sha256});
    say(saved);
  });
  if (!taken) say(protocol::Saved{.step = step, .error = "the disk does not keep up"});
}

Status Checkpoints::load(stage::Stage& stage, std::int64_t step) const {
  return checkpoint::load_stage(folder_, step, stage);
}

void Checkpoints::commit(const coordinator::CheckpointOrder& order,
                         std::function<void(std::string error)> done) {
  const bool taken = writer_.post([this, order, done] {
    const Status status = checkpoint::commit(disk_, folder_, manifest_of(order, job_, model_));
    if (!status) return done(status.error().message);
    const Status removed = checkpoint::remove_others(disk_, folder_, order.keep, -1);
    if (!removed) log_warn(kRoom, "old ones stay", {{"reason", removed.error().message}});
    done("");
  });
  if (!taken) done("the disk does not keep up");
}

std::optional<Failure> find_checkpoints(State& state) {
  const std::string& folder = state.options.checkpoint_dir;
  checkpoint::Disk disk;
  const Status made = disk.make_folder(folder);
  if (!made) return wrong_folder(made.error());
  const Status removed = checkpoint::remove_unfinished(disk, folder);
  if (!removed) return wrong_folder(removed.error());
  const Result<checkpoint::Scan> found = checkpoint::scan(folder);
  if (!found) return wrong_folder(found.error());

  for (const std::string& one : found->damaged) {
    log_warn(kRoom, "damaged", {{"folder", folder}, {"reason", one}});
  }
  for (const checkpoint::Manifest& manifest : found->whole) {
    const std::string wrong = refusal(manifest, state.options.owner(), state.model->digest);
    if (!wrong.empty()) {
      return Failure{Exit::kConfiguration, "--checkpoint-dir: " + folder + wrong};
    }
    state.found_checkpoints.push_back({.step = manifest.step, .samples = manifest.samples});
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
