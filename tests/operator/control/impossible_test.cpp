// SPDX-License-Identifier: Apache-2.0
#include "operator/control/impossible.h"

#include <limits>

#include <gtest/gtest.h>

namespace weir::control_server {
namespace impossible_test {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

protocol::Report report() {
  protocol::Segment segment{.revision = 3, .steps = 8, .step_seconds = 1.5, .step_error = 0.01};
  segment.links = {{.boundary = 0, .seconds = 0.1, .error = 0.01, .timed = 3, .transfers = 4},
                   {.boundary = 1, .seconds = 0.2, .timed = 4, .transfers = 4}};
  segment.ranks = {{.stage = 0, .forward_seconds = 0.1, .backward_seconds = 0.2},
                   {.stage = 1, .forward_seconds = 0.1, .backward_seconds = 0.2}};
  segment.ranks[0].parts.emplace().seconds[0] = 0.4;
  segment.ranks[1].parts.emplace().seconds[0] = 0.5;
  protocol::Report report;
  report.segment = segment;
  return report;
}

TEST(Impossible, NothingIsTakenFromAReportThatCanBe) {
  protocol::Report one = report();
  EXPECT_EQ(drop_impossible(one), 0);
  EXPECT_EQ(one.segment->links.size(), 2U);
  EXPECT_EQ(one.segment->ranks[1].parts->seconds[0], 0.5);
}

TEST(Impossible, FieldsGoAndTheRestStays) {
  protocol::Report one = report();
  one.segment->step_error = kNan;
  one.segment->save_every = -10;
  one.segment->save_seconds = kNan;
  one.segment->ranks[0].save_seconds = -1;
  one.segment->ranks[0].queued_seconds = kNan;
  one.segment->ranks[0].throttled_seconds = -1;
  one.segment->links[0].error = -1;
  one.segment->links[1].seconds = std::numeric_limits<double>::infinity();
  one.segment->ranks[0].parts->seconds[3] = 1e9;
  one.segment->ranks[1].stage = -1;

  EXPECT_EQ(drop_impossible(one), 10);

  EXPECT_EQ(one.segment->step_error, 0);
  EXPECT_EQ(one.segment->save_every, 0);
  EXPECT_EQ(one.segment->save_seconds, 0);
  ASSERT_EQ(one.segment->links.size(), 1U);
  EXPECT_EQ(one.segment->links[0].error, 0);
  EXPECT_EQ(one.segment->links[0].seconds, 0.1);
  ASSERT_EQ(one.segment->ranks.size(), 1U);
  EXPECT_FALSE(one.segment->ranks[0].parts);
  EXPECT_EQ(one.segment->ranks[0].save_seconds, 0);
  EXPECT_EQ(one.segment->ranks[0].queued_seconds, 0);
  EXPECT_EQ(one.segment->ranks[0].throttled_seconds, 0);
  EXPECT_EQ(one.segment->ranks[0].forward_seconds, 0.1);
}

TEST(Impossible, SilenceThatCannotBeGoes) {
  protocol::Report one = report();
  one.members = {{.pod = "a", .silent_seconds = kNan},
                 {.pod = "b", .silent_seconds = -1},
                 {.pod = "c", .silent_seconds = 6}};
  EXPECT_EQ(drop_impossible(one), 2);
  EXPECT_EQ(one.members[0].silent_seconds, 0);
  EXPECT_EQ(one.members[1].silent_seconds, 0);
  EXPECT_EQ(one.members[2].silent_seconds, 6);
}

TEST(Impossible, ASegmentWithoutAStepTimeGoes) {
  for (const double seconds : {kNan, -1.0, 2e6}) {
    protocol::Report one = report();
    one.previous_segment = one.segment;
    one.previous_segment->step_seconds = seconds;
    EXPECT_EQ(drop_impossible(one), 1);
    EXPECT_FALSE(one.previous_segment);
    EXPECT_TRUE(one.segment);
  }
}

TEST(Impossible, AStallWithImpossibleNumbersGoes) {
  const protocol::Stall stall{.seconds = 31, .waiting = 1, .ranks = {{0, 2, "backward", 7, 31}}};
  protocol::Report one = report();
  one.stall = stall;
  EXPECT_EQ(drop_impossible(one), 0);
  EXPECT_TRUE(one.stall);
  for (const auto& spoil : std::vector<void (*)(protocol::Stall&)>{
           [](protocol::Stall& s) { s.seconds = kNan; }, [](protocol::Stall& s) { s.waiting = -1; },
           [](protocol::Stall& s) { s.ranks[0].seconds = 1e9; },
           [](protocol::Stall& s) { s.ranks[0].stage = -1; },
           [](protocol::Stall& s) { s.ranks.resize(1000); }}) {
    one.stall = stall;
    spoil(*one.stall);
    EXPECT_EQ(drop_impossible(one), 1);
    EXPECT_FALSE(one.stall);
  }
}

}  // namespace impossible_test
}  // namespace weir::control_server
