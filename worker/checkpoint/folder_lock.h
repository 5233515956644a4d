// SPDX-License-Identifier: Apache-2.0
// One writer a checkpoint folder: a file in it names the owner and shows by a number that grows
// that the owner lives. Works on any file system that makes a file once (O_EXCL) and renames
// atomically, so also over NFS, and by no clock but the own one. Held by worker 0 alone, which
// orders all saves of its job; the other workers write only what it orders.
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
  std::string uid;  // of the job; "" = nobody gave one, another process may have the same
  std::string pod, host;
  std::int64_t process = 0;  // on that host
  bool operator==(const LockOwner&) const = default;
};
struct LockText {
  LockOwner owner;
  std::string mark;       // of this taking of the lock; random
  std::int64_t beat = 0;  // grows while the owner lives
  bool operator==(const LockText&) const = default;
};
std::string encode(const LockText& text);
Result<LockText> decode_lock(std::string_view json);  // kInvalid

// What to do about a lock that is there. Pure.
enum class Claim : unsigned char {
  kTake,   // it is of this job, or of a process that is gone
  kWatch,  // its owner may live: that shows when the beat grows
};
Claim claim(const LockOwner& found, const LockOwner& own, bool process_lives);

struct LockTimes {
  std::chrono::milliseconds beat{3000};
  // So long a lock must not have changed before another job takes it: ten beats, for a disk that
  // stalls.
  std::chrono::milliseconds stale{30000};
};

class FolderLock {
 public:
  // Waits up to `stale` where the owner may live. on_lost: another process holds it now; once, from
  // the lock's thread. kConflict: "... is in use by job a/b (pod p, host h)"; kUnavailable,
  // kNoRoom: the file cannot be written; kCancelled.
  static Result<std::unique_ptr<FolderLock>> take(const std::string& folder, LockOwner owner,
                                                  LockTimes times, std::stop_token stop,
                                                  std::function<void(std::string)> on_lost);
  ~FolderLock();  // removes the file if it is still its own
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Reads the file. kConflict: another process holds the folder; any thread.
  Status check() const;

 private:
  FolderLock(std::string path, LockText text) : path_(std::move(path)), text_(std::move(text)) {}
  void beat(const std::stop_token& stop, LockTimes times,
            const std::function<void(std::string)>& on_lost);

  const std::string path_;
  LockText text_;  // the lock's thread; owner and mark never change
  std::jthread thread_;
};

}  // namespace weir::checkpoint
