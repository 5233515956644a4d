// SPDX-License-Identifier: Apache-2.0
#include "worker/huggingface/folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker/base/digest.h"
#include "worker/checkpoint/disk.h"
#include "worker/checkpoint/manifest.h"
#include "worker/huggingface/tensor_types.h"

namespace weir::huggingface {
namespace {

namespace fs = std::filesystem;
using checkpoint::TensorView;
using nlohmann::json;

constexpr std::array<const char*, 4> kPickled = {
    "pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack"};
// A folder may hold these although no layer has them: constants, which old versions have saved.
constexpr std::array<const char*, 3> kConstants = {".attn.bias", ".attn.masked_bias",
                                                   ".rotary_emb.inv_freq"};

bool exists(const std::string& path, const std::string& name) {
  std::error_code ignored;
  return fs::exists(checkpoint::join(path, name), ignored);
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const auto extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text.empty() ? "one number" : text;
}

std::vector<std::int64_t> shape_in_file(const stage::ParameterSpec& parameter) {
  std::vector<std::int64_t> shape = parameter.shape;
  if (parameter.transposed) std::ranges::reverse(shape);
  return shape;
}

// A folder that was saved from the model without its head has names without this first part.
std::string without_root(const std::string& name) {
  for (const std::string root : {"model.", "transformer."}) {
    if (name.starts_with(root)) return name.substr(root.size());
  }
  return name;
}

// File by tensor. kInvalid if the index is none.
Result<std::map<std::string, std::string>> read_index(const std::string& path) {
  const auto wrong = [](const std::string& what) { return invalid(kIndex, what); };
  WEIR_TRY(const std::string text, checkpoint::read_file(checkpoint::join(path, kIndex)));
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return wrong("is no JSON object");
  const auto weights = document.find("weight_map");
  if (weights == document.end() || !weights->is_object() || weights->empty()) {
    return wrong("has no weight_map");
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : weights->items()) {
    if (!file.is_string()) return wrong(name + " has no file");
    auto text_of_file = file.get<std::string>();
    if (text_of_file.find('/') != std::string::npos || !text_of_file.ends_with(".safetensors")) {
      return wrong(name + " is in " + text_of_file + ", which is no file of this folder");
    }
    files.emplace(name, std::move(text_of_file));
  }
  return files;
}

}  // namespace

bool Folder::has_weights(const std::string& path) {
  return exists(path, kWeights) || exists(path, kIndex) ||
         std::ranges::any_of(kPickled, [&](const char* name) { return exists(path, name); });
}

Result<std::shared_ptr<const Folder>> Folder::open(const std::string& path) {
  std::shared_ptr<Folder> folder(new Folder());
  folder->path_ = path;
  if (exists(path, kIndex) && !exists(path, kWeights)) {
    const auto index = read_index(path);
    if (!index) return index.error().with(path);
    std::set<std::string> files;
    for (const auto& [name, file] : *index) files.insert(file);
    for (const std::string& file : files) WEIR_OK(folder->add_file(file, &*index));
    for (const auto& [name, file] : *index) {
      if (!folder->tensors_.contains(name)) {
        return invalid(path + ": " + file + ": tensor " + name + " of the index is missing");
      }
    }
  } else if (exists(path, kWeights)) {
    WEIR_OK(folder->add_file(kWeights, nullptr));
  } else {
    for (const char* name : kPickled) {
      if (!exists(path, name)) continue;
      return invalid(path + " holds " + name + " only; convert it to safetensors");
    }
    return invalid(path + " holds no " + std::string(kWeights));
  }
  return std::shared_ptr<const Folder>(std::move(folder));
}

Status Folder::add_file(const std::string& name, const std::map<std::string, std::string>* index) {
  const std::string path = checkpoint::join(path_, name);
  WEIR_TRY(std::unique_ptr<const MappedFile> file, MappedFile::open(path));
  auto tensors = checkpoint::decode_tensors(file->view(), checkpoint::Types::kAny);
  if (!tensors) return tensors.error().with(path);
  for (TensorView& tensor : *tensors) {
    if (index != nullptr) {
      const auto said = index->find(tensor.name);
      if (said == index->end() || said->second != name) continue;
    }
    std::string key = tensor.name;
    tensors_.emplace(std::move(key), std::move(tensor));
  }
  files_.push_back(std::move(file));
  return Unit{};
}

std::string Folder::content() const {
  constexpr std::size_t kBlocks = 64, kBlockBytes = 4096;
  std::string text;
  for (const auto& file : files_) {
    const std::string_view all = file->view();
    text += std::to_string(all.size()) + ' ';
    for (std::size_t i = 0; i < kBlocks; ++i) {
      text += all.substr(all.size() / kBlocks * i, kBlockBytes);
    }
  }
  return "sha256:" + sha256_hex(text);
}

const TensorView* Folder::find(const std::string& name) const {
  auto found = tensors_.find(name);
  if (found == tensors_.end()) found = tensors_.find(without_root(name));
  return found == tensors_.end() ? nullptr : &found->second;
}

Status Folder::check(const std::vector<stage::ParameterSpec>& parameters,
                     const Twins& twins) const {
  std::set<std::string> wanted;
  for (const stage::ParameterSpec& parameter : parameters) {
    const auto twin = twins.find(parameter.name);
    const std::string& name = twin == twins.end() ? parameter.name : twin->second;
    wanted.insert(parameter.name);
    wanted.insert(name);
    const TensorView* tensor = find(name);
    if (tensor == nullptr) return invalid(path_ + ": tensor " + name + " is missing");
    if (tensor->shape != shape_in_file(parameter)) {
      return invalid(path_ + ": tensor " + name + " has shape " + text_of(tensor->shape) +
                     ", config.json says " + text_of(shape_in_file(parameter)));
    }
    if (!is_float_type(tensor->dtype)) {
      return invalid(path_ + ": tensor " + name + " has dtype " + tensor->dtype +
                     "; F32, F16 and BF16 are read");
    }
  }
  std::set<std::string> short_names;
  for (const std::string& name : wanted) short_names.insert(without_root(name));
  for (const auto& [name, tensor] : tensors_) {
    const bool is_constant =
        std::ranges::any_of(kConstants, [&name](const char* end) { return name.ends_with(end); });
    if (is_constant || wanted.contains(name) || short_names.contains(name)) continue;
    return invalid(path_ + ": tensor " + name + " belongs to no layer of this model");
  }
  return Unit{};
}

Status Folder::read(const stage::ParameterSpec& parameter, const Twins& twins,
                    std::span<float> values) const {
  const auto twin = twins.find(parameter.name);
  const TensorView* tensor = find(twin == twins.end() ? parameter.name : twin->second);
  if (tensor == nullptr || !is_float_type(tensor->dtype) ||
      tensor->bytes.size() != values.size() * bytes_of(tensor->dtype)) {
    return invalid(path_ + ": tensor " + parameter.name + " has changed");
  }
  if (!parameter.transposed) {
    to_floats(tensor->dtype, tensor->bytes, values);
    return Unit{};
  }
  std::vector<float> as_stored(values.size());
  to_floats(tensor->dtype, tensor->bytes, as_stored);
  transpose(parameter.shape[1], parameter.shape[0], as_stored.data(), values.data());
  return Unit{};
}

}  // namespace weir::huggingface
