// SPDX-License-Identifier: Apache-2.0
// Replicas whose processes are killed and stay away: the others train on with the whole batch, no
// step is lost, and no bit of the loss changes, neither then nor when the place is filled.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/slow_replica.h"
#include "tests/multiproc/workers.h"
#include "tests/support/broken_connections.h"
#include "tests/support/stopped_thread.h"

namespace weir::test {
namespace cover_test {

using testing::Each;

constexpr int kEnough = 20;  // steps of those that go on, which take longer than a cover or a join

std::vector<std::string> common() {
  return {"--model=mlp",
          "--seq=8",
          "--vocab=32",
          "--lr=0.01",
          "--steps=" + std::to_string(kNoEnd),
          "--rejoin-timeout=60"};
}

// Replica r has the workers r x stages and on. Worker 0 coordinates, so it is never killed.
class Job {
 public:
  Job(int stages, std::vector<int> shares, const std::vector<std::string>& more = {})
      : plan_{.stages = stages, .shares = std::move(shares)} {
    std::vector<std::string> words = common();
    words.insert(words.end(), more.begin(), more.end());
    std::vector<std::vector<std::string>> uids;
    for (int i = 0; i < stages * plan_.replicas(); ++i) uids.push_back({uid_of(i)});
    workers_ = std::make_unique<Workers>(plan_, words, uids);
  }

  Workers& workers() { return *workers_; }
  std::string told() { return workers()[0].errors(); }
  int last_stage_of(int worker) const {
    return worker / plan_.stages * plan_.stages + plan_.stages - 1;
  }
  bool begins() {
    bool all = true;
    for (int r = 0; r < plan_.replicas(); ++r) all = all && goes_on(r * plan_.stages);
    return all;
  }
  // The replica of this worker does enough steps from now on.
  bool goes_on(int worker) {
    const int last = last_stage_of(worker);
    return workers().reaches(last,
                             static_cast<std::int64_t>(workers().steps(last).size()) + kEnough);
  }
  void kill(int worker) {
    workers()[worker].signal(SIGKILL);
    ASSERT_EQ(workers()[worker].wait(), 128 + SIGKILL);
    if (worker == last_stage_of(worker)) logs_.push_back(workers().steps(worker));
  }
  // Steps that the replica of this worker has done.
  std::size_t steps(int worker) { return workers().steps(last_stage_of(worker)).size(); }
  // Seconds until the replica of this worker has done two more steps: one may have been ending.
  double seconds_to_go_on(int worker) {
    const auto begin = std::chrono::steady_clock::now();
    const int last = last_stage_of(worker);
    static_cast<void>(
        workers().reaches(last, static_cast<std::int64_t>(workers().steps(last).size()) + 2));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  // As a container that restarts in its pod.
  void start_again(int worker) { workers().restart(worker, {uid_of(worker)}); }
  // As a new pod, for which the operator makes a plan.
  void replace(int worker) {
    workers().restart(worker, {"--pod-uid=another"});
    plan_.trigger = "Restart";
    plan_.state = "Recover";
    ++plan_.revision;
    workers().write_plan(plan_);
  }
  // Ends the job. Each log tells of steps in their order; where `again` is 0 none comes twice.
  void end(std::int64_t again = 0) {
    EXPECT_THAT(workers().end(), Each(kTerminated)) << told();
    for (int r = 0; r < plan_.replicas(); ++r) {
      logs_.push_back(workers().steps(last_stage_of(r * plan_.stages)));
    }
    std::int64_t steps = 0;
    for (const auto& log : logs_) {
      for (const LoggedStep& step : log) steps = std::max(steps, step.step + 1);
    }
    int batch = 0;
    for (const int share : plan_.shares) batch += share;
    const auto expected = losses_alone(common(), batch, static_cast<std::size_t>(steps));
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(steps));
    std::vector<bool> seen(static_cast<std::size_t>(steps));
    for (const auto& log : logs_) {
      std::int64_t next = 0;
      for (const LoggedStep& step : log) {
        EXPECT_GE(step.step, again == 0 ? next : next - again);
        next = step.step + 1;
        EXPECT_EQ(step.loss_hex, expected.at(static_cast<std::size_t>(step.step))) << step.step;
        seen.at(static_cast<std::size_t>(step.step)) = true;
      }
    }
    EXPECT_THAT(seen, Each(true)) << "a step is missing";
  }

 private:
  static std::string uid_of(int worker) { return "--pod-uid=uid-" + std::to_string(worker); }

