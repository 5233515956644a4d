// SPDX-License-Identifier: Apache-2.0
// The loss of a pipeline of real processes is, bit for bit, that of one process: for every
// schedule, every number of stages, both models, in both precisions.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"
#include "tests/worker/data/token_bytes.h"
#include "worker/schedule/families.h"

namespace weir::test {
namespace loss_test {

using testing::Each;

constexpr int kMicroBatches = 5;  // ragged for k = 2 and 3

class SameLoss : public testing::TestWithParam<std::tuple<std::string, int, std::string>> {};

TEST_P(SameLoss, AsOneProcessWithEverySchedule) {
  const auto& [model, stages, precision] = GetParam();
  const std::vector<std::string> common = {"--model=" + model, "--seq=8",
                                           "--vocab=32",       "--steps=4",
                                           "--lr=0.01",        "--precision=" + precision};
  std::vector<PlanText> plans;
  for (const schedule::FamilyRules& rules : schedule::families()) {
    if (rules.only_k != nullptr) {
      plans.push_back({.type = rules.name});
      continue;
    }
    for (const int k : {2, 3}) {
      plans.push_back({.type = rules.name, .dispatch = "Strict", .k = k});
      plans.push_back({.type = rules.name, .dispatch = "Hint", .k = k});
    }
  }
  const auto expected = losses_alone(common, kMicroBatches);
  ASSERT_EQ(expected.size(), 4U);
  for (PlanText plan : plans) {
    plan.stages = stages;
    plan.micro_batches = kMicroBatches;
    Workers workers(plan, common);

    EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

    EXPECT_EQ(losses(workers.steps(stages - 1)), expected)
        << plan.type << " " << plan.dispatch << " k " << plan.k;
    EXPECT_THAT(losses(workers.steps(0)), Each(""));  // only the last stage knows it
  }
}

std::string same_loss_name(
    const testing::TestParamInfo<std::tuple<std::string, int, std::string>>& instance) {
  const auto& [model, stages, precision] = instance.param;
  return (model == "mlp" ? "Mlp" : "Gpt") + std::to_string(stages) + "Stages";
}
INSTANTIATE_TEST_SUITE_P(Models, SameLoss,
                         testing::Combine(testing::Values("mlp", "gpt-tiny"),
                                          testing::Values(2, 3, 4), testing::Values("fp32")),
                         same_loss_name);
INSTANTIATE_TEST_SUITE_P(InBf16, SameLoss,
                         testing::Combine(testing::Values("gpt-tiny"), testing::Values(2, 4),
                                          testing::Values("bf16")),
                         same_loss_name);

// The stages compute with other numbers of threads than each other, and than one process.
class OnThreads : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(OnThreads, TheLossIsThatOfOneThread) {
  const auto& [model, precision] = GetParam();
  // Ops of these sizes are worth five threads.
  const std::vector<std::string> common = {"--model=" + model, "--seq=96", "--steps=3",
                                           "--precision=" + precision};
  const auto with_threads = [&](int threads) {
    std::vector<std::string> arguments = common;
    arguments.push_back("--threads=" + std::to_string(threads));
    return arguments;
  };
  const auto expected = losses_alone(with_threads(1), kMicroBatches);
  ASSERT_EQ(expected.size(), 3U);
  for (const int threads : {2, 5}) {
    EXPECT_EQ(losses_alone(with_threads(threads), kMicroBatches), expected) << threads;
  }
  Workers workers({.stages = 3, .micro_batches = kMicroBatches}, common,
                  {{"--threads=5"}, {"--threads=1"}, {"--threads=2"}});

  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  EXPECT_EQ(losses(workers.steps(2)), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, OnThreads,
                         testing::Combine(testing::Values("mlp", "gpt-tiny"),
                                          testing::Values("fp32", "bf16")),
                         [](const auto& instance) {
                           return (std::get<0>(instance.param) == "mlp" ? "Mlp" : "Gpt") +
                                  std::string(std::get<1>(instance.param) == "bf16" ? "Bf16" : "");
                         });

TEST(SameLoss, OfLayersOfAPlugin) {
  const std::vector<std::string> common = {"--plugin=" WEIR_PLUGIN,
                                           "--model-option=width=8",
                                           "--model-option=blocks=4",
                                           "--seq=8",
                                           "--vocab=32",
                                           "--steps=4",
                                           "--lr=0.01"};
  const auto expected = losses_alone(common, kMicroBatches);
  ASSERT_EQ(expected.size(), 4U);
  for (const int stages : {2, 3}) {
    for (const int k : {1, 2}) {
      Workers workers({.type = "KFKB",
                       .dispatch = k == 1 ? "Strict" : "Hint",
                       .k = k,
                       .stages = stages,
                       .micro_batches = kMicroBatches,
                       .layers = 6},
                      common);

      EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

      EXPECT_EQ(losses(workers.steps(stages - 1)), expected) << stages << " stages, k " << k;
    }
  }
}

// Its blocks read the input tokens, too, so each worker reads them from the data; and some layers
// are recomputed, which changes no bit.
TEST(SameLoss, OfLayersThatReadTokensAndAreRecomputed) {
  const std::vector<std::string> plain = {"--plugin=" WEIR_PLUGIN_READS_TOKENS,
                                          "--seq=8",
                                          "--vocab=32",
                                          "--steps=4",
                                          "--validation-interval=2",
                                          "--lr=0.01"};
  std::vector<std::string> recomputed = plain;
  recomputed.emplace_back("--recompute=block0-block1,head");
  const auto expected = losses_alone(plain, kMicroBatches);
  ASSERT_EQ(expected.size(), 4U);
  for (const auto& options : {plain, recomputed}) {
    Workers workers({.type = "KFKB",
                     .dispatch = "Hint",
                     .k = 2,
                     .stages = 3,
                     .micro_batches = kMicroBatches,
                     .layers = 4},
                    options);

    EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

    EXPECT_EQ(losses(workers.steps(2)), expected);
  }
}

TEST(SameLoss, FromATextFile) {
  const TempDir folder;
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += "It is a truth universally acknowledged, " + std::to_string(i);
  const std::vector<std::string> common = {"--model=mlp", "--seq=8", "--steps=4",
                                           "--data=" + folder.file("text.txt", text)};
  Workers workers({.stages = 2, .micro_batches = kMicroBatches}, common);

  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  EXPECT_EQ(losses(workers.steps(1)), losses_alone(common, kMicroBatches));
}

// A pair of files as Megatron's builder writes them, with a vocabulary above that of bytes, and a
// text beside it.
TEST(SameLoss, OfAnOwnSizeFromTokensForEveryCut) {
  const TempDir folder;
  constexpr int kTokens = 3000, kVocabulary = 1000;
  std::vector<int> tokens;
  for (int i = 0; i < kTokens; ++i) tokens.push_back(i * i % 613 + i % 3 * 100);
  folder.file("corpus.idx", data::test::MegatronIndex{.lengths = {1000, 2000}}.bytes());
  folder.file("corpus.bin", data::test::raw_all<std::uint16_t>(tokens));
  const std::vector<std::string> common = {
      "--model=gpt",
      "--layers=6",
      "--width=24",
      "--heads=3",
      "--seq=8",
      "--steps=4",
      "--vocab=" + std::to_string(kVocabulary),
      "--data=3:" + (folder.path() / "corpus").string() +
          ",1:" + folder.file("text.txt", std::string(500, 'x'))};
  const auto expected = losses_alone(common, kMicroBatches);
  ASSERT_EQ(expected.size(), 4U);
  for (const int stages : {2, 4}) {
    Workers workers({.stages = stages, .micro_batches = kMicroBatches}, common);

    EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

    EXPECT_EQ(losses(workers.steps(stages - 1)), expected) << stages;
  }
}

// Good are the tokens at which the worker looks when it opens the file.
TEST(SameLoss, OfTokensEndsAtATokenOutsideTheVocabulary) {
  const TempDir folder;
  constexpr std::size_t kTokens = 2'000'000, kLooks = 256, kLook = 2048;
  std::vector<int> tokens(kTokens, 300);
  for (std::size_t i = 0; i < kLooks; ++i) {
    const auto at = static_cast<std::ptrdiff_t>((kTokens - kLook) * i / (kLooks - 1));
    std::fill_n(tokens.begin() + at, kLook, 7);
  }
  const std::string data = folder.file("train.bin", data::test::raw_all<std::uint16_t>(tokens));
  Process worker({"--model=mlp", "--seq=8", "--steps=1000", "--data-type=u16", "--data=" + data},
                 folder.file("errors.log", ""));

  EXPECT_EQ(worker.wait(), 2) << worker.errors();
  EXPECT_THAT(worker.errors(),
              testing::ContainsRegex("data file .*train.bin: token 300 at position [0-9]+ is"));
  EXPECT_THAT(worker.errors(), testing::HasSubstr(R"("while":"train")"));
}

// Text that is trained on, and text that is not.
TEST(SameLoss, OfAValidation) {
  const TempDir folder;
  std::string text, other;
  for (int i = 0; i < 200; ++i) {
    text += "It is a truth universally acknowledged, " + std::to_string(i);
    other += "that a single man must be in want of a wife, " + std::to_string(i);
  }
  const std::vector<std::string> common = {"--model=mlp",
                                           "--seq=8",
                                           "--steps=5",
                                           "--data=" + folder.file("text.txt", text),
                                           "--validation-data=" + folder.file("other.txt", other),
                                           "--validation-interval=2",
                                           "--validation-samples=5"};
  const auto validations = [](const std::string& log) {
    std::vector<std::string> found;  // step, replica and loss
    const std::string mark = R"("msg":"validated",)";
    for (auto at = log.find(mark); at != std::string::npos; at = log.find(mark, at + 1)) {
      found.push_back(log.substr(at + mark.size(), log.find('}', at) - at - mark.size()));
    }
    return found;
  };
  Process alone({"--micro-batches=" + std::to_string(kMicroBatches), "--micro-batch-size=2",
                 common[0], common[1], common[2], common[3], common[4], common[5], common[6]},
                folder.file("alone.log", ""));
  ASSERT_EQ(alone.wait(), 0) << alone.errors();
  Workers workers({.stages = 3, .micro_batches = kMicroBatches}, common);
  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  const auto expected = validations(alone.errors());
  ASSERT_EQ(expected.size(), 3U);
  EXPECT_THAT(expected[0], testing::HasSubstr(R"("step":2,)"));
  EXPECT_THAT(expected[2], testing::HasSubstr(R"("step":5,)"));
  EXPECT_EQ(validations(workers[2].errors()), expected);
  EXPECT_THAT(validations(workers[0].errors()), testing::IsEmpty());
}

}  // namespace loss_test
}  // namespace weir::test
