// SPDX-License-Identifier: Apache-2.0
// Replicas that average in groups by NCCL (a fake one): the losses of TCP, bit for bit, and
// whatever breaks in a round costs that round only.
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/nccl_fakes.h"
#include "tests/worker/engine/rounds.h"

namespace weir::engine {
namespace averages_nccl_test {

using std::chrono::milliseconds;
using test::averaging;
using test::Fakes;
using test::Group;
using test::Rounds;
using testing::Each;

Group::OnReady heard_by(Rounds& rounds) {
  return [&rounds](int replica, std::int64_t step) { rounds.on_ready(replica, step); };
}

// Everybody in every group, so that the groups do not depend on time.
std::vector<double> losses_over(const Group::Over& over, test::Saves& saves, std::int64_t steps) {
  Rounds rounds(3, 1, 3, steps);
  Group group("gpt-tiny", 3, steps, 0, &saves, heard_by(rounds), over);
  rounds.attach(group);
  EXPECT_EQ(group.start(averaging(1, group.layers(), {2, 2, 2})), "");
  for (int rank = 0; rank < 3; ++rank) {
    group.engine(rank).mailbox().put(protocol::Save{.step = steps});
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(group.reaches(rank, steps));
  for (int rank = 0; rank < 3; ++rank) {
    group.engine(rank).mailbox().put(protocol::Saved{.step = steps});
  }
  EXPECT_THAT(group.finish(), Each(Exit::kFinished));
  return test::losses_of(group.records(2));
}

TEST(AveragesByNccl, GiveTheBitsOfThoseByTcp) {
  constexpr std::int64_t kSteps = 12;
  test::Saves by_tcp, by_nccl;
  Fakes fakes(3);

  const auto expected = losses_over(nullptr, by_tcp, kSteps);
  const auto losses = losses_over(fakes.over(), by_nccl, kSteps);

  EXPECT_EQ(losses, expected);
  EXPECT_EQ(by_nccl.unequal(kSteps), 0);
  for (const auto& api : fakes.apis) EXPECT_EQ(api->opened(), 2) << "sums, and one group";
}

TEST(AveragesByNccl, LearnInPairsAndEndWithOneModelInAllBits) {
  constexpr std::int64_t kSteps = 60;
  Fakes fakes(8);
  test::Saves saves;
  Rounds rounds(4, 2, 2, kSteps);
  Group group("mlp", 8, kSteps, 0, &saves, heard_by(rounds), fakes.over());
  rounds.attach(group);
  ASSERT_EQ(group.start(averaging(2, group.layers(), {3, 3, 3, 3})), "");
  for (int rank = 0; rank < 8; ++rank) {
    group.engine(rank).mailbox().put(protocol::Save{.step = kSteps});
  }
  for (int rank = 0; rank < 8; ++rank) EXPECT_TRUE(group.reaches(rank, kSteps));
  for (int rank = 0; rank < 8; ++rank) {
    group.engine(rank).mailbox().put(protocol::Saved{.step = kSteps});
  }

  EXPECT_THAT(group.finish(), Each(Exit::kFinished));
  EXPECT_EQ(saves.copies(kSteps), 8);
  EXPECT_EQ(saves.unequal(kSteps), 0) << "parameters and moments are everybody's";
  EXPECT_LT(group.records(7).back().loss, 0.8 * group.records(7).front().loss);
}

// Hangs until the deadline of the round, or an error of NCCL: nobody loses its generation.
TEST(AveragesByNccl, ThatBreakCostTheRoundOnly) {
  Fakes fakes(3);
  Rounds rounds(3, 1, 3, 1'000'000, milliseconds(150));
  Group group("mlp", 3, 1'000'000, 0, nullptr, heard_by(rounds), fakes.over());
  rounds.attach(group);
  ASSERT_EQ(group.start(averaging(1, group.layers(), {2, 2, 2})), "");
  ASSERT_TRUE(group.reaches(0, 3));

  for (int trial = 0; trial < 4; ++trial) {
    transport::test::Faults& faults = fakes.apis[static_cast<std::size_t>(trial % 3)]->faults();
    const auto aborted = [&] { return fakes.apis[0]->aborted(); };
    const int before = aborted();
    (trial % 2 == 0 ? faults.silent : faults.async_error) = true;
    EXPECT_TRUE(test::eventually([&] { return aborted() > before; }));
    faults.silent = faults.async_error = false;
    const std::int64_t step = group.engine(0).statistics().step;
    for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(group.reaches(rank, step + 3)) << trial;
  }

  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(group.lost(rank).empty()) << rank;
  for (int rank = 0; rank < 3; ++rank) group.engine(rank).leave(std::chrono::seconds(5));
  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
}

// In the middle of a round, or while the others wait for it.
TEST(AveragesByNccl, GoOnWithoutAReplicaThatLeaves) {
  constexpr std::int64_t kSteps = 300;
  Fakes fakes(6);
  Rounds rounds(3, 2, 3, kSteps);
  Group group("mlp", 6, kSteps, 0, nullptr, heard_by(rounds), fakes.over());
  rounds.attach(group);
  ASSERT_EQ(group.start(averaging(2, group.layers(), {2, 2, 2})), "");
  ASSERT_TRUE(group.reaches(0, 20));

  for (int rank = 4; rank < 6; ++rank) group.engine(rank).leave(std::chrono::seconds(0));
  std::this_thread::sleep_for(milliseconds(100));
  rounds.lose_one();

  const auto endings = group.finish();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(endings[static_cast<std::size_t>(rank)], Exit::kFinished) << rank;
    EXPECT_EQ(group.records(rank).back().next_step, kSteps);
    EXPECT_TRUE(group.lost(rank).empty());
  }
}

}  // namespace averages_nccl_test
}  // namespace weir::engine
