// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder as a model: its layers are built in, their initial values are those of the
// folder.
#pragma once

#include <memory>
#include <string>

#include "worker/base/result.h"
#include "worker/stage/layer.h"

namespace weir::huggingface {

struct FolderChoice {
  std::string path;
  bool random = false;  // initial values; so they are, too, if the folder holds no weights
  bool untie = false;   // trains a copy of a tied table
};

struct FolderModel {
  std::shared_ptr<const stage::LayerSource> source;
  int vocabulary = 0;
};

// options: sequence, precision, and model_options, which change keys of config.json. Checks all
// tensors of the folder against the model. kInvalid with one line that names the key, the tensor
// or the option.
Result<FolderModel> open_model(const FolderChoice& choice, const stage::ModelOptions& options);

// Whether it looks like one: it has a config.json, and is no checkpoint of ours.
bool is_folder(const std::string& path);
// Sets the values of a stage to those of a folder, whose tensors must be the parameters of the
// model: a Llama of any size, or a model of another folder. kInvalid names the tensor.
Status load_values(const std::string& path, const stage::Model& model, stage::Stage& stage);

// The section `export` of a checkpoint's manifest for a model that is built in, or "" if it has no
// counterpart in Hugging Face.
std::string export_section(const stage::ModelOptions& options);

}  // namespace weir::huggingface
