// SPDX-License-Identifier: Apache-2.0
// Real workers that save, are stopped or killed, and go on: on any cut the loss is, bit for bit,
// that of a run that nobody disturbed.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <sys/mount.h>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"
#include "worker/base/random.h"

namespace weir::test {
namespace checkpoint_test {

using testing::Each;

constexpr int kMicroBatches = 5;
constexpr int kConfiguration = 2, kNoCheckpoint = 83, kDiverged = 85;

std::vector<std::string> with(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<std::string> run_of(int steps, const std::string& model = "mlp",
                                const std::string& precision = "fp32") {
  return {"--model=" + model,         "--seq=8",   "--vocab=32",
          "--precision=" + precision, "--lr=0.01", "--steps=" + std::to_string(steps)};
}

PlanText restart_plan(int revision, int stages) {
  return {.trigger = "Restart",
          .state = "Checkpoint",
          .revision = revision,
          .stages = stages,
          .micro_batches = kMicroBatches};
}

// Loss by step; a step that was trained twice must have given the same loss.
std::map<std::int64_t, std::string> by_step(const std::vector<LoggedStep>& steps) {
  std::map<std::int64_t, std::string> losses;
  for (const LoggedStep& step : steps) {
    const auto [at, fresh] = losses.emplace(step.step, step.loss_hex);
    EXPECT_TRUE(fresh || at->second == step.loss_hex) << "step " << step.step;
  }
  return losses;
}

// The steps that were done of a run that has no end gave the losses of a worker alone.
void expect_losses_of_one(const std::map<std::int64_t, std::string>& losses) {
  ASSERT_FALSE(losses.empty());
  const auto expected = losses_alone(run_of(kNoEnd), kMicroBatches,
                                     static_cast<std::size_t>(losses.rbegin()->first) + 1);
  ASSERT_FALSE(expected.empty());
  for (const auto& [step, loss] : losses) {
    EXPECT_EQ(loss, expected[static_cast<std::size_t>(step)]) << "step " << step;
  }
}

void expect_prefix(const std::map<std::int64_t, std::string>& losses,
                   const std::vector<std::string>& expected) {
  ASSERT_FALSE(losses.empty());
  for (const auto& [step, loss] : losses) {
    ASSERT_LT(step, static_cast<std::int64_t>(expected.size()));
    EXPECT_EQ(loss, expected[static_cast<std::size_t>(step)]) << "step " << step;
  }
}

std::vector<std::string> step_folders(const TempDir& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && !name.ends_with(".tmp")) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

void flip_byte(const std::filesystem::path& file) {
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(-5, std::ios::end);
  const int old = bytes.get();
  bytes.seekp(-5, std::ios::end);
  bytes.put(static_cast<char>(old ^ 1));
}

class Checkpoints : public testing::Test {
 protected:
  std::vector<std::string> saving(int steps, const std::vector<std::string>& more = {}) const {
    return with(with(run_of(steps), {"--checkpoint-dir=" + folder_.path().string()}), more);
  }
  std::vector<std::string> other_options(const std::string& vocabulary, const std::string& rate,
                                         const std::vector<std::string>& more) const {
    return with({"--model=mlp", "--seq=8", vocabulary, rate, "--steps=1000",
                 "--checkpoint-dir=" + folder_.path().string()},
                more);
  }
  // A worker alone; its exit code.
  std::optional<int> alone(const std::vector<std::string>& words) {
    const TempDir logs;
    Process worker(with(words, {"--micro-batches=5", "--micro-batch-size=2", "--step-report=0"}),
                   (logs.path() / "errors.log").string());
    const auto code = worker.wait();
    said_ = worker.errors();
    return code;
  }

  TempDir folder_;
  std::string said_;  // by the last worker alone
};

class Resumed : public testing::TestWithParam<std::tuple<std::string, int, int, std::string>> {};

TEST_P(Resumed, InAnotherCutGivesTheLossesOfOneRun) {
  const auto& [model, stages, stages_after, precision] = GetParam();
  const TempDir folder;
  const std::string where = "--checkpoint-dir=" + folder.path().string();
  const auto expected = losses_alone(run_of(20, model, precision), kMicroBatches);
  ASSERT_EQ(expected.size(), 20U);

  Workers first({.stages = stages, .micro_batches = kMicroBatches},
                with(run_of(10, model, precision), {where}));
  ASSERT_THAT(first.wait_all(), Each(0)) << first[0].errors();
  EXPECT_EQ(step_folders(folder), std::vector<std::string>{"step-0000000010"});
  Workers second(restart_plan(2, stages_after), with(run_of(20, model, precision), {where}));
  ASSERT_THAT(second.wait_all(), Each(0)) << second[0].errors();

  std::vector<std::string> all = losses(first.steps(stages - 1));
  const auto rest = second.steps(stages_after - 1);
  ASSERT_FALSE(rest.empty());
  EXPECT_EQ(rest.front().step, 10);
  for (const LoggedStep& step : rest) all.push_back(step.loss_hex);
  EXPECT_EQ(all, expected);
}

INSTANTIATE_TEST_SUITE_P(Models, Resumed,
                         testing::Values(std::tuple("mlp", 2, 3, "fp32"),
                                         std::tuple("mlp", 3, 1, "fp32"),
                                         std::tuple("gpt-tiny", 3, 2, "fp32"),
                                         std::tuple("gpt-tiny", 1, 4, "fp32"),
                                         std::tuple("gpt-tiny", 3, 2, "bf16")),
                         [](const auto& instance) {
                           std::string name = std::get<0>(instance.param) == "mlp" ? "Mlp" : "Gpt";
                           return name + std::to_string(std::get<1>(instance.param)) + "To" +
                                  std::to_string(std::get<2>(instance.param)) + "Stages" +
                                  (std::get<3>(instance.param) == "bf16" ? "InBf16" : "");
                         });

// In the middle of the steps in which the rate falls.
TEST_F(Checkpoints, ARunThatIsResumedHasTheLearningRatesOfOneRun) {
  const std::vector<std::string> schedule = {"--lr-schedule=wsd", "--warmup=4", "--decay-steps=12",
                                             "--min-lr-ratio=0.1", "--beta2=0.9"};
  const auto expected = losses_alone(with(run_of(20), schedule), kMicroBatches);
  ASSERT_EQ(expected.size(), 20U);
  ASSERT_NE(expected, losses_alone(run_of(20), kMicroBatches));
  const auto saved =
      with(saving(20, schedule), {"--checkpoint-interval=12", "--checkpoint-keep=9"});
  ASSERT_EQ(alone(saved), 0) << said_;
  ASSERT_EQ(step_folders(folder_),
            (std::vector<std::string>{"step-0000000012", "step-0000000020"}));
  std::filesystem::remove_all(folder_.path() / "step-0000000020");

  const auto rest = losses_alone(saved, kMicroBatches);

  EXPECT_EQ(rest, std::vector<std::string>(expected.begin() + 12, expected.end()));
}

TEST_F(Checkpoints, OfASuspendedJobHoldTheStepAtWhichAllRanksStood) {
  Workers first({.stages = 3, .micro_batches = kMicroBatches}, saving(kNoEnd));
  ASSERT_TRUE(first.reaches(2, 10)) << first[0].errors();

  ASSERT_THAT(first.end(), Each(kTerminated)) << first[0].errors();

  EXPECT_TRUE(first[0].says(", saved")) << first[0].errors();
  auto done = first.steps(2);
  // All processes are new: the plan need not say Checkpoint.
  Workers second({.revision = 2, .stages = 2, .micro_batches = kMicroBatches}, saving(kNoEnd));
  ASSERT_TRUE(second.reaches(1, 10)) << second[0].errors();
  ASSERT_THAT(second.end(), Each(kTerminated)) << second[0].errors();
  const auto rest = second.steps(1);
  ASSERT_FALSE(rest.empty());
  EXPECT_GE(rest.front().step, 10);
  EXPECT_LE(rest.front().step, done.back().step + 1);
  done.insert(done.end(), rest.begin(), rest.end());
  expect_losses_of_one(by_step(done));
}

TEST_F(Checkpoints, AreMadeWithACoordinatorThatRunsNoStage) {
  Workers workers({.stages = 2, .micro_batches = kMicroBatches, .first_worker = 1}, saving(kNoEnd),
                  {}, 3);
  ASSERT_TRUE(workers.reaches(2, 5)) << workers[0].errors();

  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();
  EXPECT_TRUE(workers[1].says(", saved")) << workers[1].errors();
  EXPECT_EQ(step_folders(folder_).size(), 1U);
}

TEST_F(Checkpoints, OfAWorkerThatLeavesAloneLoseNoStep) {
  Workers workers({.stages = 3, .micro_batches = kMicroBatches}, saving(kNoEnd));
  ASSERT_TRUE(workers.reaches(2, 10)) << workers[0].errors();

  workers[1].signal(SIGTERM);
  ASSERT_EQ(workers[1].wait(), kTerminated) << workers[1].errors();
  EXPECT_TRUE(workers[1].says(", saved")) << workers[1].errors();
  workers.restart(1);
  workers.write_plan(restart_plan(2, 3));

  ASSERT_TRUE(workers.adopts(2, 2)) << workers[0].errors();
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();
  const auto steps = by_step(workers.steps(2));  // the survivor's log has both parts
  expect_losses_of_one(steps);
  EXPECT_EQ(static_cast<std::int64_t>(steps.size()), steps.rbegin()->first + 1);
  EXPECT_TRUE(workers[2].says("checkpoint loaded"));
}

TEST_F(Checkpoints, TakeSurvivorsBackWhenAWorkerIsKilled) {
  for (const int killed : {1, 0}) {  // a stage in the middle, then the coordinator
    const TempDir folder;
    Workers workers({.stages = 3, .micro_batches = kMicroBatches},
                    with(run_of(kNoEnd), {"--checkpoint-dir=" + folder.path().string(),
                                          "--checkpoint-interval=5"}));
    ASSERT_TRUE(workers.reaches(2, 30)) << workers[0].errors();
    ASSERT_TRUE(workers[0].says("is complete")) << workers[0].errors();  // disks may be slow

    workers[killed].signal(SIGKILL);
    ASSERT_EQ(workers[killed].wait(), 128 + SIGKILL);
    workers.restart(killed);
    workers.write_plan(restart_plan(2, 3));

    ASSERT_TRUE(workers.adopts(2, 2)) << workers[0].errors() << workers[2].errors();
    EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors() << workers[2].errors();
    const auto steps = by_step(workers.steps(2));
    expect_losses_of_one(steps);
    EXPECT_EQ(static_cast<std::int64_t>(steps.size()), steps.rbegin()->first + 1);
    EXPECT_TRUE(workers[2].says("checkpoint loaded")) << workers[2].errors();
    EXPECT_EQ(workers[2].errors().find("starts again at step 0"), std::string::npos);
  }
}

TEST_F(Checkpoints, SurviveAKillInTheMiddleOfASave) {
  constexpr int kKills = 5;
  Random random(7);
  std::int64_t reached = 0;
  std::vector<LoggedStep> done;
  for (int round = 0; round < kKills; ++round) {
    Workers workers(restart_plan(round + 1, 2), saving(kNoEnd, {"--checkpoint-interval=1"}));
    ASSERT_TRUE(workers.reaches(1, 5)) << workers[0].errors();
    ASSERT_TRUE(workers[0].says("is complete")) << workers[0].errors();
    std::this_thread::sleep_for(
        std::chrono::milliseconds(random.below(30)));  // any point of a save
    for (int i = 0; i < 2; ++i) workers[i].signal(SIGKILL);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(workers[i].wait());

    const auto steps = workers.steps(1);
    ASSERT_FALSE(steps.empty());
    done.insert(done.end(), steps.begin(), steps.end());
    EXPECT_GE(steps.front().step, reached);  // what was complete is never lost
    const auto folders = step_folders(folder_);
    ASSERT_FALSE(folders.empty());
    reached = std::stoll(folders.back().substr(5));
    EXPECT_GE(reached, steps.front().step);
  }
  Workers last(restart_plan(kKills + 1, 3), saving(kNoEnd));
  ASSERT_TRUE(last.reaches(2, 5)) << last[0].errors();
  ASSERT_THAT(last.end(), Each(kTerminated)) << last[0].errors();
  const auto steps = last.steps(2);
  EXPECT_EQ(steps.front().step, reached);
  done.insert(done.end(), steps.begin(), steps.end());
  expect_losses_of_one(by_step(done));
}

TEST_F(Checkpoints, ThatAreDamagedAreNamedAndTheOneBeforeIsTaken) {
  const auto expected = losses_alone(run_of(30), kMicroBatches);
  ASSERT_EQ(alone(saving(10)), 0) << said_;
  ASSERT_EQ(alone(saving(20)), 0) << said_;
  ASSERT_EQ(step_folders(folder_).size(), 2U);
  flip_byte(folder_.path() / "step-0000000020" / "layer-00005.safetensors");

  Workers workers(restart_plan(2, 2), saving(30));
  ASSERT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  EXPECT_TRUE(workers[0].says("checkpoint of step 20 is damaged"));
  EXPECT_EQ(workers.steps(1).front().step, 10);
  expect_prefix(by_step(workers.steps(1)), expected);
  EXPECT_EQ(step_folders(folder_),
            (std::vector<std::string>{"step-0000000010", "step-0000000020", "step-0000000030"}))
      << "step 20 stays until a newer one has proved good: it may be sound on the disk";
}

TEST_F(Checkpoints, OfWhichNoneIsValidEndTheJob) {
  ASSERT_EQ(alone(saving(10)), 0) << said_;
  flip_byte(folder_.path() / "step-0000000010" / "layer-00005.safetensors");

  EXPECT_EQ(alone(saving(20)), kNoCheckpoint) << said_;  // found while loading
  std::filesystem::remove(folder_.path() / "step-0000000010" / "manifest.json");
  EXPECT_EQ(alone(saving(20)), kNoCheckpoint) << said_;  // found at the start
  EXPECT_EQ(step_folders(folder_), std::vector<std::string>{"step-0000000010"});
}

TEST_F(Checkpoints, OfAnotherModelAreNotOverwritten) {
  ASSERT_EQ(alone(saving(10)), 0) << said_;

  EXPECT_EQ(alone(other_options("--vocab=64", "--lr=0.01", {"--change-options"})), kConfiguration);

  EXPECT_NE(said_.find("another model"), std::string::npos) << said_;
  EXPECT_EQ(step_folders(folder_), std::vector<std::string>{"step-0000000010"});
}

TEST_F(Checkpoints, OfARunWithOtherOptionsAreTakenByConsentOnly) {
  const std::vector<std::string> cosine = {"--lr-schedule=cosine"};
  ASSERT_EQ(alone(saving(10, cosine)), 0) << said_;

  EXPECT_EQ(alone(saving(20, cosine)), kConfiguration);
  EXPECT_NE(said_.find("--steps (length of the schedule) is 20, the checkpoint has 10"),
            std::string::npos)
      << said_;
  EXPECT_EQ(step_folders(folder_), std::vector<std::string>{"step-0000000010"});

  EXPECT_EQ(alone(saving(20, {"--lr-schedule=cosine", "--weight-decay=0.5", "--change-options"})),
            0)
      << said_;
  EXPECT_NE(said_.find("option changed since the checkpoint"), std::string::npos) << said_;
  EXPECT_NE(said_.find("--weight-decay"), std::string::npos) << said_;
  EXPECT_EQ(step_folders(folder_),
            (std::vector<std::string>{"step-0000000010", "step-0000000020"}));
  EXPECT_EQ(alone(saving(20, {"--lr-schedule=cosine", "--weight-decay=0.5"})), 0) << said_;
}

// As two PipelineJobs whose path is one folder, and as one that is deleted and applied again.
TEST_F(Checkpoints, OfAnotherJobAreLeftAlone) {
  ASSERT_EQ(alone(saving(10, {"--job-namespace=team", "--job-name=first"})), 0) << said_;

  EXPECT_EQ(alone(saving(20, {"--job-namespace=team", "--job-name=second"})), kConfiguration);
  EXPECT_NE(said_.find("step 10 of job team/first, this is team/second"), std::string::npos)
      << said_;
  EXPECT_EQ(alone(saving(20, {"--job-namespace=team", "--job-name=first"})), 0) << said_;
  EXPECT_EQ(alone(saving(30)), 0) << "a worker started by hand: " << said_;
}

TEST_F(Checkpoints, OfAJobThatRunsAreRefusedToASecondOne) {
  Workers first({.stages = 2, .micro_batches = kMicroBatches},
                saving(kNoEnd, {"--job-name=first", "--job-uid=1"}));
  ASSERT_TRUE(first.reaches(1, 3)) << first[0].errors();

  EXPECT_EQ(alone(saving(10, {"--job-name=second", "--job-uid=2"})), kConfiguration);

  EXPECT_NE(said_.find("is in use by job default/first"), std::string::npos) << said_;
  for (int i = 0; i < 2; ++i) first[i].signal(SIGTERM);
  EXPECT_THAT(first.end(), Each(kTerminated)) << first[0].errors();
}

// Steps whose loss is no number: nothing is updated, then the job ends; what was good is there.
TEST_F(Checkpoints, OfADivergedRunStayGood) {
  const auto expected = losses_alone(run_of(20), kMicroBatches);
  ASSERT_EQ(alone(saving(10)), 0) << said_;
  Workers diverges(restart_plan(2, 2),
                   other_options("--vocab=32", "--lr=1e30",
                                 {"--change-options", "--checkpoint-interval=1",
                                  "--checkpoint-keep=1", "--diverged-after=4"}));

  EXPECT_THAT(diverges.wait_all(), Each(kDiverged)) << diverges[0].errors();

  EXPECT_TRUE(diverges[1].says("step skipped"));
  EXPECT_TRUE(diverges[1].says("training has diverged")) << diverges[1].errors();
  const auto folders = step_folders(folder_);
  EXPECT_NE(std::ranges::find(folders, "step-0000000010"), folders.end());
  for (const std::string& folder : folders) {  // those after it are of no use, but numbers
    if (folder != "step-0000000010") std::filesystem::remove_all(folder_.path() / folder);
  }
  Workers again(restart_plan(3, 2), saving(20));
  ASSERT_THAT(again.wait_all(), Each(0)) << again[0].errors();
  expect_prefix(by_step(again.steps(1)), expected);
}

TEST_F(Checkpoints, OnADiskThatIsFullMakeRoomOfTheOldestOne) {
  const TempDir mounted;
  const std::string where = mounted.path().string();
  if (mount("tmpfs", where.c_str(), "tmpfs", 0, "size=64m") != 0) {
    GTEST_SKIP() << "needs to mount a small disk: " << std::strerror(errno);
  }
  // What a checkpoint takes, then a disk that has room for two and a half of them.
  ASSERT_EQ(alone(with(run_of(1), {"--checkpoint-dir=" + where})), 0) << said_;
  std::uintmax_t bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(where)) {
    if (file.is_regular_file()) bytes += (file.file_size() / 4096 + 1) * 4096;
  }
  std::filesystem::remove_all(mounted.path() / "step-0000000001");
  const std::string size = "size=" + std::to_string(5 * bytes / 2);
  ASSERT_EQ(mount("tmpfs", where.c_str(), "tmpfs", MS_REMOUNT, size.c_str()), 0);

  PlanText plan;
  plan.stages = 1;
  Workers worker(plan,
                 with(run_of(kNoEnd), {"--checkpoint-dir=" + where, "--checkpoint-interval=5"}));
  const std::string full = "the disk is full: checkpoint of step";
  EXPECT_TRUE(worker[0].says(full)) << worker[0].errors();
  EXPECT_THAT(worker.end(), Each(kTerminated)) << worker[0].errors();

  const std::string said = worker[0].errors();
  EXPECT_NE(said.find("is complete", said.find(full)), std::string::npos) << said;
  std::smatch failed;
  ASSERT_TRUE(std::regex_search(said, failed, std::regex("step ([0-9]+) was not saved"))) << said;
  const std::string step = failed[1];
  EXPECT_FALSE(std::filesystem::exists(
      mounted.path() / ("step-" + std::string(10 - step.size(), '0') + step + ".tmp")))
      << said;
  umount2(where.c_str(), MNT_DETACH);
}

TEST_F(Checkpoints, AreNotWrittenAnewByARunThatHasNothingLeftToDo) {
  ASSERT_EQ(alone(saving(10)), 0) << said_;

  Workers again(restart_plan(2, 2), saving(10));

  EXPECT_THAT(again.wait_all(), Each(0)) << again[0].errors();
  EXPECT_TRUE(again.steps(1).empty());
}

TEST_F(Checkpoints, GiveTheirParametersToAnotherRun) {
  ASSERT_EQ(alone(saving(60)), 0) << said_;
  const auto fresh = losses_alone(run_of(1), kMicroBatches);
  const auto warm =
      losses_alone(with(run_of(1), {"--init-from=" + folder_.path().string()}), kMicroBatches);
  ASSERT_EQ(warm.size(), 1U);

  EXPECT_LT(std::stod(warm[0]), 0.8 * std::stod(fresh[0]));
  EXPECT_TRUE(losses_alone(with(run_of(1), {"--init-from=/no/such/folder"}), 1).empty());
}

TEST_F(Checkpoints, ShowInTheMetrics) {
  Workers workers({.stages = 2, .micro_batches = kMicroBatches},
                  saving(kNoEnd, {"--checkpoint-interval=4"}));
  ASSERT_TRUE(workers[0].says("is complete")) << workers[0].errors();
  for (int i = 0; i < 2; ++i) {
    const auto port = workers[i].logged("metrics_port");
    ASSERT_TRUE(port);
    std::string text;
    for (int tries = 0; tries < 1000 && !metric(text, {"weir_checkpoint_last_step"}); ++tries) {
      text = scrape(*port);
    }
    EXPECT_GE(metric(text, {"weir_checkpoint_last_step"}).value_or(-1), 4);
    EXPECT_GE(metric(text, {"weir_checkpoint_seconds_count"}).value_or(0), 1);
  }
}

}  // namespace checkpoint_test
}  // namespace weir::test
