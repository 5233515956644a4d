// SPDX-License-Identifier: Apache-2.0
// A folder that is trained for no step and exported has the bytes of its tensors again, and in
// float32 the same files as transformers writes.
#include "worker/huggingface/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/huggingface/folders.h"
#include "worker/checkpoint/save.h"

namespace weir::huggingface {
namespace export_test {

using nlohmann::json;
using ::testing::HasSubstr;

// A checkpoint of the model with its initial values.
void save(const stage::Model& model, const std::string& root, const std::string& section) {
  const auto device = device::make_host_device();
  const int last = static_cast<int>(model.layers.size()) - 1;
  const auto stage = stage::make_stage(model, 0, last, *device);
  ASSERT_TRUE(stage) << stage.error().message;
  checkpoint::Disk disk;
  const auto images = checkpoint::copy_layers(**stage, [](int) { return true; });
  ASSERT_TRUE(images);
  const auto files = checkpoint::write_layers(disk, root, 7, *images);
  ASSERT_TRUE(files) << files.error().message;
  ASSERT_TRUE(checkpoint::commit(disk, root,
                                 {.step = 7,
                                  .model = model.options.name,
                                  .digest = model.digest,
                                  .export_json = section,
                                  .files = *files}));
}

class Export : public ::testing::Test {
 protected:
  const test::TempDir scratch_;
  const std::string root_ = scratch_.path().string(), to_ = root_ + "/out";

