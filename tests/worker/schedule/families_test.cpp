// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/families.h"

#include <gmock/gmock.h>

namespace weir::schedule {
namespace families_test {

using testing::ElementsAre;

TEST(Families, StandInTheirOrderUnderNamesOfTheirOwn) {
  std::size_t index = 0;
  for (const FamilyRules& rules : families()) {
    EXPECT_EQ(static_cast<std::size_t>(rules.family), index++) << rules.name;
    EXPECT_EQ(&rules_of(rules.family), &rules);
    EXPECT_EQ(family_of(rules.name), rules.family);
  }
  EXPECT_EQ(family_of("ZeroBubble"), std::nullopt);
}

TEST(Families, OneFOneBAndGPipeAreKfkbWithTheLeastAndTheMostK) {
  EXPECT_EQ(rules_of(Family::kKfkb).only_k, nullptr);
  const FamilyRules& least = rules_of(Family::kOneFOneB);
  const FamilyRules& most = rules_of(Family::kGpipe);
  EXPECT_EQ(least.only_k(8), 1);
  EXPECT_EQ(most.only_k(8), 8);
  EXPECT_THAT(least.caps(4, 8, least.only_k(8)), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(most.caps(4, 8, most.only_k(8)), ElementsAre(8, 8, 8, 8));
}

TEST(Families, OnlyKfkbIsTuned) {
  for (const FamilyRules& rules : families()) {
    EXPECT_EQ(rules.tuned, rules.family == Family::kKfkb) << rules.name;
  }
}

}  // namespace families_test
}  // namespace weir::schedule
