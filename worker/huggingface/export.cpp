// SPDX-License-Identifier: Apache-2.0
#include "worker/huggingface/export.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "worker/base/digest.h"
#include "worker/checkpoint/disk.h"
#include "worker/checkpoint/load.h"
#include "worker/checkpoint/tensor_file.h"
#include "worker/huggingface/folder.h"
#include "worker/huggingface/mapped_file.h"
#include "worker/huggingface/shard_writer.h"
#include "worker/huggingface/tensor_types.h"

namespace weir::huggingface {
namespace {

namespace fs = std::filesystem;
using checkpoint::join;
using nlohmann::json;

constexpr std::array<const char*, 10> kTokenizerFiles = {
    "tokenizer.json",    "tokenizer_config.json",
    "tokenizer.model",   "special_tokens_map.json",
    "vocab.json",        "merges.txt",
    "added_tokens.json", "chat_template.jinja",
    "vocab.txt",         "generation_config.json"};
constexpr std::size_t kPiece = std::size_t{1} << 20U;  // numbers that are converted at a time

struct Value {
  std::string name;
  std::vector<std::int64_t> shape;  // as it is written
  std::string_view bytes;           // floats, as the checkpoint has them
  bool transposed = false;
};

// A checkpoint with its files in memory.
struct Source {
  std::vector<std::unique_ptr<const MappedFile>> files;
  std::vector<Value> values;  // by layer
  json section;               // `export` of the manifest
};

std::set<std::string> names_of(const json& section, const char* key) {
  std::set<std::string> names;
  for (const json& name : section.value(key, json::array())) {
    if (name.is_string()) names.insert(name.get<std::string>());
  }
  return names;
}

Result<Source> open_source(const checkpoint::Found& found) {
  Source source;
  source.section = json::parse(found.manifest.export_json, nullptr, false);
  if (!source.section.is_object() || !source.section.value("config", json()).is_object()) {
    return invalid(found.path + ": " + found.manifest.model +
                   " has no counterpart in Hugging Face, so it cannot be exported");
  }
  const std::set<std::string> transposed = names_of(source.section, "transposed");
  const std::set<std::string> tied = names_of(source.section, "tied");
  constexpr std::string_view kValue = "value/";
  for (const checkpoint::FileEntry& entry : found.manifest.files) {
    const std::string path = join(found.path, entry.name);
    WEIR_TRY(std::unique_ptr<const MappedFile> file, MappedFile::open(path));
    if (sha256_hex(file->view()) != entry.sha256) {
      return invalid(path + ": has another SHA-256 than its manifest says");
    }
    const auto tensors = checkpoint::decode_tensors(file->view());
    if (!tensors) return tensors.error().with(path);
    for (const checkpoint::TensorView& tensor : *tensors) {
      if (!tensor.name.starts_with(kValue)) continue;
      if (tied.contains(tensor.name.substr(kValue.size()))) continue;
      Value value{
          .name = tensor.name.substr(kValue.size()), .shape = tensor.shape, .bytes = tensor.bytes};
      value.transposed = transposed.contains(value.name) && value.shape.size() == 2;
      if (value.transposed) std::ranges::reverse(value.shape);
      source.values.push_back(std::move(value));
    }
    source.files.push_back(std::move(file));
  }
  std::set<std::string_view> names;
  for (const Value& value : source.values) {
    if (names.insert(value.name).second) continue;
    return invalid(found.path + ": parameter " + value.name + " is there twice");
  }
  return source;
}

std::int64_t bytes_of(const Value& value, const std::string& dtype) {
  return static_cast<std::int64_t>(value.bytes.size() / sizeof(float) *
                                   huggingface::bytes_of(dtype));
}

// Neighbours, at most so many bytes of them or a single value; by name within each shard.
std::vector<std::span<const Value>> shards_of(std::vector<Value>& values,
                                              const ExportOrder& order) {
  std::vector<std::span<const Value>> shards;
  std::size_t first = 0;
  std::int64_t bytes = 0;
  const std::span<Value> all(values);
  const auto close = [&](std::size_t end) {
    const std::span<Value> shard = all.subspan(first, end - first);
    std::ranges::sort(shard, {}, &Value::name);
    shards.push_back(shard);
    first = end;
    bytes = 0;
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t own = bytes_of(values[i], order.dtype);
    if (i > first && bytes + own > order.most_shard_bytes) close(i);
    bytes += own;
  }
  close(values.size());
  return shards;
}

Status write_value(ShardWriter& writer, const Value& value, const std::string& dtype) {
  const std::size_t count = value.bytes.size() / sizeof(float);
  std::vector<float> floats;
  if (value.transposed) {
    std::vector<float> stored(count);
    to_floats("F32", value.bytes, stored);
    floats.resize(count);
    transpose(value.shape[1], value.shape[0], stored.data(), floats.data());
  }
  for (std::size_t first = 0; first < count; first += kPiece) {
    const std::size_t size = std::min(kPiece, count - first);
    std::string bytes;
    if (value.transposed) {
      append(dtype, std::span<const float>(floats).subspan(first, size), bytes);
    } else {
      std::vector<float> piece(size);
      to_floats("F32", value.bytes.substr(first * sizeof(float), size * sizeof(float)), piece);
      append(dtype, piece, bytes);
    }
    WEIR_OK(writer.append(bytes));
  }
  return Unit{};
}

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return kWeights;
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name.data();
}

Status write_shard(const std::string& path, std::span<const Value> values,
                   const std::string& dtype) {
  std::vector<ShardTensor> tensors;
  for (const Value& value : values) {
    tensors.push_back({.name = value.name,
                       .dtype = dtype,
                       .shape = value.shape,
                       .bytes = bytes_of(value, dtype)});
  }
  WEIR_TRY(ShardWriter writer, ShardWriter::create(path, tensors));
  for (const Value& value : values) WEIR_OK(write_value(writer, value, dtype));
  return writer.finish();
}

// Old versions of transformers read torch_dtype, new ones dtype.
std::string config_text(json config, const std::string& dtype) {
  const char* name = dtype == "BF16" ? "bfloat16" : "float32";
  const char* key = config.contains("torch_dtype") ? "torch_dtype" : "dtype";
  config[key] = name;
  if (config.contains("dtype")) config["dtype"] = name;
  return config.dump(2) + "\n";
}

// A file of an export before this one, which readers would take for a part of it.
void remove_old(const std::string& folder, const char* name) {
  std::error_code ignored;
  fs::remove(join(folder, name), ignored);
}

Status copy_tokenizer(checkpoint::Disk& disk, const json& section, const std::string& to) {
  const json from = section.value("folder", json());
  if (!from.is_string()) return Unit{};
  for (const char* name : kTokenizerFiles) {
    const auto text = checkpoint::read_file(join(from.get<std::string>(), name));
    if (!text) continue;  // most folders have some of them only
    WEIR_OK(disk.write_file(join(to, name), *text));
  }
  return Unit{};
}

Status make_target(const ExportOrder& order, const json& section) {
  std::error_code error;
  fs::create_directories(order.to, error);
  if (error) return Error{Code::kUnavailable, order.to + ": " + error.message()};
  const json from = section.value("folder", json());
  if (from.is_string() && fs::equivalent(from.get<std::string>(), order.to, error)) {
    return invalid(order.to + " is the folder from which the model came; export to another one");
  }
  return Unit{};
}

}  // namespace