  Result<Exported> exported(const std::string& folder, ExportOrder order = {}, bool untie = true) {
    const stage::Model model = test::folder_model(folder, test::folder_options(), false, untie);
    save(model, root_, model.source->export_json());
    order.checkpoint = root_;
    order.to = to_;
    return export_checkpoint(order);
  }
};

TEST_F(Export, OfAnImportIsEqualByteForByte) {
  const std::string folder = test::stored_folder("qwen2");
  const auto done = exported(folder);
  ASSERT_TRUE(done) << done.error().message;

  EXPECT_EQ(done->step, 7);
  EXPECT_EQ(done->files, 1);
  EXPECT_TRUE(test::text_of_file(to_ + "/model.safetensors") ==
              test::text_of_file(folder + "/model.safetensors"));
  EXPECT_EQ(json::parse(test::text_of_file(to_ + "/config.json")),
            json::parse(test::text_of_file(folder + "/config.json")));
}

TEST_F(Export, InShardsHasAllTensorsAndAnIndex) {
  const std::string folder = test::stored_folder("llama");
  const auto done = exported(folder, {.most_shard_bytes = 5'000});
  ASSERT_TRUE(done) << done.error().message;

  EXPECT_GT(done->files, 2);
  const auto index = [](const std::string& path) {
    return json::parse(test::text_of_file(path + "/model.safetensors.index.json"));
  };
  const json made = index(to_), stored = index(folder);
  EXPECT_EQ(made["metadata"]["total_size"], stored["metadata"]["total_size"]);
  ASSERT_EQ(made["weight_map"].size(), stored["weight_map"].size());
  for (const auto& [name, file] : stored["weight_map"].items()) {
    const auto values = [&name](const std::string& path, const json& in) {
      return test::tensors_of(path + "/" + in.get<std::string>()).at(name).values;
    };
    EXPECT_TRUE(values(to_, made["weight_map"][name]) == values(folder, file)) << name;
  }
}

TEST_F(Export, OpensAgainWithTheSameValues) {
  for (const char* name : {"llama-tied", "gpt2", "qwen3", "mistral"}) {
    const std::string folder = test::stored_folder(name);
    ASSERT_TRUE(exported(folder)) << name;
    const auto before = test::tensors_of(folder + "/model.safetensors");
    const auto after = test::tensors_of(to_ + "/model.safetensors");
    for (const auto& [tensor, floats] : before) {
      ASSERT_TRUE(after.contains(tensor)) << name << ' ' << tensor;
      EXPECT_EQ(after.at(tensor).shape, floats.shape) << name << ' ' << tensor;
      EXPECT_TRUE(after.at(tensor).values == floats.values) << name << ' ' << tensor;
    }
    const json config = json::parse(test::text_of_file(to_ + "/config.json"));
    EXPECT_EQ(config["dtype"], "float32");
    EXPECT_EQ(config.value("tie_word_embeddings", false), false) << name << " is a copy";
    EXPECT_EQ(test::refusal_of(to_, test::folder_options(), false), "") << name;
  }
}

TEST_F(Export, OfATiedModelHasItsTableOnce) {
  for (const char* name : {"llama-tied", "gpt2"}) {
    const std::string folder = test::stored_folder(name);
    ASSERT_TRUE(exported(folder, {}, false)) << name;
    const auto before = test::tensors_of(folder + "/model.safetensors");
    const auto after = test::tensors_of(to_ + "/model.safetensors");
    EXPECT_EQ(after.size(), before.size()) << name;
    EXPECT_FALSE(after.contains("lm_head.weight")) << name;
    for (const auto& [tensor, floats] : before) {
      ASSERT_TRUE(after.contains(tensor)) << name << ' ' << tensor;
      EXPECT_TRUE(after.at(tensor).values == floats.values) << name << ' ' << tensor;
    }
    const json config = json::parse(test::text_of_file(to_ + "/config.json"));
    EXPECT_TRUE(config.value("tie_word_embeddings", true)) << name;
    EXPECT_EQ(test::refusal_of(to_, test::folder_options(), false), "") << name;
    EXPECT_EQ(test::folder_model(to_, test::folder_options(), false, false).ties.size(), 1U);
  }
}

TEST_F(Export, RoundsToBfloat16IfAskedTo) {
  ASSERT_TRUE(exported(test::stored_folder("mistral"), {.dtype = "BF16"}));
  EXPECT_TRUE(test::text_of_file(to_ + "/model.safetensors") ==
              test::text_of_file(test::stored_folder("mistral") + "/model.safetensors"));
  EXPECT_EQ(json::parse(test::text_of_file(to_ + "/config.json"))["dtype"], "bfloat16");
}

TEST_F(Export, CopiesTokenizerFilesAndLeavesNoOldWeights) {
  const test::ChangedFolder folder("llama");
  test::write_text(folder.file("tokenizer.json"), "{\"model\": 1}");
  ASSERT_TRUE(exported(folder.path(), {.most_shard_bytes = 10'000}));
  EXPECT_EQ(test::text_of_file(to_ + "/tokenizer.json"), "{\"model\": 1}");

  ASSERT_TRUE(export_checkpoint({.checkpoint = root_ + "/step-0000000007", .to = to_}));
  EXPECT_TRUE(std::filesystem::exists(to_ + "/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(to_ + "/model.safetensors.index.json"));
  EXPECT_EQ(test::refusal_of(to_, test::folder_options()), "");
}

TEST_F(Export, OfALlamaFromOptionsOpens) {
  stage::ModelOptions options = test::folder_options();
  options.name = "llama";
  options.blocks = 2, options.width = 16, options.heads = 4, options.kv_heads = 2;
  const auto model = stage::describe_model(options);
  ASSERT_TRUE(model);
  save(*model, root_, export_section(options));
  const auto done = export_checkpoint({.checkpoint = root_, .to = to_});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(test::refusal_of(to_, options), "");
}

TEST_F(Export, SaysWhyItCannot) {
  EXPECT_THAT(export_checkpoint({.checkpoint = root_, .to = to_}).error().message,
              HasSubstr("holds no checkpoint"));
  stage::ModelOptions options = test::folder_options();
  options.name = "mlp";
  EXPECT_EQ(export_section(options), "");
  save(*stage::describe_model(options), root_, "");
  EXPECT_THAT(export_checkpoint({.checkpoint = root_, .to = to_}).error().message,
              HasSubstr("mlp has no counterpart in Hugging Face"));
  EXPECT_FALSE(std::filesystem::exists(to_));

  const test::ChangedFolder folder("llama");
  ASSERT_TRUE(exported(folder.path()));
  EXPECT_THAT(export_checkpoint({.checkpoint = root_, .to = folder.path()}).error().message,
              HasSubstr("is the folder from which the model came"));
  test::write_text(root_ + "/step-0000000007/layer-00001.safetensors", "torn");
  EXPECT_THAT(
      export_checkpoint({.checkpoint = root_ + "/step-0000000007", .to = to_}).error().message,
      HasSubstr("layer-00001.safetensors: has another SHA-256"));
}

}  // namespace export_test
}  // namespace weir::huggingface
