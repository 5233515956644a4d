// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/statistics.h"

#include <chrono>
#include <cmath>

#include <gtest/gtest.h>

namespace weir::engine {
namespace statistics_test {

using namespace std::chrono_literals;

TEST(TimeHistogram, PutsAValueIntoTheFirstBucketThatHoldsIt) {
  OpHistogram histogram(0.001, 2);

  histogram.add(0.001);
  histogram.add(0.0011);
  histogram.add(1e9);

  EXPECT_EQ(histogram.counts[0], 1U);
  EXPECT_EQ(histogram.counts[1], 1U);
  EXPECT_EQ(histogram.counts[16], 1U);
  EXPECT_DOUBLE_EQ(histogram.bounds[15], 0.001 * 32768);
}

TEST(Recorder, KeepsTheMostBytesWhicheverOpHeldThem) {
  Recorder recorder;
  recorder.stage_built(0, 0, 2, false, 0);
  recorder.forward_done(5ms, 3, 1000);
  recorder.backward_done(6ms, 1600);
  recorder.weights_done(7ms);
  recorder.forward_done(5ms, 3, 1100);

  const Statistics now = recorder.read();
  EXPECT_EQ(now.activation_bytes_peak, 1600);
  EXPECT_DOUBLE_EQ(now.backward.sum, 0.006);
  EXPECT_DOUBLE_EQ(now.weights.sum, 0.007);
}

TEST(Recorder, StartsTheSeriesOfAStageAnewAndKeepsThoseOfTheWorker) {
  Recorder recorder;
  recorder.stage_built(0, 0, 2, false, 0);
  recorder.forward_done(5ms, 3, 1000);
  recorder.booked(protocol::StepPart::kFullPeer, 2s);
  recorder.booked(protocol::StepPart::kSum, 3s);
  recorder.step_done({.step = 0, .first_stage = true, .iteration_seconds = 0.2, .samples = 8}, 16);

  recorder.validated(1, 2.5, 1s);
  recorder.step_done({.next_step = 7, .skipped = true, .compressed = true}, 16);

  recorder.stage_built(0, 1, 2, true, 5);

  const Statistics now = recorder.read();
  EXPECT_EQ(now.stage, 1);
  EXPECT_EQ(now.step, 5) << "that from which it goes on, not 0 until the next one is done";
  EXPECT_EQ(now.skipped_steps, 1);
  EXPECT_EQ(now.compressed_steps, 1);
  EXPECT_EQ(now.validation_step, 1);
  EXPECT_EQ(now.in_flight_peak, 0);
  EXPECT_EQ(now.seconds_of(protocol::StepPart::kFullPeer), 0);
  EXPECT_EQ(now.seconds_of(protocol::StepPart::kSum), 0);
  EXPECT_EQ(now.sync_seconds, 3);
  EXPECT_EQ(now.samples, 8);
  EXPECT_EQ(now.tokens, 128);
  EXPECT_EQ(now.rejoins, 1);
  EXPECT_DOUBLE_EQ(now.iteration.sum, 0.2);
}

TEST(Recorder, AddsUpThePartsOfSteps) {
  Recorder recorder;

  recorder.booked(protocol::StepPart::kForwardLate, 1s);
  recorder.booked(protocol::StepPart::kAverage, 2s);
  recorder.booked(protocol::StepPart::kForwardLate, 3s);

  const Statistics now = recorder.read();
  EXPECT_EQ(now.seconds_of(protocol::StepPart::kForwardLate), 4);
  EXPECT_EQ(now.seconds_of(protocol::StepPart::kAverage), 2);
  EXPECT_EQ(now.sync_seconds, 2) << "of the others, sums and averages are for replicas";
}

// Six replicas of two stages, replica r of stage s on node "<r>.<s>".
schedule::Plan six_replicas() {
  schedule::Plan plan;
  plan.schedule.caps = {2, 1};
  plan.stages = {{0, 0}, {1, 1}};
  plan.micro_batches.assign(6, 2);
  for (int r = 0; r < 6; ++r) {
    for (int s = 0; s < 2; ++s) {
      plan.ranks.push_back(
          {.node = std::to_string(r) + "." + std::to_string(s), .replica = r, .stage = s});
    }
  }
  return plan;
}

TEST(Recorder, TellsWhatCameFromTheReplicasBehindIt) {
  Recorder recorder;
  recorder.stage_built(4, 1, 2, false, 0);
  recorder.plan_adopted(six_replicas(), 0);
  transport::CollectiveCounters counters;
  for (const int from : {0, 1, 2, 3, 5}) {
    counters.received[from] = {.bytes = 900, .counted_bytes = 100 * (from + 1), .busy = 10s};
  }
  recorder.synchronized(counters, 1s);

  auto links = recorder.read().sync_links;
  ASSERT_EQ(links.size(), 4U);
  EXPECT_EQ(links[0].from, 5);
  EXPECT_EQ(links[3].from, 2);
  EXPECT_EQ(links[3].from_node, "2.1");
  EXPECT_EQ(links[3].to_node, "4.1");
  EXPECT_EQ(links[3].bytes, 300);
  EXPECT_EQ(links[3].busy_seconds, 2) << "five sent at once";

  counters.received[2] = {.bytes = 1000, .counted_bytes = 290, .busy = 9s};
  recorder.synchronized(counters, 1s);
  links = recorder.read().sync_links;
  EXPECT_EQ(links[3].bytes, 300) << "a counter";
  EXPECT_EQ(links[3].busy_seconds, 2);
  recorder.plan_adopted(six_replicas(), 1);  // in band: the same generation
  EXPECT_EQ(recorder.read().sync_links.size(), 4U);
  EXPECT_EQ(recorder.read().sync_links[3].bytes, 300);

  recorder.stage_built(4, 0, 2, true, 0);
  EXPECT_TRUE(recorder.read().sync_links.empty());
}

TEST(Recorder, CountsSamplesOnTheFirstStageOnly) {
  Recorder recorder;

  recorder.step_done({.step = 4, .next_step = 5, .first_stage = false, .loss = 2.5, .samples = 8},
                     16);

  EXPECT_EQ(recorder.read().samples, 0);
  EXPECT_EQ(recorder.read().step, 5);
  EXPECT_EQ(recorder.read().loss, 2.5);
}

}  // namespace statistics_test
}  // namespace weir::engine
