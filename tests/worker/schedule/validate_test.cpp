// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/validate.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "worker/schedule/caps.h"

namespace weir::schedule {
namespace validate_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Plan legal_plan() {
  Plan plan;
  plan.job_uid = "job";
  plan.revision = 1;
  plan.schedule = {.dispatch = Dispatch::kHint, .k = 2, .micro_batch_size = 4, .caps = {6, 4, 2}};
  plan.micro_batches = {8};
  plan.stages = {{0, 3}, {4, 5}, {6, 9}};
  for (int s = 0; s < 3; ++s) plan.ranks.push_back({.pod = "p" + std::to_string(s), .stage = s});
  return plan;
}

TEST(Validate, ALegalPlanBreaksNothing) {
  EXPECT_THAT(broken_rules(legal_plan(), 10), IsEmpty());
  EXPECT_THAT(broken_rules(legal_plan(), -1), IsEmpty());
}

TEST(Validate, CapsNeedOneValuePerStageWithinTheStep) {
  Plan plan = legal_plan();
  plan.schedule.caps = {6, 4};
  EXPECT_THAT(broken_rules(plan, 10), ElementsAre("schedule.caps: 2 values for 3 stages"));
  plan.schedule.caps = {9, 4, 0};
  EXPECT_THAT(broken_rules(plan, 10),
              ElementsAre("schedule.caps[0]: 9 is above the 8 micro-batches of a step",
                          "schedule.caps[2]: 0 is below 1"));
  plan.schedule.caps = {4, 6, 2};
  EXPECT_THAT(broken_rules(plan, 10),
              ElementsAre("schedule.caps[1]: 6 is above the 4 of the stage before"));
}

TEST(Validate, CapsOfOneAreStrict) {
  Plan plan = legal_plan();
  plan.schedule.caps = {3, 2, 1};
  EXPECT_THAT(broken_rules(plan, 10), ElementsAre(HasSubstr("schedule.dispatch: Hint")));
  plan.schedule.dispatch = Dispatch::kStrict;
  EXPECT_THAT(broken_rules(plan, 10), IsEmpty());
}

TEST(Validate, CodecsAreNoneOrOneABoundary) {
  Plan plan = legal_plan();
  plan.codecs = {.forward = {Codec::kInt8, Codec::kRaw}, .backward = {Codec::kRaw, Codec::kRaw}};
  EXPECT_THAT(broken_rules(plan, 10), IsEmpty());
  plan.codecs.backward.pop_back();
  EXPECT_THAT(broken_rules(plan, 10),
              ElementsAre("codecs.backward: has 1 entries, the plan has 2 boundaries"));
  plan.codecs = {.forward = {Codec::kInt8, Codec::kRaw, Codec::kRaw}, .backward = {}};
  EXPECT_THAT(broken_rules(plan, 10),
              ElementsAre("codecs.forward: has 3 entries, the plan has 2 boundaries",
                          "codecs.backward: has 0 entries, the plan has 2 boundaries"));
}

TEST(Validate, ASplitBackwardHasValuesInRange) {
  Plan plan = legal_plan();
  plan.schedule.split = Split{.held = {6, 6, 8}, .postponed = {0, 2, 8}};
  EXPECT_THAT(broken_rules(plan, 10), IsEmpty());
  plan.schedule.caps = {3, 2, 1};
  EXPECT_THAT(broken_rules(plan, 10), IsEmpty()) << "with Hint, whatever the k";
  plan.schedule.caps = {6, 4, 2};
  plan.schedule.split = Split{.held = {6, 3, 9}, .postponed = {0, -1, 9}};
  EXPECT_THAT(broken_rules(plan, 10),
              ElementsAre("schedule.split.held[1]: 3 is below 4",
                          "schedule.split.held[2]: 9 is above the 8 micro-batches of a step",
                          "schedule.split.postponed[1]: -1 is below 0",
                          "schedule.split.postponed[2]: 9 is above the 8 micro-batches of a step"));
  plan.schedule.split = Split{.held = {6}, .postponed = {}};
  EXPECT_THAT(broken_rules(plan, 10),
              ElementsAre("schedule.split.held: 1 values for 3 stages",
                          "schedule.split.postponed: 0 values for 3 stages"));
}

TEST(Validate, KAndMicroBatchSizeAreInRange) {
  Plan plan = legal_plan();
  plan.schedule.k = 0;
  plan.schedule.micro_batch_size = 0;
  EXPECT_THAT(broken_rules(plan, 10),
              ElementsAre("schedule.microBatchSize: 0 is below 1", "schedule.k: 0 is below 1"));
  plan = legal_plan();
  plan.schedule.k = 9;
  EXPECT_THAT(broken_rules(plan, 10),
              ElementsAre("schedule.k: 9 is above the 8 micro-batches of a step"));
}

TEST(Validate, ASyncPolicyIsJudgedWhereItIsUsed) {
  Plan plan = legal_plan();
  plan.sync = {.group_size_min = 1, .max_staleness = 0, .connect_every = 0};
  EXPECT_THAT(broken_rules(plan, 10), IsEmpty()) << "Exact asks for none of it";
  plan.sync.mode = SyncMode::kPartial;
  plan.sync.group_size_max = 0;
  EXPECT_THAT(
      broken_rules(plan, 10),
      ElementsAre("sync.groupSizeMin: 1 is below 2", "sync.groupSizeMax: 0 is below groupSizeMin",
                  "sync.maxStaleness: is below 1", "sync.connectEvery: 0 is below 1"));
}

TEST(Validate, LayersAreContiguousAndComplete) {
  Plan plan = legal_plan();
  plan.stages[1].first = 5;
  EXPECT_THAT(broken_rules(plan, 10), ElementsAre("stages[1].layers: starts at 5 instead of 4"));
  plan = legal_plan();
  EXPECT_THAT(broken_rules(plan, 12), ElementsAre("stages: cover 10 of 12 layers"));
  plan.stages[2].last = 5;
  EXPECT_THAT(broken_rules(plan, -1), ElementsAre("stages[2].layers: holds no layer"));
}

TEST(Validate, EveryPlaceHasOneRank) {
  Plan plan = legal_plan();
  plan.ranks[2].stage = 1;
  EXPECT_THAT(broken_rules(plan, 10), ElementsAre("ranks: 2 ranks for replica 0, stage 1",
                                                  "ranks: 0 ranks for replica 0, stage 2"));
  plan = legal_plan();
  plan.ranks[0].replica = 1;
  plan.ranks[1].stage = 3;
  EXPECT_THAT(broken_rules(plan, 10),
              ElementsAre("ranks[0].replica: 1 is not below 1", "ranks[1].stage: 3 is not below 3",
                          "ranks: 0 ranks for replica 0, stage 0",
                          "ranks: 0 ranks for replica 0, stage 1"));
}

TEST(Validate, SharesArePositiveAndThePlanIsNotEmpty) {
  Plan plan = legal_plan();
  plan.micro_batches = {8, 0};
  EXPECT_THAT(broken_rules(plan, 10), ElementsAre("microBatches[1]: 0 is below 1"));
  EXPECT_THAT(broken_rules(Plan{}, 10), ElementsAre("stages: empty", "microBatches: empty"));
}

TEST(Validate, AStepThatCannotBeCountedIsNamed) {
  Plan plan = legal_plan();
  plan.micro_batches = {65535};
  plan.schedule.micro_batch_size = 65535;  // above 2^31 together
  EXPECT_THAT(broken_rules(plan, 10),
              ElementsAre(HasSubstr("schedule.microBatchSize: 65535 times 65535")));
  plan.micro_batches = {2147483647};
  plan.schedule.micro_batch_size = 2147483647;
  EXPECT_THAT(broken_rules(plan, 10), ElementsAre(HasSubstr("microBatches: 2147483647 a step")));
  plan.micro_batches = {1 << 20};
  plan.schedule.micro_batch_size = 1;
  EXPECT_THAT(broken_rules(plan, 10), IsEmpty());
}

TEST(Validate, MemoryIsActivationsAndSlots) {
  const StageMemory stage{
      .activation_bytes = 100, .input_bytes = 10, .output_bytes = 20, .static_bytes = 1000};
  Schedule schedule{.k = 4, .caps = {16, 12, 8, 4}};
  // Inputs 2k+3 and outputs k+5 of a micro-batch.
  EXPECT_EQ(memory_bytes(stage, schedule, 1), 1000 + 12 * 100 + 11 * 10 + 9 * 20);
  schedule.caps = {4, 3, 2, 1};
  EXPECT_EQ(memory_bytes(stage, schedule, 3), 1000 + 1 * 100 + 7 * 10 + 7 * 20);
}

TEST(Validate, MemoryOfASplitBackwardIsWhatIsInFlightAndHeld) {
  StageMemory stage{.activation_bytes = 100, .held_bytes = 60, .in_backward_bytes = 110};
  Schedule schedule{.k = 2, .caps = {4, 2}, .split = Split{.held = {7, 7}, .postponed = {0, 0}}};
  EXPECT_EQ(memory_bytes(stage, schedule, 0), 3 * 100 + 110 + 3 * 60);
  EXPECT_EQ(memory_bytes(stage, schedule, 1), 100 + 110 + 5 * 60);
  stage = {.activation_bytes = 100, .held_bytes = 160, .in_backward_bytes = 170};
  EXPECT_EQ(memory_bytes(stage, schedule, 0), 6 * 160 + 170) << "all but one may be held";
}

TEST(Plan, GenerationIsMembersRanksAndCut) {
  const Plan plan = legal_plan();
  Plan retuned = plan;
  retuned.revision = 2;
  retuned.schedule.caps = {8, 6, 3};
  EXPECT_TRUE(same_generation(plan, retuned));

  Plan recut = plan;
  recut.stages[0].last = 2;
  EXPECT_FALSE(same_generation(plan, recut));
  Plan moved = plan;
  moved.ranks[0].ip = "10.0.0.9";
  EXPECT_FALSE(same_generation(plan, moved));
  Plan grown = plan;
  grown.idle = {"p3"};
  EXPECT_FALSE(same_generation(plan, grown));
  Plan other = plan;
  other.job_uid = "other";
  EXPECT_FALSE(same_generation(plan, other));
}

TEST(Plan, NamesAreThoseOfTheDocument) {
  EXPECT_STREQ(name(Dispatch::kHint), "Hint");
  EXPECT_STREQ(name(Dispatch::kStrict), "Strict");
  std::string triggers, moves;
  for (const Trigger trigger :
       {Trigger::kInitial, Trigger::kRetune, Trigger::kRegroup, Trigger::kReplace,
        Trigger::kRestart, Trigger::kResize, Trigger::kManual})
    triggers += std::string(name(trigger)) + " ";
  for (const StateMove move : {StateMove::kKeep, StateMove::kMove, StateMove::kCheckpoint})
    moves += std::string(name(move)) + " ";
  EXPECT_EQ(triggers, "Initial Retune Regroup Replace Restart Resize Manual ");
  EXPECT_EQ(moves, "Keep Move Checkpoint ");
}

}  // namespace validate_test
}  // namespace weir::schedule
