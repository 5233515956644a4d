// SPDX-License-Identifier: Apache-2.0
// The recovery point of random inventories is that of brute force: 10^5 of them in the full run
// (WEIR_FAULT_SEEDS), 5,000 otherwise.
#include "worker/coordinator/recovery_point.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace weir::coordinator::test {
namespace recovery_point_test {

using Holder = RecoveryPoint::Holder;
using Inventories = std::vector<MemberInventory>;

MemberInventory holds(int member, int first, int last, std::int64_t step, bool summed = false) {
  return {member,
          {.history = 1,
           .held = {{.first = first, .last = last, .step = step, .history = 1, .summed = summed}},
           .verdict = protocol::Verdict{.squares = static_cast<double>(step)}}};
}

TEST(RecoveryPoint, IsTheStepThatAllHold) {
  const auto point = recovery_point(Inventories{holds(0, 0, 1, 7), holds(1, 2, 3, 7)}, 4);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->step, 7);
  EXPECT_EQ(point->holders, (std::vector<Holder>{{0, {0, 1}}, {1, {2, 3}}}));
}

TEST(RecoveryPoint, IsTheHigherStepIfTheOthersHaveTheirGradients) {
  const auto point = recovery_point(Inventories{holds(0, 0, 1, 8), holds(1, 2, 3, 7, true)}, 4);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->step, 8);
  ASSERT_TRUE(point->verdict);
  EXPECT_EQ(point->verdict->squares, 8) << "of the one that has updated";
}

TEST(RecoveryPoint, NeedsOneThatHasUpdatedForAnUpdate) {
  const auto point =
      recovery_point(Inventories{holds(0, 0, 1, 7, true), holds(1, 2, 3, 7, true)}, 4);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->step, 7) << "nobody knows the verdict: the step is done again";
}

TEST(RecoveryPoint, OfALostRankIsThatOfItsPeer) {
  const Inventories left{holds(0, 0, 1, 7), holds(2, 0, 1, 7), holds(3, 2, 3, 7)};
  const auto point = recovery_point(left, 4);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->step, 7);
  EXPECT_EQ(point->holders.size(), 3U);
}

TEST(RecoveryPoint, SaysWhyThereIsNone) {
  EXPECT_EQ(why_no_point(Inventories{holds(0, 0, 1, 7), holds(1, 3, 3, 7)}, 4),
            "no worker holds layer 2");
  EXPECT_EQ(why_no_point(Inventories{holds(0, 0, 0, 7)}, 4), "no worker holds layers 1..3");
  EXPECT_EQ(why_no_point(Inventories{holds(0, 0, 1, 7), holds(1, 2, 3, 5)}, 4),
            "no step has a holder of every layer");
}

TEST(RecoveryPoint, IsNoneWithoutALayer) {
  EXPECT_FALSE(recovery_point(Inventories{holds(0, 0, 1, 7), holds(1, 3, 3, 7)}, 4));
  EXPECT_FALSE(recovery_point(Inventories{holds(0, 0, 1, 7), holds(1, 2, 3, 6)}, 4));
  EXPECT_FALSE(recovery_point(Inventories{}, 4));
}

TEST(RecoveryPoint, NeverMixesHistories) {
  Inventories all{holds(0, 0, 3, 9), holds(1, 0, 1, 5), holds(2, 2, 3, 5)};
  for (const std::size_t i : {1U, 2U}) all[i].inventory.history = 2;
  for (const std::size_t i : {1U, 2U}) all[i].inventory.held[0].history = 2;
  EXPECT_EQ(recovery_point(all, 4)->step, 5) << "the first one missed a way back";
  // A rank that was built for history 2 and got no GO.
  all[2].inventory.history = 1;
  all[2].inventory.held[0].history = 1;
  all[2].inventory.held[0].pending = 2;
  EXPECT_EQ(recovery_point(all, 4)->step, 5);
}

TEST(RecoveryPoint, NeverMixesModelsOfReplicas) {
  Inventories all{holds(0, 0, 1, 9), holds(1, 2, 3, 9), holds(2, 0, 1, 8), holds(3, 2, 3, 8)};
  for (std::size_t i = 0; i < 4; ++i) all[i].inventory.held[0].replica = static_cast<int>(i) / 2;
  EXPECT_EQ(recovery_point(all, 4)->step, 9);
  all.erase(all.begin());  // replica 0 lacks its first stage
  const auto point = recovery_point(all, 4);
  EXPECT_EQ(point->step, 8);
  EXPECT_EQ(point->holders, (std::vector<Holder>{{2, {0, 1}}, {3, {2, 3}}}));
}

