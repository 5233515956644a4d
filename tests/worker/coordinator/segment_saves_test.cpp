// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "worker/coordinator/segment.h"

namespace weir::coordinator {
namespace segment_saves_test {

using protocol::StepPart;

schedule::Plan two_stages() {
  schedule::Plan plan;
  plan.revision = 1;
  plan.micro_batches = {8};
  plan.schedule.caps = {2, 1};
  plan.stages = {{0, 0}, {1, 1}};
  plan.ranks = {{.pod = "p0", .stage = 0}, {.pod = "p1", .stage = 1}};
  return plan;
}

// A pipeline of two stages, steps of 1 s. The first stage copies behind a step, which its seconds
// do not contain; the second one copies behind it, too, or in the middle of the next one.
struct Job {
  Job() { segments.follow(&plan, 0); }

  void step(double seconds, std::array<double, 2> copies = {}, bool interrupted = false,
            StepPart other = StepPart::kForward) {
    ++done;
    for (int stage = 0; stage < 2; ++stage) {
      protocol::StageStatus status{.epoch = 1, .step = done, .stage = stage};
      status.step_seconds = seconds;
      status.forward_seconds = status.backward_seconds = 0.1;
      status.interrupted = interrupted;
      if (tells_parts) {
        auto& parts = status.parts.emplace().seconds;
        parts[static_cast<std::size_t>(StepPart::kSave)] = copies[static_cast<std::size_t>(stage)];
        parts[static_cast<std::size_t>(other)] += seconds;
      }
      segments.on_status(status);
    }
  }
  // Four steps, then a save that the first stage copies in 0.02 s, and the next step waits for.
  void save(double copied, double waited) {
    for (int i = 0; i < 3; ++i) step(1);
    step(1, {0.02, copied});
    step(1 + waited, {}, true);
  }

  schedule::Plan plan = two_stages();
  Segments segments;
  std::int64_t done = 0;
  bool tells_parts = true;
};

TEST(SegmentSaves, TellWhatRanksCopyAndWhatTheStepsLose) {
  Job job;
  job.save(0.5, 0.4);
  EXPECT_EQ(job.segments.current()->save_every, 0) << "one save tells no interval";
  job.save(0.6, 0.5);
  job.save(9, 8.9);

  const auto segment = job.segments.current();

  EXPECT_EQ(segment->save_every, 5);
  EXPECT_NEAR(segment->save_seconds, 0.02 + 0.5, 1e-9) << "the median";
  EXPECT_NEAR(segment->ranks[0].save_seconds, 0.02, 1e-9);
  EXPECT_NEAR(segment->ranks[1].save_seconds, 0.6, 1e-9);
  EXPECT_NEAR(segment->step_seconds, 1, 1e-9);
  EXPECT_EQ(segment->steps, 12);
}

TEST(SegmentSaves, MayComeInTheMiddleOfTheStepThatTheyHoldUp) {
  Job job;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 4; ++j) job.step(1);
    job.step(1.4, {0.02, 0.5}, true);
  }
  EXPECT_NEAR(job.segments.current()->save_seconds, 0.4, 1e-9);
  EXPECT_NEAR(job.segments.current()->ranks[1].save_seconds, 0.5, 1e-9);
}

TEST(SegmentSaves, AreNotTakenFromOtherInterruptions) {
  Job job;
  for (int i = 0; i < 3; ++i) {
    job.step(1);
    job.step(1, {0.02, 0.5});
    job.step(2, {}, true, StepPart::kValidation);
    job.step(1);
    job.step(2, {}, true);
  }
  EXPECT_EQ(job.segments.current()->save_every, 0);
  EXPECT_EQ(job.segments.current()->ranks[1].save_seconds, 0);
}

TEST(SegmentSaves, AreForgottenIfNoMoreCome) {
  Job job;
  job.save(0.5, 0.4);
  job.save(0.5, 0.4);
  for (int i = 0; i < 10; ++i) job.step(1);
  EXPECT_EQ(job.segments.current()->save_every, 5);
  job.step(1);
  EXPECT_EQ(job.segments.current()->save_every, 0);
}

TEST(SegmentSaves, OutliveAChangeOfTheNetworkButNoPlan) {
  Job job;
  job.save(0.5, 0.4);
  job.save(0.5, 0.4);
  for (int i = 0; i < 6; ++i) job.step(1.5);
  EXPECT_EQ(job.segments.current()->steps, 6);
  EXPECT_NEAR(job.segments.current()->save_seconds, 0.42, 1e-9);
  job.plan.revision = 2;
  job.segments.follow(&job.plan, 0);
  EXPECT_FALSE(job.segments.current());
  EXPECT_EQ(job.segments.previous()->save_every, 5);
}

TEST(SegmentSaves, AreUnknownIfRanksDoNotTellTheirParts) {
  Job job;
  job.tells_parts = false;
  job.save(0.5, 0.4);
  job.save(0.5, 0.4);
  EXPECT_EQ(job.segments.current()->save_every, 0);
}

}  // namespace segment_saves_test
}  // namespace weir::coordinator
