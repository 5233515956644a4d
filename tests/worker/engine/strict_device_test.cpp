// SPDX-License-Identifier: Apache-2.0
// Whole pipelines whose ranks compute on devices that the host does not reach: every bit is that of
// hosts, whatever passes between ranks.
#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"
#include "tests/worker/engine/moves.h"
#include "tests/worker/engine/rounds.h"
#include "worker/emulate/stage_around.h"

namespace weir::engine::test {
namespace strict_device_test {

using schedule::Dispatch;
using schedule::Family;
using testing::Each;

// A run of one replica or of several that end in a checkpoint.
struct Ran {
  std::vector<double> losses;
  Saves::State state;
};

Ran run(Group::On on, const std::string& model, int stages, const std::vector<int>& shares,
        std::int64_t steps, double grad_clip) {
  const int ranks = stages * static_cast<int>(shares.size());
  Saves saves;
  Group group(model, ranks, steps, grad_clip, &saves, nullptr, nullptr, on);
  const int least = *std::ranges::min_element(shares);
  schedule::Plan plan =
      plan_of(stages, group.layers(), least, Family::kOneFOneB, 1, Dispatch::kStrict);
  plan.micro_batches = shares;
  if (const std::string reason = group.start(plan); !reason.empty()) {
    ADD_FAILURE() << reason;
    return {};
  }
  for (int rank = 0; rank < ranks; ++rank) {
    group.engine(rank).mailbox().put(protocol::Save{.step = steps});
  }
  for (int rank = 0; rank < ranks; ++rank) EXPECT_TRUE(group.reaches(rank, steps));
  for (int rank = 0; rank < ranks; ++rank) {
    group.engine(rank).mailbox().put(protocol::Saved{.step = steps});
  }
  EXPECT_THAT(group.finish(), Each(Exit::kFinished));
  EXPECT_EQ(saves.unequal(steps), 0);
  return {losses_of(group.records(ranks - 1)), saves.state(steps)};
}

TEST(OnStrictDevices, APipelineTrainsToTheBitsOfHosts) {
  constexpr std::int64_t kSteps = 3;
  for (const int stages : {1, 2}) {
    const Ran strict = run(Group::On::kStrictDevice, "gpt-tiny", stages, {4}, kSteps, 0);
    const Ran host = run(Group::On::kHost, "gpt-tiny", 1, {4}, kSteps, 0);
    EXPECT_EQ(strict.losses, host.losses) << stages << " stages";
    EXPECT_TRUE(strict.state == host.state) << stages << " stages";
    EXPECT_EQ(host.losses.size(), static_cast<std::size_t>(kSteps));
  }
}

// Tells the group that it is warmed up.
class Warmed final : public emulate::StageAround {
 public:
  Warmed(std::unique_ptr<stage::Stage> inner, Group*& group)
      : StageAround(std::move(inner)), group_(group) {}
  Status warm_up(int samples) override {
    group_->note("warm up with " + std::to_string(samples));
    return Unit{};
  }

