// SPDX-License-Identifier: Apache-2.0
// Contended links in the status, from the segments that workers report.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/explain/waterfall.h"
#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace network_test {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kBytes = 4 * 30'720;  // of a message of World's job

// A job that only observes; its link n2->n3 has another rate than the others.
struct Job {
  explicit Job(const char* mode = "Observe") {
    world.job.spec.adaptation.mode = mode;
    world.run();
    world.links(kFast, kFast);
  }
  // count steps; from its first one on the link has that rate.
  void train(int count, double rate, double seconds) {
    const auto first = world.report->body.step + 1;
    for (int i = 1; i <= count; ++i) {
      protocol::Segment segment{.revision = world.report->body.plan_revision,
                                .first_step = first,
                                .steps = i,
                                .step_seconds = seconds,
                                .step_error = 0.002};
      for (int boundary = 0; boundary < 3; ++boundary) {
        for (const bool forward : {true, false}) {
          const double own = boundary == 1 && forward ? rate : kFast;
          segment.links.push_back({.boundary = boundary,
                                   .forward = forward,
                                   .seconds = own > 0 ? kBytes / own : 0,
                                   .error = own > 0 ? 0.01 * kBytes / own : 0,
                                   .timed = own > 0 ? 16 * i : 0,
                                   .transfers = 17 * i,
                                   .rounding_error = boundary == 1 && forward ? 0.0075 : 0,
                                   .connections = boundary == 1 && forward ? connections : 1});
        }
      }
      if (tells_parts) {
        for (int stage = 0; stage < 4; ++stage) {
          const double factor = stage == slow_stage ? 1.4 : 1;
          protocol::SegmentRank rank{
              .stage = stage, .forward_seconds = 0.02 * factor, .backward_seconds = 0.04 * factor};
          rank.parts.emplace();
          rank.parts->seconds[static_cast<std::size_t>(protocol::StepPart::kOptimizer)] = 0.01;
          rank.parts->seconds[static_cast<std::size_t>(protocol::StepPart::kCodec)] = codec_seconds;
          segment.ranks.push_back(rank);
        }
      }
      world.report->body.segment = segment;
      world.steps(1, seconds);
    }
  }
  World world;
  bool tells_parts = false;
  int connections = 1;       // of that link
  int slow_stage = -1;       // that computes 40 % slower
  double codec_seconds = 0;  // of a step, on each stage
};

TEST(ContendedLink, IsToldWithItsUsualRateAndItsCost) {
  Job job;
  job.train(20, kFast, 1.15);
  EXPECT_EQ(job.world.condition("Degraded").status, "False");
  job.train(16, kSlow, 1.5);
  EXPECT_EQ(job.world.condition("Degraded").reason, "NetworkContended");
  EXPECT_THAT(job.world.last_note("NetworkContended"),
              StartsWith("link n2->n3 40.0Mbit/s, usually 3.2Gbit/s, costs "));
  EXPECT_THAT(job.world.last_note("NetworkContended"), HasSubstr(" ms a step ("));
  EXPECT_EQ(job.world.event_count("NetworkContended"), 1);
  EXPECT_EQ(job.world.job.report.network_state, "Contended");

  job.train(20, kFast, 1.15);
  EXPECT_EQ(job.world.event_count("NetworkRecovered"), 1);
  EXPECT_EQ(job.world.condition("Degraded").status, "False");
  EXPECT_EQ(job.world.job.report.network_state, "Healthy");
}

TEST(ContendedLink, IsHiddenIfItCostsNothing) {
  Job job;
  job.train(20, kFast, 1.15);
  job.train(40, kFast / 2, 1.15);
  EXPECT_EQ(job.world.job.report.network_state, "Hidden");
  EXPECT_EQ(job.world.condition("Degraded").status, "False");
  EXPECT_EQ(job.world.event_count("NetworkContended"), 0);
}

TEST(ContendedLink, IsNoneThatHasAlwaysBeenSo) {
  Job job;
  job.train(40, kSlow, 1.5);
  EXPECT_EQ(job.world.condition("Degraded").status, "False");
  EXPECT_EQ(job.world.job.report.network_state, "Healthy");
}

TEST(ContendedLink, MayUsuallyBeTooFastToBeTimed) {
  Job job;
  job.train(20, 0, 1.15);
  job.train(16, kSlow, 1.5);
  EXPECT_THAT(job.world.last_note("NetworkContended"),
              StartsWith("link n2->n3 40.0Mbit/s, usually too fast to be timed, costs "));
}

TEST(ContendedLink, IsNotClaimedWithoutSegments) {
  Job job;
  job.train(20, kFast, 1.15);
  job.world.report->body.segment.reset();
  for (auto& link : job.world.estimates.links) link.now = 0.3 * kFast;  // Prometheus alone
  job.world.steps(40, 1.15);
  EXPECT_EQ(job.world.event_count("NetworkContended"), 0);
}

