// SPDX-License-Identifier: Apache-2.0
// The parts of a checkpoint: its manifest as a struct and as JSON, and the names of folders and
// files. Pure. A checkpoint is complete if its folder has its final name and a manifest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/base/result.h"
#include "worker/base/settings.h"

namespace weir::checkpoint {

struct FileEntry {  // one layer
  std::string name;
  std::int64_t bytes = 0;
  std::string sha256;  // hex
  bool operator==(const FileEntry&) const = default;
};

struct Optimizer {  // informative; not used for loading
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  std::string schedule;
  int warmup_steps = 0;
  bool operator==(const Optimizer&) const = default;
};

struct Manifest {
  std::int64_t step = 0;              // completed steps
  std::int64_t samples = 0;           // trained until then; also the position in the data
  std::int64_t compressed_steps = 0;  // those of `step` with codecs; in older ones 0
  std::string job;  // "namespace/name" of the owner; "" = any run that names the folder
  // Stage::Model::digest; versions without `shapes` compare nothing else.
  std::string model, digest;
  std::string shapes;  // stage::Model::shapes; "" in checkpoints of those versions
  Settings settings;   // of the run that wrote it, by option name
  std::uint64_t seed = 0;
  Optimizer optimizer;
  std::uint32_t revision = 0;
  int incarnation = 0;
  std::string plan_json;         // the plan in force, weir.dev/plan/v1; may be empty
  std::string export_json;       // a JSON object (README.md); empty: no export
  int first_layer = 0;           // above 0 in a snapshot, which holds the layers of one stage
  std::vector<FileEntry> files;  // by layer, from first_layer on
  bool operator==(const Manifest&) const = default;
};

std::string encode(const Manifest& manifest);
Result<Manifest> decode_manifest(std::string_view json);  // kInvalid

constexpr const char* kManifestName = "manifest.json";
std::string join(const std::string& folder, const std::string& name);  // "folder/name"
std::string folder_name(std::int64_t step);                            // "step-0000002000"
std::string unfinished_name(std::int64_t step);                        // "step-0000002000.tmp"
std::string layer_file(int layer);                                     // "layer-00012.safetensors"
// The parts of a folder's name; `unfinished` means that it ends with .tmp. Nothing for any other
// name.
struct FolderName {
  std::int64_t step = 0;
  bool unfinished = false;
};
std::optional<FolderName> parse_folder(std::string_view name);
std::optional<int> parse_layer_file(std::string_view name);

}  // namespace weir::checkpoint
