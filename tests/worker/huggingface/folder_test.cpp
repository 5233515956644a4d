// SPDX-License-Identifier: Apache-2.0
// A folder that is torn, misses tensors or has others than its config.json says is refused by one
// line with the file and the tensor.
#include "worker/huggingface/folder.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/huggingface/folders.h"

namespace weir::huggingface {
namespace folder_test {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal(const test::ChangedFolder& folder) {
  std::string text = test::refusal_of(folder.path(), test::folder_options());
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  return text;
}

TEST(Folder, NamesATornFile) {
  for (const std::size_t kept : {0U, 5U, 100U, 3000U}) {
    const test::ChangedFolder folder("qwen3");
    std::filesystem::resize_file(folder.file("model.safetensors"), kept);
    EXPECT_THAT(refusal(folder), AllOf(HasSubstr(folder.file("model.safetensors")),
                                       HasSubstr("no safetensors file")));
  }
}

TEST(Folder, NamesAMissingShardOrIndex) {
  const test::ChangedFolder shards("llama");
  std::filesystem::remove(shards.file("model-00002-of-00002.safetensors"));
  EXPECT_THAT(refusal(shards),
              AllOf(HasSubstr("model-00002-of-00002.safetensors"), HasSubstr("No such file")));

  const test::ChangedFolder torn("llama");
  test::write_text(torn.file("model.safetensors.index.json"), "{");
  EXPECT_THAT(refusal(torn), HasSubstr("model.safetensors.index.json: is no JSON object"));

  const test::ChangedFolder outside("llama");
  test::write_text(outside.file("model.safetensors.index.json"),
                   R"({"weight_map": {"lm_head.weight": "../other.safetensors"}})");
  EXPECT_THAT(refusal(outside), HasSubstr("which is no file of this folder"));

  const test::ChangedFolder wrong("llama");
  json index = json::parse(test::text_of_file(wrong.file("model.safetensors.index.json")));
  index["weight_map"]["model.norm.weight"] =
      index["weight_map"]["model.norm.weight"] == "model-00001-of-00002.safetensors"
          ? "model-00002-of-00002.safetensors"
          : "model-00001-of-00002.safetensors";
  test::write_text(wrong.file("model.safetensors.index.json"), index.dump());
  EXPECT_THAT(refusal(wrong), HasSubstr("tensor model.norm.weight of the index is missing"));
}

// Only pickled weights are there.
TEST(Folder, NamesAFormatThatIsNotRead) {
  const test::ChangedFolder folder("qwen3");
  std::filesystem::rename(folder.file("model.safetensors"), folder.file("pytorch_model.bin"));
  EXPECT_THAT(refusal(folder),
              HasSubstr("holds pytorch_model.bin only; convert it to safetensors"));
}

TEST(Folder, NamesATensorThatIsMissingOrOfNobody) {
  const test::ChangedFolder fewer("qwen3");
  json config = json::parse(test::text_of_file(fewer.file("config.json")));
  config["num_hidden_layers"] = 2;
  config["layer_types"] = {"full_attention", "full_attention"};
  test::write_text(fewer.file("config.json"), config.dump());
  EXPECT_THAT(refusal(fewer), HasSubstr("tensor model.layers.1.input_layernorm.weight is missing"));

  const test::ChangedFolder more("llama");
  config = json::parse(test::text_of_file(more.file("config.json")));
  config["num_hidden_layers"] = 1;
  test::write_text(more.file("config.json"), config.dump());
  EXPECT_THAT(refusal(more), HasSubstr("tensor model.layers.1."));
  EXPECT_THAT(refusal(more), HasSubstr("belongs to no layer of this model"));
}

TEST(Folder, NamesATensorOfAnotherShapeOrType) {
  const test::ChangedFolder shape("qwen3");
  json config = json::parse(test::text_of_file(shape.file("config.json")));
  config["intermediate_size"] = 21;
  test::write_text(shape.file("config.json"), config.dump());
  EXPECT_THAT(refusal(shape), HasSubstr("tensor model.layers.0.mlp.gate_proj.weight has shape "
                                        "20x12, config.json says 21x12"));

  const test::ChangedFolder type("qwen3");
  std::string text = test::text_of_file(type.file("model.safetensors"));
  for (std::size_t at = text.find("\"F32\""); at != std::string::npos;
       at = text.find("\"F32\"", at)) {
    text.replace(at, 5, "\"I32\"");
  }
  test::write_text(type.file("model.safetensors"), text);
  EXPECT_THAT(refusal(type), HasSubstr("has dtype I32; F32, F16 and BF16 are read"));
}

// As GPT-2 was saved years ago: without its head, and with the masks of its attention.
TEST(Folder, TakesNamesWithoutTheirRootAndConstants) {
  const test::ChangedFolder folder("gpt2");
  const std::string path = folder.file("model.safetensors");
  std::string text = test::text_of_file(path);
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  json header = json::parse(text.substr(sizeof length, length));
  json renamed = json::object();
  std::size_t end = 0;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    renamed[name.substr(std::string("transformer.").size())] = entry;
    end = std::max(end, entry["data_offsets"][1].get<std::size_t>());
  }
  renamed["h.0.attn.bias"] = {
      {"dtype", "U8"}, {"shape", {1, 1, 4, 4}}, {"data_offsets", {end, end + 16}}};
  const std::string changed = renamed.dump();
  const std::string bytes = text.substr(sizeof length + length);
  length = changed.size();
  std::string all(sizeof length, '\0');
  std::memcpy(all.data(), &length, sizeof length);
  test::write_text(path, all + changed + bytes + std::string(16, '\1'));
  EXPECT_EQ(refusal(folder), "");
}

}  // namespace folder_test
}  // namespace weir::huggingface
