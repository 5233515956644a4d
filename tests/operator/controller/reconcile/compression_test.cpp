// SPDX-License-Identifier: Apache-2.0
// Codecs of a job in its status, and what keeps and ends them.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/network_job.h"

namespace weir::reconcile::test {
namespace compression_test {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Job = NetworkJob;

TEST(Compression, IsShownWithWhatItSavesAndSinceWhen) {
  Job job = bound_job("Auto", true);
  job.train(16, kBound, 2.5);
  ASSERT_EQ(job.world.event_count("PlanCompressed"), 1);
  EXPECT_THAT(job.world.last_note("PlanCompressed"),
              MatchesRegex("codecs Raw -> 1-2:Int8, k 1 -> 2, link n2->n3 3.2Gbit/s->8.0Mbit/s, "
                           "predicted .[0-9.]+ % over the best order of raw tensors"));
  EXPECT_TRUE(job.world.job.report.compression.empty()) << "the plan is not applied yet";
  job.world.coordinator_applies();
  job.train(16, kBound, 1.5);
  const std::int64_t since = job.world.job.status.plan.applied_step;

  const auto& shown = job.world.job.report.compression;
  ASSERT_EQ(shown.size(), 1U);
  EXPECT_EQ(shown[0].link, "1-2");
  EXPECT_EQ(shown[0].forward, "Int8");
  EXPECT_EQ(shown[0].backward, "Int8");
  EXPECT_EQ(shown[0].since_step, since);
  EXPECT_EQ(shown[0].error_ratio, "0.0075");
  EXPECT_EQ(shown[0].payload_bytes, 2 * 16 * static_cast<std::int64_t>(kMessageBytes));
  EXPECT_NEAR(
      static_cast<double>(shown[0].wire_bytes) / static_cast<double>(shown[0].payload_bytes),
      8.25 / 32, 0.001);

  job.world.job.status.plan.applied_step += 5;  // of a later plan with the same codecs
  job.train(20, kBound, 1.5);
  ASSERT_EQ(shown.size(), 1U);
  EXPECT_EQ(shown[0].since_step, since);
}

TEST(Compression, IsForJobsWhoseOrderIsFixedToo) {
  for (const char* family : {"GPipe", "OneFOneB"}) {
    Job job = bound_job("Auto", true, family);
    job.train(16, kBound, 2.5);
    EXPECT_EQ(job.world.event_count("PlanCompressed"), 1) << family;
  }
}

TEST(Compression, ShowsTheCoordinatorsCountOfItsSteps) {
  Job job = bound_job("Auto", true);
  job.world.report->body.compressed_steps = 12;
  job.train(16, kBound, 2.5);
  EXPECT_EQ(job.world.job.report.compressed_steps, 12);
  job.world.report->body.compressed_steps = 7;  // some were rolled back
  job.train(16, kBound, 2.5);
  EXPECT_EQ(job.world.job.report.compressed_steps, 7);
  job.world.report->body.compressed_steps = 1'000'000;
  job.train(16, kBound, 2.5);
  EXPECT_EQ(job.world.job.report.compressed_steps, job.world.job.report.step);
}

TEST(Compression, HasAClockInTheStatusFromWhichANewLeaderGoesOn) {
  Job job = bound_job("Auto", true);
  job.world.job.spec.adaptation.compress.cooldown_seconds = 3600;
  job.train(16, kBound, 2.5);
  ASSERT_EQ(job.world.event_count("PlanCompressed"), 1);
  const auto changed = job.world.job.status.compress_last_change;
  ASSERT_TRUE(changed);

  const api::JobStatus& status = job.world.job.status;
  job.world.coordinator_applies();
  job.train(40, kBound, 1.2);
  EXPECT_EQ(status.compress_last_change, changed);
  EXPECT_GE(status.compress_cooldown_seconds, 3600) << "the outcome is known";
  const int cooldown = status.compress_cooldown_seconds;
  job.world.adaptation = {};  // a new leader
  job.train(2, kBound, 1.2);
  const gate::Clock& clock = job.world.adaptation.memory.compression.clock;
  EXPECT_EQ(clock.last_change, changed);
  EXPECT_EQ(clock.cooldown.count(), cooldown);
}

TEST(Compression, StaysWhilePrometheusIsAwayAndIsGuardedAllTheSame) {
  Job job = bound_job("Auto", true);
  job.train(16, kBound, 2.5);
  ASSERT_EQ(job.world.event_count("PlanCompressed"), 1);
  job.world.coordinator_applies();
  job.train(20, kBound, 1.5);

  job.world.estimates.freshness = estimator::Freshness::kQueryFailed;
  job.world.estimates.detail = "http://prometheus:9090: connection refused";
  job.train(100, kFast, 1.2);
  EXPECT_EQ(job.world.event_count("PlanDecompressed"), 0);
  EXPECT_FALSE(job.world.plan()->codecs.raw());
  const auto* available =
      api::find_condition(job.world.job.status.conditions, "NetworkMetricsAvailable");
  ASSERT_NE(available, nullptr);
  EXPECT_EQ(available->status, "False");
  EXPECT_EQ(available->message, "http://prometheus:9090: connection refused");

  job.world.adaptation = {};  // the operator was away, too
  job.train(20, kFast, 1.2);
  EXPECT_FALSE(job.world.plan()->codecs.raw());

  job.rounding = 0.031;
  job.train(12, kFast, 1.2);
  EXPECT_EQ(job.world.event_count("CompressionReverted"), 1);
  EXPECT_THAT(job.world.last_note("CompressionReverted"), HasSubstr("0.031"));
}

// An operator that asks older workers counts by itself.
TEST(Compression, CountsItsSteps) {
  Job job = bound_job("Auto", true);
  job.train(16, kBound, 2.5);
  ASSERT_EQ(job.world.event_count("PlanCompressed"), 1);
  EXPECT_EQ(job.world.job.report.compressed_steps, 0);
  job.world.coordinator_applies();
  const std::int64_t begin = job.world.report->body.last_switch->step;
  job.train(20, kBound, 1.5);
  EXPECT_EQ(job.world.job.report.compressed_steps, job.world.job.report.step - begin);
  EXPECT_GT(job.world.job.report.compressed_steps, 8);

  job.world.job.spec.adaptation.compress.enabled = false;  // the next plan is raw
  job.world.settle();
  job.world.coordinator_applies();
  const std::int64_t end = job.world.report->body.last_switch->step;
  job.train(20, kBound, 2.5);
  EXPECT_EQ(job.world.job.report.compressed_steps, end - begin);
}

TEST(Compression, EndsAndIsNotTriedAgainWhereItCostsMoreThanItGains) {
  Job job = bound_job("Auto", true);
  job.train(16, kBound, 2.5);
  ASSERT_EQ(job.world.event_count("PlanCompressed"), 1);
  job.world.coordinator_applies();
  job.codec_seconds = 16 * 0.2;  // of each forward and backward 0.1 s
  job.train(16, kBound, 2.5);
  EXPECT_EQ(job.world.event_count("PlanDecompressed"), 1);

  job.world.coordinator_applies();
  job.codec_seconds = 0;  // raw
  job.train(60, kBound, 2.5);
  EXPECT_EQ(job.world.event_count("PlanCompressed"), 1);
}

}  // namespace compression_test
}  // namespace weir::reconcile::test