MemberInventory and_snapshot(MemberInventory member, int first, int last, std::int64_t step) {
  member.inventory.held.push_back(
      {.first = first, .last = last, .step = step, .history = 1, .snapshot = true});
  return member;
}

TEST(RecoveryPoint, OfALostStageIsTheStepOfTheSnapshots) {
  const MemberInventory again = and_snapshot({1, {.history = 1}}, 2, 3, 4);
  const auto point =
      recovery_point(Inventories{and_snapshot(holds(0, 0, 1, 7), 0, 1, 4), again}, 4);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->step, 4);
  EXPECT_EQ(point->holders, (std::vector<Holder>{{0, {0, 1}, true}, {1, {2, 3}, true}}));
  EXPECT_FALSE(point->verdict) << "it is of the last step of what they trained with";
}

TEST(RecoveryPoint, IsThatOfTheStagesWhileTheyAreThere) {
  const auto point = recovery_point(Inventories{and_snapshot(holds(0, 0, 1, 7), 0, 1, 4),
                                                and_snapshot(holds(1, 2, 3, 7), 2, 3, 4)},
                                    4);
  EXPECT_EQ(point->step, 7);
  EXPECT_EQ(point->holders, (std::vector<Holder>{{0, {0, 1}}, {1, {2, 3}}}));
}

// After a change of the cut at the step of the snapshots, which have the cut before it.
TEST(RecoveryPoint, TakesSnapshotsWhereStagesOfTheStepDoNotSuffice) {
  const MemberInventory again = and_snapshot({1, {.history = 1}}, 1, 3, 4);
  EXPECT_EQ(
      recovery_point(Inventories{and_snapshot(holds(0, 0, 2, 4), 0, 0, 4), again}, 4)->holders,
      (std::vector<Holder>{{0, {0, 2}}, {1, {1, 3}, true}}));
  EXPECT_EQ(
      recovery_point(Inventories{and_snapshot(holds(0, 1, 3, 4), 0, 0, 4), again}, 4)->holders,
      (std::vector<Holder>{{0, {0, 0}, true}, {1, {1, 3}, true}}));
}

MemberInventory and_copy(MemberInventory member, int first, int last, std::int64_t step) {
  member = and_snapshot(std::move(member), first, last, step);
  member.inventory.held.back().copy = true;
  return member;
}

TEST(RecoveryPoint, OfALostPodIsTheStepOfTheCopyAtItsNeighbor) {
  const auto left = and_copy(and_snapshot(holds(0, 0, 1, 7), 0, 1, 4), 2, 3, 4);
  const auto point = recovery_point(Inventories{left, {1, {}}}, 4);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->step, 4);
  EXPECT_EQ(point->holders, (std::vector<Holder>{{0, {0, 1}, true}, {0, {2, 3}, true, true}}));
  // Its process has come back with its own snapshot.
  const auto again = and_snapshot({1, {.history = 1}}, 2, 3, 4);
  EXPECT_EQ(recovery_point(Inventories{left, again}, 4)->holders,
            (std::vector<Holder>{{0, {0, 1}, true}, {1, {2, 3}, true}}));
}

TEST(RecoveryPoint, NeverTakesASnapshotOfAnOlderHistory) {
  MemberInventory again = and_snapshot({1, {.history = 1}}, 2, 3, 4);
  MemberInventory stayed = and_snapshot(holds(0, 0, 1, 7), 0, 1, 4);
  stayed.inventory.history = 2;
  for (protocol::Held& held : stayed.inventory.held) held.history = 2;
  EXPECT_FALSE(recovery_point(Inventories{stayed, again}, 4));
  again.inventory.held[0].pending = 2;  // it died between READY_STATE and GO
  EXPECT_EQ(recovery_point(Inventories{stayed, again}, 4)->step, 4);
}

// ---- against brute force ----

constexpr int kLayers = 4, kHighest = 6, kReplicas = 2;

