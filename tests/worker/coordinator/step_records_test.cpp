// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/step_records.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"

namespace weir::coordinator::test {
namespace step_records_test {

using testing::IsEmpty;
using testing::SizeIs;

// Three ranks of one pipeline; the last one is of an older release.
struct Ranks {
  Ranks() {
    for (int i = 0; i < 3; ++i) {
      members.hello(i + 1,
                    {.member = member(i),
                     .features = i < 2 ? std::vector<std::string>{protocol::kStepsFeature}
                                       : std::vector<std::string>{}},
                    now);
    }
  }
  void complete(int rank, std::int64_t step) {
    members.status(rank, {.epoch = 1, .step = step, .stage = rank});
  }
  Outgoing ask(const StepRecords::Request& request) {
    return records.ask(request, plan, members, now);
  }

  SteadyTime now{std::chrono::hours(1)};
  Members members;
  StepRecords records;
  const schedule::Plan plan = test::plan(1, schedule::Trigger::kInitial);
};

TEST(StepRecords, AsksOnlyRanksThatKnowTheMessage) {
  Ranks ranks;

  const Outgoing asked =
      ranks.ask({.id = "a", .from = 4, .to = 6, .open = true, .most_bytes = 3000});

  ASSERT_THAT(asked, SizeIs(2));
  EXPECT_EQ(asked[0].first, 0);
  EXPECT_EQ(asked[1].first, 1);
  const auto& wanted = std::get<protocol::StepsWanted>(asked[1].second);
  EXPECT_EQ(wanted.id, "a");
  EXPECT_EQ(wanted.from, 4);
  EXPECT_EQ(wanted.to, 6);
  EXPECT_TRUE(wanted.open);
  EXPECT_EQ(wanted.most_bytes, 1000) << "of each rank of the plan";
}

TEST(StepRecords, AsksOnlyTheReplicaThatIsMeant) {
  Ranks ranks;
  schedule::Plan two = ranks.plan;
  two.ranks[1].replica = 1;

  const Outgoing asked = ranks.records.ask({.id = "a", .most_bytes = 3000, .replica = 1}, two,
                                           ranks.members, ranks.now);

  ASSERT_THAT(asked, SizeIs(1));
  EXPECT_EQ(asked[0].first, 1);
  EXPECT_EQ(std::get<protocol::StepsWanted>(asked[0].second).most_bytes, 3000);
  ranks.records.on_steps(1, {.id = "a", .octets = "x"});
  const auto gathered = ranks.records.take(ranks.members, ranks.now);
  ASSERT_THAT(gathered, SizeIs(1));
  EXPECT_EQ(gathered[0].ranks, 1);
  EXPECT_EQ(gathered[0].answers, 1);
}

TEST(StepRecords, JoinsTheAnswersOnceAllHaveCome) {
  Ranks ranks;
  ranks.ask({.id = "a", .to = 6, .most_bytes = 3000});

  ranks.records.on_steps(1, {.id = "a", .octets = "one"});
  ranks.records.on_steps(1, {.id = "a", .octets = "again"});
  ranks.records.on_steps(0, {.id = "b", .octets = "of another request"});
  ranks.records.on_steps(2, {.id = "a", .octets = "not asked"});
  EXPECT_THAT(ranks.records.take(ranks.members, ranks.now), IsEmpty());
  ranks.records.on_steps(0, {.id = "a", .octets = "zero"});

  const auto gathered = ranks.records.take(ranks.members, ranks.now);
  ASSERT_THAT(gathered, SizeIs(1));
  EXPECT_EQ(gathered[0].id, "a");
  EXPECT_EQ(gathered[0].octets, "onezero");
  EXPECT_EQ(gathered[0].answers, 2);
  EXPECT_EQ(gathered[0].ranks, 3);
  EXPECT_THAT(ranks.records.take(ranks.members, ranks.now), IsEmpty()) << "once";
}

TEST(StepRecords, DoesNotWaitForTheSilentAndTheGone) {
  Ranks ranks;
  ranks.ask({.id = "a", .to = 6, .most_bytes = 3000});
  ranks.records.on_steps(0, {.id = "a", .octets = "zero"});
  ranks.now += StepRecords::kPatience;
  ASSERT_THAT(ranks.records.take(ranks.members, ranks.now), SizeIs(1));

  ranks.ask({.id = "b", .to = 6, .most_bytes = 3000});
  ranks.records.on_steps(0, {.id = "b", .octets = "zero"});
  ranks.members.closed(2);  // the session of rank 1
  EXPECT_THAT(ranks.records.take(ranks.members, ranks.now), SizeIs(1));
}

TEST(StepRecords, LeavesOutWhatIsTooLong) {
  Ranks ranks;
  ranks.ask({.id = "a", .to = 6, .most_bytes = 10});
  ranks.records.on_steps(0, {.id = "a", .octets = std::string(8, 'x')});
  ranks.records.on_steps(1, {.id = "a", .octets = std::string(8, 'y')});

  const auto gathered = ranks.records.take(ranks.members, ranks.now);

  ASSERT_THAT(gathered, SizeIs(1));
  EXPECT_EQ(gathered[0].octets, std::string(8, 'x'));
  EXPECT_EQ(gathered[0].answers, 1);
}

TEST(CompleteOnAll, IsTheStepOfTheSlowestRankThatTrains) {
  Ranks ranks;
  EXPECT_EQ(complete_on_all(ranks.plan, ranks.members, {}), std::nullopt);
  ranks.complete(0, 9);
  ranks.complete(1, 8);
  EXPECT_EQ(complete_on_all(ranks.plan, ranks.members, {}), std::nullopt);
  ranks.complete(2, 9);
  EXPECT_EQ(complete_on_all(ranks.plan, ranks.members, {}), 8);
  EXPECT_EQ(complete_on_all(ranks.plan, ranks.members, {0}), std::nullopt) << "all are lost";
}

}  // namespace step_records_test
}  // namespace weir::coordinator::test
