// SPDX-License-Identifier: Apache-2.0
// A file that only grows at its end. A text is written whole or not at all, unless the process or
// the machine ends in between; then readers find its beginning.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "worker/base/result.h"

namespace weir::eventlog {

class AppendFile {
 public:
  // must_be_new: an existing file is an error of code kConflict.
  static Result<std::unique_ptr<AppendFile>> open(const std::string& path, bool must_be_new);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // After an error, such as a full disk, the file is as it was.
  Status append(std::string_view text);
  Status cut(std::int64_t size);
  std::int64_t size() const { return size_; }
  // At most `count` bytes from `offset` on; fewer at the end of the file.
  Result<std::string> read(std::int64_t offset, std::size_t count) const;

 private:
  AppendFile(std::string path, int descriptor, std::int64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

  const std::string path_;
  const int descriptor_;
  std::int64_t size_;
};

}  // namespace weir::eventlog
