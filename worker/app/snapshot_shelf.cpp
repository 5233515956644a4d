// SPDX-License-Identifier: Apache-2.0
#include "worker/app/snapshot_shelf.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "worker/base/log.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/save.h"

namespace weir::app {
namespace {

constexpr const char* kSnapshots = "snapshots";  // in the log

std::int64_t bytes_of(const std::vector<checkpoint::FileEntry>& files) {
  std::int64_t bytes = 0;
  for (const checkpoint::FileEntry& file : files) bytes += file.bytes;
  return bytes;
}

}  // namespace

SnapshotShelf::SnapshotShelf(std::string folder, std::string owner, const stage::Model& model,
                             Settings settings)
    : folder_(std::move(folder)),
      owner_(std::move(owner)),
      model_(model),
      settings_(std::move(settings)) {}

bool SnapshotShelf::open() {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    log_warn(kSnapshots, "cannot be kept", {{"folder", folder_}, {"reason", error.message()}});
    return false;  // each snapshot will fail
  }
  const Status repaired = checkpoint::repair(disk_, folder_);
  if (!repaired) log_warn(kSnapshots, "cannot be repaired", {{"reason", repaired.error().message}});
  return true;
}

void SnapshotShelf::find(const std::string& refusal) {
  const Result<checkpoint::Scan> found = checkpoint::scan(folder_);
  if (!found) return log_warn(kSnapshots, "cannot be read", {{"reason", found.error().message}});
  for (const std::string& one : found->damaged) {
    log_warn(kSnapshots, "a damaged one is ignored", {{"reason", one}});
  }
  std::vector<std::int64_t> steps;
  for (const checkpoint::Manifest& one : found->whole) {
    const std::string reason = refusal.empty() ? refusal_of(one) : refusal;
    if (!reason.empty()) {
      log_warn(kSnapshots, "a foreign one is ignored", {{"step", one.step}, {"reason", reason}});
      continue;
    }
    steps.push_back(one.step);
    const int last = one.first_layer + static_cast<int>(one.files.size()) - 1;
    kept_.push_back({.step = one.step,
                     .layers = {one.first_layer, last},
                     .bytes = bytes_of(one.files),
                     .compressed_steps = one.compressed_steps});
    log_info(kSnapshots, "found", {{"step", one.step}, {"folder", folder_}});
  }
  const Status removed = checkpoint::remove_others(disk_, folder_, steps, -1);
  if (!removed) log_warn(kSnapshots, "not removed", {{"reason", removed.error().message}});
}

std::string SnapshotShelf::refusal_of(const checkpoint::Manifest& manifest) const {
  if (manifest.job != owner_) return "it is of " + manifest.job;
  if (manifest.digest != model_.digest || manifest.shapes != model_.shapes) {
    return "it is of another model, " + manifest.model;
  }
  if (!differences(settings_, manifest.settings).empty()) return "its run had other options";
  return "";
}

std::vector<SnapshotShelf::Kept> SnapshotShelf::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

bool SnapshotShelf::busy() const {
  const std::lock_guard lock(mutex_);
  return writing_.has_value();
}

void SnapshotShelf::begin(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  writing_ = step;
}

void SnapshotShelf::give_up() {
  const std::lock_guard lock(mutex_);
  writing_.reset();
}

Status SnapshotShelf::keep(Kept snapshot, std::vector<checkpoint::FileEntry> files,
                           const std::function<void()>& then) {
  snapshot.bytes = bytes_of(files);
  const checkpoint::Manifest manifest{.step = snapshot.step,
                                      .compressed_steps = snapshot.compressed_steps,
                                      .job = owner_,
                                      .model = model_.options.name,
                                      .digest = model_.digest,
                                      .shapes = model_.shapes,
                                      .settings = settings_,
                                      .first_layer = snapshot.layers.first,
                                      .files = std::move(files)};
  Status done = Unit{};
  {
    const std::lock_guard lock(mutex_);
    const bool wanted = std::exchange(writing_, std::nullopt) == snapshot.step;
    done = wanted ? checkpoint::commit(disk_, folder_, manifest)
                  : Error{Code::kCancelled, "it is of no use any more"};
    if (done) {
      kept_.push_back(snapshot);
      then();
    }
  }
  if (!done) remove_unfinished(snapshot.step);
  return done;
}

void SnapshotShelf::remove_unfinished(std::int64_t step) {
  static_cast<void>(checkpoint::remove_steps(disk_, folder_, {}, std::array{step}));
}

std::vector<std::int64_t> SnapshotShelf::forget(
    const std::function<bool(std::int64_t step)>& which) {
  std::vector<std::int64_t> steps;
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [&](const Kept& one) {
    if (which(one.step)) steps.push_back(one.step);
    return which(one.step);
  });
  if (writing_ && which(*writing_)) writing_ = -1;  // nobody waits for it
  return steps;
}

void SnapshotShelf::remove(std::span<const std::int64_t> steps) {
  if (steps.empty()) return;
  const Status removed = checkpoint::remove_steps(disk_, folder_, steps, {});
  if (!removed) log_warn(kSnapshots, "not removed", {{"reason", removed.error().message}});
}

}  // namespace weir::app
