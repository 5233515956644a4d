// SPDX-License-Identifier: Apache-2.0
// Plans with codecs: the loss depends on the cut and on the codec of each boundary, and on nothing
// else that a plan decides.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/fakes.h"
#include "tests/worker/engine/group.h"
#include "worker/base/units.h"
#include "worker/emulate/stage_around.h"
#include "worker/engine/plan_rules.h"

namespace weir::engine::test {
namespace codec_test {

using schedule::Codec;
using schedule::Dispatch;
using schedule::Family;
using testing::Each;

constexpr int kMicroBatches = 6, kStages = 3;
constexpr std::int64_t kSteps = 4;

schedule::Codecs codecs(Codec forward, Codec backward) {
  return {.forward = {forward, Codec::kRaw}, .backward = {Codec::kInt8, backward}};
}

struct Order {
  std::vector<int> shares = {kMicroBatches};
  Family family = Family::kOneFOneB;
  int k = 1;
  Dispatch dispatch = Dispatch::kStrict;
  bool split = false;
  std::vector<int> caps = {};  // empty: those of the family
  Group::On on = Group::On::kHost;
};

std::vector<double> losses_with(const std::string& model, const schedule::Codecs& codecs,
                                const Order& order) {
  const int replicas = static_cast<int>(order.shares.size());
  Group group(model, kStages * replicas, kSteps, 0, nullptr, nullptr, nullptr, order.on);
  schedule::Plan plan = plan_of(kStages, group.layers(), *std::ranges::min_element(order.shares),
                                order.family, order.k, order.dispatch);
  plan.micro_batches = order.shares;
  plan.codecs = codecs;
  if (!order.caps.empty()) plan.schedule.caps = order.caps;
  if (order.split) {
    plan.schedule.dispatch = Dispatch::kHint;
    plan.schedule.split = schedule::Split{.held = plan.schedule.caps, .postponed = {0, 0, 0}};
  }
  EXPECT_EQ(group.start(plan), "");
  EXPECT_THAT(group.finish(), Each(Exit::kFinished));
  return losses_of(group.records(kStages * replicas - 1));
}

const std::vector<Order> kOrders = {
    {.family = Family::kKfkb, .k = 2, .dispatch = Dispatch::kHint},
    {.family = Family::kKfkb, .k = 2},
    {.family = Family::kKfkb, .k = 4, .dispatch = Dispatch::kHint},
    {.family = Family::kGpipe, .k = kMicroBatches},
    {.family = Family::kKfkb, .dispatch = Dispatch::kHint, .caps = {6, 3, 2}},
    {.split = true},
    {.shares = {2, 4}},
    {.shares = {1, 3, 2}, .family = Family::kKfkb, .dispatch = Dispatch::kHint},
    {.on = Group::On::kStrictDevice},
};

TEST(Codecs, GiveALossThatDependsOnNoOrderReplicaOrDevice) {
  const std::vector<std::pair<std::string, std::vector<schedule::Codecs>>> cases = {
      {"mlp", {codecs(Codec::kInt8, Codec::kInt6), codecs(Codec::kBf16, Codec::kRaw)}},
      {"gpt-tiny", {codecs(Codec::kInt6, Codec::kBf16)}},
      {"gpt-tiny in bf16", {codecs(Codec::kInt6, Codec::kInt8)}}};
  for (const auto& [model, of_model] : cases) {
    const std::vector<double> raw = losses_with(model, {}, {});
    for (const schedule::Codecs& codecs : of_model) {
      const std::vector<double> expected = losses_with(model, codecs, {});
      ASSERT_EQ(expected.size(), static_cast<std::size_t>(kSteps));
      for (const Order& order : kOrders) {
        EXPECT_EQ(losses_with(model, codecs, order), expected)
            << model << " " << name(order.family) << " " << order.shares.size() << " replicas";
      }
      EXPECT_NE(expected, raw) << model;
      for (std::size_t i = 0; i < raw.size(); ++i) EXPECT_NEAR(expected[i], raw[i], 0.02 * raw[i]);
    }
  }
}

TEST(Codecs, ChangeInBandAtOneStepOfAllReplicas) {
  constexpr std::int64_t kLong = 150;
  for (const int replicas : {1, 2}) {
    Group group("mlp", kStages * replicas, kLong);
    const auto plan_with = [&](std::uint32_t revision) {
      schedule::Plan plan = plan_of(kStages, group.layers(), kMicroBatches / replicas,
                                    Family::kOneFOneB, 1, Dispatch::kStrict);
      plan.micro_batches.assign(static_cast<std::size_t>(replicas), kMicroBatches / replicas);
      plan.revision = revision;
      if (revision > 1) plan.trigger = schedule::Trigger::kCompress;
      constexpr Codec kTurns[] = {Codec::kRaw, Codec::kInt8, Codec::kInt6, Codec::kBf16};
      const Codec turn = kTurns[revision % std::size(kTurns)];
      if (revision > 1) plan.codecs = codecs(turn, turn);
      return plan;
    };
    ASSERT_EQ(group.start(plan_with(1)), "");
    std::uint32_t revision = 1;
    while (group.engine(0).statistics().step < kLong - 30 && revision < 9) {
      ++revision;
      ASSERT_EQ(group.switch_to(plan_with(revision)), "") << revision;
    }
    EXPECT_THAT(group.finish(), Each(Exit::kFinished));
    EXPECT_GE(revision, 4U);
    const auto first = group.records(0);
    for (int rank = 1; rank < kStages * replicas; ++rank) {
      const auto records = group.records(rank);
      ASSERT_EQ(records.size(), first.size());
      for (std::size_t i = 0; i < records.size(); ++i) {
        EXPECT_EQ(records[i].epoch, first[i].epoch) << "rank " << rank << ", step " << i;
      }
    }
    EXPECT_EQ(group.engine(0).statistics().rejoins, 0) << "the links stay";
  }
}

// Also by a rank whose own tensors are raw: the count is the job's.
TEST(Codecs, HaveTheirStepsCountedByAllRanksFromTheCountOfTheGeneration) {
  constexpr std::int64_t kLong = 1000;
  Group group("mlp", kStages, kLong);
  schedule::Plan plan =
      plan_of(kStages, group.layers(), kMicroBatches, Family::kOneFOneB, 1, Dispatch::kStrict);
  plan.codecs = {.forward = {Codec::kInt8, Codec::kRaw}, .backward = {Codec::kRaw, Codec::kRaw}};
  ASSERT_EQ(group.prepare(plan), "");
  ASSERT_EQ(
      group.ask(kStages, protocol::Commit{.revision = 1, .history = 5, .compressed_steps = 100}),
      "");
  for (int i = 0; i < kStages; ++i) group.engine(i).mailbox().put(protocol::Go{1});
  ASSERT_TRUE(group.reaches(0, 3));
  group.break_links(1);
  for (int i = 0; i < kStages; ++i) {
    ASSERT_TRUE(group.reports_loss(i)) << i;
    const protocol::Inventory told = group.inventory(i);
    ASSERT_EQ(told.held.size(), 1U);
    EXPECT_GE(told.held[0].step, 2);
    EXPECT_EQ(told.held[0].compressed_steps, 100 + told.held[0].step) << i;
  }
  for (int i = 0; i < kStages; ++i) group.engine(i).leave(kPatience);
  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
}

// Its parameters stay as they were.
class Frozen final : public emulate::StageAround {
 public:
  using StageAround::StageAround;
  void optimizer_step() override {}
};

// Codecs concern training: a validation finds the loss of the model as it is.
TEST(Codecs, LeaveValidationsRaw) {
  const auto validated = [&](const schedule::Codecs& codecs) {
    Group group("mlp", kStages, 1, 0, nullptr, nullptr, nullptr, Group::On::kHost,
                {.interval = 1, .samples = 4}, [](std::unique_ptr<stage::Stage> stage, int) {
                  return std::make_unique<Frozen>(std::move(stage));
                });
    schedule::Plan plan =
        plan_of(kStages, group.layers(), kMicroBatches, Family::kOneFOneB, 1, Dispatch::kStrict);
    plan.codecs = codecs;
    EXPECT_EQ(group.start(plan), "");
    EXPECT_THAT(group.finish(), Each(Exit::kFinished));
    const auto losses = group.validations(kStages - 1);
    return std::pair(losses.empty() ? NAN : losses.front().second,
                     losses_of(group.records(kStages - 1)));
  };
  const auto [raw, raw_training] = validated({});
  const auto [compressed, training] = validated(
      {.forward = {Codec::kInt6, Codec::kInt6}, .backward = {Codec::kInt6, Codec::kInt6}});
  EXPECT_TRUE(std::isfinite(raw));
  EXPECT_EQ(compressed, raw);
  EXPECT_NE(training, raw_training);
}

TEST(Codecs, BookTheirTimeAsAPartOfItsOwn) {
  Group group("gpt-tiny", 2, 3);
  schedule::Plan plan =
      plan_of(2, group.layers(), kMicroBatches, Family::kOneFOneB, 1, Dispatch::kStrict);
  plan.codecs = {.forward = {Codec::kInt8}, .backward = {Codec::kInt8}};
  ASSERT_EQ(group.start(plan), "");
  EXPECT_THAT(group.finish(), Each(Exit::kFinished));
  for (int rank = 0; rank < 2; ++rank) {
    const StepRecord record = group.records(rank).back();
    const auto coded = record.parts[static_cast<std::size_t>(StepPart::kCodec)];
    EXPECT_GT(coded.count(), 0);
    EXPECT_GE(record.compute_seconds,
              record.forward_seconds + record.backward_seconds + to_seconds(coded) * 0.99);
  }
}

// Ranks of one plan of three stages, one of which has other codecs than the others.
struct Disagreement {
  int rank;              // that has other codecs
  schedule::Codecs its;  // the others have Int8 everywhere
  int reader;            // of the step header at which it shows
  std::string reason;
};

const schedule::Codecs kAllInt8 = {.forward = {Codec::kInt8, Codec::kInt8},
                                   .backward = {Codec::kInt8, Codec::kInt8}};
const std::vector<Disagreement> kDisagreements = {
    {.rank = 2,
     .its = {.forward = {Codec::kInt8, Codec::kRaw}, .backward = kAllInt8.backward},
     .reader = 2,
     .reason = "link 1-2 forward: step header: forward codec is Int8, expected Raw"},
    {.rank = 0,
     .its = {.forward = kAllInt8.forward, .backward = {Codec::kInt6, Codec::kInt8}},
     .reader = 1,
     .reason = "link 0-1 forward: step header: backward codec is Int6, expected Int8"},
};

TEST(Codecs, OfEndsThatDisagreeEndTheStepWithOneLineThatNamesPeerLinkAndBoth) {
  for (const Disagreement& one : kDisagreements) {
    constexpr std::int64_t kLong = 1'000'000;
    Group group("mlp", kStages, kLong);
    schedule::Plan plan =
        plan_of(kStages, group.layers(), kMicroBatches, Family::kOneFOneB, 1, Dispatch::kStrict);
    plan.codecs = kAllInt8;
    for (int i = 0; i < kStages; ++i) {
      plan.ranks.push_back({.pod = "w" + std::to_string(i),
                            .ip = "127.0.0.1",
                            .stage = i,
                            .data_port = group.data_port(i)});
    }
    schedule::Plan other = plan;
    other.codecs = one.its;
    for (int i = 0; i < kStages; ++i) {
      const protocol::Prepare prepare{i == one.rank ? other : plan, 0};
      ASSERT_EQ(group.ask(std::vector<int>{i}, prepare), "");
    }
    ASSERT_EQ(group.commit(kStages, 1, 0), "");
    for (int i = 0; i < kStages; ++i) group.engine(i).mailbox().put(protocol::Go{1});

    for (int i = 0; i < kStages; ++i) {
      EXPECT_TRUE(group.reports_loss(i)) << i;
      EXPECT_EQ(group.lost(i).size(), 1U) << i;
      EXPECT_TRUE(group.records(i).empty()) << "no step ends";
    }
    const int peer = one.reader - 1;
    EXPECT_EQ(group.lost(one.reader).front(),
              "stage " + std::to_string(peer) +
                  " at 127.0.0.1:" + std::to_string(group.data_port(peer)) + ", " + one.reason);

    plan.ranks.clear();
    plan.revision = 2;
    plan.state = schedule::StateMove::kCheckpoint;  // there is none: from step 0
    ASSERT_EQ(group.start(plan, 0, 1), "") << "all ranks live";
    EXPECT_TRUE(group.reaches(0, 3));
    for (int i = 0; i < kStages; ++i) group.engine(i).leave(kPatience);
    EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
  }
}

class Coded : public testing::Test {
 protected:
  // Stage 0 of two whose boundary has 96 numbers a sample.
  struct Layers : FakeStage {
    using FakeStage::FakeStage;
    std::int64_t output_bytes(int samples) const override { return samples * 96 * 4; }
  };
  schedule::Plan plan_with(Codec forward) const {
    schedule::Plan plan;
    plan.schedule.micro_batch_size = 2;
    plan.stages = {{0, 0}, {1, 1}};
    plan.codecs = {.forward = {forward}, .backward = {Codec::kRaw}};
    return plan;
  }
  std::unique_ptr<device::Device> device_ = device::make_host_device();
  Layers layers_{*device_, std::make_shared<Journal>(), true, false};
  BoundaryCodec codec_ = host_codec(*device_);
};

TEST_F(Coded, TellsSizesAndErrorsOfADirection) {
  ASSERT_TRUE(codec_.begin_step(plan_with(Codec::kInt8), 0, layers_));
  EXPECT_EQ(codec_.sent_bytes(transport::Channel::kForward), 2 * 3 * 33);
  EXPECT_EQ(codec_.received_bytes(transport::Channel::kBackward), 2 * 96 * 4) << "raw";
  EXPECT_EQ(codec_.sent_bytes(transport::Channel::kBackward), 0) << "a first stage";
  device::Buffer tensor = device_->allocate(2 * 96 * 4);
  for (int i = 0; i < 2 * 96; ++i) tensor.as<float>()[i] = static_cast<float>(i % 32) + 0.3F;

  const auto message = codec_.encode(transport::Channel::kForward, tensor);

  ASSERT_TRUE(message);
  EXPECT_EQ(message->size(), 2U * 3 * 33);
  auto error = codec_.sent(transport::Channel::kForward);
  ASSERT_TRUE(error);
  EXPECT_GT(error->error_ratio, 0.001);
  EXPECT_LT(error->error_ratio, 0.01);
  EXPECT_EQ(error->zeroed_ratio, 0);
  EXPECT_DOUBLE_EQ(error->bits, 8.25);
  ASSERT_TRUE(codec_.begin_step(plan_with(Codec::kRaw), 0, layers_));
  error = codec_.sent(transport::Channel::kForward);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->error_ratio, 0) << "of this step alone";
  EXPECT_DOUBLE_EQ(error->bits, 32);
}

TEST_F(Coded, LooksAtEachBlockOfASmallMessageInTurn) {
  constexpr int kNumbers = 2 * 96, kBlocks = kNumbers / stage::ops::kCodecBlock;
  ASSERT_TRUE(codec_.begin_step(plan_with(Codec::kInt8), 0, layers_));
  for (int message = 0; message < kBlocks; ++message) {
    device::Buffer tensor = device_->allocate(kNumbers * 4);
    std::fill_n(tensor.as<float>(), kNumbers, 0.5F);
    tensor.as<float>()[4 * stage::ops::kCodecBlock] = 1000;  // owns the fifth block
    ASSERT_TRUE(codec_.encode(transport::Channel::kForward, std::move(tensor)));
  }
  const auto told = codec_.sent(transport::Channel::kForward);
  ASSERT_TRUE(told);
  EXPECT_DOUBLE_EQ(told->zeroed_ratio, 31.0 / kNumbers);
}

TEST_F(Coded, NeedsKernelsForACodecOnly) {
  BoundaryCodec none(*device_, stage::Precision::kFp32,
                     []() -> Result<std::unique_ptr<stage::ops::Kernels>> {
                       return Error{Code::kInternal, "no kernels"};
                     });
  EXPECT_TRUE(none.begin_step(plan_with(Codec::kRaw), 0, layers_));
  const Status refused = none.begin_step(plan_with(Codec::kInt6), 0, layers_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "no kernels");
}

}  // namespace codec_test
}  // namespace weir::engine::test
