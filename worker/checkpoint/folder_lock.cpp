// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/folder_lock.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <pthread.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker/base/bounded_queue.h"
#include "worker/base/digest.h"
#include "worker/base/log.h"
#include "worker/checkpoint/disk.h"

namespace weir::checkpoint {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

constexpr const char* kRoom = "checkpoint";
constexpr const char* kLockVersion = "weir.dev/checkpoint-lock/v1";
constexpr mode_t kMode = 0644;

std::string name_of(const LockOwner& owner) {
  const std::string job = owner.job.empty() ? "a job started by hand" : "job " + owner.job;
  return job + " (pod " + owner.pod + ", host " + owner.host + ", process " +
         std::to_string(owner.process) + ")";
}

// Creates the file with this text. Returns false if the file exists.
Result<bool> make(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
  if (file < 0 && errno == EEXIST) return false;
  if (file < 0) {
    return Error{Code::kUnavailable, path + ": open: " + std::strerror(errno)};
  }
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fsync(file) == 0;
  const int error = errno;
  close(file);
  if (written) return true;
  unlink(path.c_str());
  return Error{error == ENOSPC ? kNoRoom : Code::kUnavailable,
               path + ": write: " + std::strerror(error)};
}

// Waits. Returns false if stop was requested.
bool pause(std::chrono::milliseconds time, const std::stop_token& stop) {
  BoundedQueue<char> nothing(1);
  static_cast<void>(nothing.pop(steady_clock::now() + time, stop));
  return !stop.stop_requested();
}

// A text that cannot be read was written halfway and is no lock.
std::optional<LockText> read(const std::string& path) {
  const Result<std::string> bytes = read_file(path);
  if (!bytes) return std::nullopt;
  auto text = decode_lock(*bytes);
  return text ? std::optional(*std::move(text)) : std::nullopt;
}

bool lives(std::int64_t process) {
  return process > 0 && (kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM);
}

}  // namespace

std::string encode(const LockText& text) {
  const LockOwner& o = text.owner;
  return json{{"apiVersion", kLockVersion},
              {"job", o.job},
              {"uid", o.uid},
              {"pod", o.pod},
              {"host", o.host},
              {"process", o.process},
              {"mark", text.mark},
              {"beat", text.beat}}
             .dump(-1, ' ', false, json::error_handler_t::replace) +
         "\n";
}

Result<LockText> decode_lock(std::string_view text) {
  const json from = json::parse(text, nullptr, false);
  if (!from.is_object()) return invalid("is no JSON object");
  try {
    if (from.at("apiVersion").get<std::string>() != kLockVersion) {
      return invalid("apiVersion is not " + std::string(kLockVersion));
    }
    return LockText{.owner = {.job = from.at("job").get<std::string>(),
                              .uid = from.at("uid").get<std::string>(),
                              .pod = from.at("pod").get<std::string>(),
                              .host = from.at("host").get<std::string>(),
                              .process = from.at("process").get<std::int64_t>()},
                    .mark = from.at("mark").get<std::string>(),
                    .beat = from.at("beat").get<std::int64_t>()};
  } catch (const json::exception& error) {
    return invalid(error.what());
  }
}

Claim claim(const LockOwner& found, const LockOwner& own, bool process_lives) {
  // An earlier coordinator of this job.
  if (!own.uid.empty() && found.uid == own.uid) return Claim::kTake;
  const bool here = found.host == own.host;
  if (here && (found.process == own.process || !process_lives)) return Claim::kTake;
  return Claim::kWatch;
}

Result<std::unique_ptr<FolderLock>> FolderLock::take(const std::string& folder, LockOwner owner,
                                                     LockTimes times, std::stop_token stop,
                                                     std::function<void(std::string)> on_lost) {
  const std::string path = folder + "/" + kLockName;
  std::unique_ptr<FolderLock> lock(
      new FolderLock(path, {.owner = std::move(owner), .mark = to_hex(random_bytes(8))}));
  const LockText& own = lock->text_;
  std::optional<LockText> watched;
  for (auto since = steady_clock::now();;) {
    WEIR_TRY(const bool made, make(path, encode(own)));
    if (made) break;
    const std::optional<LockText> found = read(path);
    const bool dead =
        found && claim(found->owner, own.owner, lives(found->owner.process)) == Claim::kTake;
    if (!dead && watched && found && *found != *watched) {
      return Error{Code::kConflict, folder + " is in use by " + name_of(found->owner) +
                                        ": give this job a folder of its own"};
    }
    if (!watched && found) {
      watched = found;
      since = steady_clock::now();
      if (!dead) {
        log_info(kRoom, "the folder has an owner, waiting whether it lives",
                 {{"folder", folder}, {"owner", name_of(found->owner)}});
      }
    }
    if (dead || steady_clock::now() - since >= times.stale) {
      if (found && !dead) {
        log_warn(kRoom, "the owner of the folder shows no life, its lock is taken",
                 {{"folder", folder}, {"owner", name_of(found->owner)}});
      }
      Disk disk;
      WEIR_OK(disk.write_file(path, encode(own)));
      if (dead) break;
      // Another process may have waited as long. The later writer has the lock.
      if (!pause(times.beat / 2, stop)) return Error{Code::kCancelled, "asked to end"};
      WEIR_OK(lock->check());
      break;
    }
    if (!pause(times.beat / 2, stop)) return Error{Code::kCancelled, "asked to end"};
  }
  lock->thread_ = std::jthread(
      [raw = lock.get(), times, on_lost = std::move(on_lost)](const std::stop_token& ends) {
        pthread_setname_np(pthread_self(), "folder-lock");
        raw->beat(ends, times, on_lost);
      });
  return Result<std::unique_ptr<FolderLock>>(std::move(lock));
}

void FolderLock::beat(const std::stop_token& stop, LockTimes times,
                      const std::function<void(std::string)>& on_lost) {
  Disk disk;
  while (pause(times.beat, stop)) {
    const Status own = check();
    if (!own && own.error().code == Code::kConflict) {
      if (on_lost) on_lost(own.error().message);
      return;
    }
    ++text_.beat;
    const Status written = disk.write_file(path_, encode(text_));
    if (!written) log_warn(kRoom, "the folder's lock", {{"reason", written.error().message}});
  }
}

Status FolderLock::check() const {
  const std::optional<LockText> found = read(path_);
  if (!found || found->mark == text_.mark) return Unit{};
  return Error{Code::kConflict, "the checkpoint folder was taken by " + name_of(found->owner)};
}

FolderLock::~FolderLock() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  const std::optional<LockText> found = read(path_);
  if (found && found->mark == text_.mark) unlink(path_.c_str());
}

}  // namespace weir::checkpoint
