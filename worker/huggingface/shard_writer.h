// SPDX-License-Identifier: Apache-2.0
// Writes a safetensors file piece by piece, so that a shard never lies in memory. Its bytes are
// those that the safetensors library writes for tensors of one type: sorted by name, metadata
// {"format": "pt"}. The file has its name only once it is complete and on the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/base/result.h"

namespace weir::huggingface {

struct ShardTensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
};

class ShardWriter {
 public:
  // kUnavailable with the path and the system's reason.
  static Result<ShardWriter> create(const std::string& path,
                                    const std::vector<ShardTensor>& tensors);
  ~ShardWriter();
  ShardWriter(ShardWriter&& other) noexcept;
  ShardWriter& operator=(ShardWriter&&) = delete;

  // The next bytes of the tensors, in the order of create().
  Status append(std::string_view bytes);
  Status finish();

 private:
  ShardWriter(int file, std::string path) : file_(file), path_(std::move(path)) {}

  int file_;  // -1: none
  std::string path_;
};

}  // namespace weir::huggingface