 private:
  Group*& group_;
};

TEST(OnStrictDevices, KernelsAreLoadedBeforeThereAreLinksAndOnceForAStage) {
  Group* own = nullptr;
  const auto around = [&own](std::unique_ptr<stage::Stage> inner,
                             int) -> std::unique_ptr<stage::Stage> {
    return std::make_unique<Warmed>(std::move(inner), own);
  };
  Group group("mlp", 2, 2, 0, nullptr, nullptr, nullptr, Group::On::kHost, {}, around);
  own = &group;
  ASSERT_EQ(group.start(plan_of(2, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict)),
            "");
  EXPECT_THAT(group.finish(), Each(Exit::kFinished));

  // Each of two ranks is warm when it asks for links; which of them is first is a matter of chance.
  const std::vector<std::string> calls = group.calls();
  EXPECT_EQ(std::ranges::count(calls, "warm up with 2"), 2) << testing::PrintToString(calls);
  EXPECT_EQ(std::ranges::count(calls, "connect"), 2);
  ASSERT_FALSE(calls.empty());
  EXPECT_EQ(calls.front(), "warm up with 2");
  EXPECT_EQ(calls.back(), "connect");
}

TEST(OnStrictDevices, AClippedPipelineTrainsToTheBitsOfHosts) {
  constexpr double kLimit = 1e-4;  // below any norm
  const Ran strict = run(Group::On::kStrictDevice, "mlp", 2, {3}, 4, kLimit);
  const Ran host = run(Group::On::kHost, "mlp", 2, {3}, 4, kLimit);
  EXPECT_EQ(strict.losses, host.losses);
  EXPECT_TRUE(strict.state == host.state);
  EXPECT_NE(host.losses, run(Group::On::kHost, "mlp", 2, {3}, 4, 0).losses);
}

TEST(OnStrictDevices, ReplicasAddTheirGradientsToTheBitsOfOneReplica) {
  constexpr std::int64_t kSteps = 4;
  for (const double clip : {0.0, 1e-4}) {
    const Ran alone = run(Group::On::kHost, "mlp", 1, {6}, kSteps, clip);
    for (const std::vector<int>& shares : {std::vector{3, 3}, std::vector{2, 1, 3}}) {
      const Ran strict = run(Group::On::kStrictDevice, "mlp", 2, shares, kSteps, clip);
      EXPECT_EQ(strict.losses, alone.losses);
      EXPECT_TRUE(strict.state == alone.state);
    }
  }
}

// The average of all in each step has no order of its own: hosts give the bits to compare with.
TEST(OnStrictDevices, PartialAveragesGiveTheBitsOfHosts) {
  constexpr std::int64_t kSteps = 6;
  const auto averaged = [](Group::On on, bool overlaps) {
    Saves saves;
    Rounds rounds(2, 1, 2, kSteps, {}, overlaps);
    Group group(
        "mlp", 2, kSteps, 0, &saves,
        [&](int replica, std::int64_t step) { rounds.on_ready(replica, step); }, nullptr, on);
    rounds.attach(group);
    EXPECT_EQ(group.start(averaging(1, group.layers(), {2, 3})), "");
    for (int rank = 0; rank < 2; ++rank) {
      group.engine(rank).mailbox().put(protocol::Save{.step = kSteps});
    }
    for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(group.reaches(rank, kSteps));
    for (int rank = 0; rank < 2; ++rank) {
      group.engine(rank).mailbox().put(protocol::Saved{.step = kSteps});
    }
    EXPECT_THAT(group.finish(), Each(Exit::kFinished));
    EXPECT_EQ(saves.unequal(kSteps), 0) << "both have the average";
    return Ran{losses_of(group.records(1)), saves.state(kSteps)};
  };
  std::vector<Ran> hosts;
  for (const bool overlaps : {false, true}) {
    const Ran strict = averaged(Group::On::kStrictDevice, overlaps);
    hosts.push_back(averaged(Group::On::kHost, overlaps));
    EXPECT_EQ(strict.losses, hosts.back().losses) << overlaps;
    EXPECT_TRUE(strict.state == hosts.back().state) << overlaps;
    EXPECT_FALSE(hosts.back().state.empty());
  }
  EXPECT_NE(hosts[0].losses, hosts[1].losses) << "steps before and after the mean";
}

TEST(OnStrictDevices, StateMovesWithoutABitOfDifference) {
  const auto moved = expect_equal_losses(3, {{0, 1, 2}, {1, 4, 7}}, {{0, 2, 1}, {3, 5, 7}},
                                         Group::On::kStrictDevice);
  EXPECT_GT(moved[0], 0);
  EXPECT_GT(moved[1], 0);
}

TEST(OnStrictDevices, ANewStageGoesOnFromACheckpoint) {
  constexpr std::int64_t kSteps = 8, kSaved = 4;
  Saves saves;
  {
    Group group("mlp", 2, kSaved, 0, &saves, nullptr, nullptr, Group::On::kStrictDevice);
    ASSERT_EQ(group.start(plan_of(2, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict)),
              "");
    for (int rank = 0; rank < 2; ++rank) {
      group.engine(rank).mailbox().put(protocol::Save{.step = kSaved});
    }
    for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(group.reaches(rank, kSaved));
    for (int rank = 0; rank < 2; ++rank) {
      group.engine(rank).mailbox().put(protocol::Saved{.step = kSaved});
    }
    group.finish();
  }
  Group group("mlp", 3, kSteps, 0, &saves, nullptr, nullptr, Group::On::kStrictDevice);
  auto plan = plan_of(3, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict);
  plan.trigger = schedule::Trigger::kRestart;
  plan.state = schedule::StateMove::kCheckpoint;
  plan.checkpoint_step = kSaved;
  ASSERT_EQ(group.start(plan, kSaved), "");
  for (int rank = 0; rank < 3; ++rank) {
    group.engine(rank).mailbox().put(protocol::Save{.step = kSteps});
  }
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(group.reaches(rank, kSteps));
  for (int rank = 0; rank < 3; ++rank) {
    group.engine(rank).mailbox().put(protocol::Saved{.step = kSteps});
  }
  EXPECT_THAT(group.finish(), Each(Exit::kFinished));

  auto expected = reference_losses("mlp", 4, kSteps);
  expected.erase(expected.begin(), expected.begin() + kSaved);
  EXPECT_EQ(losses_of(group.records(2)), expected);
}

}  // namespace strict_device_test
}  // namespace weir::engine::test