  PlanText plan_;
  std::unique_ptr<Workers> workers_;
  std::vector<std::vector<LoggedStep>> logs_;
};

TEST(Cover, OthersTrainOnWhileAnyRankIsAwayAndItJoinsThem) {
  const bool full = std::getenv("WEIR_FAULT_SEEDS") != nullptr;
  std::mt19937 random(4);  // NOLINT: the same moments in every run
  int kills = 0;
  double longest = 0;
  for (const int stages : {1, 2}) {
    Job job(stages, {2, 3});
    ASSERT_TRUE(job.begins()) << job.told();
    for (int trial = 0; trial < (full ? 60 : 2 * stages - 1); ++trial) {
      const int victim = 1 + trial % (2 * stages - 1);
      const int other = victim < stages ? stages : 0;  // of the other replica
      SCOPED_TRACE("stages " + std::to_string(stages) + ", trial " + std::to_string(trial));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
      job.kill(victim);
      longest = std::max(longest, job.seconds_to_go_on(other));
      ++kills;
      ASSERT_TRUE(job.goes_on(other)) << job.told();
      job.start_again(victim);
      ASSERT_TRUE(job.goes_on(victim)) << job.told() << job.workers()[victim].errors();
      ASSERT_TRUE(job.goes_on(other)) << job.told();
    }
    job.end();
  }
  std::printf("%d kills; the others had done two more steps after %.2f s at most\n", kills,
              longest);
}

// Each replica needs half a second for its part of a step, and one is killed in the middle of it.
TEST(Cover, WhatTheOthersHaveComputedOfTheStepIsKept) {
  const SlowReplica emulation(3, 1, 1, 0.05);
  Job job(1, {10, 10, 10}, {emulation.emulation(), "--emulate-device=x1"});
  ASSERT_TRUE(job.workers().reaches(0, 2)) << job.told();
  const std::size_t before = job.steps(0);
  while (job.steps(0) == before) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  job.kill(1);
  ASSERT_TRUE(job.workers()[0].says("with the sums of 20 micro-batches of its first step"))
      << job.told();
  ASSERT_TRUE(job.workers().reaches(0, static_cast<std::int64_t>(job.steps(0)) + 2)) << job.told();
  job.start_again(1);
  job.end();
}

TEST(Cover, ANewPodTakesItsStateFromThoseThatTrain) {
  Job job(2, {2, 3});
  ASSERT_TRUE(job.begins()) << job.told();
  job.kill(2);
  ASSERT_TRUE(job.goes_on(0)) << job.told();
  job.replace(2);
  ASSERT_TRUE(job.workers().adopts(3, 2)) << job.told() << job.workers()[2].errors();
  ASSERT_TRUE(job.goes_on(0)) << job.told();
  job.end();
}

// Both ends of the link reach worker 0. New connections work, so the replica joins again.
TEST(Cover, OthersTrainOnWhileALinkIsDead) {
  Job job(2, {2, 3}, {"--dead-after=4"});
  ASSERT_TRUE(job.begins()) << job.told();
  const std::set<int> ports = {job.workers()[3].logged("data_port").value_or(0)};
  if (!cut_connections(job.workers()[2].pid(), ports))
    GTEST_SKIP() << "this system does not allow to cut a connection";
  ASSERT_TRUE(job.workers()[0].says("gets no answer from pod")) << job.told();
  ASSERT_TRUE(job.workers()[0].says("without replica 1")) << job.told();
  ASSERT_TRUE(job.goes_on(0)) << job.told();
  ASSERT_TRUE(job.goes_on(3)) << job.told();
  job.end();
}

// Its heartbeats go on, so nobody else would end it.
TEST(Cover, ARankThatHangsIsGoneWithoutAndEndsByItself) {
  Job job(2, {2, 3}, {"--progress-deadline=14"});
  ASSERT_TRUE(job.begins()) << job.told();
  Process& hung = job.workers()[2];
  const auto stopped = StoppedThread::of(hung.pid(), "engine");
  if (stopped == nullptr) GTEST_SKIP() << "this system does not allow to stop a thread";
  job.kill(3);
  ASSERT_TRUE(job.workers()[0].says("counts as lost until it tells")) << job.told();
  ASSERT_TRUE(job.goes_on(0)) << job.told();
  ASSERT_TRUE(stopped->ends(kPatience)) << hung.errors();
  EXPECT_EQ(hung.wait(), 1);
  EXPECT_TRUE(hung.says("the engine hangs: it has taken no message of the coordinator for 14 s"))
      << hung.errors();
  job.start_again(2);
  job.start_again(3);
  ASSERT_TRUE(job.goes_on(3)) << job.told() << job.workers()[2].errors();
  job.end();
}

TEST(Cover, OneReplicaTrainsOnAfterTwoLosses) {
  Job job(1, {1, 2, 2});
  ASSERT_TRUE(job.begins()) << job.told();
  job.kill(1);
  ASSERT_TRUE(job.goes_on(0)) << job.told();
  job.kill(2);
  ASSERT_TRUE(job.goes_on(0)) << job.told();
  job.start_again(2);
  ASSERT_TRUE(job.goes_on(0)) << "one place is open: " << job.told();
  job.start_again(1);
  ASSERT_TRUE(job.goes_on(1)) << job.told() << job.workers()[1].errors();
  ASSERT_TRUE(job.goes_on(2)) << job.told() << job.workers()[2].errors();
  job.end();
}

// The layers of stage 1 are gone: back to the checkpoint, when all are there.
TEST(Cover, WithoutAWholeReplicaAllAreWaitedFor) {
  const TempDir folder;
  Job job(2, {2, 3},
          {"--checkpoint-dir=" + (folder.path() / "saved").string(), "--checkpoint-interval=20"});
  ASSERT_TRUE(job.workers()[0].says("checkpoint of step")) << job.told();
  ASSERT_TRUE(job.begins()) << job.told();
  job.kill(3);
  ASSERT_TRUE(job.goes_on(0)) << job.told();
  job.kill(1);
  job.start_again(3);
  job.start_again(1);
  ASSERT_TRUE(job.goes_on(3)) << job.told() << job.workers()[3].errors();
  job.end(1000);
}

}  // namespace cover_test
}  // namespace weir::test
