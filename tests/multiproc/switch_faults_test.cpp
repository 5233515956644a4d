// SPDX-License-Identifier: Apache-2.0
// A rank, the coordinator or the source of plans dies at each step of a plan switch, with real
// processes: the old plan or the new one is in force everywhere until the Restart, never two in one
// step, never a hang, and the losses end as those of one worker alone. WEIR_FAULT_SEEDS (24, full
// run 200) / 25 cases a test; a failure prints its seed. Simulated, at each message:
// tests/worker/coordinator/switch_faults_test.cpp.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"
#include "worker/base/random.h"

namespace weir::test {
namespace switch_faults_test {

using testing::Each;

constexpr int kStages = 3, kMicroBatches = 6, kLast = kStages - 1;

// An op takes some milliseconds, so that a step lasts as long as what a test does in it.
std::string slow_profile() {
  std::string nodes;
  for (int i = 0; i < 8; ++i) {
    const std::string id = i == 0 ? "embed" : i == 7 ? "head" : "hidden" + std::to_string(i - 1);
    nodes += (i > 0 ? ", " : "") + std::string(R"({"id": ")") + id +
             R"(", "times": {"slow": [{"samples": 2, "forward": 0.001, "backward": 0.002}]}})";
  }
  return R"({"apiVersion": "weir.dev/profile/v1", "nodes": [)" + nodes + "]}";
}

enum class Moment : unsigned char { kPrepare, kReady, kCommit, kAdopted, kAnyTime };
constexpr Moment kMoments[] = {Moment::kPrepare, Moment::kReady, Moment::kCommit, Moment::kAdopted,
                               Moment::kAnyTime};

struct Case {
  std::uint64_t seed = 0;
  bool new_generation = false;
  Moment moment = Moment::kPrepare;
  std::string text() const {
    return "seed " + std::to_string(seed) + (new_generation ? " Regroup" : " Retune") + " moment " +
           std::to_string(static_cast<int>(moment));
  }
};
Case case_of(std::uint64_t seed) {
  return {seed, seed % 2 == 1, kMoments[seed / 2 % std::size(kMoments)]};
}

std::uint64_t count() {
#ifdef WEIR_SANITIZED
  return 1;
#endif
  constexpr std::uint64_t kPerCase = 25;  // 8 of each in the full run, 24 in all
  const char* const many = std::getenv("WEIR_FAULT_SEEDS");
  const std::uint64_t seeds = many != nullptr ? std::strtoull(many, nullptr, 10) : 0;
  return std::max<std::uint64_t>(1, seeds / kPerCase);
}

class SwitchFaultsOfProcesses : public testing::Test {
 protected:
  // Trains three stages and begins a switch to revision 2.
  std::unique_ptr<Workers> begin(const Case& c) {
    auto slow = common_;
    slow.push_back("--emulate-profile=" + folder_.file("profile.json", slow_profile()));
    auto workers = std::make_unique<Workers>(
        PlanText{.stages = kStages, .micro_batches = kMicroBatches}, slow);
    next_ = {.type = "KFKB", .dispatch = "Hint", .trigger = "Retune", .revision = 2, .k = 2};
    if (c.new_generation) next_.trigger = "Regroup";
    next_.stages = kStages;
    next_.micro_batches = kMicroBatches;
    if (!workers->reaches(0, 3)) return nullptr;
    return workers;
  }

  // Writes the plan and returns at the moment. PREPARE and READY are held there by a rank that
  // stands still and answers nothing; go_on() lets it go on.
  void switch_until(const Case& c, Workers& workers, int held) {
    Random random(c.seed + 1);
    const bool hold = c.moment == Moment::kPrepare || c.moment == Moment::kReady;
    if (hold) workers[held].signal(SIGSTOP);
    workers.write_plan(next_);
    switch (c.moment) {
      case Moment::kPrepare:
        EXPECT_TRUE(workers[0].says("PREPARE of plan 2")) << c.text();
        break;
      case Moment::kReady:  // of the others: they need some milliseconds
        EXPECT_TRUE(workers[0].says("PREPARE of plan 2")) << c.text();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        break;
      case Moment::kCommit:
        EXPECT_TRUE(workers[0].says("COMMIT of plan 2")) << c.text();
        break;
      case Moment::kAdopted:
        EXPECT_TRUE(workers.adopts(0, 2)) << c.text();
        break;
      case Moment::kAnyTime:
        std::this_thread::sleep_for(
            std::chrono::milliseconds(static_cast<int>(random.uniform() * 600)));
    }
    held_ = hold ? held : -1;
  }
  void go_on(Workers& workers) const {
    if (held_ >= 0) workers[held_].signal(SIGCONT);
  }

