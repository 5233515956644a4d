// SPDX-License-Identifier: Apache-2.0
// Contended links in the status, from the segments that workers report.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/explain/waterfall.h"
#include "tests/operator/controller/reconcile/network_job.h"

namespace weir::reconcile::test {
namespace network_test {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Job = NetworkJob;

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
  job.throttled_stage = 2;
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
  EXPECT_EQ(usual.ranks[2].throttled, 10);
  EXPECT_EQ(usual.ranks[3].throttled, std::nullopt);

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

TEST(Cause, SaysThatCodecsWaitForSomebodyWhereTheyDidDamage) {
  Job job = bound_job("Auto", true);
  job.world.adaptation.memory.compression.stopped = true;
  job.train(16, kBound, 2.5);
  EXPECT_THAT(remedies_of(job.world),
              Contains("compress link 1-2:Int8: operator: no: codecs did damage, none is tried "
                       "until weir.dev/replan"));
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
