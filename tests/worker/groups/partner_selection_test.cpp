// SPDX-License-Identifier: Apache-2.0
#include "worker/groups/partner_selection.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace weir::groups {
namespace partner_selection_test {

using namespace std::chrono_literals;

constexpr Patience kPatience{.step_seconds = 1, .window_seconds = 0.05};

// Two pairs, each of which has averaged after each of its steps and has not met the other.
Distances two_pairs(int steps) {
  Distances distances(4);
  for (int i = 0; i < steps; ++i) {
    for (const std::array<int, 2> pair : {std::array{0, 1}, std::array{2, 3}}) {
      for (const int p : pair) distances.stepped(p);
      if (i + 1 < steps || pair[0] == 0) distances.mixed(pair, std::array{0.5, 0.5});
    }
  }
  return distances;
}

// The latest moment at which it is worth waiting for those, due together.
Time worth(const Distances& distances, const std::vector<int>& here,
           const std::vector<int>& those) {
  Time most{0};
  for (Time due = 0ms; due <= 1s; due += 1ms) {
    std::vector<Running> running;
    for (const int q : those) running.push_back({.due = due, .replica = q});
    if (wait_until(here, running, distances, kPatience, 0ms)) most = due;
  }
  return most;
}

TEST(PartnerSelection, WithoutOthersThereIsNoWait) {
  EXPECT_EQ(wait_until(std::array{0, 1}, {}, Distances(2), kPatience, 0ms), std::nullopt);
}

TEST(PartnerSelection, AWindowForWhatTheAverageBrings) {
  // One step of 2: 1 from where both were; each of the two gains a third of that.
  const auto until =
      wait_until(std::array{0, 1}, {{.due = 10ms, .replica = 2}}, Distances(3), kPatience, 0ms);
  ASSERT_TRUE(until);
  const double allowed = 0.05 * 1 / 3;
  EXPECT_NEAR(std::chrono::duration<double>(*until).count(), 0.010 + allowed / 2, 1e-6);
  EXPECT_EQ(worth(Distances(3), {0, 1}, {2}), 16ms);
}

TEST(PartnerSelection, AGroupIsWorthMoreThanOneOfIt) {
  const Distances distances = two_pairs(6);
  EXPECT_GT(worth(distances, {0, 1}, {2, 3}), worth(distances, {0, 1}, {2}));
}

TEST(PartnerSelection, MoreStepsApartAreWorthMoreButHalfAStepAtMost) {
  EXPECT_GT(worth(two_pairs(6), {0, 1}, {2, 3}), 3 * worth(two_pairs(2), {0, 1}, {2, 3}) / 2);
  EXPECT_EQ(worth(two_pairs(200), {0, 1}, {2, 3}), 500ms);
}

TEST(PartnerSelection, AReplicaThatIsTooLateDoesNotCount) {
  const Distances distances = two_pairs(6);
  const std::vector<int> here{0, 1};
  const auto alone = wait_until(here, {{.due = 900ms, .replica = 3}}, distances, kPatience, 900ms);
  const auto both = wait_until(here, {{.due = 100ms, .replica = 2}, {.due = 900ms, .replica = 3}},
                               distances, kPatience, 900ms);
  ASSERT_TRUE(alone && both);
  EXPECT_NEAR(static_cast<double>(both->count()), static_cast<double>(alone->count()), 2e6);
  EXPECT_EQ(wait_until(here, {{.due = 100ms, .replica = 2}}, distances, kPatience, 900ms),
            std::nullopt);
}

}  // namespace partner_selection_test
}  // namespace weir::groups
