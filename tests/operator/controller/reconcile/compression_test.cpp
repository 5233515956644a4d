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

// They may hand on several tensors, or numbers of another type, as one message.
TEST(Compression, IsNotForLayersOfOnesOwn) {
  for (const bool own : {false, true}) {
    Job job = bound_job("Auto", true);
    std::string& profile = job.world.members->body.profile_json;
    if (own) profile.insert(profile.find('{') + 1, R"("boundaryNumberBytes":0,)");
    job.train(40, kBound, 2.5);
    EXPECT_EQ(job.world.event_count("PlanCompressed"), own ? 0 : 1);
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

// Trains with that rate until the event; the step then.
std::int64_t train_until(Job& job, const char* event, double rate, double seconds) {
  const int before = job.world.event_count(event);
  job.world.links(kFast, rate);
  for (int i = 0; i < 400 && job.world.event_count(event) == before; ++i) {
    job.train(1, rate, seconds);
  }
  EXPECT_EQ(job.world.event_count(event), before + 1) << event;
  job.world.coordinator_applies();
  return job.world.report->body.step;
}

// Codecs cost little where they are not needed.
TEST(Compression, StaysForAWhileOnALinkThatComesAndGoes) {
  Job job = bound_job("Auto", true);
  job.world.job.spec.adaptation.compress.cooldown_seconds = 0;
  train_until(job, "PlanCompressed", kBound, 2.5);
  job.train(20, kBound, 1.5);
  const std::int64_t first = train_until(job, "PlanDecompressed", kFast, 1.2);
  const std::int64_t again = train_until(job, "PlanCompressed", kBound, 2.5);
  const std::int64_t second = train_until(job, "PlanDecompressed", kFast, 1.2);
  EXPECT_LT(again - first, 150);
  EXPECT_GE(second - first, 200);
}

TEST(Compression, ComesAgainBeforeItsCooldownHasEndedIfSomebodyAsks) {
  Job job = bound_job("Auto", true);
  job.world.job.spec.adaptation.compress.cooldown_seconds = 100'000;
  train_until(job, "PlanCompressed", kBound, 2.5);
  job.train(20, kBound, 1.5);
  train_until(job, "PlanDecompressed", kFast, 1.2);
  job.world.links(kFast, kBound);
  job.train(200, kBound, 2.5);
  ASSERT_EQ(job.world.event_count("PlanCompressed"), 1);
  job.world.job.meta.annotations["weir.dev/replan"] = "now";
  job.world.settle();
  EXPECT_EQ(job.world.job.status.last_replan_request, "") << "nothing has been measured since";
  job.train(4, kBound, 2.5);
  EXPECT_EQ(job.world.event_count("PlanCompressed"), 2);
  EXPECT_EQ(job.world.job.status.last_replan_request, "now");
}

Job compressed_job() {
  Job job = bound_job("Auto", true);
  job.train(16, kBound, 2.5);
  EXPECT_EQ(job.world.event_count("PlanCompressed"), 1);
  job.world.coordinator_applies();
  job.train(20, kBound, 1.5);
  return job;
}

// As with outliers in a tensor, each of which takes the scale of its block.
TEST(CompressionGuard, TakesBackWithinTenStepsWhatRoundsTooMuchAndKeepsItOut) {
  Job job = compressed_job();
  job.rounding = 0.031;
  job.train(10, kBound, 1.5);
  ASSERT_EQ(job.world.event_count("CompressionReverted"), 1);
  EXPECT_THAT(job.world.last_note("CompressionReverted"),
              HasSubstr("link 1-2 forward: error ratio 0.031 for 8 steps, limit 0.020; Int8 is not "
                        "tried again for 1000 steps"));
  EXPECT_EQ(describe(job.world.plan()->codecs), "1-2:BF16/Int8");
  job.world.coordinator_applies();
  job.rounding = 0.0017;
  job.train(100, kBound, 2);
  EXPECT_EQ(job.world.event_count("PlanCompressed"), 1) << "Int8 in both directions is kept out";
  EXPECT_EQ(job.world.event_count("CompressionReverted"), 1);
}

TEST(CompressionGuard, EndsWithTheSecondValidationThatIsWorseUntilSomebodyAsks) {
  Job job = bound_job("Auto", true);
  auto& report = job.world.report->body;
  report.validation = {.step = report.step, .loss = 2};
  job.train(16, kBound, 2.5);
  ASSERT_EQ(job.world.event_count("PlanCompressed"), 1);
  job.world.coordinator_applies();
  job.train(4, kBound, 1.5);
  report.validation = {.step = report.step, .loss = 2.1};
  job.train(10, kBound, 1.5);
  EXPECT_EQ(job.world.event_count("CompressionReverted"), 0);
  report.validation = {.step = report.step, .loss = 2.2};
  job.train(4, kBound, 1.5);  // one evaluation
  ASSERT_EQ(job.world.event_count("CompressionReverted"), 1);
  EXPECT_THAT(job.world.last_note("CompressionReverted"),
              HasSubstr("two validation losses in a row are more than 1 % above 2.0000"));
  EXPECT_TRUE(job.world.plan()->codecs.raw());
  job.world.coordinator_applies();
  job.train(100, kBound, 2.5);
  EXPECT_EQ(job.world.event_count("PlanCompressed"), 1);
  job.world.job.meta.annotations["weir.dev/replan"] = "again";
  job.train(20, kBound, 2.5);
  EXPECT_EQ(job.world.event_count("PlanCompressed"), 2);
}

// Without validations. It takes fifty evaluations of each kind to tell a worse loss from noise.
TEST(CompressionGuard, EndsWhereTheTrainingLossIsPushedUp) {
  Job job = bound_job("Auto", true);
  auto& report = job.world.report->body;
  const auto train = [&](int steps, double level, double seconds) {
    for (int i = 0; i < steps; ++i) {
      report.loss = level + (i % 2 == 0 ? 0.05 : -0.05);
      job.train(1, kBound, seconds);
    }
  };
  job.world.job.spec.adaptation.compress.enabled = false;
  train(150, 2, 2.5);
  job.world.job.spec.adaptation.compress.enabled = true;
  job.train(16, kBound, 2.5);
  ASSERT_EQ(job.world.event_count("PlanCompressed"), 1);
  job.world.coordinator_applies();
  train(220, 2.5, 1.5);
  ASSERT_EQ(job.world.event_count("CompressionReverted"), 1);
  EXPECT_THAT(job.world.last_note("CompressionReverted"),
              HasSubstr("the training loss of 50 reports is 2.5"));
  EXPECT_TRUE(job.world.plan()->codecs.raw());
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
