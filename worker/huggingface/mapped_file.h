// SPDX-License-Identifier: Apache-2.0
// A file in memory that the system reads when it is looked at. Any thread may read.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "worker/base/result.h"

namespace weir::huggingface {

class MappedFile {
 public:
  // kNotFound, kUnavailable with the path and the system's reason.
  static Result<std::unique_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view view() const { return {static_cast<const char*>(data_), size_}; }

 private:
  MappedFile(void* data, std::size_t size) : data_(data), size_(size) {}

  void* data_;
  std::size_t size_;
};

}  // namespace weir::huggingface
