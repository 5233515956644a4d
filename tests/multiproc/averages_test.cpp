// SPDX-License-Identifier: Apache-2.0
// Partial synchronisation on real processes: replicas average in groups that the coordinator forms.
// They learn, end together with one model, do not wait for a slow one, save and change plans where
// all meet, and nobody hangs when one of them dies in the middle of a round.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/slow_replica.h"
#include "tests/multiproc/workers.h"

namespace weir::test {
namespace averages_test {

using testing::Each;

bool full() {
  return std::getenv("WEIR_FAULT_SEEDS") != nullptr;
}

std::vector<std::string> small(int steps) {
  return {"--model=mlp", "--seq=8", "--vocab=32", "--lr=0.01", "--steps=" + std::to_string(steps)};
}

double loss_at(const std::vector<LoggedStep>& steps, std::size_t from, std::size_t to) {
  double sum = 0;
  for (std::size_t i = from; i < to; ++i) sum += std::stod(steps[i].loss_hex);
  return sum / static_cast<double>(to - from);
}
double last_loss(const std::vector<LoggedStep>& steps) {
  return loss_at(steps, steps.size() - 10, steps.size());
}

struct Shape {
  int replicas, stages;
};
class AveragesOfAnyShape : public testing::TestWithParam<Shape> {};

// As many steps with averages as exact ones end at about the same loss, all replicas together.
TEST_P(AveragesOfAnyShape, LearnAsExactStepsDo) {
  constexpr int kSteps = 500;
  const auto [replicas, stages] = GetParam();
  PlanText plan{.stages = stages, .shares = std::vector(static_cast<std::size_t>(replicas), 4)};
  Workers exact(plan, small(kSteps));
  EXPECT_THAT(exact.wait_all(), Each(0)) << exact[0].errors();
  plan.sync = "Partial";
  Workers workers(plan, small(kSteps));
  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  const double target = last_loss(exact.steps(stages - 1));
  double mean = 0;  // each replica's is that of its own part of the batch
  for (int r = 0; r < replicas; ++r) {
    const auto steps = workers.steps((r + 1) * stages - 1);
    ASSERT_GT(steps.size(), 20U);
    EXPECT_LT(steps.back().step, kSteps);
    EXPECT_LT(last_loss(steps), 0.7 * loss_at(steps, 0, 5)) << "replica " << r;
    mean += last_loss(steps) / replicas;
  }
  EXPECT_LT(mean, 1.03 * target);
}

INSTANTIATE_TEST_SUITE_P(Shapes, AveragesOfAnyShape, testing::Values(Shape{4, 1}, Shape{4, 2}),
                         [](const auto& one) {
                           return std::to_string(one.param.replicas) + "x" +
                                  std::to_string(one.param.stages);
                         });

// Micro-batches of all replicas a second, once all are under way.
double throughput(const Workers& workers, const PlanText& plan) {
  constexpr std::size_t kWarmUp = 3;
  double rate = 0;
  for (int r = 0; r < plan.replicas(); ++r) {
    const auto steps = workers.steps(r * plan.stages);
    double seconds = 0;
    for (std::size_t i = kWarmUp; i < steps.size(); ++i) seconds += steps[i].iteration_seconds;
    rate +=
        static_cast<double>((steps.size() - kWarmUp) *
                            static_cast<std::size_t>(plan.shares[static_cast<std::size_t>(r)])) /
        seconds;
  }
  return rate;
}

TEST(SlowReplicas, DoNotHoldTheOthers) {
  constexpr int kSteps = 40, kReplicas = 4, kSlower = 4;
  const SlowReplica slow(kReplicas, 1, kSlower, 0.015);
  PlanText plan{.stages = 1, .shares = std::vector(kReplicas, 4)};
  Workers exact(plan, slow.common(12), slow.devices());
  EXPECT_THAT(exact.wait_all(), Each(0)) << exact[0].errors();
  plan.sync = "Partial";
  Workers workers(plan, slow.common(kSteps), slow.devices());
  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  const double gain = throughput(workers, plan) / throughput(exact, plan);
  EXPECT_GT(gain, 1.8) << "3.25 at best";
  const auto late = workers.steps(kReplicas - 1);
  EXPECT_LT(late.size(), kSteps * 2 / 3) << "the slow one does fewer steps";
  EXPECT_GT(late.size(), kSteps / 8);
}

// Receivers time the senders, the coordinator finds the ports and tells each replica its own.
// Parameters of 1.4 MB: less would arrive in one piece on a loaded machine, and tell no rate.
TEST(Averages, TellTheRateOfThePortOfEachReplica) {
  const PlanText plan{.stages = 1, .shares = {2, 2, 2}, .sync = "Partial", .group_size_max = 3};
  Workers workers(plan, {"--model=gpt-tiny", "--seq=8", "--steps=" + std::to_string(kNoEnd)});
  for (int r = 0; r < 3; ++r) {
    std::optional<double> rate;  // of the last average, if enough of its bytes were timed
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!rate && std::chrono::steady_clock::now() < until) {
      ASSERT_TRUE(workers.reaches(r, static_cast<std::int64_t>(workers.steps(r).size()) + 5))
          << workers[r].errors();
      rate = metric(scrape(workers[r].logged("metrics_port").value_or(0)),
                    {"weir_sync_bus_bandwidth", "replica=\"" + std::to_string(r) + "\""});
    }
    EXPECT_GT(rate.value_or(0), 1e6) << "loopback, replica " << r;
  }
}

// A step of one row takes much less than to move the parameters that it uses: all ranks find that
// out and average beside steps, and what they learn does not suffer.
TEST(Averages, GoOnBesideStepsThatAreShorter) {
  constexpr int kSteps = 60;
  PlanText plan{.stages = 2, .shares = {1, 1}, .sync = "Partial", .group_size_max = 2};
  Workers workers(plan, small(kSteps));
  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(workers[i].says("averages run during steps")) << "worker " << i;
  }
  const auto losses = workers.steps(1);
  EXPECT_LT(last_loss(losses), loss_at(losses, 0, 10));
}

