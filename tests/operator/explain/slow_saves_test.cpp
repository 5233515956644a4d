// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/explain/causes.h"

namespace weir::explain {
namespace slow_saves_test {

using testing::HasSubstr;

schedule::Plan plan_of_four() {
  schedule::Plan plan;
  plan.schedule = {.k = 1, .caps = {4, 3, 2, 1}};
  plan.micro_batches = {8};
  for (int s = 0; s < 4; ++s) {
    plan.stages.push_back({s, s});
    const std::string name = std::to_string(s);
    plan.ranks.push_back({.pod = "p" + name, .node = "n" + name, .replica = 0, .stage = s});
  }
  return plan;
}

// Steps of 1 s with a save every 10 steps, in milliseconds: what it adds, what each rank copies.
struct Job {
  Causes causes(double adds, const std::vector<double>& copies) {
    Observed observed{.plan = plan, .step_seconds = 1, .save_every = every};
    observed.save_seconds = adds / 1000;
    for (std::size_t s = 0; s < copies.size(); ++s) {
      observed.told.push_back({.stage = static_cast<int>(s), .save_seconds = copies[s] / 1000});
    }
    CauseInput input{.deviations = deviations_of(observed, {}), .step_seconds = 1};
    return causes_of(input, [](const costing::Conditions&) { return 1.0; });
  }
  schedule::Plan plan = plan_of_four();
  double every = 10;
};

TEST(SlowSaves, NameTheRankThatCopiesForLongest) {
  const Causes causes = Job().causes(820, {20, 20, 830, 21});
  ASSERT_TRUE(causes.main);
  EXPECT_EQ(causes.main->kind, Kind::kSave);
  EXPECT_EQ(causes.main->place, "p2");
  EXPECT_EQ(causes.main->text,
            "rank 2 (stage 2) on n2 copies its state for 830 ms for a save, most ranks for 20 ms, "
            "each 10 steps");
  EXPECT_NEAR(causes.main->seconds, 0.08, 1e-9) << "what all ranks copy is usual";
}

TEST(SlowSaves, CostNoMoreThanTheyCopyLonger) {
  const Causes causes = Job().causes(2000, {20, 20, 420, 20});
  ASSERT_TRUE(causes.main);
  EXPECT_NEAR(causes.main->seconds, 0.04, 1e-9);
}

TEST(SlowSaves, AreNotNamedIfAllRanksCopyAsLongOrWaitsHideIt) {
  EXPECT_FALSE(Job().causes(800, {800, 790, 800, 805}).main);
  EXPECT_FALSE(Job().causes(30, {20, 20, 20, 800}).main) << "the last stage waits anyway";
  EXPECT_TRUE(Job().causes(30, {20, 20, 20, 800}).also.empty());
}

TEST(SlowSaves, AreUnknownOfOlderWorkers) {
  Job job;
  job.every = 0;
  EXPECT_FALSE(job.causes(820, {20, 20, 830, 21}).main);
  EXPECT_FALSE(Job().causes(0, {0, 0, 0, 0}).main);
  EXPECT_FALSE(Job().causes(800, {}).main);
}

}  // namespace slow_saves_test
}  // namespace weir::explain
