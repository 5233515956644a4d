// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/adaptation/gate/gate.h"
#include "tests/operator/cli/jobs.h"

namespace weir::cli {
namespace outcome_test {

using namespace test_jobs;  // NOLINT(google-build-using-namespace)

// The note as the operator writes it.
std::string note_of(std::int64_t revision, std::optional<double> predicted_now,
                    const std::string& what = "") {
  gate::Measured measured;
  measured.before_seconds = 1.51;
  measured.after_seconds = 1.19;
  measured.before_steps = 6;
  measured.after_steps = 14;
  measured.predicted_gain = 0.261;
  measured.predicted_now = predicted_now;
  if (predicted_now) measured.interval_now = gate::Interval{0.2, 0.3};
  gate::Judged judged;
  judged.measured_gain = 0.267;
  judged.gain_error = 0.011;
  return gate::outcome_text(revision, what, measured, judged);
}

JobEvent event(const char* reason, std::string note) {
  return {kNow, "Normal", reason, std::move(note)};
}

TEST(Outcome, ReadsTheNoteThatTheOperatorWrites) {
  for (const auto& note :
       {note_of(2, 0.24), note_of(2, std::nullopt), note_of(2, 0.24, "k 1->2")}) {
    const auto outcome = read_outcome(note);

    ASSERT_TRUE(outcome) << note;
    EXPECT_EQ(outcome->revision, 2);
    EXPECT_EQ(outcome->measured, "+26.7 % (+-1.1)");
    EXPECT_EQ(outcome->predicted, "+26.1 %");
    EXPECT_TRUE(outcome->evidence.starts_with("14 steps against 6")) << outcome->evidence;
  }
}

TEST(Outcome, ReadsNoOtherNote) {
  for (const char* note : {"", "revision", "revision x: measured", "revision 2: measured +1 %",
                           "measured +1 % over 2 steps; predicted +1 %;"}) {
    EXPECT_FALSE(read_outcome(note)) << note;
  }
}

TEST(Outcome, TellsWhetherAPlanWasKeptRolledBackOrRefused) {
  const std::vector<JobEvent> events = {
      event("PlanOutcome", note_of(2, 0.24)), event("PlanOutcome", note_of(3, 0.24)),
      event("PlanRolledBack", "back to k=2: the new plan was slower on the same network"),
      event("PlanRefused", "revision 5: not enough memory on rank 1")};

  EXPECT_EQ(judgement_of(2, events).verdict, "kept: 14 steps against 6");
  EXPECT_EQ(judgement_of(3, events).verdict, "rolled back: 14 steps against 6");
  EXPECT_EQ(judgement_of(3, events).measured, "+26.7 % (+-1.1)");
  EXPECT_EQ(judgement_of(4, events).verdict, "");
  EXPECT_EQ(judgement_of(5, events).verdict, "refused: not enough memory on rank 1");
}

TEST(Difference, NamesWhatHasChanged) {
  const auto before = plan_of(1, 1);
  auto after = plan_of(2, 2);
  EXPECT_EQ(difference(&before, after), "k 1 -> 2");
  EXPECT_EQ(difference(nullptr, after), "k 2, 2 stages");
  EXPECT_EQ(difference(&before, before), "the same plan");

  after = plan_of(2, 1);
  after.stages = {{0, 4}, {5, 7}};
  EXPECT_EQ(difference(&before, after), "layers 0-3 4-7 -> 0-4 5-7");
  after = plan_of(2, 1);
  after.schedule.caps = {3, 1};
  EXPECT_EQ(difference(&before, after), "caps 2,1 -> 3,1");
  after.codecs = {.forward = {schedule::Codec::kInt8}, .backward = {schedule::Codec::kInt8}};
  EXPECT_EQ(difference(&before, after), "codecs Raw -> 0-1:Int8");
  after = plan_of(2, 1);
  std::swap(after.ranks[0].pod, after.ranks[1].pod);
  after.schedule.k = 4;
  EXPECT_EQ(difference(&before, after), "k 1 -> 4, other workers");
}

}  // namespace outcome_test
}  // namespace weir::cli