  // Of the steps before the Restart: what the logs of these workers say of each must be one plan,
  // the old or the new.
  static void expect_one_plan_a_step(const Case& c,
                                     const std::vector<std::vector<LoggedStep>>& logs) {
    std::map<std::int64_t, std::uint32_t> epochs;
    for (const auto& log : logs) {
      std::uint32_t newest = 0;
      for (std::size_t i = 0; i < log.size() && log[i].epoch < 3; ++i) {
        const auto [known, fresh] = epochs.emplace(log[i].step, log[i].epoch);
        EXPECT_EQ(known->second, log[i].epoch) << c.text() << " step " << log[i].step;
        EXPECT_THAT(log[i].epoch, testing::AnyOf(1U, 2U)) << c.text();
        EXPECT_GE(log[i].epoch, newest) << c.text() << ": back to the old plan";
        newest = log[i].epoch;
      }
    }
  }
  // These steps are all that were done since step 0, in order.
  void expect_losses(const Case& c, const std::vector<LoggedStep>& log) const {
    ASSERT_FALSE(log.empty()) << c.text();
    EXPECT_EQ(log.front().step, 0) << c.text();
    EXPECT_EQ(losses(log), losses_alone(common_, kMicroBatches, log.size())) << c.text();
  }

  // Kills `victim` at the moment of the case and starts it again with a Restart plan.
  void kill_and_restart(const Case& c, int victim) {
    const std::unique_ptr<Workers> started = begin(c);
    ASSERT_TRUE(started) << c.text();
    Workers& workers = *started;
    switch_until(c, workers, victim == kLast ? 1 : kLast);
    workers[victim].signal(SIGKILL);
    ASSERT_EQ(workers[victim].wait(), 128 + SIGKILL) << c.text();
    std::vector<std::vector<LoggedStep>> before{workers.steps(victim)};

    next_.trigger = "Restart";
    next_.state = "Checkpoint";
    next_.revision = 3;
    workers.write_plan(next_);
    workers.restart(victim);
    go_on(workers);
    ASSERT_TRUE(workers.adopts(kLast, 3)) << c.text() << workers[0].errors();
    const auto done = static_cast<std::int64_t>(workers.steps(kLast).size());
    ASSERT_TRUE(workers.reaches(kLast, done + 5)) << c.text() << workers[0].errors();
    ASSERT_THAT(workers.end(), Each(kTerminated)) << c.text() << workers[0].errors();

    for (int worker = 0; worker < kStages; ++worker) before.push_back(workers.steps(worker));
    expect_one_plan_a_step(c, before);
    auto restarted = workers.steps(kLast);
    std::erase_if(restarted, [](const LoggedStep& step) { return step.epoch < 3; });
    expect_losses(c, restarted);
  }

  TempDir folder_;
  const std::vector<std::string> common_ = {"--model=mlp", "--seq=8", "--vocab=32",
                                            "--steps=" + std::to_string(kNoEnd)};
  PlanText next_;
  int held_ = -1;
};

TEST_F(SwitchFaultsOfProcesses, ARankDies) {
  for (std::uint64_t seed = 0; seed < count() && !HasFatalFailure(); ++seed) {
    kill_and_restart(case_of(seed), seed % 3 == 2 ? kLast : 1);
  }
}

TEST_F(SwitchFaultsOfProcesses, TheCoordinatorDies) {
  for (std::uint64_t seed = 0; seed < count() && !HasFatalFailure(); ++seed) {
    kill_and_restart(case_of(seed + 1), 0);
  }
}

// The operator's part in a job by hand: nobody answers where plans come from.
TEST_F(SwitchFaultsOfProcesses, TheSourceOfPlansIsGone) {
  for (std::uint64_t seed = 0; seed < count(); ++seed) {
    const Case c = case_of(seed + 2);
    const std::unique_ptr<Workers> workers = begin(c);
    ASSERT_TRUE(workers) << c.text();
    switch_until(c, *workers, kLast);
    workers->remove_plan();
    go_on(*workers);
    if (c.moment != Moment::kAnyTime) {
      EXPECT_TRUE(workers->adopts(kLast, 2)) << c.text() << ": the switch goes on without it";
    }
    const auto done = static_cast<std::int64_t>(workers->steps(kLast).size());
    ASSERT_TRUE(workers->reaches(kLast, done + 5)) << c.text() << (*workers)[0].errors();
    ASSERT_THAT(workers->end(), Each(kTerminated)) << c.text() << (*workers)[0].errors();

    std::vector<std::vector<LoggedStep>> logs;
    for (int worker = 0; worker < kStages; ++worker) {
      logs.push_back(workers->steps(worker));
      ASSERT_EQ(logs.back().size(), logs.front().size()) << c.text();
    }
    expect_one_plan_a_step(c, logs);
    expect_losses(c, logs.back());
  }
}

}  // namespace switch_faults_test
}  // namespace weir::test
