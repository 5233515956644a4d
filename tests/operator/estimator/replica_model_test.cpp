// SPDX-License-Identifier: Apache-2.0
#include "operator/estimator/replica_model.h"

#include <cmath>

#include <gtest/gtest.h>

namespace weir::estimator {
namespace replica_model_test {

using std::chrono::seconds;

ReplicaScrape scrape(int at, std::map<int, ReplicaCounter> replicas) {
  return {.time = SystemTime(seconds(1000 + at)), .replicas = std::move(replicas)};
}
SystemTime now(int at) {
  return SystemTime(seconds(1000 + at));
}

TEST(ReplicaModel, MeanOfTheStepsBetweenTwoScrapes) {
  ReplicaModelState state;
  add_replica_scrapes(state, {scrape(0, {{0, {10, 20}}, {1, {10, 15}}}),
                              scrape(5, {{0, {14, 28}}, {1, {14, 19}}})});
  const auto estimates = replica_estimates_of(state, now(6), seconds(60));
  ASSERT_TRUE(estimates.fresh);
  EXPECT_DOUBLE_EQ(estimates.speeds.at(0).seconds, 2);
  EXPECT_DOUBLE_EQ(estimates.speeds.at(1).seconds, 1);
  EXPECT_DOUBLE_EQ(estimates.speeds.at(0).others_seconds, 1);
  EXPECT_DOUBLE_EQ(estimates.speeds.at(1).others_seconds, 2);
  EXPECT_EQ(estimates.speeds.at(0).steps, 4);
  ASSERT_EQ(estimates.intervals.size(), 1U);
  EXPECT_EQ(estimates.intervals[0].replicas.at(0).steps, 4);
}

// Half of the weight lies on the newest step, however many steps a scrape sees.
TEST(ReplicaModel, SmoothsByStep) {
  ReplicaModelState state;
  add_replica_scrapes(state, {scrape(0, {{0, {0, 0}}}), scrape(5, {{0, {1, 1}}}),
                              scrape(10, {{0, {4, 1 + 3 * 2}}})});
  const auto estimates = replica_estimates_of(state, now(10), seconds(60));
  EXPECT_DOUBLE_EQ(estimates.speeds.at(0).seconds, 1 + (1 - std::pow(0.5, 3)) * (2 - 1));
  EXPECT_EQ(estimates.speeds.at(0).others_seconds, 0);  // there is no other
}

TEST(ReplicaModel, TheOthersWithoutItself) {
  ReplicaModelState state;
  add_replica_scrapes(state, {scrape(0, {{0, {}}, {1, {}}, {2, {}}, {3, {}}}),
                              scrape(5, {{0, {1, 9}}, {1, {1, 1}}, {2, {1, 2}}, {3, {1, 4}}})});
  const auto estimates = replica_estimates_of(state, now(5), seconds(60));
  EXPECT_DOUBLE_EQ(estimates.speeds.at(0).others_seconds, 2);
  EXPECT_DOUBLE_EQ(estimates.speeds.at(1).others_seconds, 4);
}

// A step longer than the scrape interval is waited for.
TEST(ReplicaModel, AnIntervalEndsWhenAllHaveMoved) {
  ReplicaModelState state;
  add_replica_scrapes(state,
                      {scrape(0, {{0, {0, 0}}, {1, {0, 0}}}), scrape(5, {{0, {2, 4}}, {1, {0, 0}}}),
                       scrape(10, {{0, {4, 8}}, {1, {1, 9}}})});
  const auto estimates = replica_estimates_of(state, now(10), seconds(60));
  ASSERT_EQ(estimates.intervals.size(), 1U);
  EXPECT_EQ(estimates.intervals[0].replicas.at(0).steps, 4);
  EXPECT_DOUBLE_EQ(estimates.speeds.at(1).seconds, 9);
}

TEST(ReplicaModel, ARestartedWorkerBeginsAnew) {
  ReplicaModelState state;
  add_replica_scrapes(
      state, {scrape(0, {{0, {0, 0}}}), scrape(5, {{0, {5, 5}}}), scrape(10, {{0, {1, 1}}})});
  EXPECT_TRUE(replica_estimates_of(state, now(10), seconds(60)).speeds.empty());
  add_replica_scrapes(state, {scrape(15, {{0, {3, 7}}})});
  EXPECT_DOUBLE_EQ(replica_estimates_of(state, now(15), seconds(60)).speeds.at(0).seconds, 3);
}

TEST(ReplicaModel, AFailedScrapeOfOneIsNoOtherJob) {
  ReplicaModelState state;
  add_replica_scrapes(state, {scrape(0, {{0, {0, 0}}, {1, {0, 0}}}), scrape(5, {{0, {2, 2}}}),
                              scrape(10, {{0, {4, 4}}, {1, {4, 8}}})});
  const auto estimates = replica_estimates_of(state, now(10), seconds(60));
  EXPECT_DOUBLE_EQ(estimates.speeds.at(1).seconds, 2);
  // A replica more is one.
  add_replica_scrapes(state, {scrape(15, {{0, {6, 6}}, {1, {6, 12}}, {2, {0, 0}}})});
  EXPECT_TRUE(replica_estimates_of(state, now(15), seconds(60)).speeds.empty());
}

TEST(ReplicaModel, OldNumbersAreNotFresh) {
  ReplicaModelState state;
  EXPECT_FALSE(replica_estimates_of(state, now(0), seconds(60)).fresh);
  add_replica_scrapes(state, {scrape(0, {{0, {0, 0}}}), scrape(5, {{0, {5, 5}}})});
  EXPECT_TRUE(replica_estimates_of(state, now(65), seconds(60)).fresh);
  EXPECT_FALSE(replica_estimates_of(state, now(66), seconds(60)).fresh);
}

TEST(ReplicaModel, ForgetsWhenSharesChange) {
  ReplicaModelState state;
  add_replica_scrapes(state, {scrape(0, {{0, {0, 0}}}), scrape(5, {{0, {5, 5}}})});
  forget_replicas(state);
  // Scrapes from before the change are not taken again.
  add_replica_scrapes(state, {scrape(0, {{0, {0, 0}}}), scrape(5, {{0, {5, 5}}})});
  add_replica_scrapes(state, {scrape(10, {{0, {8, 11}}})});
  EXPECT_TRUE(replica_estimates_of(state, now(10), seconds(60)).speeds.empty());
  add_replica_scrapes(state, {scrape(15, {{0, {10, 13}}})});
  EXPECT_DOUBLE_EQ(replica_estimates_of(state, now(15), seconds(60)).speeds.at(0).seconds, 1);
}

TEST(ReplicaModel, KeepsOnlyTheNewestSteps) {
  ReplicaModelState state;
  for (int i = 0; i <= 100; ++i) add_replica_scrapes(state, {scrape(i, {{0, {3 * i, 3.0 * i}}})});
  std::int64_t steps = 0;
  for (const auto& interval : state.intervals) steps += interval.replicas.at(0).steps;
  EXPECT_GE(steps, kKeptReplicaSteps);
  EXPECT_LT(steps, kKeptReplicaSteps + 3);
}

TEST(ReplicaModel, CountersThatAreNoNumbersAreDropped) {
  ReplicaModelState state;
  add_replica_scrapes(state, {scrape(0, {{0, {0, 0}}}), scrape(5, {{0, {2, std::nan("")}}}),
                              scrape(10, {{0, {4, 4}}})});
  EXPECT_DOUBLE_EQ(replica_estimates_of(state, now(10), seconds(60)).speeds.at(0).seconds, 1);
}

}  // namespace replica_model_test
}  // namespace weir::estimator
