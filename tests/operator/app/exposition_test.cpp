// SPDX-License-Identifier: Apache-2.0
#include "operator/app/exposition.h"

#include <gtest/gtest.h>

namespace weir::operator_app {
namespace exposition_test {

using std::chrono::seconds;

JobFacts facts() {
  auto job = std::make_shared<api::PipelineJob>();
  job->meta.name = "j";
  job->meta.namespace_name = "a";
  job->meta.uid = "u";
  job->status.restart_reasons = {{"Crashed", 2}, {"NodeLost", 1}};
  job->status.recovery.lost_steps = 41;
  job->status.conditions = {{"Ready", "True", "Running", "", 1, SystemTime{}}};
  job->status.plan.revision = 7;
  job->status.plan.applied_revision = 6;
  job->status.plan.k = 4;
  job->status.plan.codecs = "1-2:Int8, 3-4:BF16/Int8";
  job->status.plan.predicted_step_seconds = "1.42";
  job->status.plan.bound_percent_measured = 5;
  job->status.plan.trigger = "Retune";
  job->status.plan.predicted_gain_percent = "26.1";
  job->status.coordinator = api::CoordinatorStatus{.pod = "j-w-2", .term = 3};
  job->report.total_steps = 1000;
  job->report.micro_batch_shares = {10, 6};
  job->report.performance.cause = "SlowLink";
  job->report.performance.cause_seconds = "0.321";
  return {job, {}};
}
estimator::LinkEstimate link(const std::string& to, double now, double baseline) {
  estimator::LinkEstimate out;
  out.from_node = "n1";
  out.to_node = to;
  out.now = now;
  out.baseline = baseline;
  return out;
}
const telemetry::Family* find(const std::vector<telemetry::Family>& all, const std::string& name) {
  for (const auto& family : all) {
    if (family.name == name) return &family;
  }
  return nullptr;
}
double value_of(const telemetry::Family& family, const std::string& label,
                const std::string& value) {
  for (const auto& sample : family.samples) {
    for (const auto& [name, text] : sample.labels) {
      if (name == label && text == value) return sample.value;
    }
  }
  return -1;
}

TEST(JobFamilies, ShowPlanConditionAndRestarts) {
  const auto families = job_families({facts()}, SystemTime{});

  EXPECT_EQ(find(families, "weir_job_plan_revision")->samples.at(0).value, 7);
  EXPECT_EQ(find(families, "weir_job_plan_applied_revision")->samples.at(0).value, 6);
  EXPECT_EQ(find(families, "weir_job_plan_k")->samples.at(0).value, 4);
  EXPECT_EQ(find(families, "weir_job_compressed_links")->samples.at(0).value, 2);
  EXPECT_EQ(value_of(*find(families, "weir_job_cause_seconds"), "kind", "SlowLink"), 0.321);
  EXPECT_EQ(find(families, "weir_job_plan_predicted_step_seconds")->samples.at(0).value, 1.42);
  const auto& bound = *find(families, "weir_job_plan_bound_percent");
  EXPECT_EQ(value_of(bound, "step", "measured"), 5);
  EXPECT_EQ(value_of(bound, "step", "simulated"), -1) << "unknown";
  const auto& restarts = *find(families, "weir_job_restarts_total");
  EXPECT_EQ(value_of(restarts, "reason", "Crashed"), 2);
  EXPECT_EQ(value_of(restarts, "reason", "NodeLost"), 1);
  EXPECT_EQ(value_of(restarts, "reason", "Replaced"), 0) << "its first one is an increase";
  EXPECT_EQ(find(families, "weir_job_lost_steps_total")->samples.at(0).value, 41);
  EXPECT_EQ(find(families, "weir_job_coordinator_term")->samples.at(0).value, 3);
  const auto& condition = *find(families, "weir_job_condition");
  EXPECT_EQ(value_of(condition, "status", "True"), 1);
  EXPECT_EQ(value_of(condition, "status", "False"), 0);
}

TEST(JobFamilies, ShowReasonsTargetTriggerGainsAndShares) {
  const auto families = job_families({facts()}, SystemTime{});

  const auto& reason = *find(families, "weir_job_condition_reason");
  EXPECT_EQ(value_of(reason, "reason", "Running"), 1);
  EXPECT_EQ(find(families, "weir_job_target_steps")->samples.at(0).value, 1000);
  EXPECT_EQ(value_of(*find(families, "weir_job_plan_trigger"), "trigger", "Retune"), 1);
  const auto& gain = *find(families, "weir_job_plan_gain_percent");
  EXPECT_EQ(value_of(gain, "gain", "predicted"), 26.1);
  EXPECT_EQ(value_of(gain, "gain", "measured"), -1) << "not judged yet";
  const auto& share = *find(families, "weir_job_micro_batch_share");
  EXPECT_EQ(value_of(share, "replica", "0"), 10);
  EXPECT_EQ(value_of(share, "replica", "1"), 6);
}

TEST(JobFamilies, ShowTheWorstOfEachPairOfNodes) {
  JobFacts job = facts();
  job.estimates.links = {link("n2", 60, 100), link("n2", 90, 100), link("n3", 30, 0)};
  job.estimates.sync_links = {link("n2", 50, 100)};
  job.estimates.last_sample = SystemTime{seconds(10)};

  const auto families = job_families({job}, SystemTime{seconds(14)});

  const auto& ratio = *find(families, "weir_job_link_bandwidth_ratio");
  ASSERT_EQ(ratio.samples.size(), 1U);
  EXPECT_DOUBLE_EQ(ratio.samples[0].value, 0.5);
  EXPECT_EQ(find(families, "weir_job_metrics_age_seconds")->samples.at(0).value, 4);
}

TEST(JobFamilies, ShowAtMost16Links) {
  JobFacts job = facts();
  for (int i = 0; i < 40; ++i) {
    job.estimates.links.push_back(link("n" + std::to_string(i), 100 - i, 100));
  }

  const auto families = job_families({job}, SystemTime{});

  const auto& ratio = *find(families, "weir_job_link_bandwidth_ratio");
  EXPECT_EQ(ratio.samples.size(), 16U);
  EXPECT_DOUBLE_EQ(ratio.samples[0].value, 0.61);
}

TEST(JobFamilies, HaveNoSeriesWithoutJobs) {
  for (const auto& family : job_families({}, SystemTime{})) {
    EXPECT_TRUE(family.samples.empty()) << family.name;
  }
}

TEST(PlanChanges, AreThereAtZeroAndVanishWithTheJob) {
  PlanChanges changes;
  const JobFacts job = facts();
  EXPECT_EQ(changes.family({job}).samples.at(0).value, 0);

  changes.count(*job.job, "PlanRetuned");
  changes.count(*job.job, "PlanRolledBack");
  changes.count(*job.job, "Restarting");
  for (const char* event : {"PlanCompressed", "PlanDecompressed", "CompressionReverted"}) {
    changes.count(*job.job, event);
  }

  const auto family = changes.family({job});
  EXPECT_EQ(value_of(family, "tier", "retune"), 1);
  EXPECT_EQ(value_of(family, "outcome", "rolled_back"), 1);
  ASSERT_EQ(family.samples.size(), 4U);
  EXPECT_EQ(value_of(family, "tier", "compress"), 2);
  EXPECT_TRUE(changes.family({}).samples.empty());
  EXPECT_EQ(value_of(changes.family({job}), "outcome", "applied"), 0);
}

}  // namespace exposition_test
}  // namespace weir::operator_app
