// SPDX-License-Identifier: Apache-2.0
// The system calls that change a checkpoint folder, one by one: nothing is believed to be written
// before fsync said so. A test may end the process's life at each of them. Thread-safe; blocks as
// long as the disk does.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "worker/base/result.h"

namespace weir::checkpoint {

// The disk is full, or the user's part of it: with less on it the same call succeeds.
constexpr Code kNoRoom = Code::kThrottled;

class Disk {
 public:
  // Asked before each call: false = as if the process had been killed right there: this call (a
  // write in its middle) and all later ones do nothing and fail.
  using Allow = std::function<bool(std::string_view call, const std::string& path)>;

  Disk() = default;
  // exchanges: false = as on a file system that cannot exchange names.
  explicit Disk(Allow allow, bool exchanges = true)
      : allow_(std::move(allow)), exchanges_(exchanges) {}

  // Errors: kUnavailable, with path and the system's reason; kNoRoom.
  Status make_folder(const std::string& path);  // one level; an existing one is fine
  // Beside it, fsync, rename: `path` is either as before or whole. The folder is not synced.
  Status write_file(const std::string& path, std::string_view bytes);
  Status sync_folder(const std::string& path);
  Status rename(const std::string& from, const std::string& to);
  // The two change names at once. kInvalid: this file system cannot do that.
  Status exchange(const std::string& one, const std::string& other);
  Status remove_tree(const std::string& path);  // a missing one is fine

 private:
  Status write_beside(const std::string& path, std::string_view bytes);
  Status write_all(int file, const std::string& path, std::string_view bytes);
  bool allowed(std::string_view call, const std::string& path);

  Allow allow_;
  bool exchanges_ = true;
  bool dead_ = false;  // allow_ has said no
};

// A whole file. kNotFound, kUnavailable.
Result<std::string> read_file(const std::string& path);

}  // namespace weir::checkpoint
