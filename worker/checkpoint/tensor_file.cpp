// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/tensor_file.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include <nlohmann/json.hpp>

namespace weir::checkpoint {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensors lie as they are in memory");

constexpr std::size_t kLengthBytes = 8, kAlignment = 8;
constexpr std::size_t kMostHeader = 100'000'000;  // the limit of the safetensors library
constexpr const char* kMetadata = "__metadata__";

std::string header_of(std::span<const Tensor> tensors) {
  json header = json::object();
  std::size_t at = 0;
  for (const Tensor& tensor : tensors) {
    const std::size_t end = at + tensor.values.size_bytes();
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return text;
}

Error wrong_tensors(const std::string& what) {
  return {Code::kInvalid, "no safetensors file: " + what};
}

// Bytes of one number; 0 = an unknown type.
std::size_t width_of(std::string_view dtype) {
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  return dtype == "I8" || dtype == "U8" || dtype == "BOOL" || dtype.starts_with("F8_") ? 1 : 0;
}

// Reads one entry of the header.
Result<TensorView> read_entry(const std::string& name, const json& entry, std::string_view data,
                              Types types) {
  const auto field = [&](const char* key) -> const json* {
    const auto found = entry.find(key);
    return found == entry.end() ? nullptr : &*found;
  };
  if (!entry.is_object()) return wrong_tensors(name + " is no object");
  const json *dtype = field("dtype"), *shape = field("shape"), *offsets = field("data_offsets");
  const std::string type =
      dtype != nullptr && dtype->is_string() ? dtype->get<std::string>() : std::string();
  if (types == Types::kFloat32 && type != "F32") {
    return wrong_tensors(name + " has another dtype than F32");
  }
  const std::size_t width = width_of(type);
  if (width == 0) return wrong_tensors(name + " has an unknown dtype");
  const auto sizes = [](const json* list) {
    return list != nullptr && list->is_array() &&
           std::ranges::all_of(*list, [](const json& n) { return n.is_number_unsigned(); });
  };
  if (!sizes(shape) || !sizes(offsets) || offsets->size() != 2) {
    return wrong_tensors(name + " has no shape or no data_offsets");
  }
  const auto begin = (*offsets)[0].get<std::size_t>(), end = (*offsets)[1].get<std::size_t>();
  if (begin > end || end > data.size()) return wrong_tensors(name + " lies outside the file");

  TensorView view{
      .name = name, .shape = {}, .bytes = data.substr(begin, end - begin), .dtype = type};
  std::size_t count = 1;
  for (const json& extent : *shape) {
    const auto size = extent.get<std::size_t>();
    if (size != 0 && count > data.size() / size)
      return wrong_tensors(name + " has a shape too large");
    count *= size;
    view.shape.push_back(static_cast<std::int64_t>(size));
  }
  if (count * width != view.bytes.size()) {
    return wrong_tensors(name + " has a shape that does not fit its bytes");
  }
  return view;
}

}  // namespace

Result<FileImage> encode_tensors(std::span<const Tensor> tensors, const CopyBytes& copy,
                                 const Allocate& allocate) {
  const std::string header = header_of(tensors);
  std::size_t size = kLengthBytes + header.size();
  for (const Tensor& tensor : tensors) size += tensor.values.size_bytes();
  FileImage file{.memory = allocate(size)};
  if (!file.memory) {
    return Error{Code::kInternal, "no memory for a copy of " + std::to_string(size) + " bytes"};
  }
  const std::uint64_t length = header.size();
  char* to = file.memory.as<char>();
  std::memcpy(to, &length, kLengthBytes);
  to += kLengthBytes;
  std::memcpy(to, header.data(), header.size());
  to += header.size();
  for (const Tensor& tensor : tensors) {
    const std::size_t bytes = tensor.values.size_bytes();
    if (bytes == 0) continue;
    WEIR_OK(copy(to, tensor.values.data(), bytes));
    to += bytes;
  }
  return file;
}

bool all_finite(const FileImage& image) {
  const std::string_view file = image.view();
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  const char* at = file.data() + kLengthBytes + length;
  constexpr std::uint32_t kExponent = 0x7F800000;  // all bits set: infinity or nan
  bool finite = true;
  for (const char* const end = file.data() + file.size(); at < end; at += sizeof(float)) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, at, sizeof(bits));
    finite = finite && (bits & kExponent) != kExponent;
  }
  return finite;
}

Result<std::vector<TensorView>> decode_tensors(std::string_view file, Types types) {
  if (file.size() < kLengthBytes) return wrong_tensors("shorter than its header");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMostHeader || length > file.size() - kLengthBytes) {
    return wrong_tensors("shorter than its header");
  }
  const json header = json::parse(file.substr(kLengthBytes, length), nullptr, false);
  if (!header.is_object()) return wrong_tensors("its header is no JSON object");
  const std::string_view data = file.substr(kLengthBytes + length);
  std::vector<TensorView> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) continue;
    WEIR_TRY(TensorView view, read_entry(name, entry, data, types));
    tensors.push_back(std::move(view));
  }
  std::ranges::stable_sort(tensors, {}, [](const TensorView& t) { return t.bytes.data(); });
  std::size_t covered = 0;
  for (const TensorView& tensor : tensors) {
    if (tensor.bytes.data() != data.data() + covered) return wrong_tensors("holes or overlaps");
    covered += tensor.bytes.size();
  }
  if (covered != data.size()) return wrong_tensors("bytes that belong to no tensor");
  return tensors;
}

}  // namespace weir::checkpoint
