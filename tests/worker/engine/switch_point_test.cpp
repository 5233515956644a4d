// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/switch_point.h"

#include <stop_token>

#include <gtest/gtest.h>

namespace weir::engine {
namespace switch_point_test {

// The engine may be in a long op meanwhile; the members of the group wait for this rank.
TEST(SwitchPoint, TheLastGrantIsNotLostWhenTooManyCommandsWait) {
  SwitchPoint point;
  constexpr int kMoreThanRoom = 100;
  for (std::uint32_t revision = 1; revision <= kMoreThanRoom; ++revision) point.go(revision);
  point.grant({.round = 7, .step = 3});
  point.grant({.round = 8, .step = 3});

  std::optional<Command> last;
  while (std::optional<Command> command = point.take()) last = std::move(command);

  ASSERT_TRUE(last && std::holds_alternative<Grant>(*last));
  EXPECT_EQ(std::get<Grant>(*last).round, 8);
  EXPECT_FALSE(point.wait({}, std::stop_token()));
}

TEST(SwitchPoint, AGrantThatWasKeptNeedsNoDeadline) {
  SwitchPoint point;
  constexpr int kMoreThanRoom = 100;
  for (std::uint32_t revision = 1; revision <= kMoreThanRoom; ++revision) point.go(revision);
  point.grant({.round = 7, .step = 3});

  int grants = 0;
  while (const std::optional<Command> command = point.wait({}, std::stop_token())) {
    grants += std::holds_alternative<Grant>(*command) ? 1 : 0;
  }

  EXPECT_EQ(grants, 1);
}

}  // namespace switch_point_test
}  // namespace weir::engine
