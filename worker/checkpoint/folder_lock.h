// SPDX-License-Identifier: Apache-2.0
// One writer per checkpoint folder: a file in the folder names the owner, and a growing number in
// it shows that the owner is alive. Works on any file system that creates files exclusively
// (O_EXCL) and renames atomically, including NFS, and needs no common clock. Only the
// coordinator holds the lock: it orders all saves of its job.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "worker/base/result.h"

namespace weir::checkpoint {

constexpr const char* kLockName = "writer.lock";

struct LockOwner {
  std::string job;  // "namespace/name"; "" = started by hand
  std::string uid;  // of the job; "" = unknown, other processes may have the same
  std::string pod, host;
  std::int64_t process = 0;  // on that host
  bool operator==(const LockOwner&) const = default;
};
struct LockText {
  LockOwner owner;
  std::string mark;       // random; identifies this acquisition of the lock
  std::int64_t beat = 0;  // grows while the owner is alive
  bool operator==(const LockText&) const = default;
};
std::string encode(const LockText& text);
Result<LockText> decode_lock(std::string_view json);  // kInvalid

// The decision about an existing lock. Pure.
enum class Claim : unsigned char {
  kTake,   // it belongs to this job or to a process that is gone
  kWatch,  // its owner may be alive, which shows when the beat grows
};
Claim claim(const LockOwner& found, const LockOwner& own, bool process_lives);

struct LockTimes {
  std::chrono::milliseconds beat{3000};
  // A lock must be unchanged for this long before another job takes it: ten beats, because a disk
  // may stall.
  std::chrono::milliseconds stale{30000};
};

class FolderLock {
 public:
  // Waits up to `stale` if the owner may be alive. on_lost is called once, on the lock's thread, if
  // another process has taken the lock. Errors: kConflict "... is in use by job a/b (pod p, host
  // h)"; kUnavailable or kNoRoom: the file cannot be written; kCancelled.
  static Result<std::unique_ptr<FolderLock>> take(const std::string& folder, LockOwner owner,
                                                  LockTimes times, std::stop_token stop,
                                                  std::function<void(std::string)> on_lost);
  ~FolderLock();  // removes the file if it still belongs to this object
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Reads the file. kConflict: another process holds the folder. Any thread.
  Status check() const;

 private:
  FolderLock(std::string path, LockText text) : path_(std::move(path)), text_(std::move(text)) {}
  void beat(const std::stop_token& stop, LockTimes times,
            const std::function<void(std::string)>& on_lost);

  const std::string path_;
  LockText text_;  // used by the lock's thread; owner and mark are constant
  std::jthread thread_;
};

}  // namespace weir::checkpoint