// One model at the end: its layers are saved by different replicas and fit each other.
TEST(Averages, SaveWhereAllMeetAndGoOnFromThere) {
  const TempDir folder;
  auto common = small(120);
  common.insert(common.end(), {"--checkpoint-dir=" + (folder.path() / "saved").string(),
                               "--checkpoint-interval=25"});
  PlanText plan{.stages = 2, .shares = {2, 2, 2, 2}, .sync = "Partial"};
  double before = 0;
  {
    Workers workers(plan, common);
    EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();
    EXPECT_TRUE(workers[0].says("checkpoint of step 25 is complete")) << workers[0].errors();
    EXPECT_TRUE(workers[0].says("checkpoint of step 120 is complete"));
    // Each replica's is that of its own two micro-batches: one alone is off by up to 5 %.
    for (const int last_rank : {1, 3, 5, 7}) before += last_loss(workers.steps(last_rank)) / 4;
  }
  auto longer = small(140);
  longer.insert(longer.end(), {"--checkpoint-dir=" + (folder.path() / "saved").string()});
  Workers workers({.stages = 2, .micro_batches = 8}, longer);
  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();
  const auto steps = workers.steps(1);
  ASSERT_EQ(steps.size(), 20U);
  EXPECT_LT(loss_at(steps, 0, 5), 1.1 * before);
}

