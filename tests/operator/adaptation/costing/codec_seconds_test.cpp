// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/costing/codec_seconds.h"

#include <vector>

#include <gtest/gtest.h>

#include "operator/planner/model/profile_json.h"
#include "tests/operator/controller/reconcile/equal_layers.h"

namespace weir::costing {
namespace codec_seconds_test {

using namespace std::chrono_literals;
using schedule::Codec;

constexpr std::int64_t kBytes = 4'000;  // of a message

TEST(CodecSeconds, AreOfBothEndsOfABoundaryThatIsNotRaw) {
  const schedule::Codecs codecs{{Codec::kRaw, Codec::kInt8}, {Codec::kRaw, Codec::kRaw}};
  const auto numbers = codec_numbers(codecs, {kBytes, kBytes}, 4);
  std::vector<schedule::StageTime> stages(3, {10us, 20us});

  add_codec_seconds(numbers, 1e-9, stages);

  EXPECT_EQ(stages[0].forward, 10us);
  EXPECT_EQ(stages[1].forward, 11us);
  EXPECT_EQ(stages[2].forward, 11us);
  for (const auto& stage : stages) EXPECT_EQ(stage.backward, 20us);
  EXPECT_EQ(stages[1].backward_input, 0us) << "this stage does not split";
}

TEST(CodecSeconds, OfABackwardAreInItsFirstPart) {
  const schedule::Codecs codecs{{Codec::kRaw}, {Codec::kInt6}};
  std::vector<schedule::StageTime> stages(2, {10us, 20us, 12us, 8us});
  add_codec_seconds(codec_numbers(codecs, {kBytes}, 2), 1e-9, stages);
  for (const auto& stage : stages) {
    EXPECT_EQ(stage.forward, 10us);
    EXPECT_EQ(stage.backward, 22us);
    EXPECT_EQ(stage.backward_input, 14us);
    EXPECT_EQ(stage.backward_weights, 8us);
  }
}

// Two stages of two layers, 4 micro-batches of 4 samples.
struct Job {
  api::JobSpec spec;
  api::JobStatus status;
  estimator::Estimates estimates;
  facts::History history;
  std::vector<schedule::Plan> plans;
  api::NodeTable nodes;
  protocol::Register members;
  protocol::Report report;
  planner::Model model =
      *planner::decode_profile(reconcile::test::equal_layers(4, 2'000'000, 10'000));

  explicit Job(const char* device) {
    schedule::Plan plan;
    plan.revision = 3;
    plan.schedule.caps = {2, 1};
    plan.schedule.micro_batch_size = 4;
    plan.stages = {{0, 1}, {2, 3}};
    plan.micro_batches = {4};
    plan.codecs = {{Codec::kInt8}, {Codec::kInt8}};
    for (int i = 0; i < 2; ++i) {
      const std::string name = "p" + std::to_string(i);
      plan.ranks.push_back({.pod = name, .pod_uid = name, .node = name, .replica = 0, .stage = i});
      members.members.push_back(
          {.pod = name, .pod_uid = name, .node = name, .ranks = {{.device = device}}});
    }
    plans.push_back(plan);
  }
  // A step of the plan in which stage 1 encodes and decodes for that long.
  void tell(double seconds) {
    protocol::SegmentRank rank{.stage = 1};
    rank.parts.emplace();
    rank.parts->seconds[static_cast<std::size_t>(protocol::StepPart::kCodec)] = seconds;
    report.segment = protocol::Segment{.revision = 3, .steps = 8, .step_seconds = 1};
    report.segment->ranks.push_back(rank);
  }
  CodecSeconds seconds() const {
    facts::Facts facts{.spec = spec,
                       .status = status,
                       .estimates = estimates,
                       .history = &history,
                       .plans = plans,
                       .nodes = nodes};
    facts.members = &members;
    facts.report = &report;
    facts.plan = &plans.back();
    return codec_seconds(facts, model);
  }
};

TEST(CodecSeconds, AreAssumedUntilASegmentTellsThem) {
  Job job("cpu");
  EXPECT_FALSE(job.seconds().measured);
  EXPECT_DOUBLE_EQ(job.seconds().per_number, 0.5e-9);
  EXPECT_DOUBLE_EQ(Job("NVIDIA H100").seconds().per_number, 0.02e-9);

  // 4 micro-batches, each 4 x 10 000 bytes = 10 000 numbers, both ways.
  job.tell(4 * 2 * 10'000 * 3e-9);
  EXPECT_TRUE(job.seconds().measured);
  EXPECT_NEAR(job.seconds().per_number, 3e-9, 1e-15);

  job.tell(1e30);
  EXPECT_LE(job.seconds().per_number, 1e-6);
  job.tell(0);  // by a worker that does not tell this part
  EXPECT_FALSE(job.seconds().measured);
}

TEST(CodecSeconds, AreNotToldByASegmentOfRawTensors) {
  Job job("cpu");
  job.tell(1);
  job.plans.back().codecs = {};
  EXPECT_FALSE(job.seconds().measured);
}

}  // namespace codec_seconds_test
}  // namespace weir::costing
