// SPDX-License-Identifier: Apache-2.0
// Models of Hugging Face folders, and Llamas of any size: losses are, bit for bit, those of one
// process, for every cut, k, number of replicas and of threads, and over restarts; and so are the
// bytes of their export.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"

namespace weir::test {
namespace hugging_face_test {

using testing::Each;

constexpr int kMicroBatches = 5;

std::string stored(const std::string& name) {
  return std::string(WEIR_SOURCE_DIR) + "/tests/data/hf/" + name;
}

std::vector<std::string> run_of(const std::string& folder, int steps) {
  return {"--model=hf:" + folder, "--seq=8", "--lr=0.01", "--steps=" + std::to_string(steps)};
}

// With checkpoints and an export in a folder.
std::vector<std::string> saving(std::vector<std::string> words, const TempDir& folder) {
  words.push_back("--checkpoint-dir=" + (folder.path() / "saved").string());
  words.push_back("--export=hf:" + (folder.path() / "out").string());
  return words;
}
std::string exported(const TempDir& folder) {
  std::ifstream file(folder.path() / "out" / "model.safetensors", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(HuggingFace, LossesAndExportAreThoseOfOneProcessForEveryCutAndK) {
  struct Case {
    const char* name;
    int layers;
    bool untie = false;
  };
  std::set<std::vector<std::string>> seen;
  for (const auto& [name, layers, untie] :
       {Case{"llama", 4}, Case{"llama-tied", 4}, Case{"llama-tied", 4, true}, Case{"gpt2", 3}}) {
    const TempDir alone;
    auto words = run_of(stored(name), 4);
    if (untie) words.emplace_back("--untie");
    const auto expected = losses_alone(saving(words, alone), kMicroBatches);
    ASSERT_EQ(expected.size(), 4U) << name;
    EXPECT_TRUE(seen.insert(expected).second) << name << ": a copy trains otherwise";
    ASSERT_GT(exported(alone).size(), 1000U) << name;
    for (const int stages : {2, layers}) {
      for (const int k : {1, 3}) {
        const TempDir folder;
        Workers workers({.type = "KFKB",
                         .k = k,
                         .stages = stages,
                         .micro_batches = kMicroBatches,
                         .layers = layers},
                        saving(words, folder));

        EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

        EXPECT_EQ(losses(workers.steps(stages - 1)), expected) << name << ", " << stages;
        EXPECT_TRUE(exported(folder) == exported(alone)) << name << ", " << stages;
      }
    }
  }
}

TEST(HuggingFace, LossesAreThoseOfOneProcessInReplicas) {
  const auto words = run_of(stored("qwen3"), 4);
  const auto expected = losses_alone(words, kMicroBatches);
  ASSERT_EQ(expected.size(), 4U);
  Workers workers({.stages = 3, .micro_batches = kMicroBatches, .layers = 3, .shares = {2, 3}},
                  words);

  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  for (const int last : {2, 5}) EXPECT_EQ(losses(workers.steps(last)), expected) << last;
}

// After the first start the weights of the folder are not needed.
TEST(HuggingFace, ARunGoesOnInAnotherCutWithoutTheWeightsOfTheFolder) {
  const TempDir folder;
  const std::filesystem::path model = folder.path() / "model";
  std::filesystem::copy(stored("qwen2"), model);
  const auto expected = losses_alone(run_of(model.string(), 8), kMicroBatches);
  ASSERT_EQ(expected.size(), 8U);
  Workers first({.stages = 2, .micro_batches = kMicroBatches, .layers = 3},
                saving(run_of(model.string(), 4), folder));
  EXPECT_THAT(first.wait_all(), Each(0)) << first[0].errors();
  std::filesystem::remove(model / "model.safetensors");

  Workers second({.trigger = "Restart",
                  .state = "Checkpoint",
                  .revision = 2,
                  .stages = 3,
                  .micro_batches = kMicroBatches,
                  .layers = 3},
                 saving(run_of(model.string(), 8), folder));
  EXPECT_THAT(second.wait_all(), Each(0)) << second[0].errors();

  EXPECT_EQ(losses(second.steps(2)), std::vector(expected.begin() + 4, expected.end()));
}

TEST(HuggingFace, LossesOfALlamaAreThoseOfOneThread) {
  for (const char* precision : {"fp32", "bf16"}) {
    const std::vector<std::string> words = {
        "--model=llama", "--layers=2", "--width=48", "--heads=6",
        "--kv-heads=2",  "--seq=96",   "--steps=3",  std::string("--precision=") + precision};
    const auto with_threads = [&](int threads) {
      auto more = words;
      more.push_back("--threads=" + std::to_string(threads));
      return more;
    };
    const auto expected = losses_alone(with_threads(1), kMicroBatches);
    ASSERT_EQ(expected.size(), 3U);
    EXPECT_EQ(losses_alone(with_threads(5), kMicroBatches), expected) << precision;
    Workers workers({.stages = 2, .micro_batches = kMicroBatches, .layers = 4}, words,
                    {{"--threads=3"}, {"--threads=2"}});

    EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

    EXPECT_EQ(losses(workers.steps(1)), expected) << precision;
  }
}

}  // namespace hugging_face_test
}  // namespace weir::test
