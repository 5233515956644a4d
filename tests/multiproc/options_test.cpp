// SPDX-License-Identifier: Apache-2.0
// Wrong options and files: exit code 2 and one line that names what is wrong.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"

namespace weir::test {
namespace options_test {

constexpr int kConfiguration = 2;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string hugging_face(const std::string& name) {
  return std::string(WEIR_SOURCE_DIR) + "/tests/data/hf/" + name;
}

TEST(Options, ThatAreWrongEndWithOneLineThatNamesThem) {
  const TempDir folder;
  const std::string no_profile = folder.file("profile.json", "{\"apiVersion\": \"v0\"}");
  const std::string small = folder.file("small.txt", "abc");
  const std::string tokens = folder.file("tokens", std::string("\1\0\54\1\2\0", 6));
  folder.file("no.idx", std::string(40, 'x'));
  folder.file("no.bin", "");
  const std::string gap = folder.file("gap.json", PlanText{.ranges = {{0, 3}, {5, 7}}}.json());
  struct Case {
    std::vector<std::string> arguments;
    std::string names;
  };
  const std::vector<Case> cases = {
      {{"--nonsense"}, "--nonsense"},
      {{"--steps=0"}, "--steps"},
      {{"--model=resnet"}, "resnet"},
      {{"--model=llama", "--layers=1", "--width=8", "--heads=4", "--kv-heads=3"},
       "kv heads: 3 do not divide heads 4"},
      {{"--model=llama", "--layers=1", "--width=8"}, "--heads: required by --model=llama"},
      {{"--kv-heads=2"}, "--kv-heads: has no effect without --model=llama"},
      {{"--untie"}, "--untie: has no effect without --model=hf:DIR"},
      {{"--init=random"}, "--init=random: has no effect without --model=hf:DIR"},
      {{"--model=hf:/nowhere"}, "/nowhere/config.json"},
      {{"--model=hf:" + hugging_face("qwen2"), "--seq=8", "--vocab=25"}, "--vocab: 25 is not"},
      {{"--model=hf:" + hugging_face("qwen2"), "--seq=8", "--model-option=rocket=1"}, "rocket"},
      {{"--export=other", "--checkpoint-dir=" + folder.path().string()}, "--export: must be hf"},
      {{"--export=hf"}, "--export: has no effect without --checkpoint-dir"},
      {{"--model=gpt", "--layers=1", "--width=9", "--heads=2"}, "heads: 2 do not divide width 9"},
      {{"--data=/no/such/text"}, "/no/such/text"},
      {{"--data=" + small}, small},
      {{"--data=" + small, "--vocab=100"}, "need a vocabulary of 256, not 100 (--vocab)"},
      {{"--data=" + tokens, "--data-type=u16", "--seq=2"}, "token 300 at position 1 is outside"},
      {{"--data=" + folder.path().string() + "/no"}, "no.idx: does not begin with MMIDIDX"},
      {{"--lr-schedule=steps"}, "--lr-schedule"},
      {{"--emulate-profile=/no/such/profile"}, "/no/such/profile"},
      {{"--emulate-profile=" + no_profile}, "apiVersion"},
      {{"--emulate-device=A100"}, "--emulate-device"},
      {{"--emulate-slowness=/no/such/trace"}, "--emulate-slowness"},
      {{"--pace-rate=40"}, "--pace-rate"},
      {{"--pace-rate=40Mbit", "--pace-link=1-3"}, "--pace-link"},
      {{"--pace-link=0-1"}, "--pace-rate"},
      {{"--workers=2"}, "--workers"},
      {{"--worker-index=1"}, "--worker-index"},
      {{"--plan=/no/such/plan", "--control-port=0", "--data-port=0", "--metrics-port=0"},
       "/no/such/plan"},
      {{"--plan=" + gap, "--workers=2", "--control-port=0", "--data-port=0", "--metrics-port=0"},
       gap + ": stages[1].layers: starts at 5 instead of 4"},
      {{"--plan=/", "--control-port=0", "--data-port=0", "--metrics-port=0"}, "/: cannot be read"},
      {{"--model=gpt-1.3b", "--seq=65536", "--micro-batch-size=4096"}, "stage 0 needs "},
      {{"--listen=nowhere"}, "--listen"},
      {{"--micro-batches=65535", "--micro-batch-size=65535"}, "--micro-batch-size"},
      {{"--loss-log=/no/such/folder/log"}, "--loss-log"},
      {{"--transport=NCCL"}, "NCCL needs"},
  };
  int number = 0;
  for (const Case& one : cases) {
    const std::string log = "errors-" + std::to_string(number++) + ".log";
    std::vector<std::string> words = one.arguments;
    words.push_back("--log-level=error");
    Process worker(words, (folder.path() / log).string());

    EXPECT_EQ(worker.wait(), kConfiguration) << one.names;

    const std::string errors = worker.errors();
    EXPECT_NE(errors.find(one.names), std::string::npos) << errors;
    EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
  }
}

TEST(Options, OfAnExportThatAreWrongEndWithOneLineThatNamesThem) {
  const TempDir folder;
  const std::string nowhere = folder.path().string() + "/nowhere";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"export", "--checkpoint=" + nowhere}, "--to is required"},
      {{"export", "--checkpoint=" + nowhere, "--to=" + nowhere}, nowhere},
      {{"export", "--checkpoint=x", "--to=y", "--dtype=fp8"}, "--dtype"}};
  for (const auto& [words, names] : cases) {
    Process worker(words, (folder.path() / "errors.log").string());

    EXPECT_EQ(worker.wait(), kConfiguration) << names;
    EXPECT_NE(worker.errors().find(names), std::string::npos) << worker.errors();
  }
}

