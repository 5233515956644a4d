// SPDX-License-Identifier: Apache-2.0
#include "worker/app/snapshots.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker/base/log.h"
#include "worker/base/text.h"
#include "worker/base/units.h"
#include "worker/checkpoint/load.h"
#include "worker/device/system_memory.h"

namespace weir::app {
namespace {

using nlohmann::json;

constexpr const char* kInLog = "snapshots";
constexpr const char* kHistories = "histories.json";

// The size of a file with the values and moments.
std::int64_t bytes_of(stage::Stage& stage) {
  std::size_t bytes = 0;
  for (const stage::Parameter& one : stage.parameters()) {
    for (const std::span<float> part : one.state()) bytes += part.size_bytes();
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

Snapshots::Snapshots(std::string folder, std::string owner, const stage::Model& model,
                     Settings settings)
    : folder_(std::move(folder)),
      owner_(std::move(owner)),
      model_(model),
      settings_(std::move(settings)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    log_warn(kInLog, "cannot be kept", {{"folder", folder_}, {"reason", error.message()}});
    return;  // each snapshot will fail
  }
  const Status repaired = checkpoint::repair(disk_, folder_);
  if (!repaired) log_warn(kInLog, "cannot be repaired", {{"reason", repaired.error().message}});
  read_histories();
  find();
}

void Snapshots::find() {
  const Result<checkpoint::Scan> found = checkpoint::scan(folder_);
  if (!found) return log_warn(kInLog, "cannot be read", {{"reason", found.error().message}});
  for (const std::string& one : found->damaged) {
    log_warn(kInLog, "a damaged one is ignored", {{"reason", one}});
  }
  std::vector<std::int64_t> steps;
  for (const checkpoint::Manifest& one : found->whole) {
    const std::string refusal = refusal_of(one);
    if (!refusal.empty()) {
      log_warn(kInLog, "a foreign one is ignored", {{"step", one.step}, {"reason", refusal}});
      continue;
    }
    steps.push_back(one.step);
    const int last = one.first_layer + static_cast<int>(one.files.size()) - 1;
    kept_.push_back({.step = one.step, .layers = {one.first_layer, last}});
    log_info(kInLog, "found", {{"step", one.step}, {"history", histories_.begun}});
  }
  const Status removed = checkpoint::remove_others(disk_, folder_, steps, -1);
  if (!removed) log_warn(kInLog, "not removed", {{"reason", removed.error().message}});
}

std::string Snapshots::refusal_of(const checkpoint::Manifest& manifest) const {
  if (manifest.job != owner_) return "it is of " + manifest.job;
  if (manifest.digest != model_.digest || manifest.shapes != model_.shapes) {
    return "it is of another model, " + manifest.model;
  }
  if (!differences(settings_, manifest.settings).empty()) return "its run had other options";
  if (histories_.begun == 0) return std::string(kHistories) + " is missing";
  return "";
}

void Snapshots::read_histories() {
  const Result<std::string> text = checkpoint::read_file(checkpoint::join(folder_, kHistories));
  if (!text) return;
  const json from = json::parse(*text, nullptr, false);
  const auto number = [&](const char* name) {
    const auto found = from.is_object() ? from.find(name) : from.end();
    const bool good = from.is_object() && found != from.end() && found->is_number_integer();
    return good ? found->get<std::int64_t>() : 0;
  };
  histories_ = {.begun = number("begun"),
                .awaited = number("awaited"),
                .start = number("start"),
                .revision = number("revision"),
                .incarnation = number("incarnation")};
}

// A process that finds an older history offers nothing: its snapshots are not used.
void Snapshots::write_histories() {
  const json all = {{"begun", histories_.begun},
                    {"awaited", histories_.awaited},
                    {"start", histories_.start},
                    {"revision", histories_.revision},
                    {"incarnation", histories_.incarnation}};
  const Status written = disk_.write_file(checkpoint::join(folder_, kHistories), all.dump() + "\n");
  if (!written) log_warn(kInLog, "history not kept", {{"reason", written.error().message}});
}

void Snapshots::tell(Send send) {
  const std::lock_guard lock(send_mutex_);
  send_ = std::move(send);
}

void Snapshots::say(const protocol::Message& message) {
  const std::lock_guard lock(send_mutex_);
  if (send_) send_(message);
}

void Snapshots::say_saved(std::int64_t step, const std::string& error, double seconds) {
  say(protocol::Saved{
      .step = step, .error = error, .files = {}, .snapshot = true, .seconds = seconds});
}

void Snapshots::take(stage::Stage& stage, schedule::LayerRange layers, std::int64_t step) {
  const auto failed = [&](const std::string& error) { say_saved(step, error); };
  std::int64_t newest = -1;
  {
    const std::lock_guard lock(mutex_);
    if (writing_) return failed("the one before is still being written");
    if (!kept_.empty()) newest = kept_.back().step;
  }
  remove_later(forget([&](std::int64_t one) { return one < newest || one == step; }));
  const SteadyTime since = SystemClock().now();
  // Linux would grant more than there is and kill the process later.
  const std::int64_t need = 2 * bytes_of(stage), free = device::read_system_memory().free;
  if (need > free) {
    return failed("needs " + megabytes(need) + ", " + megabytes(free) + " are free");
  }
  // If the device has failed, its next op returns the error.
  static_cast<void>(stage.device().synchronize());
  auto copied = checkpoint::copy_layers(stage, [](int) { return true; });
  if (!copied) return failed(copied.error().message);
  auto images = std::make_shared<std::vector<checkpoint::LayerImage>>(*std::move(copied));
  {
    const std::lock_guard lock(mutex_);
    writing_ = step;
  }
  const Order order{.step = step,
                    .layers = layers,
                    .since = since,
                    .copy_seconds = to_seconds(SystemClock().now() - since),
                    .beside = !stage.device().is_host()};
  const bool posted = writer_.post([this, images, order, step] {
    const Status written = write(order, *images);
    if (!written) say_saved(step, written.error().message);
  });
  if (posted) return;
  {
    const std::lock_guard lock(mutex_);
    writing_.reset();
  }
  failed("the folder does not keep up");
}

Status Snapshots::write(const Order& order, std::vector<checkpoint::LayerImage>& images) {
  const std::int64_t step = order.step;
  auto files = checkpoint::write_layers(disk_, folder_, step, images);
  images.clear();  // before the next snapshot may be ordered
  Status done = files ? Status(Unit{}) : Status(files.error());
  {
    const std::lock_guard lock(mutex_);
    const bool wanted = std::exchange(writing_, std::nullopt) == step;
    if (done && !wanted) done = Error{Code::kCancelled, "it is of no use any more"};
    if (done) {
      checkpoint::Manifest manifest{.step = step,
                                    .job = owner_,
                                    .model = model_.options.name,
                                    .digest = model_.digest,
                                    .shapes = model_.shapes,
                                    .settings = settings_,
                                    .first_layer = order.layers.first};
      for (auto& file : *files) manifest.files.push_back(std::move(file));
      done = checkpoint::commit(disk_, folder_, manifest);
    }
    if (done) {
      kept_.push_back({.step = step, .layers = order.layers});
      // Locked: it must not come behind the end of the round.
      say_saved(step, "",
                order.beside ? order.copy_seconds : to_seconds(SystemClock().now() - order.since));
    }
  }
  if (!done) static_cast<void>(checkpoint::remove_steps(disk_, folder_, {}, std::array{step}));
  return done;
}

std::vector<std::int64_t> Snapshots::forget(const std::function<bool(std::int64_t)>& which) {
  std::vector<std::int64_t> steps;
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [&](const Kept& one) {
    if (which(one.step)) steps.push_back(one.step);
    return which(one.step);
  });
  if (writing_ && which(*writing_)) writing_ = -1;  // nobody waits for it
  return steps;
}

void Snapshots::remove(const std::vector<std::int64_t>& steps) {
  if (steps.empty()) return;
  const Status removed = checkpoint::remove_steps(disk_, folder_, steps, {});
  if (!removed) log_warn(kInLog, "not removed", {{"reason", removed.error().message}});
}

void Snapshots::remove_later(std::vector<std::int64_t> steps) {
  if (steps.empty()) return;
  if (!writer_.post([this, steps] { remove(steps); })) remove(steps);
}

void Snapshots::taken_by_all(std::int64_t step, bool all) {
  remove_later(forget([&](std::int64_t one) { return all ? one < step : one == step; }));
}

Status Snapshots::load(stage::Stage& stage, std::int64_t step) {
  const Status loaded = checkpoint::load_stage(folder_, step, stage, model_.shapes);
  if (loaded) return loaded;
  log_warn(kInLog, "a damaged one is ignored",
           {{"step", step}, {"reason", loaded.error().message}});
  remove(forget([&](std::int64_t one) { return one == step; }));
  return loaded;
}

void Snapshots::await(std::int64_t history, std::int64_t start) {
  histories_.awaited = history;
  histories_.start = start;
  write_histories();
}

// Files go before the history is written: those that stay belong to it.
void Snapshots::begin(std::int64_t history, std::int64_t start) {
  remove(forget([&](std::int64_t one) { return one > start; }));
  histories_.begun = history;
  histories_.awaited = histories_.start = 0;
  write_histories();
}

void Snapshots::runs(std::uint32_t revision, int incarnation) {
  histories_.revision = revision;
  histories_.incarnation = incarnation;
  write_histories();
}

protocol::Inventory Snapshots::inventory() const {
  protocol::Inventory inventory{.history = histories_.begun,
                                .revision = static_cast<std::uint32_t>(histories_.revision),
                                .incarnation = static_cast<int>(histories_.incarnation)};
  const std::lock_guard lock(mutex_);
  for (const Kept& one : kept_) {
    inventory.held.push_back({.first = one.layers.first,
                              .last = one.layers.last,
                              .step = one.step,
                              .history = histories_.begun,
                              .pending = one.step <= histories_.start ? histories_.awaited : 0,
                              .snapshot = true});
  }
  return inventory;
}

}  // namespace weir::app
