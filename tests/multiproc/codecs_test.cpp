// SPDX-License-Identifier: Apache-2.0
// Real workers whose plan names codecs: links carry fewer bytes, a bound link carries more
// micro-batches, and the loss is that of the codecs whatever the order.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"
#include "worker/checkpoint/manifest.h"

namespace weir::test {
namespace codecs_test {

using schedule::Codec;
using testing::Each;

constexpr int kStages = 3, kMicroBatches = 6;
const schedule::Codecs kInt8 = {.forward = {Codec::kInt8, Codec::kInt8},
                                .backward = {Codec::kInt8, Codec::kInt8}};

std::vector<std::string> common(int steps) {
  return {"--model=gpt-tiny", "--seq=8", "--vocab=32", "--steps=" + std::to_string(steps)};
}

std::vector<std::string> losses_with(PlanText plan) {
  plan.stages = kStages;
  plan.micro_batches = kMicroBatches;
  Workers workers(plan, common(5));
  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();
  return losses(workers.steps(kStages - 1));
}

TEST(Codecs, GiveTheLossOfTheirHistoryWithEveryOrder) {
  const auto strict = losses_with({.codecs = kInt8});
  ASSERT_EQ(strict.size(), 5U);
  EXPECT_EQ(losses_with({.type = "KFKB", .dispatch = "Hint", .k = 2, .codecs = kInt8}), strict);
  EXPECT_EQ(losses_with({.type = "GPipe", .codecs = kInt8}), strict);
  EXPECT_NE(losses_with({}), strict);
}

// Ops and tensors of these sizes are worth several threads.
TEST(Codecs, GiveTheSameLossOnAnyThreads) {
  const auto with = [](const std::vector<std::vector<std::string>>& threads) {
    Workers workers({.stages = kStages, .micro_batches = kMicroBatches, .codecs = kInt8},
                    {"--model=gpt-tiny", "--seq=96", "--steps=3"}, threads);
    EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();
    return losses(workers.steps(kStages - 1));
  };
  const auto alone = with({{"--threads=1"}, {"--threads=1"}, {"--threads=1"}});
  ASSERT_EQ(alone.size(), 3U);
  EXPECT_EQ(with({{"--threads=2"}, {"--threads=1"}, {"--threads=2"}}), alone);
}

// Tensors of 2 x 64 x 128 floats = 64 KiB take 33 ms at 2 MB/s, and in 8.25 bits 8.4 ms.
TEST(Codecs, MakeABoundLinkCarryMoreAndTellIt) {
  PlanText plan{.type = "KFKB", .dispatch = "Hint", .k = 2, .stages = 2, .micro_batches = 8};
  Workers workers(plan, {"--model=mlp", "--seq=64", "--vocab=32",
                         "--steps=" + std::to_string(kNoEnd), "--pace-rate=2MB"});
  ASSERT_TRUE(workers.reaches(1, 6)) << workers[0].errors();
  plan.trigger = "Compress";
  plan.revision = 2;
  plan.codecs = {.forward = {Codec::kInt8}, .backward = {Codec::kInt8}};
  workers.write_plan(plan);
  ASSERT_TRUE(workers.adopts(1, 2)) << workers[0].errors();
  const auto adopted = static_cast<std::int64_t>(workers.steps(1).size());
  ASSERT_TRUE(workers.reaches(1, adopted + 10)) << workers[0].errors();
  const int ports[] = {workers[0].logged("metrics_port").value_or(0),
                       workers[1].logged("metrics_port").value_or(0)};
  for (int worker = 0; worker < 2; ++worker) {
    const std::string page = scrape(ports[worker]);
    EXPECT_EQ(metric(page, {"weir_link_codec_bits"}), 8.25) << page;
    EXPECT_GE(metric(page, {"weir_compressed_steps_total"}).value_or(0), 9);
    const double error = metric(page, {"weir_link_quantization_error_ratio"}).value_or(-1);
    EXPECT_GT(error, 0.001);
    EXPECT_LT(error, 0.02);
    EXPECT_GT(metric(page, {"weir_step_part_seconds_total", R"(part="codec")"}).value_or(0), 0);
  }
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();

  // The fastest step of each plan, because the machine may be busy with other things.
  double raw = 1e9, compressed = 1e9;
  for (const LoggedStep& step : workers.steps(1)) {
    double& least = step.epoch == 1 ? raw : compressed;
    least = std::min(least, step.iteration_seconds);
  }
  EXPECT_LT(compressed, 0.6 * raw);
}

// The count is in each manifest, and a run that goes on from one counts on.
TEST(Codecs, AreCountedInManifestsAlsoOfARunThatGoesOn) {
  const TempDir folder;
  const auto saving = [&](int steps) {
    auto words = common(steps);
    words.insert(words.end(), {"--checkpoint-dir=" + folder.path().string(),
                               "--checkpoint-interval=4", "--checkpoint-keep=9"});
    return words;
  };
  const auto counted = [&](int step) {
    std::ifstream file(folder.path() / checkpoint::folder_name(step) / checkpoint::kManifestName);
    std::ostringstream text;
    text << file.rdbuf();
    const auto manifest = checkpoint::decode_manifest(text.str());
    EXPECT_TRUE(manifest) << manifest.error().message;
    return manifest ? manifest->compressed_steps : -1;
  };
  const schedule::Codecs codecs = {.forward = {Codec::kInt8}, .backward = {Codec::kRaw}};
  Workers first({.codecs = codecs}, saving(8));
  ASSERT_THAT(first.wait_all(), Each(0)) << first[0].errors();
  EXPECT_EQ(counted(4), 4);
  EXPECT_EQ(counted(8), 8);

  Workers raw({.state = "Checkpoint", .revision = 2}, saving(12));
  ASSERT_THAT(raw.wait_all(), Each(0)) << raw[0].errors();
  EXPECT_EQ(counted(12), 8);

  Workers again({.state = "Checkpoint", .revision = 3, .codecs = codecs}, saving(16));
  ASSERT_THAT(again.wait_all(), Each(0)) << again[0].errors();
  EXPECT_EQ(counted(16), 12);
}

}  // namespace codecs_test
}  // namespace weir::test
