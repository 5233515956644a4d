// SPDX-License-Identifier: Apache-2.0
// Annotation weir.dev/replan: a request counts as followed when its evaluation has been made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace replan_test {

using ::testing::HasSubstr;

World running() {
  World world;
  world.run();
  return world;
}

TEST(Replan, WaitsWhileTheNetworkIsUnknownAndSaysSoOnce) {
  World world = running();
  world.links(kFast, kSlow);
  world.job.spec.adaptation.retune.cooldown_seconds = 100'000;
  world.job.status.retune_last_change = world.now;  // a request waives the cooldown
  world.steps(20, 1.75);
  ASSERT_EQ(world.job.status.plan.revision, 1);
  world.estimates.freshness = estimator::Freshness::kStale;
  world.job.meta.annotations["weir.dev/replan"] = "now";
  world.steps(20, 1.75);
  EXPECT_EQ(world.job.status.last_replan_request, "");
  EXPECT_EQ(world.event_count("ReplanWaits"), 1);
  EXPECT_EQ(world.last_note("ReplanWaits"),
            "weir.dev/replan waits: no network metrics (NetworkMetricsAvailable: Stale)");
  EXPECT_EQ(world.job.status.plan.revision, 1);

  world.estimates.freshness = estimator::Freshness::kFresh;
  world.steps(2, 1.75);
  EXPECT_EQ(world.job.status.last_replan_request, "now");
  EXPECT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.event_count("ReplanWaits"), 1);
}

TEST(Replan, WaitsWhileTheRateOfALinkIsUnknown) {
  World world = running();
  world.links(kFast, kSlow);
  world.estimates.rates.times.resize(2);
  world.estimates.rates.rates.clear();
  world.job.meta.annotations["weir.dev/replan"] = "now";
  world.settle();
  EXPECT_EQ(world.job.status.last_replan_request, "");
  EXPECT_THAT(world.last_note("ReplanWaits"),
              HasSubstr("weir.dev/replan waits: only 2 of 4 scrapes with link rates"));
}

// It lowers caps all the same, but that is no evaluation.
TEST(Replan, IsNotFollowedByTheGuardOfMemory) {
  World world = running();
  for (const auto& rank : world.plan()->ranks) {
    world.report->body.members.push_back({.pod = rank.pod,
                                          .pod_uid = rank.pod_uid,
                                          .memory_limit_bytes = 1'000'000,
                                          .memory_free_bytes = rank.stage == 1 ? 10'000 : 300'000});
  }
  world.estimates.freshness = estimator::Freshness::kStale;
  world.job.meta.annotations["weir.dev/replan"] = "now";
  world.steps(8, 1.3);
  EXPECT_EQ(world.job.status.plan.revision, 2);
  EXPECT_EQ(world.job.status.last_replan_request, "");
}

TEST(Replan, WaitsUntilAdaptationIsOn) {
  World world = running();
  world.job.spec.adaptation.mode = "Off";
  world.job.meta.annotations["weir.dev/replan"] = "now";
  world.steps(8, 1.15);
  EXPECT_EQ(world.last_note("ReplanWaits"), "weir.dev/replan waits: adaptation is off");
  world.job.spec.adaptation.mode = "Auto";
  world.links(kFast, kFast);
  world.steps(8, 1.15);
  EXPECT_EQ(world.job.status.last_replan_request, "now");
}

}  // namespace replan_test
}  // namespace weir::reconcile::test