TEST(Connections, OfALinkThatChangeAreToldWithItsRates) {
  Job job;
  job.train(10, kFast / 4, 1.15);
  job.connections = 4;
  job.train(10, kFast, 1.15);
  EXPECT_EQ(job.world.event_count("LinkConnectionsChanged"), 1);
  EXPECT_EQ(job.world.last_note("LinkConnectionsChanged"),
            "link n2->n3: 1 -> 4 connections, 800.0Mbit/s -> 3.2Gbit/s: each flow was capped, the "
            "port was not full");
  job.connections = 2;
  job.train(10, kFast, 1.15);
  EXPECT_THAT(job.world.last_note("LinkConnectionsChanged"),
              StartsWith("link n2->n3: 4 -> 2 connections, 3.2Gbit/s -> 3.2Gbit/s: fewer carry"));

  job.world.report->body.incarnation += 1;  // the links are new, and begin with one
  job.connections = 1;
  job.train(10, kFast, 1.15);
  EXPECT_EQ(job.world.event_count("LinkConnectionsChanged"), 2);
}

TEST(TransportFallback, IsToldOncePerNodeAndName) {
  Job job;
  const auto refuse = [&](const std::string& wanted) {
    job.world.job.spec.congestion_control = wanted;
    for (const int i : {1, 2}) {
      job.world.members->body.members.at(static_cast<std::size_t>(i)).fallback =
          protocol::TransportFallback{.wanted = wanted, .allowed = "reno cubic", .in_use = "cubic"};
    }
    job.world.run();
    job.world.run();
  };
  EXPECT_EQ(job.world.event_count("TransportFallback"), 0);

  refuse("bbr");

  const std::string node = job.world.members->body.members.at(2).node;
  EXPECT_EQ(job.world.event_count("TransportFallback"), 2) << "two workers, on two nodes";
  EXPECT_EQ(job.world.last_note("TransportFallback"),
            "congestion control bbr is not allowed on node " + node +
                " (allowed: reno cubic); cubic stays in use");
  refuse("dctcp");
  EXPECT_EQ(job.world.event_count("TransportFallback"), 4);

  job.world.job.spec.congestion_control = "reno";  // the pods are from before this edit
  job.world.adaptation.network.fallbacks.clear();
  job.world.run();
  EXPECT_EQ(job.world.event_count("TransportFallback"), 4);
}

// Tenths of a millisecond by line.
std::map<std::string, long> tenths(const api::Performance& performance) {
  std::map<std::string, long> lines;
  for (const auto& [line, milliseconds] : performance.lines) {
    lines[line] = std::lround(10 * std::stod(milliseconds));
  }
  return lines;
}

TEST(WhereAStepGoes, IsToldInLinesThatAddUp) {
  Job job;
  job.tells_parts = true;
  job.train(20, kFast, 1.15);
  const api::Performance usual = job.world.job.report.performance;
  EXPECT_EQ(usual.step_milliseconds, "1150.0");
  EXPECT_FALSE(usual.slowest_node.empty());
  EXPECT_GE(usual.steps, 5);
  auto lines = tenths(usual);
  EXPECT_EQ(lines.size(), explain::kLines);
  EXPECT_GT(lines["Compute"], 0);
  EXPECT_GT(lines["FillAndDrain"], 0);
  EXPECT_EQ(lines["SlowLinks"], 0);
  EXPECT_EQ(lines["Update"], 100);
  ASSERT_EQ(usual.ranks.size(), 4U);
  EXPECT_EQ(usual.ranks[3].stage, 3);
  EXPECT_EQ(usual.ranks[3].busy, 100) << "the optimizer is all that this test tells";

  job.train(16, kSlow, 1.5);
  auto slow = tenths(job.world.job.report.performance);
  EXPECT_GT(slow["SlowLinks"] + slow["Order"], lines["Order"]);
  EXPECT_EQ(slow["Compute"], lines["Compute"]);
  long sum = 0;
  for (const auto& [line, own] : slow) sum += own;
  EXPECT_EQ(sum, 15000);
}

std::vector<std::string> remedies_of(const World& world) {
  std::vector<std::string> texts;
  for (const auto& remedy : world.job.report.performance.remedies) {
    texts.push_back(remedy.text + ": " + remedy.answer);
  }
  return texts;
}

TEST(Cause, IsTheLinkWhileItIsSlowAndTheScheduleItselfElse) {
  Job job;
  job.tells_parts = true;
  job.train(20, kFast, 1.15);
  const api::Performance& told = job.world.job.report.performance;
  EXPECT_EQ(told.cause, "FillAndDrain");
  EXPECT_THAT(told.cause_text, StartsWith("the schedule itself: "));

  job.train(20, kSlow, 1.5);
  EXPECT_EQ(told.cause, "SlowLink");
  EXPECT_EQ(told.cause_text, "link n2 -> n3 (stages 1, 2): 40.0Mbit/s, usually 3.2Gbit/s");
  EXPECT_GT(std::stod(told.cause_seconds), 0.02 * 1.5);
  EXPECT_THAT(remedies_of(job.world),
              Contains("link n2 -> n3 at its usual rate: needs the other tenant"));
  EXPECT_FALSE(told.remedy.empty());
  EXPECT_LT(std::stod(told.remedy_seconds), 1.5);

  job.train(20, kFast, 1.15);
  EXPECT_EQ(told.cause, "FillAndDrain");
}