TEST(Options, APlanOfAnUnknownVersionIsRefusedByName) {
  const TempDir folder;
  std::string plan = PlanText{}.json();
  plan.replace(plan.find("weir.dev/plan/v1"), 16, "weir.dev/plan/v9");
  Process worker({"--plan=" + folder.file("plan.json", plan), "--workers=2", "--control-port=0",
                  "--data-port=0", "--metrics-port=0"},
                 (folder.path() / "errors.log").string());

  EXPECT_EQ(worker.wait(), kConfiguration);
  EXPECT_NE(worker.errors().find("weir.dev/plan/v9"), std::string::npos) << worker.errors();
}

TEST(Options, APortInUseIsNamed) {
  const TempDir folder;
  const std::string plan = folder.file("plan.json", PlanText{.stages = 2}.json());
  Process owner(
      {"--plan=" + plan, "--workers=2", "--control-port=0", "--data-port=0", "--metrics-port=0"},
      (folder.path() / "owner.log").string());
  for (const std::string port : {"control", "data", "metrics"}) {
    const auto number = owner.logged(port + "_port");
    ASSERT_TRUE(number) << owner.errors();
    std::vector<std::string> words = {"--plan=" + plan, "--workers=2", "--log-level=error"};
    for (const std::string other : {"control", "data", "metrics"}) {
      words.push_back("--" + other + "-port=" + (other == port ? std::to_string(*number) : "0"));
    }
    Process worker(words, (folder.path() / (port + ".log")).string());

    EXPECT_EQ(worker.wait(), kConfiguration) << worker.errors();

    const std::string errors = worker.errors();
    EXPECT_NE(errors.find(port + " port " + std::to_string(*number)), std::string::npos) << errors;
  }
}

TEST(Options, TheErrorLineIsLeftInTheTerminationLog) {
  const TempDir folder;
  const std::string log = (folder.path() / "termination-log").string();
  setenv("WEIR_TERMINATION_LOG", log.c_str(), 1);
  const std::string plan = folder.file("plan.json", PlanText{.stages = 2}.json());

  Process wrong({"--steps=0"}, (folder.path() / "wrong.log").string());
  EXPECT_EQ(wrong.wait(), kConfiguration);
  const std::string option = text_of(log);
  Process lost({"--plan=" + plan, "--workers=2", "--worker-index=1", "--data-port=0",
                "--metrics-port=0", "--coordinator=nowhere.invalid:7070", "--startup-timeout=2"},
               (folder.path() / "lost.log").string());
  EXPECT_EQ(lost.wait(), 1);
  const std::string address = text_of(log);
  unsetenv("WEIR_TERMINATION_LOG");

  EXPECT_EQ(option.find("--steps: "), 0U) << option;
  EXPECT_EQ(address.find("no plan came within 2 s (--startup-timeout); coordinator "
                         "nowhere.invalid:7070: "),
            0U)
      << address;
  EXPECT_EQ((option + address).find_first_of("\n{"), std::string::npos);
}

TEST(Options, AWorkerAloneNeedsOnlyAModel) {
  const TempDir folder;
  Process worker({"--model=mlp", "--steps=3", "--seq=8"}, (folder.path() / "errors.log").string());

  EXPECT_EQ(worker.wait(), 0) << worker.errors();
}

TEST(Options, DelaysMakeDataAndSavesSlower) {
  constexpr double kDelay = 0.02, kSamples = 2 * 2;  // seconds; of a step
  const TempDir folder;
  const std::vector<std::string> common{"--model=mlp", "--steps=1", "--seq=8", "--micro-batches=2",
                                        "--micro-batch-size=2"};
  const auto ends = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = common;
    words.insert(words.end(), more.begin(), more.end());
    Process worker(words, (folder.path() / "errors.log").string());
    EXPECT_EQ(worker.wait(), 0) << worker.errors();
  };

  const std::string log = (folder.path() / "loss.jsonl").string();
  ends({"--emulate-data-delay=" + std::to_string(kDelay), "--loss-log=" + log});
  const auto begin = std::chrono::steady_clock::now();
  ends({"--emulate-save-delay=2", "--checkpoint-dir=" + (folder.path() / "saves").string()});

  ASSERT_EQ(logged_steps(log).size(), 1U);
  EXPECT_GE(logged_steps(log)[0].iteration_seconds, kSamples * kDelay);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

}  // namespace options_test
}  // namespace weir::test
