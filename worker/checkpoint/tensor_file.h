// SPDX-License-Identifier: Apache-2.0
// The file format safetensors: u64 header length (little-endian), header as JSON {name: {dtype,
// shape, data_offsets}}, raw bytes without holes. float32 only. Pure: bytes in memory, no file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/base/result.h"
#include "worker/device/device.h"

namespace weir::checkpoint {

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;  // in memory that `copy` reads
};

// The bytes of a file, in host memory.
struct FileImage {
  device::Buffer memory;
  std::string_view view() const { return {memory.as<char>(), memory.size()}; }
};

using CopyBytes = std::function<Status(void* to, const void* from, std::size_t bytes)>;
using Allocate = std::function<device::Buffer(std::size_t bytes)>;  // empty: there is none
// Copies the tensors, in the order given. kInternal: no memory for the copy; errors of `copy`.
Result<FileImage> encode_tensors(std::span<const Tensor> tensors, const CopyBytes& copy,
                                 const Allocate& allocate);
// Of an image that encode_tensors() made: all its values are.
bool all_finite(const FileImage& image);

struct TensorView {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string_view bytes;  // of the file; 4-byte floats, little-endian
};

// In the order of their bytes. kInvalid: no such file (torn, holes, overlaps, another dtype).
Result<std::vector<TensorView>> decode_tensors(std::string_view file);

}  // namespace weir::checkpoint
