// SPDX-License-Identifier: Apache-2.0
#include "operator/explain/lack_of_cpu.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::explain {
namespace lack_of_cpu_test {

using testing::ElementsAre;
using testing::IsEmpty;

// Steps of 1 s of two replicas with two stages; forwards take 0.2 s, backwards 0.4 s of them.
struct Job {
  Job() {
    plan.schedule.caps = {2, 1};
    plan.micro_batches = {10, 10};
    for (int s = 0; s < 2; ++s) plan.stages.push_back({s, s});
    for (int r = 0; r < 2; ++r) {
      for (int s = 0; s < 2; ++s) {
        const std::string name = std::to_string(r) + std::to_string(s);
        plan.ranks.push_back({.pod = "p" + name, .node = "n" + name, .replica = r, .stage = s});
        observed.now.slowness["p" + name] = {2, 2};
        observed.told.push_back(
            {.replica = r, .stage = s, .forward_seconds = 0.02, .backward_seconds = 0.04});
      }
    }
  }
  std::vector<Deviation> told(std::vector<Deviation> all = {}) {
    tell_lack_of_cpu(observed, all);
    return all;
  }
  // Of the last rank: the time of its ops over what it should be.
  static Deviation deviation(Kind kind, double forward, double backward, double at_random = 0) {
    Deviation one{.kind = kind, .place = "p11", .text = "slow"};
    one.excess["p11"] = {forward, backward};
    one.at_random = at_random;
    return one;
  }
  protocol::SegmentRank& last() { return observed.told.back(); }

  schedule::Plan plan;
  Observed observed{.plan = plan, .step_seconds = 1};
};

std::vector<Kind> kinds(const std::vector<Deviation>& all) {
  std::vector<Kind> result;
  for (const Deviation& one : all) result.push_back(one.kind);
  return result;
}

TEST(LackOfCpu, IsToldInsteadOfASlowDeviceAndItsPauses) {
  Job job;
  job.last().throttled_seconds = 0.2;
  // Half of each op is 0.1 s of forwards and 0.2 s of backwards.
  const auto all =
      job.told({Job::deviation(Kind::kDevice, 0.5, 1), Job::deviation(Kind::kPauses, 0.5, 0, 0.05),
                Job::deviation(Kind::kData, 0.1, 0)});

  ASSERT_THAT(kinds(all), ElementsAre(Kind::kData, Kind::kLimit));
  const Deviation& limit = all.back();
  EXPECT_EQ(limit.place, "p11");
  EXPECT_EQ(
      limit.text,
      "rank 3 (stage 1 of replica 1) on n11 is throttled by its CPU limit, for 300 ms a step");
  EXPECT_DOUBLE_EQ(limit.excess.at("p11").first, 1);
  EXPECT_DOUBLE_EQ(limit.excess.at("p11").second, 1);
  EXPECT_DOUBLE_EQ(limit.at_random, 0.05);
}

TEST(LackOfCpu, NamesOthersWhereNoLimitThrottles) {
  Job job;
  job.last().queued_seconds = 0.2;
  job.last().throttled_seconds = 0.01;
  const auto all = job.told({Job::deviation(Kind::kPauses, 0.5, 1)});

  ASSERT_THAT(kinds(all), ElementsAre(Kind::kQueue));
  EXPECT_EQ(all.front().text,
            "rank 3 (stage 1 of replica 1) on n11 waits for processors that others use, for 250 ms "
            "a step");
}

TEST(LackOfCpu, ExplainsNoMoreThanItsTime) {
  Job job;
  job.last().queued_seconds = job.last().throttled_seconds = 0.09;
  const auto all = job.told({Job::deviation(Kind::kDevice, 1, 0.5)});
  EXPECT_THAT(kinds(all), ElementsAre(Kind::kDevice)) << "0.2 s are lost";

  job.last() = {.replica = 1, .stage = 1, .forward_seconds = 0.02, .backward_seconds = 0.04};
  EXPECT_THAT(kinds(job.told({Job::deviation(Kind::kDevice, 1, 0.5)})), ElementsAre(Kind::kDevice))
      << "a worker of an older release tells none";
}

TEST(LackOfCpu, OfALimitThatWasAlwaysTooLowIsTold) {
  Job job;
  job.last().throttled_seconds = 0.1;
  const auto all = job.told();

  ASSERT_THAT(kinds(all), ElementsAre(Kind::kLimit));
  EXPECT_EQ(all.front().text,
            "rank 3 (stage 1 of replica 1) on n11 is throttled by its CPU limit, for 60 ms a step")
      << "ops are 0.6 of a step";
  EXPECT_NEAR(all.front().excess.at("p11").first, 0.2, 1e-9);
  EXPECT_NEAR(all.front().excess.at("p11").second, 0.2, 1e-9);

  job.last().throttled_seconds = 0.004;
  EXPECT_THAT(job.told(), IsEmpty()) << "it costs nothing";
  job.last().throttled_seconds = 0;
  job.last().queued_seconds = 0.5;
  EXPECT_THAT(job.told(), IsEmpty()) << "it may have waited for others meanwhile";
}

}  // namespace lack_of_cpu_test
}  // namespace weir::explain
