// SPDX-License-Identifier: Apache-2.0
// The watch over groups finds each breach of G1 to G7 that it is shown.
#include "tests/sim/group_watch.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::sim {
namespace group_watch_test {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

struct Watched {
  explicit Watched(std::vector<int> shares = {4, 4, 4}) {
    plan.micro_batches = std::move(shares);
    plan.sync = {.mode = schedule::SyncMode::kPartial, .max_staleness = 3, .connect_every = 5};
    watch.begin(plan);
  }
  void step(const std::vector<int>& group, const std::vector<double>& weights = {}) {
    for (const int p : group) watch.ready(p);
    grant(group, weights);
    for (const int p : group) watch.averaged(p);
  }
  void grant(const std::vector<int>& group, std::vector<double> weights = {}, bool all = false) {
    if (weights.empty()) weights.assign(group.size(), 1.0 / static_cast<double>(group.size()));
    watch.granted({++round, group, std::move(weights), all});
  }
  schedule::Plan plan;
  GroupWatch watch;
  std::int64_t round = 0;
};

TEST(GroupWatch, HasNothingAgainstWhatKeepsTheRules) {
  Watched job({6, 2, 4});
  for (int i = 0; i < 20; ++i) {
    job.step({0, 1}, {0.75, 0.25});
    job.step({2, 0}, {0.4, 0.6});
  }
  EXPECT_THAT(job.watch.take_wrong(), IsEmpty());
}

TEST(GroupWatch, FindsAMemberOfTwoRoundsOneThatHasNotArrivedAndOneThatIsLost) {
  Watched job;
  job.watch.ready(0);
  job.grant({0});
  job.grant({0});
  EXPECT_THAT(job.watch.take_wrong(), Contains(HasSubstr("G1: a member of another open round")));
  job.grant({1});
  EXPECT_THAT(job.watch.take_wrong(), Contains(HasSubstr("G2: a member that has not arrived")));
  job.watch.lost(2);
  job.grant({2});
  EXPECT_THAT(job.watch.take_wrong(), Contains(HasSubstr("G2: a member that is lost")));
}

TEST(GroupWatch, FindsWeightsThatAreNotTheShares) {
  Watched job({6, 2, 4});
  job.step({0, 1}, {0.5, 0.5});
  EXPECT_THAT(job.watch.take_wrong(), Contains(HasSubstr("G4: a weight is not its share")));
  Watched even;
  even.step({0, 1}, {0.6, 0.6});
  EXPECT_THAT(even.watch.take_wrong(), Contains(HasSubstr("G4: weights do not add up to 1")));
}

TEST(GroupWatch, FindsReplicasThatAreNotConnectedInTime) {
  Watched job;
  for (int i = 0; i < 5; ++i) job.step({0, 1});
  for (int i = 0; i < 3; ++i) job.step({2});
  EXPECT_THAT(job.watch.take_wrong(), Contains(HasSubstr("G5")));
  job.step({0, 2});  // connects all: a new window
  job.step({0, 1});
  EXPECT_THAT(job.watch.take_wrong(), IsEmpty());
}

// A replica on a slow node goes on alone, but not for ever.
TEST(GroupWatch, LetsOneGoOnAloneForSomeStepsOnly) {
  Watched job;
  for (int i = 0; i < 4; ++i) job.step({0, 1});
  job.step({2});
  for (const int p : {0, 1}) job.watch.ready(p);  // the fifth step: due
  job.watch.ready(2);
  job.grant({2});  // alone: twice in a row
  EXPECT_THAT(job.watch.take_wrong(), Contains(HasSubstr("G5")));
}

TEST(GroupWatch, FindsReplicasThatAreTooFarApart) {
  Watched job;
  for (int i = 0; i < 4; ++i) job.step({0, 1});  // 4 ahead: tau and a step
  EXPECT_THAT(job.watch.take_wrong(), IsEmpty());
  job.watch.ready(0);
  EXPECT_THAT(job.watch.take_wrong(), Contains(HasSubstr("G6")));
}

TEST(GroupWatch, FindsARoundThatIsNoNewOneAndAMeetingWithoutSomebody) {
  Watched job;
  job.step({0, 1, 2});
  job.round = 0;
  job.step({0, 1, 2});
  EXPECT_THAT(job.watch.take_wrong(), Contains(HasSubstr("G7")));
  job.watch.ready(0);
  job.grant({0}, {}, true);
  EXPECT_THAT(job.watch.take_wrong(), Contains(HasSubstr("a meeting without one of the living")));
}

}  // namespace group_watch_test
}  // namespace weir::sim
