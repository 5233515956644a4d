// SPDX-License-Identifier: Apache-2.0
#include "worker/groups/distances.h"

#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "worker/base/random.h"

namespace weir::groups {
namespace distances_test {

// Of the replica from the mean of the group.
double between(const Distances& distances, const std::vector<int>& group, int replica) {
  return distances.between(group, std::array{replica});
}

constexpr double kPersistence = 0.6;  // of an update in the next

TEST(Distances, GrowWithTheStepsOfBoth) {
  Distances distances(2);
  EXPECT_EQ(between(distances, {0}, 1), 0);
  distances.stepped(0);
  EXPECT_EQ(between(distances, {0}, 1), 1);
  distances.stepped(1);
  distances.stepped(1);
  // Two updates, of which the second goes partly where the first went.
  EXPECT_DOUBLE_EQ(between(distances, {0}, 1), 1 + 2 + 2 * kPersistence);
  EXPECT_DOUBLE_EQ(between(distances, {1}, 0), 1 + 2 + 2 * kPersistence);
}

TEST(Distances, AnAverageEndsThoseBetweenItsMembers) {
  Distances distances(3);
  for (const int p : {0, 1, 2}) distances.stepped(p);
  distances.mixed(std::array{0, 1}, std::array{0.5, 0.5});
  EXPECT_EQ(between(distances, {0}, 1), 0);
  EXPECT_EQ(between(distances, {0}, 2), 1.5) << "variance 1/2 and 1";
  EXPECT_EQ(between(distances, {0, 1}, 2), 1.5);
  // Its momentum stays with each member: 0 goes on where it went, of which it has kept a half.
  distances.stepped(0);
  EXPECT_DOUBLE_EQ(between(distances, {0}, 2), 1.5 + 1 + 2 * 0.5 * kPersistence);
}

TEST(Distances, BetweenTwoGroups) {
  Distances distances(4);
  for (const int p : {0, 1, 2, 3}) distances.stepped(p);
  EXPECT_DOUBLE_EQ(distances.between(std::array{0, 1}, std::array{2, 3}), 1);
  EXPECT_DOUBLE_EQ(distances.between(std::array{0, 1}, std::array{0, 1}), 0);
}

TEST(Distances, OneAloneInAnAverageStaysWhereItIs) {
  Distances distances(2);
  distances.stepped(0);
  distances.mixed(std::array{0}, std::array{1.0});
  EXPECT_EQ(between(distances, {0}, 1), 1);
}

TEST(Distances, WhoTakesTheModelOfAnotherIsAsFarAsThatOneMayBe) {
  Distances distances(3);
  for (int i = 0; i < 4; ++i) distances.stepped(2);
  distances.copied(2, std::array{0, 1});
  EXPECT_EQ(between(distances, {0}, 2), 0);
  distances.copied(2, {});
  EXPECT_EQ(between(distances, {0}, 2), 0) << "nobody else is left";
}

// Against models that really take random steps: the mean of many.
TEST(Distances, AreThoseOfRandomStepsWithMomentum) {
  constexpr int kReplicas = 5, kSize = 20'000;
  Random random(7);
  Distances distances(kReplicas);
  std::vector<std::vector<double>> models(kReplicas, std::vector<double>(kSize));
  auto updates = models;
  for (auto& update : updates) {
    for (double& value : update) value = random.normal();
  }
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < 4; ++i) {
      const int p = static_cast<int>(random.below(kReplicas));
      distances.stepped(p);
      for (std::size_t k = 0; k < kSize; ++k) {
        double& update = updates[static_cast<std::size_t>(p)][k];
        update =
            kPersistence * update + std::sqrt(1 - kPersistence * kPersistence) * random.normal();
        models[static_cast<std::size_t>(p)][k] += update;
      }
    }
    const int first = round % kReplicas;
    const std::array members{first, (first + 1 + round % 2) % kReplicas, (first + 3) % kReplicas};
    constexpr std::array kWeights{0.5, 0.2, 0.3};
    distances.mixed(members, kWeights);
    for (std::size_t k = 0; k < kSize; ++k) {
      double mean = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        mean += kWeights[i] * models[static_cast<std::size_t>(members[i])][k];
      }
      for (const int p : members) models[static_cast<std::size_t>(p)][k] = mean;
    }
  }
  for (int p = 2; p < kReplicas; ++p) {
    double square = 0;
    for (std::size_t k = 0; k < kSize; ++k) {
      const double apart =
          (models[0][k] + models[1][k]) / 2 - models[static_cast<std::size_t>(p)][k];
      square += apart * apart / kSize;
    }
    EXPECT_NEAR(between(distances, {0, 1}, p), square, 0.06 * square) << "replica " << p;
  }
}

}  // namespace distances_test
}  // namespace weir::groups
