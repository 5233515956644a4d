// SPDX-License-Identifier: Apache-2.0
// Outcomes of changes, from the segments that workers report.
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace outcome_test {

using ::testing::HasSubstr;

constexpr double kBytes = 4 * 30'720;  // of a message of World's job

// A segment of the pipeline of four stages: its boundary 1 at `slow` bytes per second.
protocol::Segment segment(std::uint32_t revision, int steps, double seconds, double slow,
                          double error = 0.002) {
  protocol::Segment told{.revision = revision,
                         .first_step = 10,
                         .steps = steps,
                         .step_seconds = seconds,
                         .step_error = error * seconds};
  for (int boundary = 0; boundary < 3; ++boundary) {
    for (const bool forward : {true, false}) {
      told.links.push_back({.boundary = boundary,
                            .forward = forward,
                            .seconds = kBytes / (boundary == 1 ? slow : kFast),
                            .timed = 16 * steps,
                            .transfers = 17 * steps});
    }
  }
  return told;
}

struct Changed {
  Changed() {
    world.job.spec.adaptation.retune.cooldown_seconds = 600;  // one change
    world.job.spec.adaptation.regroup.enabled = false;
    world.run();
    world.links(kFast, kFast);
    world.steps(20, 1.15);
    world.links(kFast, kSlow);
    world.report->body.segment = segment(1, 5, 1.75, kSlow);
    world.steps(16, 1.75);
    world.coordinator_applies();
  }
  // The workers told `before` when they changed to the plan in force, then `after`.
  void told(const protocol::Segment& before, const protocol::Segment& after) {
    world.report->body.previous_segment = before;
    world.report->body.segment = after;
  }
  std::string outcome() const { return world.last_note("PlanOutcome"); }
  double gain() const {
    const std::string note = outcome(), words = "measured ";
    const auto at = note.find(words);
    return at == std::string::npos ? std::numeric_limits<double>::quiet_NaN()
                                   : std::stod(note.substr(at + words.size())) / 100;
  }
  World world;
};

TEST(OutcomeOfSegments, ComparesBothPlansWhereTheNetworkStays) {
  Changed job;
  ASSERT_EQ(job.world.job.status.plan.revision, 2);
  job.told(segment(1, 6, 1.75, kSlow), segment(2, 12, 1.4, kSlow));
  job.world.steps(11, 1.4);
  EXPECT_NEAR(job.gain(), 0.25, 0.001);
  EXPECT_THAT(job.outcome(), HasSubstr("over 12 steps against 6 on the same network"));
  EXPECT_THAT(job.outcome(), HasSubstr("(+-0.4)"));
  EXPECT_THAT(job.outcome(), HasSubstr("predicted for this network +"));
}

// The tenant has gone: both plans are as quick, and the change has not become a failure.
TEST(OutcomeOfSegments, ConvertsThePlanBeforeToTheNetworkOfNow) {
  Changed job;
  job.told(segment(1, 6, 1.54, kSlow), segment(2, 12, 1.16, kFast));
  job.world.steps(11, 1.16);
  EXPECT_LT(std::abs(job.gain()), 0.1) << job.outcome();
  EXPECT_EQ(job.world.event_count("PlanRolledBack"), 0);
  EXPECT_NE(job.world.condition("Degraded").reason, "PredictedGainMissed");
}

TEST(OutcomeOfSegments, RollsBackAlthoughTheNetworkHasMoved) {
  Changed job;
  job.told(segment(1, 6, 1.75, kSlow), segment(2, 12, 1.6, kFast));
  job.world.steps(11, 1.6);
  EXPECT_LT(job.gain(), -0.15) << job.outcome();
  EXPECT_EQ(job.world.event_count("PlanRolledBack"), 1);
}

TEST(OutcomeOfSegments, IsRestatedWhereThePlanBeforeWasHardlyMeasured) {
  Changed job;
  job.told(segment(1, 3, 1.2, kFast), segment(2, 12, 1.4, kSlow));
  job.world.adaptation.memory.plan_change->before.steps = 3;
  job.world.steps(11, 1.4);
  EXPECT_THAT(job.outcome(), HasSubstr("against the plan before as simulated on this network"));
  EXPECT_GT(job.gain(), 0.05);
}

TEST(OutcomeOfSegments, WaitsForASteadyMeanButNotForEver) {
  Changed job;
  job.told(segment(1, 6, 1.75, kSlow), segment(2, 12, 1.4, kSlow, 0.02));
  job.world.steps(38, 1.4);
  EXPECT_EQ(job.world.event_count("PlanOutcome"), 0);
  job.world.steps(4, 1.4);
  EXPECT_EQ(job.world.event_count("PlanOutcome"), 1);
}

TEST(OutcomeOfSegments, NeedsNoPrometheus) {
  Changed job;
  job.told(segment(1, 6, 1.75, kSlow), segment(2, 12, 1.4, kSlow));
  job.world.estimates.freshness = estimator::Freshness::kQueryFailed;
  job.world.steps(11, 1.4);
  EXPECT_NEAR(job.gain(), 0.25, 0.001);
}

// Reports are untrusted: what cannot be does not count, and the rest does.
TEST(OutcomeOfSegments, LeavesOutWhatCannotBe) {
  Changed job;
  auto after = segment(2, 12, 1.4, kSlow);
  after.links.push_back({.replica = 7, .boundary = 1, .seconds = 1, .timed = 9, .transfers = 9});
  after.links.push_back({.boundary = -1, .seconds = 1, .timed = 9, .transfers = 9});
  after.links.push_back({.boundary = 2'000'000'000, .seconds = 1, .timed = 9, .transfers = 9});
  after.links.push_back({.boundary = 0, .seconds = NAN, .timed = 9, .transfers = 9});
  after.links.push_back({.boundary = 0, .seconds = 1e300, .timed = 9, .transfers = 9});
  after.links.push_back({.boundary = 0, .seconds = 1, .timed = 9, .transfers = -9});
  after.ranks.push_back({.replica = -3, .stage = 1, .forward_seconds = 1, .backward_seconds = 1});
  after.ranks.push_back({.stage = 99, .forward_seconds = 1, .backward_seconds = 1});
  after.ranks.push_back({.stage = 1, .forward_seconds = NAN, .backward_seconds = -1});
  job.told(segment(1, 6, 1.75, kSlow), after);
  job.world.steps(11, 1.4);
  EXPECT_NEAR(job.gain(), 0.25, 0.001);
}

TEST(OutcomeOfSegments, IsMadeOfTheReportedRateWhereASegmentCannotBe) {
  for (const auto& wrong :
       {segment(2, 1'000'000, 1.4, kSlow), segment(2, 12, NAN, kSlow), segment(2, 12, -1, kSlow),
        segment(2, 0, 1.4, kSlow), segment(9, 12, 1.4, kSlow)}) {
    Changed job;
    job.told(segment(1, 6, 1.75, kSlow), wrong);
    job.world.steps(11, 1.4);
    EXPECT_EQ(job.world.event_count("PlanOutcome"), 1);
    EXPECT_THAT(job.outcome(), HasSubstr("over 10 steps"));
  }
}

}  // namespace outcome_test
}  // namespace weir::reconcile::test
