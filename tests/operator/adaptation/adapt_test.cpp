// SPDX-License-Identifier: Apache-2.0
// The order of the tiers, and what is remembered when workers refuse a plan or members change.
// Whole ticks are tested with a whole job in tests/operator/controller/reconcile.
#include "operator/adaptation/adapt.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::adaptation {
namespace adapt_test {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Key;

const Time kNow{std::chrono::hours(24 * 365 * 50)};
constexpr auto kForGood = std::numeric_limits<std::int64_t>::max();

TEST(Tiers, AreAskedCheapestFirst) {
  std::vector<std::string> names;
  for (const TierEntry& tier : tiers()) names.emplace_back(tier.name);
  EXPECT_THAT(names, ElementsAre("guard", "shares", "retune", "compress", "retry_previous",
                                 "repartition", "replace"));
}

TEST(Refused, ARetuningIsKeptOutForGood) {
  Memory memory;
  memory.plan_change = Change{.revision = 7, .offer = "k=2 caps 7,5,3,1 Hint"};
  refused(memory, nullptr, 6);
  EXPECT_TRUE(memory.plan_change) << "of another plan";
  refused(memory, nullptr, 7);
  EXPECT_FALSE(memory.plan_change);
  EXPECT_EQ(memory.retune.record.quarantine.at("k=2 caps 7,5,3,1 Hint"), kForGood);
}

TEST(Refused, SharesAreKeptOutForGood) {
  schedule::Plan plan;
  plan.micro_batches = {20, 44};
  Memory memory;
  memory.plan_change = Change{.kind = gate::Kind::kShares, .revision = 7, .offer = "20,44"};
  refused(memory, &plan, 7);
  EXPECT_FALSE(memory.plan_change);
  EXPECT_THAT(memory.shares.shares.quarantine, ElementsAre(Key("20,44")));
}

TEST(Refused, CodecsAreKeptOutForGood) {
  Memory memory;
  memory.plan_change = Change{.kind = gate::Kind::kCompress, .revision = 7, .offer = "1-2:Int8"};
  refused(memory, nullptr, 7);
  EXPECT_FALSE(memory.plan_change);
  EXPECT_THAT(memory.compression.coarser.quarantine, ElementsAre(Key("1-2:Int8")));
}

TEST(ForgetRanks, KeepsClocksLinksAndAReplacementWithoutItsPlan) {
  Memory memory;
  memory.repartition.clock = {.last_change = kNow, .cooldown = 1200s};
  memory.repartition.record.quarantine["a map"] = kForGood;
  memory.repartition.pause_seconds = 1.5;
  memory.replace.clock = {.last_change = kNow, .cooldown = 3600s};
  memory.history.links.push_back({"a", "b", 1e9, 1e9, kNow});
  memory.history.steps.push_back({100, 1.0, kNow});
  memory.plan_change.emplace();
  memory.ranks_change = Change{.kind = gate::Kind::kReplace, .revision = 0, .after = 6};
  forget_ranks(memory);
  EXPECT_EQ(memory.repartition.clock.last_change, kNow);
  EXPECT_EQ(memory.repartition.clock.cooldown, 0s) << "it was doubled for maps of other members";
  EXPECT_THAT(memory.repartition.record.quarantine, IsEmpty());
  EXPECT_EQ(memory.repartition.pause_seconds, 1.5);
  EXPECT_EQ(memory.replace.clock.cooldown, 3600s);
  EXPECT_EQ(memory.history.links.size(), 1);
  EXPECT_THAT(memory.history.steps, IsEmpty());
  EXPECT_FALSE(memory.plan_change);
  ASSERT_TRUE(memory.ranks_change);
  memory.ranks_change->revision = 7;
  forget_ranks(memory);
  EXPECT_FALSE(memory.ranks_change);
}

}  // namespace adapt_test
}  // namespace weir::adaptation
