// SPDX-License-Identifier: Apache-2.0
#include "worker/app/snapshots.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <future>
#include <memory>
#include <new>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker/app/stored_layers.h"
#include "worker/base/digest.h"
#include "worker/base/log.h"
#include "worker/base/text.h"
#include "worker/base/units.h"
#include "worker/checkpoint/load.h"
#include "worker/coordinator/who_keeps.h"
#include "worker/device/system_memory.h"

namespace weir::app {
namespace {

using nlohmann::json;

constexpr const char* kInLog = "snapshots";
constexpr const char* kHistories = "histories.json";
constexpr const char* kCopies = "copies";  // folder; the next ones are copies-1, copies-2 ..
constexpr auto kLastTasks = std::chrono::seconds(1);
constexpr auto kCopyLimit = std::chrono::minutes(30);  // of a fetch, pauses included

// Processor time of this thread. On a busy machine the time of day would count the work of others.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The size of a file with the values and moments.
std::int64_t bytes_of(stage::Stage& stage) {
  std::size_t bytes = 0;
  for (const stage::Parameter& one : stage.parameters()) {
    for (const std::span<float> part : one.state()) bytes += part.size_bytes();
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

Snapshots::Snapshots(const std::string& folder, const std::string& owner, const stage::Model& model,
                     const Settings& settings, Wire wire)
    : wire_(std::move(wire)), own_(folder, owner, model, settings) {
  for (int i = 0; i < coordinator::kMostCopies; ++i) {
    const std::string name = kCopies + (i > 0 ? "-" + std::to_string(i) : std::string());
    copies_.push_back(
        std::make_unique<SnapshotShelf>(checkpoint::join(folder, name), owner, model, settings));
  }
  if (!own_.open()) return;
  read_histories();
  const std::string refusal =
      histories_.begun == 0 ? std::string(kHistories) + " is missing" : std::string();
  own_.find(refusal);
  for (const auto& shelf : copies_) {
    if (shelf->open()) shelf->find(refusal);
  }
}

Snapshots::~Snapshots() {
  stop_copy_.request_stop();
  {
    const std::lock_guard lock(offer_mutex_);
    closed_ = true;
    if (wire_.exchange != nullptr) wire_.exchange->withdraw_copy();
  }
  // A successor need not find what is forgotten.
  for (checkpoint::Writer* const one : {&writer_, &copier_}) {
    const auto done = std::make_shared<std::promise<void>>();
    if (one->post([done] { done->set_value(); })) done->get_future().wait_for(kLastTasks);
  }
}

void Snapshots::read_histories() {
  const Result<std::string> text =
      checkpoint::read_file(checkpoint::join(own_.folder(), kHistories));
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
  const Status written =
      own_.disk().write_file(checkpoint::join(own_.folder(), kHistories), all.dump() + "\n");
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

void Snapshots::say_saved(std::int64_t step, const std::string& error) {
  say(protocol::Saved{.step = step, .error = error, .files = {}, .snapshot = true});
}

void Snapshots::say_copy_failed(std::int64_t step, const Error& error) {
  const bool full = error.code == checkpoint::kNoRoom;
  say(protocol::Saved{.step = step,
                      .error = error.message,
                      .files = {},
                      .trouble = full ? protocol::SaveTrouble::kFull : protocol::SaveTrouble::kNone,
                      .snapshot = true,
                      .copy = true});
}

// Snapshots of one history belong together, whatever plan is in force.
transport::StateKey Snapshots::key_of(std::int64_t step) const {
  return {.job_uid = wire_.job_uid,
          .job_key = wire_.job_key,
          .revision = static_cast<std::uint32_t>(histories_.begun),
          .step = step,
          .copy = true};
}

void Snapshots::take(stage::Stage& stage, schedule::LayerRange layers, std::int64_t step,
                     std::int64_t compressed_steps) {
  const auto failed = [&](const std::string& error) { say_saved(step, error); };
  if (own_.busy()) return failed("the one before is still being written");
  const auto kept = own_.kept();
  const std::int64_t newest = kept.empty() ? -1 : kept.back().step;
  remove_later(own_.forget([&](std::int64_t one) { return one < newest || one == step; }));
  const SteadyTime since = SystemClock().now();
  // Linux would grant more than there is and kill the process later.
  own_bytes_ = bytes_of(stage);
  const std::int64_t need = 2 * own_bytes_, free = device::read_system_memory().free;
  if (need > free) {
    return failed("needs " + megabytes(need) + ", " + megabytes(free) + " are free");
  }
  // If the device has failed, its next op returns the error.
  static_cast<void>(stage.device().synchronize());
  auto copied = checkpoint::copy_layers(stage, [](int) { return true; });
  if (!copied) return failed(copied.error().message);
  auto images = std::make_shared<std::vector<checkpoint::LayerImage>>(*std::move(copied));
  own_.begin(step);
  const double copy_seconds = to_seconds(SystemClock().now() - since);
  waited_seconds_ += copy_seconds;
  const Order order{.step = step,
                    .compressed_steps = compressed_steps,
                    .layers = layers,
                    .since = since,
                    .copy_seconds = copy_seconds,
                    .beside = !stage.device().is_host(),
                    .key = key_of(step)};
  const bool posted = writer_.post([this, images, order] {
    const Status written = write(order, *images);
    if (!written) say_saved(order.step, written.error().message);
  });
  if (posted) return;
  own_.give_up();
  failed("the folder does not keep up");
}

Status Snapshots::write(const Order& order, std::vector<checkpoint::LayerImage>& images) {
  auto files = checkpoint::write_layers(own_.disk(), own_.folder(), order.step, images);
  images.clear();  // before the next snapshot may be ordered
  if (!files) {
    own_.give_up();
    own_.remove_unfinished(order.step);
    return files.error();
  }
  return own_.keep(
      {.step = order.step, .layers = order.layers, .compressed_steps = order.compressed_steps},
      *files, [&] {
        protocol::Saved saved{.step = order.step, .files = {}, .snapshot = true};
        if (offer(order)) {
          for (const checkpoint::FileEntry& file : *files) {
            saved.files.push_back({.name = file.name, .bytes = file.bytes, .sha256 = file.sha256});
          }
        }
        saved.seconds =
            order.beside ? order.copy_seconds : to_seconds(SystemClock().now() - order.since);
        say(saved);  // locked by the shelf: it must not come behind the end of the round
      });
}

bool Snapshots::offer(const Order& order) {
  if (wire_.exchange == nullptr) return false;
  auto stored = stored_layers(own_.folder(), order.step, order.layers, Layout::kFiles);
  if (!stored) {
    log_warn(kInLog, "not offered to the neighbor", {{"reason", stored.error().message}});
    return false;
  }
  const std::lock_guard lock(offer_mutex_);
  if (closed_) return false;
  wire_.exchange->offer(order.key, stored->memory);
  offered_ = *std::move(stored);
  offered_step_ = order.step;
  return true;
}

void Snapshots::copy(const protocol::Save& order, bool beside) {
  const protocol::CopySource& source = *order.copy;
  const auto failed = [&](const std::string& error, Code code = Code::kUnavailable) {
    say_copy_failed(order.step, {code, error});
  };
  if (wire_.exchange == nullptr || source.files.empty()) return failed("it cannot fetch copies");
  if (std::ranges::any_of(copies_, &SnapshotShelf::busy, [](auto& one) -> auto& { return *one; })) {
    return failed("the copy before is still being fetched");
  }
  SnapshotShelf* const shelf = shelf_for(order.step, source.first_layer);
  if (shelf == nullptr) {
    return failed("it keeps " + std::to_string(coordinator::kMostCopies) +
                  " copies of that step already");
  }
  std::int64_t newest = -1;  // older than this one
  for (const SnapshotShelf::Kept& one : kept_copies()) {
    if (one.step != order.step) newest = std::max(newest, one.step);
  }
  forget_copies([&](std::int64_t one) { return one < newest && one != order.step; }, true);
  remove_later(*shelf, shelf->forget([&](std::int64_t one) { return one == order.step; }));
  // A layer is in memory and in its file for a moment, and a save must not fail for a copy.
  std::int64_t need = own_bytes_, longest = 0;
  for (const protocol::SavedFile& file : source.files) {
    if (file.bytes <= 0) return failed("its source names an empty file");
    need += file.bytes;
    longest = std::max(longest, file.bytes);
  }
  const std::int64_t free = device::read_system_memory().free;
  if (need > free - longest) {
    return failed("a copy needs " + megabytes(need) + ", " + megabytes(free) + " are free",
                  checkpoint::kNoRoom);
  }
  shelf->begin(order.step);
  stop_copy_ = std::stop_source();
  const CopyOrder wanted{.step = order.step,
                         .source = source,
                         .beside = beside,
                         .key = key_of(order.step),
                         .stop = stop_copy_.get_token(),
                         .shelf = shelf};
  const bool posted = copier_.post([this, wanted] {
    const Status fetched = fetch(wanted);
    if (!fetched) say_copy_failed(wanted.step, fetched.error());
  });
  if (posted) return;
  shelf->give_up();
  failed("the folder does not keep up");
}

Status Snapshots::fetch(const CopyOrder& order) {
  SnapshotShelf& shelf = *order.shelf;
  const auto& files = order.source.files;
  std::vector<std::unique_ptr<std::byte[]>> memory;
  transport::StateRequest request{
      .from = {.ip = order.source.ip, .data_port = order.source.data_port}, .layers = {}};
  std::int64_t bytes = 0;
  const auto all = [&]() -> Status {
    for (std::size_t i = 0; i < files.size(); ++i) {
      const auto size = static_cast<std::size_t>(files[i].bytes);
      memory.emplace_back(new (std::nothrow) std::byte[size]);
      if (!memory.back()) return Error{checkpoint::kNoRoom, "no memory for a copy"};
      request.layers.push_back({.layer = order.source.first_layer + static_cast<int>(i),
                                .parts = {{memory.back().get(), size}}});
    }
    WEIR_TRY(bytes, wire_.exchange->fetch(order.key, {request}, SystemClock().now() + kCopyLimit,
                                          order.stop));
    const double begun = thread_seconds();
    const std::string folder =
        checkpoint::join(shelf.folder(), checkpoint::unfinished_name(order.step));
    WEIR_OK(shelf.disk().make_folder(folder));
    std::vector<checkpoint::FileEntry> entries;
    for (std::size_t i = 0; i < files.size(); ++i) {
      const std::string_view text(reinterpret_cast<const char*>(memory[i].get()),
                                  static_cast<std::size_t>(files[i].bytes));
      const std::string name = checkpoint::layer_file(request.layers[i].layer);
      if (sha256_hex(text) != files[i].sha256) return invalid(name + ": came damaged");
      WEIR_OK(shelf.disk().write_file(checkpoint::join(folder, name), text));
      memory[i].reset();
      entries.push_back({.name = name, .bytes = files[i].bytes, .sha256 = files[i].sha256});
    }
    WEIR_OK(shelf.disk().sync_folder(folder));
    // The fetch hashes and copies as much, on both sides.
    const double busy = 3 * (thread_seconds() - begun);
    const int last = order.source.first_layer + static_cast<int>(files.size()) - 1;
    // All ranks have their own snapshot of the step before copies are made.
    const std::vector<SnapshotShelf::Kept> own = own_.kept();
    const auto same = std::ranges::find(own, order.step, &SnapshotShelf::Kept::step);
    return shelf.keep({.step = order.step,
                       .layers = {order.source.first_layer, last},
                       .compressed_steps = same != own.end() ? same->compressed_steps : 0},
                      std::move(entries), [&] {
                        copied_bytes_ += bytes;
                        say(protocol::Saved{.step = order.step,
                                            .files = {},
                                            .snapshot = true,
                                            .copy = true,
                                            .seconds = order.beside ? 0 : busy});
                      });
  };
  const Status done = all();
  if (!done) {
    shelf.give_up();
    shelf.remove_unfinished(order.step);
  }
  return done;
}

std::int64_t Snapshots::copy_step() const {
  std::int64_t newest = -1;
  for (const SnapshotShelf::Kept& one : kept_copies()) newest = std::max(newest, one.step);
  return newest;
}

std::int64_t Snapshots::host_bytes() const {
  std::int64_t bytes = 0;
  for (const SnapshotShelf::Kept& one : own_.kept()) bytes += one.bytes;
  for (const SnapshotShelf::Kept& one : kept_copies()) bytes += one.bytes;
  return bytes;
}

void Snapshots::remove(const std::vector<std::int64_t>& steps) {
  {
    const std::lock_guard lock(offer_mutex_);
    if (std::ranges::find(steps, offered_step_) != steps.end()) {
      wire_.exchange->withdraw_copy();
      offered_ = {};
      offered_step_ = -1;
    }
  }
  own_.remove(steps);
}

void Snapshots::remove_later(std::vector<std::int64_t> steps) {
  if (steps.empty()) return;
  if (!writer_.post([this, steps] { remove(steps); })) remove(steps);
}

void Snapshots::forget_copies(const std::function<bool(std::int64_t step)>& which, bool later) {
  for (const auto& shelf : copies_) {
    const std::vector<std::int64_t> steps = shelf->forget(which);
    if (later) {
      remove_later(*shelf, steps);
    } else {
      shelf->remove(steps);
    }
  }
}

void Snapshots::remove_later(SnapshotShelf& shelf, std::vector<std::int64_t> steps) {
  if (steps.empty()) return;
  if (!copier_.post([&shelf, steps] { shelf.remove(steps); })) shelf.remove(steps);
}

SnapshotShelf* Snapshots::shelf_for(std::int64_t step, int first_layer) {
  SnapshotShelf* empty = nullptr;
  for (const auto& shelf : copies_) {
    const auto kept = shelf->kept();
    const auto same = std::ranges::find(kept, step, &SnapshotShelf::Kept::step);
    if (same != kept.end() && same->layers.first == first_layer) return shelf.get();
    if (same == kept.end() && empty == nullptr) empty = shelf.get();
  }
  return empty;
}

std::vector<SnapshotShelf::Kept> Snapshots::kept_copies() const {
  std::vector<SnapshotShelf::Kept> all;
  for (const auto& shelf : copies_) {
    const auto kept = shelf->kept();
    all.insert(all.end(), kept.begin(), kept.end());
  }
  return all;
}

void Snapshots::taken_by_all(std::int64_t step, bool all) {
  stop_copy_.request_stop();
  const auto useless = [&](std::int64_t one) { return all ? one < step : one == step; };
  remove_later(own_.forget(useless));
  forget_copies(useless, true);
}

Status Snapshots::load(stage::Stage& stage, std::int64_t step) {
  const Status loaded = checkpoint::load_stage(own_.folder(), step, stage);
  if (loaded) return loaded;
  log_warn(kInLog, "a damaged one is ignored",
           {{"step", step}, {"reason", loaded.error().message}});
  remove(own_.forget([&](std::int64_t one) { return one == step; }));
  return loaded;
}

Result<engine::StoredLayers> Snapshots::copied(schedule::LayerRange layers, std::int64_t step) {
  for (const auto& shelf : copies_) {
    const auto kept = shelf->kept();
    const bool has = std::ranges::any_of(kept, [&](const SnapshotShelf::Kept& one) {
      return one.step == step && one.layers == layers;
    });
    if (!has) continue;
    auto stored = stored_layers(shelf->folder(), step, layers, Layout::kTensors);
    if (stored) return stored;
    log_warn(kInLog, "a damaged copy is ignored",
             {{"step", step}, {"reason", stored.error().message}});
    shelf->remove(shelf->forget([&](std::int64_t one) { return one == step; }));
    return stored;
  }
  return Error{Code::kNotFound, "no copy of these layers after step " + std::to_string(step)};
}

void Snapshots::await(std::int64_t history, std::int64_t start) {
  stop_copy_.request_stop();
  histories_.awaited = history;
  histories_.start = start;
  write_histories();
}

// Files go before the history is written: those that stay belong to it.
void Snapshots::begin(std::int64_t history, std::int64_t start) {
  stop_copy_.request_stop();
  const auto later = [&](std::int64_t one) { return one > start; };
  remove(own_.forget(later));
  forget_copies(later, false);
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
  const auto add = [&](const std::vector<SnapshotShelf::Kept>& kept, bool copy) {
    for (const SnapshotShelf::Kept& one : kept) {
      inventory.held.push_back({.first = one.layers.first,
                                .last = one.layers.last,
                                .step = one.step,
                                .history = histories_.begun,
                                .pending = one.step <= histories_.start ? histories_.awaited : 0,
                                .snapshot = true,
                                .copy = copy,
                                .compressed_steps = one.compressed_steps});
    }
  };
  add(own_.kept(), false);
  add(kept_copies(), true);
  return inventory;
}

}  // namespace weir::app
