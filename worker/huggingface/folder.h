// SPDX-License-Identifier: Apache-2.0
// The tensors of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json names. Files are mapped, so a rank reads the tensors of its layers
// only. Nothing is ever written. Any thread may read.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/checkpoint/tensor_file.h"
#include "worker/huggingface/mapped_file.h"
#include "worker/stage/layer.h"

namespace weir::huggingface {

// The weights of a folder: one file, or shards with an index.
inline constexpr const char* kWeights = "model.safetensors";
inline constexpr const char* kIndex = "model.safetensors.index.json";

class Folder {
 public:
  // Reads the headers. Errors have one line with the file and the tensor: a file that is missing or
  // torn, an index that does not fit the files, weights of another format only.
  static Result<std::shared_ptr<const Folder>> open(const std::string& path);
  // Whether the folder holds weights of any format; without them a model begins at random.
  static bool has_weights(const std::string& path);

  const std::string& path() const { return path_; }
  // A digest of sizes and of blocks of the files, as ranks compare it: other weights of the same
  // shapes have another one.
  std::string content() const;

  bool has(const std::string& name) const { return find(name) != nullptr; }
  // Names that stand for another one: {"lm_head.weight", "model.embed_tokens.weight"} for a table
  // that is tied in the folder.
  using Twins = std::map<std::string, std::string>;
  // Whether the folder has exactly these parameters, in a type that can be read. kInvalid names
  // the first tensor that is missing, misshapen or of nobody.
  Status check(const std::vector<stage::ParameterSpec>& parameters, const Twins& twins) const;
  // The values of a parameter that check() has passed.
  Status read(const stage::ParameterSpec& parameter, const Twins& twins,
              std::span<float> values) const;

 private:
  Folder() = default;
  const checkpoint::TensorView* find(const std::string& name) const;
  Status add_file(const std::string& name, const std::map<std::string, std::string>* index);

  std::string path_;
  std::vector<std::unique_ptr<const MappedFile>> files_;
  std::map<std::string, checkpoint::TensorView> tensors_;
};

}  // namespace weir::huggingface
