// SPDX-License-Identifier: Apache-2.0
// The folders that transformers wrote (tests/data/hf/make.py), as they are or changed.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.h"
#include "worker/checkpoint/tensor_file.h"
#include "worker/huggingface/model.h"
#include "worker/huggingface/tensor_types.h"

namespace weir::test {

inline std::string stored_folder(const std::string& name) {
  return std::string(WEIR_SOURCE_DIR) + "/tests/data/hf/" + name;
}

inline std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}
inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A copy that a test may change.
class ChangedFolder {
 public:
  explicit ChangedFolder(const std::string& name) {
    std::filesystem::copy(stored_folder(name), path());
  }
  std::string path() const { return (scratch_.path() / "model").string(); }
  std::string file(const std::string& name) const { return path() + "/" + name; }

 private:
  TempDir scratch_;
};

// Tensors of a safetensors file as floats (whole numbers too), by name.
struct Floats {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
inline std::map<std::string, Floats> tensors_of(const std::string& path) {
  const std::string text = text_of_file(path);
  const auto decoded = checkpoint::decode_tensors(text, checkpoint::Types::kAny);
  EXPECT_TRUE(decoded) << path;
  std::map<std::string, Floats> all;
  for (const auto& tensor : *decoded) {
    Floats& one = all[tensor.name];
    one.shape = tensor.shape;
    if (tensor.dtype == "I32") {
      std::vector<std::int32_t> whole(tensor.bytes.size() / sizeof(std::int32_t));
      std::memcpy(whole.data(), tensor.bytes.data(), tensor.bytes.size());
      one.values.assign(whole.begin(), whole.end());
      continue;
    }
    one.values.resize(tensor.bytes.size() / huggingface::bytes_of(tensor.dtype));
    huggingface::to_floats(tensor.dtype, tensor.bytes, one.values);
  }
  return all;
}

inline stage::ModelOptions folder_options() {
  stage::ModelOptions options;
  options.name = "";
  options.sequence = 7;  // that of expected.safetensors
  options.learning_rate = 1e-2;
  return options;
}

// The model of a folder; a failure of the test if it is refused.
inline stage::Model folder_model(const std::string& path, stage::ModelOptions options,
                                 bool random = false, bool untie = true) {
  const auto opened =
      huggingface::open_model({.path = path, .random = random, .untie = untie}, options);
  EXPECT_TRUE(opened) << opened.error().message;
  options.vocabulary = opened->vocabulary;
  auto model = stage::describe_model(options, opened->source);
  EXPECT_TRUE(model) << model.error().message;
  return *std::move(model);
}

// "" or why a folder is refused.
inline std::string refusal_of(const std::string& path, stage::ModelOptions options,
                              bool untie = true) {
  const auto opened = huggingface::open_model({.path = path, .untie = untie}, options);
  return opened ? "" : opened.error().message;
}

}  // namespace weir::test