TEST(Cause, HasTheOrderThatRetuneWouldChooseAsARemedy) {
  Job job;
  job.tells_parts = true;
  job.train(20, kFast, 1.15);
  job.world.links(kFast, kSlow);
  job.train(16, kSlow, 1.5);
  EXPECT_THAT(remedies_of(job.world),
              Contains(AllOf(StartsWith("order k="), HasSubstr(": operator: "))));
}

TEST(Cause, HasThatRemedyAlsoWhereAdaptationIsOff) {
  Job job("Off");
  job.tells_parts = true;
  job.train(20, kFast, 1.15);
  job.train(60, kSlow, 1.5);
  EXPECT_THAT(remedies_of(job.world),
              Contains(AllOf(StartsWith("order k="), HasSubstr(": no: adaptation is off"))));
  EXPECT_EQ(job.world.event_count("PlanRetuned"), 0);
}

// A link that no order hides: a message takes twice as long as a micro-batch on a stage.
constexpr double kBound = 1e6;
Job bound_job(const char* mode, bool compresses) {
  Job job(mode);
  job.tells_parts = true;
  auto& tiers = job.world.job.spec.adaptation;
  tiers.retune.enabled = false;
  tiers.regroup.min_gain_percent = 1000;
  tiers.compress.enabled = compresses;
  job.train(20, kFast, 1.15);
  job.world.links(kFast, kBound);
  return job;
}

TEST(Cause, HasCodecsAsARemedyWhereNoOrderHidesTheLink) {
  Job job = bound_job("Auto", false);
  job.train(16, kBound, 2.5);
  EXPECT_THAT(remedies_of(job.world),
              Contains("compress link 1-2:Int8: operator: no: adaptation.compress.enabled is "
                       "false, for it changes the mathematics slightly"));
  EXPECT_EQ(job.world.event_count("PlanCompressed"), 0);
}

TEST(Cause, HasCodecsAsARemedyAlsoWhereAdaptationIsOff) {
  Job job = bound_job("Off", false);
  job.train(60, kBound, 2.5);
  EXPECT_THAT(remedies_of(job.world),
              Contains("compress link 1-2:Int8/Raw: no: adaptation is off"));
}

TEST(Cause, HasCodecsAsARemedyThatWaitsForAnOlderWorker) {
  Job job = bound_job("Auto", true);
  auto& worker = job.world.members->body.members.at(2);
  worker.plan_version = protocol::kCodecPlanVersion - 1;
  job.train(16, kBound, 2.5);
  EXPECT_THAT(remedies_of(job.world), Contains("compress link 1-2:Int8: operator: waits: worker " +
                                               worker.pod + " reads no plan with codecs"));
  EXPECT_EQ(job.world.event_count("PlanCompressed"), 0);
}

TEST(Compression, IsShownWithWhatItSavesAndSinceWhen) {
  Job job = bound_job("Auto", true);
  job.train(16, kBound, 2.5);
  ASSERT_EQ(job.world.event_count("PlanCompressed"), 1);
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
  EXPECT_EQ(shown[0].payload_bytes, 2 * 16 * static_cast<std::int64_t>(kBytes));
  EXPECT_NEAR(
      static_cast<double>(shown[0].wire_bytes) / static_cast<double>(shown[0].payload_bytes),
      8.25 / 32, 0.001);

  job.world.job.status.plan.applied_step += 5;  // of a later plan with the same codecs
  job.train(20, kBound, 1.5);
  ASSERT_EQ(shown.size(), 1U);
  EXPECT_EQ(shown[0].since_step, since);
}

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

TEST(Cause, IsADeviceThatBecomesSlow) {
  Job job;
  job.tells_parts = true;
  job.train(20, kFast, 1.15);
  job.slow_stage = 2;
  job.train(20, kFast, 1.5);
  EXPECT_EQ(job.world.job.report.performance.cause, "SlowDevice");
  EXPECT_THAT(job.world.job.report.performance.cause_text,
              HasSubstr("(stage 2) on n3 computes 40 % slower than usual"));
}

TEST(WhereAStepGoes, IsNotToldWithoutTheParts) {
  Job job;
  job.train(20, kFast, 1.15);
  EXPECT_EQ(job.world.job.report.performance, api::Performance{});
  job.tells_parts = true;
  job.train(20, kFast, 1.15);
  EXPECT_FALSE(job.world.job.report.performance.lines.empty());
  job.world.report->body.segment->revision = 99;  // of another plan
  job.world.steps(20, 1.15);
  EXPECT_EQ(job.world.job.report.performance, api::Performance{});
}

}  // namespace network_test
}  // namespace weir::reconcile::test
