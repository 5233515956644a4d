// SPDX-License-Identifier: Apache-2.0
// Which links are too fast to be timed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/facts/facts.h"
#include "tests/operator/facts/bare_job.h"

namespace weir::facts {
namespace quick_links_test {

using namespace std::chrono_literals;
using estimator::Direction;
using schedule::Codec;
using testing::ElementsAre;
using testing::IsEmpty;

const estimator::LinkKey kForward{0, 0, Direction::kForward}, kBackward{0, 0, Direction::kBackward};

// Two stages, whose newest report tells of a segment.
struct Job : test::BareJob {
  schedule::Plan plan;
  protocol::Report report;
  planner::Model model;
  Time now{1h};

  Job() {
    plan.micro_batches = {8};
    plan.stages = {{0, 0}, {1, 1}};
    plan.schedule.caps = {2, 1};
    plan.schedule.micro_batch_size = 2;
    plan.revision = 3;
    model.layers.resize(2);
    for (planner::Layer& layer : model.layers) {
      layer.output_bytes_per_sample = 12'000;
      layer.times["cpu"].push_back({.forward = 1ms, .backward = 2ms});
    }
    report.segment = protocol::Segment{
        .revision = 3,
        .steps = 5,
        .links = {{.boundary = 0, .forward = true, .timed = 19, .transfers = 40},
                  {.boundary = 0, .forward = false, .timed = 19, .transfers = 40}}};
  }
  Facts facts() const {
    Facts facts = BareJob::facts();
    facts.now = now;
    facts.plan = &plan;
    facts.report = &report;
    facts.reported = now - 1s;
    return facts;
  }
  protocol::SegmentLink& forward() { return report.segment->links[0]; }
  std::set<estimator::LinkKey> links() const { return quick_links(facts(), model); }
};

TEST(QuickLinks, BringMostMessagesInOnePiece) {
  Job job;
  EXPECT_THAT(job.links(), ElementsAre(kForward, kBackward));
  EXPECT_TRUE(all_quick(job.facts(), job.links()));
  job.forward().timed = 20;
  EXPECT_THAT(job.links(), ElementsAre(kBackward)) << "half of them took some time";
  EXPECT_FALSE(all_quick(job.facts(), job.links()));
}

TEST(QuickLinks, HaveCarriedFortyMessagesOfThePlanInForce) {
  Job job;
  job.forward().timed = 0;
  job.forward().transfers = 39;
  EXPECT_THAT(job.links(), ElementsAre(kBackward));
  job.report.segment->revision = 2;
  EXPECT_THAT(job.links(), IsEmpty());
}

TEST(QuickLinks, AreThoseOfAReportThatIsNotOld) {
  Job job;
  Facts facts = job.facts();
  facts.reported = job.now - std::chrono::seconds(job.spec.adaptation.stale_after_seconds) - 1s;
  EXPECT_THAT(quick_links(facts, job.model), IsEmpty());
}

// Some packets come in one piece on a slow link, too: 24,000 raw bytes are 4,704 with Int6.
TEST(QuickLinks, CarryMoreThanAFewPackets) {
  Job job;
  job.plan.codecs = {.forward = {Codec::kInt6}, .backward = {Codec::kInt8}};
  EXPECT_THAT(job.links(), ElementsAre(kBackward));
}

}  // namespace quick_links_test
}  // namespace weir::facts
