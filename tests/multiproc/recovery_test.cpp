// SPDX-License-Identifier: Apache-2.0
// Pipelines without replicas whose processes are killed and started again, where they were or with
// nothing: training goes on from the snapshots of all or the copies at neighbors, and no bit of the
// loss changes.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"

namespace weir::test {
namespace recovery_test {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int kStages = 3, kMicroBatches = 5, kEvery = 20, kMostAgain = 5000;

bool full() {
  return std::getenv("WEIR_FAULT_SEEDS") != nullptr;
}

std::vector<std::string> common() {
  return {"--model=mlp", "--seq=8", "--vocab=32", "--lr=0.01", "--steps=" + std::to_string(kNoEnd)};
}

// A pipeline with snapshots, and what became of its processes.
class Job {
 public:
  explicit Job(int stages = kStages, const std::vector<std::string>& more = {})
      : plan_{.stages = stages, .micro_batches = kMicroBatches} {
    std::vector<std::string> words = common();
    words.insert(words.end(), {"--recovery-dir=" + memory_.path().string(),
                               "--recovery-every=" + std::to_string(kEvery)});
    words.insert(words.end(), more.begin(), more.end());
    workers_ = std::make_unique<Workers>(plan_, words);
  }

  Workers& workers() { return *workers_; }
  std::filesystem::path folder_of(int worker) const {
    return memory_.path() / ("worker-" + std::to_string(worker));
  }
  bool has_snapshots() {
    return workers()[0].says("all ranks have snapshots") && workers().reaches(stages() - 1, 1);
  }
  // A set of this generation is whole.
  bool has_copies() {
    for (int wait = 0; wait < 3000; ++wait) {
      if (sets() > sets_before_) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  int stages() const { return plan_.stages; }
  // The process, and the memory of its pod.
  void lose(int worker) {
    kill(worker);
    std::filesystem::remove_all(folder_of(worker));
  }
  void kill(int worker) {
    workers()[worker].signal(SIGKILL);
    ASSERT_EQ(workers()[worker].wait(), 128 + SIGKILL);
    if (worker == stages() - 1) keep_log();
  }
  // As a pod that is deleted or drained, with the time to end.
  void leave(const std::vector<int>& together) {
    for (const int worker : together) workers()[worker].signal(SIGTERM);
    for (const int worker : together) {
      ASSERT_EQ(workers()[worker].wait(), kTerminated) << workers()[worker].errors();
      EXPECT_THAT(workers()[worker].errors(), HasSubstr(", copied")) << workers()[0].errors();
      std::filesystem::remove_all(folder_of(worker));
      if (worker == stages() - 1) keep_log();
    }
  }
  void keep_log() { logs_.push_back(workers().steps(stages() - 1)); }
  void start_again(const std::vector<int>& killed) {
    plan_.trigger = "Restart";
    plan_.state = "Recover";
    ++plan_.revision;
    sets_before_ = std::ranges::count(killed, 0) > 0 ? 0 : sets();
    workers().write_plan(plan_);
    for (const int worker : killed) workers().restart(worker);
  }
  bool trains() {
    return workers().adopts(stages() - 1, static_cast<std::uint32_t>(plan_.revision));
  }
  void change_cut(std::vector<std::pair<int, int>> ranges) {
    plan_.trigger = "Regroup";
    plan_.state = "Move";
    plan_.ranges = std::move(ranges);
    ++plan_.revision;
    workers().write_plan(plan_);
  }

  // Ends the job. The losses of all steps are those of one process, whoever did them again. Returns
  // the steps that were done again, for each return.
  std::vector<std::int64_t> end() {
    EXPECT_THAT(workers().end(), Each(kTerminated)) << workers()[0].errors();
    keep_log();
    std::vector<std::int64_t> again;
    std::map<std::int64_t, std::string> losses;
    std::int64_t next = 0;
    for (const auto& log : logs_) {
      for (const LoggedStep& step : log) {
        EXPECT_LE(step.step, next) << "a step is missing";
        if (step.step < next) again.push_back(next - step.step);
        next = step.step + 1;
        const auto [at, fresh] = losses.emplace(step.step, step.loss_hex);
        EXPECT_TRUE(fresh || at->second == step.loss_hex) << "step " << step.step;
      }
    }
    const auto expected = losses_alone(common(), kMicroBatches, losses.size());
    EXPECT_EQ(expected.size(), losses.size());
    for (const auto& [step, loss] : losses) {
      EXPECT_EQ(loss, expected.at(static_cast<std::size_t>(step))) << "step " << step;
    }
    return again;
  }

 private:
  // The coordinator's process tells the first whole set of each generation, at least.
  int sets() {
    const std::string log = workers()[0].errors();
    int count = 0;
    for (std::size_t at = 0; (at = log.find("snapshots and copies", at)) != log.npos; ++at) ++count;
    return count;
  }

  TempDir memory_{kMemory};
  PlanText plan_;
  std::unique_ptr<Workers> workers_;
  int sets_before_ = 0;
  std::vector<std::vector<LoggedStep>> logs_;
};

// Worker 0 is the coordinator, too.
TEST(Recovery, OfAnyRankWithoutAReplicaGoesOnFromTheSnapshots) {
  Job job;
  std::mt19937 random(3);  // NOLINT: the same moments in every run
  const int trials = full() ? 100 : 9;
  for (int trial = 0; trial < trials; ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial));
    ASSERT_TRUE(job.has_snapshots()) << job.workers()[0].errors();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100'000));
    const int victim = trial % kStages;
    job.kill(victim);
    job.start_again({victim});
    ASSERT_TRUE(job.trains()) << job.workers()[0].errors() << job.workers()[2].errors();
    EXPECT_TRUE(job.workers()[victim].says("goes back to its snapshot"));
  }
  const auto again = job.end();
  EXPECT_GE(again.size(), 1U);  // none where the last step was that of a snapshot
  // A snapshot takes a few ms, and 1 % of the time is a few hundred of these short steps.
  for (const std::int64_t steps : again) EXPECT_LE(steps, kMostAgain);
  for (int i = 0; i < kStages; ++i) {
    EXPECT_THAT(job.workers()[i].errors(), Not(HasSubstr("starts again at step 0")));
  }
}

// As a pod that is deleted, or a node that is lost. Worker 0 is the coordinator, too.
TEST(Recovery, OfALostPodGoesOnFromTheCopyAtItsNeighbor) {
  for (const int stages : {2, 3}) {
    Job job(stages);
    std::mt19937 random(5);  // NOLINT: the same moments in every run
    const int trials = full() ? 50 : 2 * stages;
    for (int trial = 0; trial < trials; ++trial) {
      SCOPED_TRACE("stages " + std::to_string(stages) + ", trial " + std::to_string(trial));
      ASSERT_TRUE(job.has_copies()) << job.workers()[0].errors();
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 100'000));
      const int victim =
          full() ? static_cast<int>(random() % static_cast<unsigned>(stages)) : trial % stages;
      job.lose(victim);
      job.start_again({victim});
      ASSERT_TRUE(job.trains()) << job.workers()[0].errors() << job.workers()[1].errors();
      EXPECT_TRUE(job.workers()[victim].says("state moved"));
    }
    for (const std::int64_t steps : job.end()) EXPECT_LE(steps, kMostAgain);
    for (int i = 0; i < stages; ++i) {
      EXPECT_THAT(job.workers()[i].errors(), Not(HasSubstr("starts again at step 0")));
    }
  }
}

// Worker 0 is the coordinator, too.
TEST(Recovery, OfAWorkerThatLeavesRepeatsNoStep) {
  for (const int stages : {2, 3}) {
    Job job(stages, {"--recovery-copies=On"});
    for (int victim = 0; victim < stages; ++victim) {
      SCOPED_TRACE("stages " + std::to_string(stages) + ", worker " + std::to_string(victim));
      ASSERT_TRUE(job.has_copies()) << job.workers()[0].errors();
      job.leave({victim});
      job.start_again({victim});
      ASSERT_TRUE(job.trains()) << job.workers()[0].errors() << job.workers()[1].errors();
      EXPECT_TRUE(job.workers()[victim].says("state moved"));
    }
    EXPECT_THAT(job.end(), IsEmpty());
  }
}

// As those of a node that is drained: of the first two the second keeps the copy of the first.
TEST(Recovery, OfWorkersThatLeaveTogetherRepeatsNoStep) {
  constexpr int kFour = 4;
  Job job(kFour, {"--recovery-copies=On"});
  for (const std::vector<int>& together : {std::vector{1, 2}, std::vector{1, 2, 3}}) {
    ASSERT_TRUE(job.has_copies()) << job.workers()[0].errors();
    job.leave(together);
    job.start_again(together);
    ASSERT_TRUE(job.trains()) << job.workers()[0].errors() << job.workers()[1].errors();
    for (const int worker : together) EXPECT_TRUE(job.workers()[worker].says("state moved"));
  }
  EXPECT_THAT(job.end(), IsEmpty());
}

TEST(Recovery, OfALostPodStartsAgainWithoutCopies) {
  Job job(2, {"--recovery-copies=Off"});
  ASSERT_TRUE(job.has_snapshots()) << job.workers()[0].errors();
  EXPECT_THAT(job.workers()[0].errors(), Not(HasSubstr("and copies")));
  job.lose(1);
  job.start_again({1});
  ASSERT_TRUE(job.trains()) << job.workers()[0].errors();
  EXPECT_EQ(job.end().size(), 1U);
}

TEST(Recovery, OfAllRanksAtOnceGoesOnFromTheSnapshots) {
  Job job;
  for (int trial = 0; trial < 2; ++trial) {
    ASSERT_TRUE(job.has_snapshots()) << job.workers()[0].errors();
    for (int i = 0; i < kStages; ++i) job.kill(i);
    job.start_again({0, 1, 2});
    ASSERT_TRUE(job.trains()) << job.workers()[0].errors();
  }
  job.end();  // no step is done again where the last one was that of a snapshot
  for (int i = 0; i < kStages; ++i) {
    EXPECT_THAT(job.workers()[i].errors(), Not(HasSubstr("starts again at step 0")));
  }
}

TEST(Recovery, GoesOnFromSnapshotsOfTheCutBefore) {
  Job job;
  ASSERT_TRUE(job.has_snapshots()) << job.workers()[0].errors();
  job.change_cut({{0, 0}, {1, 5}, {6, 7}});
  ASSERT_TRUE(job.trains()) << job.workers()[0].errors();
  job.kill(1);
  job.start_again({1});
  ASSERT_TRUE(job.trains()) << job.workers()[0].errors() << job.workers()[1].errors();
  EXPECT_LE(job.end().size(), 1U);
}

TEST(Recovery, OfALostPodGoesOnFromTheCopiesOfTheCutBefore) {
  Job job;
  ASSERT_TRUE(job.has_copies()) << job.workers()[0].errors();
  job.change_cut({{0, 0}, {1, 5}, {6, 7}});
  ASSERT_TRUE(job.trains()) << job.workers()[0].errors();
  job.lose(1);
  job.start_again({1});
  ASSERT_TRUE(job.trains()) << job.workers()[0].errors() << job.workers()[1].errors();
  EXPECT_LE(job.end().size(), 1U);
  EXPECT_THAT(job.workers()[0].errors(), Not(HasSubstr("starts again at step 0")));
}

TEST(Recovery, WithADamagedSnapshotGoesOnFromItsCopy) {
  Job job;
  ASSERT_TRUE(job.has_copies()) << job.workers()[0].errors();
  job.kill(1);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(job.folder_of(1))) {
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream(entry.path(), std::ios::in | std::ios::out | std::ios::binary)
            .seekp(-5, std::ios::end)
        << '!';
  }
  job.start_again({1});
  ASSERT_TRUE(job.trains()) << job.workers()[0].errors() << job.workers()[1].errors();
  EXPECT_TRUE(job.workers()[1].says("a damaged one is ignored")) << job.workers()[1].errors();
  EXPECT_LE(job.end().size(), 1U);
  EXPECT_THAT(job.workers()[0].errors(), Not(HasSubstr("starts again at step 0")));
}

}  // namespace recovery_test
}  // namespace weir::test
