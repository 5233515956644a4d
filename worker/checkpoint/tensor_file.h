// SPDX-License-Identifier: Apache-2.0
// The safetensors file format: u64 header length (little-endian), header as JSON {name: {dtype,
// shape, data_offsets}}, raw bytes without gaps. We write float32 only. Pure: works on bytes in
// memory.
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
  std::span<const float> values;  // in memory from which `copy` reads
};

// The bytes of a file in host memory.
struct FileImage {
  device::Buffer memory;
  std::string_view view() const { return {memory.as<char>(), memory.size()}; }
};

using CopyBytes = std::function<Status(void* to, const void* from, std::size_t bytes)>;
// Returns an empty buffer if there is no memory.
using Allocate = std::function<device::Buffer(std::size_t bytes)>;
// Copies the tensors in the given order. kInternal: no memory for the copy. Also returns errors of
// `copy`.
Result<FileImage> encode_tensors(std::span<const Tensor> tensors, const CopyBytes& copy,
                                 const Allocate& allocate);
// True if all values of an image made by encode_tensors() are finite.
bool all_finite(const FileImage& image);

struct TensorView {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string_view bytes;  // part of the file; little-endian
  std::string dtype;       // "F32"
};

enum class Types : unsigned char { kFloat32, kAny };
// Returns the tensors in the order of their bytes. kInvalid: not such a file (truncated, gaps,
// overlaps, another dtype than those of `types`).
Result<std::vector<TensorView>> decode_tensors(std::string_view file,
                                               Types types = Types::kFloat32);

}  // namespace weir::checkpoint