Result<Exported> export_checkpoint(const ExportOrder& order) {
  if (order.dtype != "F32" && order.dtype != "BF16") {
    return invalid("export type: " + order.dtype + " is neither F32 nor BF16");
  }
  WEIR_TRY(const checkpoint::Found found, checkpoint::find(order.checkpoint));
  WEIR_TRY(Source source, open_source(found));
  WEIR_OK(make_target(order, source.section));
  const auto shards = shards_of(source.values, order);
  Exported exported{.step = found.manifest.step, .files = static_cast<int>(shards.size())};
  json weight_map = json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    WEIR_OK(write_shard(join(order.to, name), shards[i], order.dtype));
    for (const Value& value : shards[i]) {
      weight_map[value.name] = name;
      exported.bytes += bytes_of(value, order.dtype);
    }
  }
  checkpoint::Disk disk;
  if (shards.size() > 1) {
    const json index = {{"metadata", {{"total_size", exported.bytes}}}, {"weight_map", weight_map}};
    WEIR_OK(disk.write_file(join(order.to, kIndex), index.dump(2) + "\n"));
  }
  remove_old(order.to, shards.size() > 1 ? kWeights : kIndex);
  WEIR_OK(copy_tokenizer(disk, source.section, order.to));
  WEIR_OK(disk.write_file(join(order.to, "config.json"),
                          config_text(source.section["config"], order.dtype)));
  WEIR_OK(disk.sync_folder(order.to));
  return exported;
}

}  // namespace weir::huggingface
