// SPDX-License-Identifier: Apache-2.0
// A rank, the coordinator or the source of plans dies at each step of a plan switch, with real
// processes: the old plan or the new one is in force everywhere until the Restart, never two in one
// step, never a hang, and the losses end as those of one worker alone. WEIR_FAULT_SEEDS (24, full
// run 200) / 25 cases a test; a failure prints its seed. Simulated, at each message:
// tests/worker/coordinator/switch_faults_test.cpp.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/switch_moments.h"
#include "tests/multiproc/workers.h"

namespace weir::test {
namespace switch_faults_test {

using testing::Each;

constexpr int kStages = 3, kMicroBatches = 6, kLast = kStages - 1;

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

  void switch_until(const Case& c, Workers& workers, int held) {
    held_ = test::switch_until(c.moment, next_, workers, held, c.seed) ? held : -1;
  }
  void go_on(Workers& workers) const {
    if (held_ >= 0) workers[held_].signal(SIGCONT);
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
    expect_one_plan_a_step(c.text(), before, 3);
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
    expect_one_plan_a_step(c.text(), logs, 3);
    expect_losses(c, logs.back());
  }
}

}  // namespace switch_faults_test
}  // namespace weir::test
