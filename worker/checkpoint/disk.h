// SPDX-License-Identifier: Apache-2.0
// The system calls that change a checkpoint folder. Data counts as written only after fsync. A test
// may end the life of the process at each call. Thread-safe; blocks as long as the disk does.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "worker/base/result.h"

namespace weir::checkpoint {

// The disk or the user's quota is full: with less on the disk the same call would succeed.
constexpr Code kNoRoom = Code::kThrottled;

class Disk {
 public:
  // Called before each call. False simulates that the process was killed there: this call (a write
  // in its middle) and all later ones do nothing and fail.
  using Allow = std::function<bool(std::string_view call, const std::string& path)>;

  Disk() = default;
  // exchanges: false simulates a file system that cannot exchange names.
  explicit Disk(Allow allow, bool exchanges = true)
      : allow_(std::move(allow)), exchanges_(exchanges) {}

  // Errors: kUnavailable with the path and the system's reason, or kNoRoom.
  Status make_folder(const std::string& path);  // one level; an existing folder is no error
  // Writes a file beside it, calls fsync and renames: `path` is either unchanged or complete. The
  // folder is not synced.
  Status write_file(const std::string& path, std::string_view bytes);
  Status sync_folder(const std::string& path);
  Status rename(const std::string& from, const std::string& to);
  // Exchanges the two names atomically. kInvalid: the file system cannot do that.
  Status exchange(const std::string& one, const std::string& other);
  // A missing tree is no error. Other processes may add and remove files in it meanwhile.
  Status remove_tree(const std::string& path);

 private:
  Status write_beside(const std::string& path, std::string_view bytes);
  Status write_all(int file, const std::string& path, std::string_view bytes);
  bool allowed(std::string_view call, const std::string& path);

  Allow allow_;
  bool exchanges_ = true;
  bool dead_ = false;  // allow_ has returned false
};

// Reads a whole file. Errors: kNotFound, kUnavailable.
Result<std::string> read_file(const std::string& path);

}  // namespace weir::checkpoint