Inventories random_inventories(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const bool partial = below(4) == 0;
  Inventories all;
  for (int member = 0; member < 1 + below(6); ++member) {
    MemberInventory one{member, {.history = below(3)}};
    if (below(3) > 0) one.inventory.verdict = protocol::Verdict{.squares = 1.0 + member};
    for (int i = below(3); i > 0; --i) {
      const int first = below(kLayers);
      one.inventory.held.push_back({.first = first,
                                    .last = first + below(kLayers - first),
                                    .step = 3 + below(kHighest - 3),
                                    .history = below(3),
                                    .pending = below(4) == 0 ? 2 : 0,
                                    .replica = partial ? below(kReplicas) : -1,
                                    .summed = below(2) == 0,
                                    .snapshot = below(3) == 0});
      protocol::Held& held = one.inventory.held.back();
      if (held.snapshot) held.summed = false;
      held.copy = held.snapshot && below(2) == 0;
    }
    all.push_back(std::move(one));
  }
  return all;
}

// Tries every step, model and layer by the definition.
std::optional<RecoveryPoint> brute_force(const Inventories& all) {
  std::int64_t history = 0;
  for (const auto& one : all) history = std::max(history, one.inventory.history);
  for (std::int64_t step = kHighest; step >= 0; --step) {
    for (int replica = -1; replica < kReplicas; ++replica) {
      bool somebody = false, verdict = false;
      for (const auto& [member, inventory] : all) {
        for (const protocol::Held& held : inventory.held) {
          const bool same = held.history == history || held.pending == history;
          if (!same || held.replica != replica || held.step != step) continue;
          somebody = true;
          verdict = verdict || (inventory.verdict && !held.snapshot);
        }
      }
      for (const int way : {0, 1, 2, 3}) {
        const bool snapshots = way % 2 == 1;  // where a member has both
        const bool copies = way / 2 == 1;     // only where the layers need them
        RecoveryPoint point{.step = step};
        std::set<int> layers;
        for (const auto& [member, inventory] : all) {
          std::vector<protocol::Held> good;
          for (const protocol::Held& held : inventory.held) {
            const bool same = held.history == history || held.pending == history;
            if (!same || held.replica != replica || held.copy) continue;
            const bool follows = verdict && held.summed && held.step == step - 1;
            if (held.step == step || follows) good.push_back(held);
          }
          const bool both = std::ranges::count(good, true, &protocol::Held::snapshot) > 0 &&
                            std::ranges::count(good, false, &protocol::Held::snapshot) > 0;
          for (const protocol::Held& held : good) {
            if (both && held.snapshot != snapshots) continue;
            point.holders.push_back({member, {held.first, held.last}, held.snapshot});
            for (int layer = held.first; layer <= held.last; ++layer) layers.insert(layer);
          }
        }
        for (const auto& [member, inventory] : all) {
          for (const protocol::Held& held : inventory.held) {
            const bool same = held.history == history || held.pending == history;
            if (!copies || !held.copy || !same || held.replica != replica) continue;
            if (held.step != step) continue;
            const std::size_t before = layers.size();
            for (int layer = held.first; layer <= held.last; ++layer) layers.insert(layer);
            if (layers.size() == before) continue;
            point.holders.push_back({member, {held.first, held.last}, true, true});
          }
        }
        if (somebody && layers.size() == kLayers) return point;
      }
    }
  }
  return std::nullopt;
}

TEST(RecoveryPoint, OfRandomInventoriesIsThatOfBruteForce) {
  const int cases = std::getenv("WEIR_FAULT_SEEDS") != nullptr ? 100'000 : 5'000;
  int found = 0;
  for (int seed = 0; seed < cases && !HasFailure(); ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const Inventories all = random_inventories(random);
    const auto expected = brute_force(all), point = recovery_point(all, kLayers);
    ASSERT_EQ(point.has_value(), expected.has_value()) << "seed " << seed;
    if (!point) continue;
    ++found;
    EXPECT_EQ(point->step, expected->step) << "seed " << seed;
    EXPECT_EQ(point->holders, expected->holders) << "seed " << seed;
  }
  EXPECT_GT(found, cases / 20);
}

}  // namespace recovery_point_test
}  // namespace weir::coordinator::test
