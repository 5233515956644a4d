// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/job_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/cli/jobs.h"

namespace weir::cli {
namespace job_view_test {

using namespace test_jobs;  // NOLINT(google-build-using-namespace)
using nlohmann::json;

TEST(JobView, ReadsWhatTheOperatorWrites) {
  const JobView job = view_of(running_job());

  EXPECT_EQ(job.name, "gpt");
  EXPECT_EQ(job.global_batch, 64);
  EXPECT_EQ(job.checkpoint_claim, "models");
  EXPECT_EQ(job.status.plan.revision, 2);
  EXPECT_EQ(job.status.plan.bound_percent_measured, 27);
  EXPECT_EQ(job.status.plan.stages.size(), 2U);
  EXPECT_EQ(job.report.step, 151);
  EXPECT_EQ(job.report.last_checkpoint_step, 100);
  EXPECT_TRUE(job.report.has_progress);
  EXPECT_EQ(job.report.worst_links.at(0).baseline, "3.4Gbit/s");
  EXPECT_TRUE(is_true(job, "Ready"));
}

TEST(JobView, KeepsDefaultsWhereTypesAreWrong) {
  json object = running_job();
  object["status"]["plan"]["k"] = "two";
  object["status"]["plan"]["revision"] = 2.5;
  object["status"]["conditions"] = 7;
  object["status"]["progress"] = json::array();
  object["status"]["network"]["worstLinks"] = {1, "x", nullptr};
  object["spec"] = nullptr;
  object["metadata"]["annotations"] = 3;

  const JobView job = view_of(object);

  EXPECT_EQ(job.status.plan.k, 0);
  EXPECT_EQ(job.status.plan.revision, 0);
  EXPECT_TRUE(job.status.conditions.empty());
  EXPECT_EQ(job.report.step, 0);
  EXPECT_EQ(job.report.worst_links.size(), 3U);
  EXPECT_FALSE(read_job("[]").ok());
  EXPECT_FALSE(read_job("{").ok());
}

TEST(JobView, MakesTextsPrintable) {
  json object = running_job();
  object["status"]["conditions"][0]["message"] = "\x1b]0;title\x07";

  EXPECT_EQ(condition(view_of(object), "Ready")->message, " ]0;title ");
}

TEST(JobView, SortsEventsOfTheJobByTime) {
  json foreign = event_of("2026-01-02T09:28:00Z", "Normal", "PlanCreated", "of an older job");
  foreign["involvedObject"]["uid"] = "u-0";
  json series = event_of("2026-01-02T09:20:00.000000Z", "Normal", "Second", "b");
  series["series"] = {{"count", 2}, {"lastObservedTime", "2026-01-02T09:27:00.000000Z"}};

  const auto events = read_events(
      list_of({series, event_of("2026-01-02T09:25:00Z", "Normal", "First", "a"), foreign}).dump(),
      "u-1");

  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 2U);
  EXPECT_EQ(events->at(0).reason, "First");
  EXPECT_EQ(events->at(1).note, "b");
}

TEST(JobView, ReadsPlansNewestFirstAndLeavesOutOthers) {
  schedule::Plan foreign = plan_of(3, 1);
  foreign.job_uid = "u-0";
  const json control = {{"metadata", {{"name", "gpt-control"}}}, {"data", {{"url", "https://x"}}}};
  json broken = config_map_of(plan_of(4, 1), "2026-01-02T09:00:00Z");
  broken["data"]["plan.json"] = "{";

  const auto plans =
      read_plans(list_of({control, config_map_of(plan_of(1, 1), "2026-01-02T09:00:00Z"),
                          config_map_of(plan_of(2, 2), "2026-01-02T09:24:31Z"),
                          config_map_of(foreign, "2026-01-02T09:00:00Z"), broken})
                     .dump(),
                 "u-1");

  ASSERT_TRUE(plans.ok());
  ASSERT_EQ(plans->size(), 2U);
  EXPECT_EQ(plans->at(0).plan.revision, 2U);
  EXPECT_EQ(plans->at(1).plan.ranks.at(1).pod, "gpt-l4-1");
}

}  // namespace job_view_test
}  // namespace weir::cli