// Both ways in band, where all meet: without a broken generation or a pause.
TEST(Averages, BeginAndEndInBand) {
  PlanText plan{.stages = 2, .shares = {3, 3}};
  Workers workers(plan, small(kNoEnd));
  ASSERT_TRUE(workers.reaches(0, 5)) << workers[0].errors();
  for (const char* const mode : {"Partial", "Exact", "Partial"}) {
    plan.trigger = "Manual";
    ++plan.revision;
    plan.sync = mode;
    workers.write_plan(plan);
    for (const int worker : {0, 1, 2, 3}) {
      ASSERT_TRUE(workers.adopts(worker, static_cast<std::uint32_t>(plan.revision)))
          << mode << ": " << workers[0].errors();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();
  EXPECT_EQ(workers[0].errors().find("broken"), std::string::npos) << workers[0].errors();
  std::vector<std::string> exact[2];
  for (const int replica : {0, 1}) {
    for (const LoggedStep& step : workers.steps(2 * replica + 1)) {
      if (step.epoch == 3) exact[replica].push_back(step.loss_hex);
    }
  }
  EXPECT_FALSE(exact[0].empty());
  EXPECT_EQ(exact[0], exact[1]);
}

TEST(Averages, GoOnAfterAnyRankIsKilledAtAnyMoment) {
  const TempDir folder;
  auto common = small(kNoEnd);
  common.insert(common.end(), {"--checkpoint-dir=" + (folder.path() / "saved").string(),
                               "--checkpoint-interval=50", "--rejoin-timeout=60"});
  PlanText plan{.stages = 2, .shares = {2, 3, 2}, .sync = "Partial", .group_size_max = 2};
  Workers workers(plan, common);
  std::mt19937 random(1);  // NOLINT: the same moments in every run
  for (int trial = 0; trial < (full() ? 100 : 4); ++trial) {
    for (const int worker : {0, 2, 4}) {
      ASSERT_TRUE(workers.adopts(worker, static_cast<std::uint32_t>(plan.revision)))
          << "trial " << trial << ": " << workers[0].errors();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    const int victim = 1 + static_cast<int>(random() % 5);
    workers[victim].signal(SIGKILL);
    ASSERT_EQ(workers[victim].wait(), 128 + SIGKILL);
    plan.trigger = "Restart";
    plan.state = "Checkpoint";
    ++plan.revision;
    workers.write_plan(plan);
    workers.restart(victim);
  }
  ASSERT_TRUE(workers.adopts(0, static_cast<std::uint32_t>(plan.revision))) << workers[0].errors();
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();
}

// Who is slower goes on at the step of the others: one of them does the last one.
std::int64_t last_step(const Workers& workers, const std::vector<int>& of) {
  std::int64_t last = 0;
  for (const int worker : of) {
    const auto steps = workers.steps(worker);
    if (!steps.empty()) last = std::max(last, steps.back().step);
  }
  return last;
}

void expect_rising(const std::vector<LoggedStep>& steps, const std::string& who) {
  for (std::size_t i = 1; i < steps.size(); ++i) {
    ASSERT_LT(steps[i - 1].step, steps[i].step) << who;
  }
}

// E11: whoever is killed, the other replicas go on within the deadline of a round and a step, on
// the connections that they have; a new process takes its state from them.
TEST(Averages, GoOnWithoutAReplicaWhoseRankIsKilledAtAnyMoment) {
  using std::chrono::steady_clock;
  constexpr int kStages = 2, kReplicas = 3;
  constexpr auto kDeadline = std::chrono::seconds(10);
  PlanText plan{.stages = kStages, .shares = {2, 3, 2}, .sync = "Partial", .group_size_max = 3};
  Workers workers(plan, small(kNoEnd));
  std::mt19937 random(1);  // NOLINT: the same moments in every run
  std::chrono::duration<double> longest{0};
  const int trials = full() ? 100 : 10;
  for (int trial = 0; trial < trials; ++trial) {
    for (const int worker : {1, 3, 5}) {
      ASSERT_TRUE(
          workers.reaches(worker, static_cast<std::int64_t>(workers.steps(worker).size()) + 3))
          << "trial " << trial << ": " << workers[0].errors();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    const int victim = 1 + static_cast<int>(random() % (kStages * kReplicas - 1));
    workers[victim].signal(SIGKILL);
    const auto killed = steady_clock::now();
    ASSERT_EQ(workers[victim].wait(), 128 + SIGKILL);
    for (int worker = 0; worker < kStages * kReplicas; ++worker) {
      if (worker / kStages == victim / kStages) continue;
      const auto done = static_cast<std::int64_t>(workers.steps(worker).size());
      ASSERT_TRUE(workers.reaches(worker, done + 2))
          << "trial " << trial << ": " << workers[0].errors();
    }
    longest = std::max<std::chrono::duration<double>>(longest, steady_clock::now() - killed);
    plan.trigger = "Restart";  // as the operator plans it, who knows of a lost pod only
    plan.state = "Checkpoint";
    ++plan.revision;
    workers.write_plan(plan);
    workers.restart(victim);
    for (int worker = 0; worker < kStages * kReplicas; ++worker) {
      ASSERT_TRUE(workers.adopts(worker, static_cast<std::uint32_t>(plan.revision)))
          << "trial " << trial << ": " << workers[0].errors();
    }
  }
  EXPECT_LT(longest, kDeadline);
  std::printf("%d kills; the others had done two more steps after %.2f s at most\n", trials,
              longest.count());
  EXPECT_EQ(workers[0].errors().find("broken"), std::string::npos) << workers[0].errors();
  for (int worker = 0; worker < kStages * kReplicas; ++worker) {
    expect_rising(workers.steps(worker), "worker " + std::to_string(worker));
  }
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();
}

// The others end without it, and what is left of it ends with them.
TEST(Averages, EndWithoutAReplicaThatDoesNotComeBack) {
  const TempDir folder;
  constexpr int kSteps = 1500;  // most of them without the replica
  auto common = small(kSteps);
  common.insert(common.end(), {"--checkpoint-dir=" + (folder.path() / "saved").string(),
                               "--checkpoint-interval=500"});
  const PlanText plan{.stages = 2, .shares = {2, 2, 2}, .sync = "Partial"};
  Workers workers(plan, common);
  ASSERT_TRUE(workers.reaches(3, 60)) << workers[0].errors();
  workers[5].signal(SIGKILL);
  const auto codes = workers.wait_all();
  for (const int worker : {0, 1, 2, 3, 4}) {
    EXPECT_EQ(codes[static_cast<std::size_t>(worker)], 0) << workers[worker].errors();
  }
  EXPECT_EQ(last_step(workers, {0, 2}), kSteps - 1);
  EXPECT_TRUE(workers[0].says("checkpoint of step 1500 is complete")) << workers[0].errors();
  EXPECT_EQ(workers[0].errors().find("broken"), std::string::npos) << workers[0].errors();
}

// Its own replica stands still meanwhile: the others give up the round that they have with it.
TEST(Averages, AStoppedCoordinatorOnlyDelaysThem) {
  const PlanText plan{.stages = 1, .shares = {2, 2, 2}, .sync = "Partial"};
  Workers workers(plan, small(kNoEnd));
  ASSERT_TRUE(workers.reaches(1, 20)) << workers[0].errors();
  workers[0].signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(full() ? 20 : 2));
  workers[0].signal(SIGCONT);
  for (const int worker : {0, 1, 2}) {
    const auto done = static_cast<std::int64_t>(workers.steps(worker).size());
    EXPECT_TRUE(workers.reaches(worker, done + 50)) << workers[0].errors();
  }
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();
  EXPECT_EQ(workers[0].errors().find("broken"), std::string::npos) << workers[0].errors();
  for (const int worker : {0, 1, 2}) {
    // A GRANT whose weights do not sum to 1 ends a worker, an older round is none.
    expect_rising(workers.steps(worker), "worker " + std::to_string(worker));
  }
}

// A replica that stands still in a round with the others is left out after the deadline, until it
// goes on; also when the coordinator has taken it for dead meanwhile.
TEST(Averages, LeaveOutAReplicaThatStandsStill) {
  if (!full()) GTEST_SKIP() << "20 s long; WEIR_FAULT_SEEDS=200 runs it";
  auto common = small(kNoEnd);
  common.push_back("--dead-after=3");
  const PlanText plan{.stages = 1, .shares = {2, 2, 2}, .sync = "Partial"};
  Workers workers(plan, common);
  ASSERT_TRUE(workers.reaches(1, 20)) << workers[0].errors();
  workers[2].signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(15));
  const auto done = static_cast<std::int64_t>(workers.steps(1).size());
  EXPECT_TRUE(workers.reaches(1, done + 100)) << "they go on without it";
  const auto late = static_cast<std::int64_t>(workers.steps(2).size());
  workers[2].signal(SIGCONT);
  EXPECT_TRUE(workers.reaches(2, late + 100)) << workers[0].errors();
  EXPECT_TRUE(workers[0].says("joined again")) << workers[0].errors();
  EXPECT_EQ(workers[0].errors().find("broken"), std::string::npos) << workers[0].errors();
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();
}

}  // namespace averages_test
}  // namespace weir::test
