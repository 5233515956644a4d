// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/plan_rules.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/schedule/caps.h"
#include "worker/stage/layer.h"

namespace weir::engine {
namespace plan_rules_test {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::int64_t kPlenty = std::int64_t{1} << 40;

stage::Model four_layers() {
  stage::Model model;
  for (int i = 0; i < 4; ++i) {
    model.layers.push_back({.id = "layer" + std::to_string(i),
                            .parameter_bytes = 1000,
                            .output_bytes_per_sample = i == 3 ? 0 : 10,
                            .activation_bytes_per_sample = 100,
                            .transient_bytes_per_sample = 7});
  }
  return model;
}

schedule::Plan two_stages() {
  schedule::Plan plan;
  plan.revision = 1;
  plan.schedule = {.family = schedule::Family::kKfkb,
                   .dispatch = schedule::Dispatch::kStrict,
                   .k = 2,
                   .micro_batch_size = 2,
                   .caps = schedule::kfkb_caps(2, 8, 2)};
  plan.micro_batches = {8};
  plan.stages = {{0, 1}, {2, 3}};
  plan.ranks = {{.pod = "a", .pod_uid = "u-a", .stage = 0},
                {.pod = "b", .pod_uid = "u-b", .stage = 1}};
  return plan;
}

std::string reasons_of(const schedule::Plan& plan, const Identity& identity,
                       std::int64_t limit = kPlenty) {
  std::string text;
  for (const auto& reason : objections(plan, identity, four_layers(), {.limit = limit})) {
    text += reason + "\n";
  }
  return text;
}

TEST(PlanRules, CountTheStateOfTheModelsPrecision) {
  stage::Model model = four_layers();
  const std::int64_t wide = stage_memory(two_stages(), 0, model).static_bytes;
  model.options.precision = stage::Precision::kBf16;
  EXPECT_EQ(stage_memory(two_stages(), 0, model).static_bytes - wide, 2 * 1000 / 2);
}

TEST(PlanRules, CountTheValuesOfFrozenParameters) {
  stage::Model model = four_layers();
  const std::int64_t without = stage_memory(two_stages(), 0, model, true).static_bytes;
  model.layers[1].frozen_bytes = 400;
  EXPECT_EQ(stage_memory(two_stages(), 0, model).static_bytes,
            stage_memory(two_stages(), 0, four_layers()).static_bytes + 400);
  EXPECT_EQ(stage_memory(two_stages(), 0, model, true).static_bytes - without, 2 * 400);
  EXPECT_EQ(stage_memory(two_stages(), 1, model, true).static_bytes,
            stage_memory(two_stages(), 1, four_layers(), true).static_bytes);
}

TEST(PlanRules, CountTheCopyThatASaveHolds) {
  const std::int64_t without = stage_memory(two_stages(), 0, four_layers()).static_bytes;
  const std::int64_t with = stage_memory(two_stages(), 0, four_layers(), true).static_bytes;
  EXPECT_EQ(with - without, 3 * 2 * 1000) << "value and two moments of two layers";

  const std::int64_t need = schedule::memory_bytes(stage_memory(two_stages(), 0, four_layers()),
                                                   two_stages().schedule, 0);
  const auto barely = static_cast<std::int64_t>(static_cast<double>(need) / 0.9) + 2;
  const Identity first{.pod = "a"};
  EXPECT_TRUE(objections(two_stages(), first, four_layers(), {.limit = barely}).empty());
  EXPECT_EQ(objections(two_stages(), first, four_layers(), {.limit = barely, .saves = true}).size(),
            1U);
}

// With the copies of a neighbor of one layer, and of one of three.
TEST(PlanRules, RefuseAPlanWithoutMemoryForTheCopiesThatItMustHave) {
  schedule::Plan plan = two_stages();
  plan.stages = {{0, 0}, {1, 3}};
  EXPECT_EQ(copies_bytes(plan, 0, four_layers()), 3 * 3'000 + 2 * 9'000);
  EXPECT_EQ(copies_bytes(plan, 1, four_layers()), 3 * 9'000 + 2 * 3'000);

  const std::int64_t need =
      schedule::memory_bytes(stage_memory(plan, 0, four_layers()), plan.schedule, 0);
  const auto limit_for = [](std::int64_t bytes) {
    return static_cast<std::int64_t>(static_cast<double>(bytes) / 0.9) + 2;
  };
  const auto refusals = [&](const schedule::Plan& of, const Memory& memory) {
    return objections(of, {.pod = "a"}, four_layers(), memory);
  };
  EXPECT_THAT(refusals(plan, {.limit = limit_for(need + 27'000), .copies = true}), IsEmpty());
  EXPECT_THAT(refusals(plan, {.limit = limit_for(need + 20'000), .copies = true}),
              ElementsAre("copies need 0.03 MB, 0.02 MB are free; raise the memory limit, or set "
                          "recovery.neighborCopies to Auto or Off"));
  EXPECT_THAT(refusals(plan, {.limit = limit_for(need)}), IsEmpty());

  // A device with memory of its own.
  const std::int64_t enough = limit_for(need);
  EXPECT_THAT(refusals(plan, {.limit = enough, .copies = true, .copies_room = 27'000}), IsEmpty());
  EXPECT_THAT(refusals(plan, {.limit = enough, .copies = true, .copies_room = 26'999}), SizeIs(1));

  plan.stages = {{0, 3}};
  plan.ranks.resize(1);
  EXPECT_EQ(copies_bytes(plan, 0, four_layers()), 3 * 12'000) << "nobody is its neighbor";
}

TEST(PlanRules, FindThePlaceByUidBeforeTheName) {
  EXPECT_EQ(place_of(two_stages(), {.pod = "b", .pod_uid = "u-b"})->stage, 1);
  EXPECT_EQ(place_of(two_stages(), {.pod = "b"})->stage, 1);
  EXPECT_FALSE(place_of(two_stages(), {.pod = "b", .pod_uid = "u-of-the-pod-before"}));
  EXPECT_FALSE(place_of(two_stages(), {.pod = "c", .pod_uid = "u-c"}));
}

TEST(PlanRules, HaveNothingAgainstALegalPlan) {
  EXPECT_EQ(reasons_of(two_stages(), {.pod = "a"}), "");
  EXPECT_EQ(reasons_of(two_stages(), {.pod = "idle"}), "");
}

TEST(PlanRules, RefuseCapsThatRise) {
  schedule::Plan plan = two_stages();
  plan.schedule.caps = {2, 4};

  EXPECT_NE(reasons_of(plan, {.pod = "a"}).find("caps"), std::string::npos);
}

TEST(PlanRules, AcceptReplicasInBothModesOfSync) {
  schedule::Plan replicas = two_stages();
  replicas.micro_batches = {8, 8};
  replicas.sync.mode = schedule::SyncMode::kPartial;
  for (int stage = 0; stage < 2; ++stage) {
    replicas.ranks.push_back({.pod = "r1-" + std::to_string(stage), .replica = 1, .stage = stage});
  }
  EXPECT_EQ(reasons_of(replicas, {.pod = "a"}), "");
  replicas.sync.mode = schedule::SyncMode::kExact;
  EXPECT_EQ(reasons_of(replicas, {.pod = "a"}), "");
}

TEST(PlanRules, RefuseAMoveWithoutAHolderByName) {
  schedule::Plan move = two_stages();
  move.state = schedule::StateMove::kMove;

  EXPECT_NE(reasons_of(move, {.pod = "a"}).find("Move"), std::string::npos);
}

TEST(PlanRules, CountTheMemoryOfTheOwnStage) {
  const schedule::StageMemory first = stage_memory(two_stages(), 0, four_layers());
  const schedule::StageMemory second = stage_memory(two_stages(), 1, four_layers());

  // 2 layers x 2 samples x 100; 2 layers x 1000 x 6 + the largest workspace 2 x 7.
  EXPECT_EQ(first.activation_bytes, 400);
  EXPECT_EQ(first.static_bytes, 12014);
  EXPECT_EQ(first.input_bytes, 0);
  EXPECT_EQ(first.output_bytes, 20);
  EXPECT_EQ(second.input_bytes, 20);
  EXPECT_EQ(second.output_bytes, 0);
}

// A tensor is there in both forms while it is encoded or decoded.
TEST(PlanRules, CountEncodedTensors) {
  stage::Model model = four_layers();
  model.layers[1].output_bytes_per_sample = 40 * 4;
  schedule::Plan plan = two_stages();
  const std::int64_t raw = stage_memory(plan, 1, model).static_bytes;
  plan.codecs = {.forward = {schedule::Codec::kInt8}, .backward = {schedule::Codec::kRaw}};
  EXPECT_EQ(stage_memory(plan, 1, model).static_bytes - raw, 2 * 2 * 33)
      << "two samples of 40 numbers";
  plan.codecs.backward = {schedule::Codec::kBf16};
  EXPECT_EQ(
      stage_memory(plan, 0, model).static_bytes - stage_memory(two_stages(), 0, model).static_bytes,
      80 * 2);
}

TEST(PlanRules, RefuseACodecThatChangesNothing) {
  schedule::Plan plan = two_stages();
  plan.codecs = {.forward = {schedule::Codec::kBf16}, .backward = {schedule::Codec::kRaw}};
  EXPECT_EQ(reasons_of(plan, {.pod = "a"}), "");
  stage::Model model = four_layers();
  model.options.precision = stage::Precision::kBf16;
  const auto reasons = objections(plan, {.pod = "a"}, model, {.limit = kPlenty});
  ASSERT_EQ(reasons.size(), 1U);
  EXPECT_EQ(reasons[0], "codecs.forward[0]: BF16 needs float32 tensors");
}

class OwnLayers final : public stage::LayerSource {
 public:
  std::string name() const override { return "own"; }
  std::string engine() const override { return ""; }
  stage::Layers layers() const override { return {}; }
};

TEST(PlanRules, RefuseCodecsOnLayersOfOnesOwn) {
  schedule::Plan plan = two_stages();
  stage::Model model = four_layers();
  model.source = std::make_shared<OwnLayers>();
  EXPECT_THAT(objections(plan, {.pod = "a"}, model, {.limit = kPlenty}), IsEmpty());
  plan.codecs = {.forward = {schedule::Codec::kRaw}, .backward = {schedule::Codec::kRaw}};
  EXPECT_THAT(objections(plan, {.pod = "a"}, model, {.limit = kPlenty}), IsEmpty());
  plan.codecs.backward = {schedule::Codec::kInt8};
  EXPECT_THAT(objections(plan, {.pod = "a"}, model, {.limit = kPlenty}),
              ElementsAre("codecs: link 0-1 cannot be compressed: layer layer1 is one's own and "
                          "may hand on several tensors"));
}

// Layers of one's own may keep and take bytes whatever their samples.
TEST(PlanRules, CountWhatALayerTakesOncePerMicroBatch) {
  stage::Model model = four_layers();
  model.layers[0].activation_bytes = 50;
  model.layers[1].transient_bytes = 5;
  const schedule::StageMemory memory = stage_memory(two_stages(), 0, model);

  EXPECT_EQ(memory.activation_bytes, 400 + 50);
  EXPECT_EQ(memory.static_bytes, 12000 + 2 * 7 + 5);
}

TEST(PlanRules, CountWhatASplitBackwardHolds) {
  stage::Model model = four_layers();
  model.layers[0].held_bytes_per_sample = 160;
  model.layers[1].held_bytes_per_sample = 30;
  for (stage::LayerInfo& layer : model.layers) layer.split_transient_bytes_per_sample = 9;
  schedule::Plan plan = two_stages();
  plan.schedule.split = schedule::Split{.held = {8, 8}, .postponed = {0, 0}};
  const schedule::StageMemory memory = stage_memory(plan, 0, model);

  EXPECT_EQ(memory.activation_bytes, 400);
  EXPECT_EQ(memory.held_bytes, 2 * (160 + 30));
  EXPECT_EQ(memory.in_backward_bytes, 2 * (160 + 100));
  EXPECT_EQ(memory.static_bytes, 12000 + 2 * 9);
}

TEST(PlanRules, RefuseAPlanThatNeedsMoreThanTheLimitLessTheReserve) {
  const std::int64_t need = schedule::memory_bytes(stage_memory(two_stages(), 0, four_layers()),
                                                   two_stages().schedule, 0);
  const auto with_reserve = static_cast<std::int64_t>(static_cast<double>(need) / 0.9);

  EXPECT_EQ(reasons_of(two_stages(), {.pod = "a"}, with_reserve + 2), "");
  EXPECT_NE(reasons_of(two_stages(), {.pod = "a"}, with_reserve - 2).find("stage 0 needs"),
            std::string::npos);
}

}  // namespace plan_rules_test
}  // namespace weir::engine
