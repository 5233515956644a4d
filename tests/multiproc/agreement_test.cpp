// SPDX-License-Identifier: Apache-2.0
// All ranks train the same: one that differs from worker 0 in data or options is refused by the
// name of what differs, before anything is trained.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"

namespace weir::test {
namespace agreement_test {

constexpr int kConfiguration = 2;

TEST(Agreement, ARankThatDiffersIsRefusedByTheNameOfTheField) {
  const TempDir folder;
  const std::string text = folder.file("text", std::string(4000, 'a'));
  const std::string same = folder.file("same", std::string(4000, 'a'));
  const std::string longer = folder.file("longer", std::string(4500, 'a'));
  const std::string other = folder.file("other", std::string(4000, 'b'));
  const auto options = [](const std::string& data, const std::string& rate = "--lr=0.01",
                          const std::string& length = "--seq=16",
                          const std::string& steps = "--steps=5") {
    return std::vector<std::string>{"--data=" + data, rate, length, steps};
  };
  const auto with = [&](const std::string& more) {
    std::vector<std::string> all = options(text);
    all.push_back(more);
    return all;
  };
  struct Case {
    std::vector<std::string> options;  // of worker 1
    std::string says;
  };
  const std::vector<Case> cases = {
      {options(longer), "--data is 4500 bytes"},
      {options(other), "--data is 4000 bytes"},
      {options(text, "--lr=0.02"), "--lr is 0.02, worker 0 has 0.01"},
      {options(text, "--lr=0.01", "--seq=32"), "--seq is 32, worker 0 has 16"},
      {options(text, "--lr=0.01", "--seq=16", "--steps=9"), "--steps is 9, worker 0 has 5"},
      {with("--seed=7"), "--seed is 7, worker 0 has 1"},
      {with("--grad-clip=1"), "--grad-clip is 1, worker 0 has 0"},
  };
  // Worker 0 takes nobody who differs, and trains with the one that does not.
  Workers workers({.stages = 2}, {"--model=mlp"}, {options(text), cases[0].options});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (i > 0) workers.restart(1, cases[i].options);

    EXPECT_EQ(workers[1].wait(), kConfiguration) << cases[i].says;

    EXPECT_NE(workers[1].errors().find(cases[i].says), std::string::npos) << workers[1].errors();
  }
  workers.restart(1, options(same));
  EXPECT_EQ(workers[1].wait(), 0) << workers[1].errors();
  EXPECT_EQ(workers[0].wait(), 0) << workers[0].errors();
}

// A folder of Hugging Face may lie elsewhere, but must hold the same model and weights.
TEST(Agreement, ARankWithOtherWeightsOrAnotherModelIsRefused) {
  const TempDir folder;
  const std::filesystem::path stored = std::string(WEIR_SOURCE_DIR) + "/tests/data/hf/qwen2";
  const std::filesystem::path same = folder.path() / "same", other = folder.path() / "other";
  std::filesystem::copy(stored, same);
  std::filesystem::copy(stored, other);
  {
    std::fstream file(other / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x40');
  }
  const auto model = [](const std::filesystem::path& of, const std::string& more = "--lr=0.01") {
    return std::vector<std::string>{"--model=hf:" + of.string(), more};
  };
  struct Case {
    std::vector<std::string> options;  // of worker 1
    std::string says;
  };
  const std::vector<Case> cases = {
      {model(other), "initial values of the model is sha256:"},
      {model(stored, "--init=random"), "initial values of the model is random, worker 0 has sha"},
      {model(stored, "--model-option=rms_norm_eps=0.5"), "layers of the model is sha256:"}};
  Workers workers({.stages = 2, .micro_batches = 4, .layers = 3}, {"--seq=8", "--steps=3"},
                  {model(stored), cases[0].options});
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (i > 0) workers.restart(1, cases[i].options);

    EXPECT_EQ(workers[1].wait(), kConfiguration) << cases[i].says;

    EXPECT_NE(workers[1].errors().find(cases[i].says), std::string::npos) << workers[1].errors();
  }
  workers.restart(1, model(same));
  EXPECT_EQ(workers[1].wait(), 0) << workers[1].errors();
  EXPECT_EQ(workers[0].wait(), 0) << workers[0].errors();
}

// `cp` onto the file that is read.
TEST(Agreement, DataThatIsReplacedInPlaceEndsTheWorkerByItsName) {
  const TempDir folder;
  const std::string text = folder.file("text", std::string(4000, 'a'));
  Process worker({"--model=mlp", "--seq=16", "--steps=1000000", "--data=" + text},
                 (folder.path() / "errors.log").string());
  ASSERT_TRUE(worker.says("\"step\":10")) << worker.errors();

  folder.file("text", "b");

  EXPECT_EQ(worker.wait(), 83) << worker.errors();
  EXPECT_NE(worker.errors().find("data file " + text), std::string::npos) << worker.errors();
}

}  // namespace agreement_test
}  // namespace weir::test
