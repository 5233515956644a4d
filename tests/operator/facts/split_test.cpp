// SPDX-License-Identifier: Apache-2.0
// Which jobs may split backwards, and measured times of their parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/facts/measured_times.h"
#include "operator/facts/planning.h"
#include "tests/operator/facts/bare_job.h"

namespace weir::facts {
namespace split_test {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct Job : test::BareJob {
  protocol::Register members;

  Job() {
    for (const char* pod : {"a", "b"}) members.members.push_back({.pod = pod, .pod_uid = pod});
  }
  Facts facts() const {
    Facts facts = BareJob::facts();
    facts.members = &members;
    return facts;
  }
};

planner::Model model(std::chrono::nanoseconds weights) {
  planner::Model model;
  model.layers.push_back({.id = "0"});
  model.layers.front().times["cpu"].push_back({.forward = 1ms,
                                               .backward = 3ms,
                                               .backward_input = 3ms - weights,
                                               .backward_weights = weights});
  return model;
}

TEST(WhyWhole, SaysWhoDoesNotSplit) {
  const planner::Model splits = model(1ms), cannot = model(0ms);
  Job job;
  EXPECT_EQ(why_whole(job.facts(), &splits), "");
  EXPECT_EQ(why_whole(job.facts(), nullptr), "") << "unknown";
  EXPECT_THAT(why_whole(job.facts(), &cannot), HasSubstr("no layer whose backward splits"));

  job.members.members[1].plan_version = 1;
  EXPECT_EQ(why_whole(job.facts(), &splits), "worker b reads no plan with split backwards");
  job.members.members[1].plan_version = protocol::kNewestPlanVersion;

  job.spec.schedule.split = api::SplitMode::kNever;
  EXPECT_EQ(why_whole(job.facts(), &splits), "schedule.split is Never");
  job.spec.schedule.split = api::SplitMode::kAuto;
  job.spec.schedule.in_flight_caps = {2, 1};
  EXPECT_EQ(why_whole(job.facts(), &splits), "schedule.inFlightCaps are fixed");
  job.spec.schedule.in_flight_caps.clear();
  job.spec.schedule.type = "OneFOneB";
  EXPECT_EQ(why_whole(job.facts(), &splits), "schedule.type is OneFOneB");
}

schedule::Plan split_plan() {
  schedule::Plan plan;
  plan.micro_batches = {8};
  plan.stages = {{0, 0}, {1, 1}};
  plan.schedule.caps = {2, 1};
  plan.schedule.split = schedule::Split{.held = {2, 2}, .postponed = {0, 1}};
  return plan;
}

TEST(LimitCaps, MakesBackwardsWholeIfAWorkerCannotSplit) {
  Job job;
  schedule::Plan plan = split_plan();
  limit_caps(job.facts(), plan);
  EXPECT_TRUE(plan.schedule.split);

  job.members.members[0].plan_version = 1;
  limit_caps(job.facts(), plan);
  EXPECT_FALSE(plan.schedule.split);
  EXPECT_EQ(plan.schedule.dispatch, schedule::Dispatch::kStrict) << "caps of k = 1";
}

TEST(LimitCaps, AStageThatRanOutOfMemoryHoldsLess) {
  Job job;
  job.status.memory_limits.push_back({.group = "w", .stage = 1, .in_flight_cap = 1});
  schedule::Plan plan = split_plan();
  limit_caps(job.facts(), plan);
  EXPECT_EQ(plan.schedule.split->held, (std::vector<int>{2, 1}));
}

// What is measured is both parts together; they are in the profile's proportion.
TEST(StageTimes, PartsOfABackwardAreInTheProfilesProportion) {
  Job job;
  job.estimates.stage_seconds[0] = {0.010, 0.040};
  job.estimates.stage_seconds[1] = {0.010, 0.080};
  planner::PipelineCosts costs;
  costs.stages.assign(
      2, {.forward = 1ms, .backward = 4ms, .backward_input = 3ms, .backward_weights = 2ms});
  schedule::Plan plan = split_plan();

  const auto split = stage_times(job.facts(), plan, costs);
  EXPECT_EQ(split[0].backward, 32ms) << "whole backwards take 4/5 of both parts";
  EXPECT_EQ(split[0].backward_input, 24ms);
  EXPECT_EQ(split[0].backward_weights, 16ms);

  plan.schedule.split.reset();
  const auto whole = stage_times(job.facts(), plan, costs);
  EXPECT_EQ(whole[1].backward, 80ms);
  EXPECT_EQ(whole[1].backward_input, 60ms);
  EXPECT_EQ(whole[1].backward_weights, 40ms);
}

}  // namespace split_test
}  // namespace weir::facts
