// SPDX-License-Identifier: Apache-2.0
// What breaks an average by NCCL ends one round: survivors give it up in time, keep their models,
// and the next rounds work among those who are there.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/transport/nccl/means_rig.h"
#include "worker/base/random.h"

namespace weir::transport::test {
namespace means_failure_test {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class NcclMeanFailure : public ::testing::Test {
 protected:
  void SetUp() override { replicas_.connect(); }
  Faults& faults(std::size_t replica) { return replicas_.hosts[replica]->api->faults(); }
  // "" when all is complete.
  std::string end_of(std::size_t replica, std::chrono::nanoseconds limit = 30s) {
    const Result<bool> done = replicas_[replica].wait(soon(limit), {});
    if (!done) return done.error().message;
    return *done ? "" : "not in time";
  }
  int given_up(std::size_t replica, std::uint64_t step) {
    const Result<int> missing = replicas_[replica].abandon(step);
    EXPECT_TRUE(missing) << missing.error().message;
    return missing ? *missing : -2;
  }

  explicit NcclMeanFailure(std::chrono::milliseconds transfer = 1500ms)
      : replicas_(3, {.transfer = transfer, .watch_interval = 20ms}) {}

  NcclReplicas replicas_;
};

// A thread that gets no processor for seconds looks like a call of NCCL that hangs.
class NcclMeanFaults : public NcclMeanFailure {
 protected:
  NcclMeanFaults() : NcclMeanFailure(30s) {}
};

TEST_F(NcclMeanFailure, AMemberThatDiesWhileTheCommunicatorIsMadeIsNamed) {
  faults(1).init_hangs = true;
  Averaging round({0, 1}, 1);
  const auto models = round.models;
  round.post_all(replicas_);
  ASSERT_EQ(end_of(0, 100ms), "not in time");

  replicas_[1].abort("killed");

  EXPECT_THAT(end_of(0), HasSubstr("replica 1 at"));
  EXPECT_EQ(given_up(0, 1), 1);
  EXPECT_EQ(round.models, models);
  expect_average(replicas_, {0, 2}, 2);
}

TEST_F(NcclMeanFailure, ACommunicatorThatDoesNotComeFailsTheRoundAtItsLimit) {
  faults(1).init_hangs = true;
  Averaging round({0, 1}, 1);
  round.post_all(replicas_);

  const std::string said = end_of(0) + end_of(1);

  EXPECT_THAT(said, AllOf(HasSubstr("averages of stage 3 between replicas 0,1"),
                          HasSubstr("did not come in time")));
  given_up(0, 1);
  given_up(1, 1);
  faults(1).init_hangs = false;
  expect_average(replicas_, {0, 1}, 2);
}

TEST_F(NcclMeanFailure, AMemberThatCannotMakeTheCommunicatorTellsTheOthers) {
  faults(1).init_fails = true;
  Averaging round({0, 1}, 1);
  round.post_all(replicas_);

  EXPECT_THAT(end_of(1), HasSubstr("unhandled system error"));
  EXPECT_EQ(given_up(1, 1), -1);
  EXPECT_THAT(end_of(0), HasSubstr("gave this operation up"));
  EXPECT_EQ(given_up(0, 1), -1);

  faults(1).init_fails = false;
  expect_average(replicas_, {0, 1}, 2);
}

TEST_F(NcclMeanFailure, WithoutAUniqueIdSaysWhy) {
  faults(0).no_id = true;
  Averaging round({0, 1}, 1);
  round.post_all(replicas_);

  EXPECT_THAT(end_of(0), HasSubstr("no network"));
  given_up(0, 1);
  EXPECT_THAT(end_of(1), HasSubstr("gave this operation up"));
  given_up(1, 1);

  faults(0).no_id = false;
  expect_average(replicas_, {0, 1}, 2);
}

TEST_F(NcclMeanFailure, AMemberThatDiesInTheAverageIsNamedBeforeTheTimeLimit) {
  expect_average(replicas_, {0, 1, 2}, 1);
  for (std::size_t r = 0; r < 3; ++r) faults(r).silent = true;  // the kernels never end
  Averaging round({0, 1, 2}, 2);
  const auto models = round.models;
  round.post_all(replicas_);
  ASSERT_EQ(end_of(0, 100ms), "not in time");
  const auto begin = std::chrono::steady_clock::now();

  replicas_[2].abort("killed");

  // Whoever notices first has given up before the other one does.
  EXPECT_THAT(end_of(0), HasSubstr("replica 2 at"));
  EXPECT_EQ(given_up(0, 2), 2);
  EXPECT_THAT(end_of(1), AnyOf(HasSubstr("replica 2 at"), HasSubstr("gave this operation up")));
  EXPECT_EQ(given_up(1, 2), 2);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  EXPECT_EQ(round.models, models);
  for (std::size_t r = 0; r < 3; ++r) faults(r).silent = false;
  expect_average(replicas_, {0, 1}, 3);
}

TEST_F(NcclMeanFailure, AnAverageThatHangsIsGivenUpAtTheCallersDeadline) {
  expect_average(replicas_, {0, 1}, 1);
  faults(1).silent = true;
  Averaging round({0, 1}, 2);
  round.post_all(replicas_);
  ASSERT_EQ(end_of(0, 100ms), "not in time");

  EXPECT_EQ(given_up(0, 2), -1) << "it is there, and nobody knows more";
  EXPECT_THAT(end_of(1), HasSubstr("gave this operation up"));
  EXPECT_EQ(given_up(1, 2), -1);

  faults(1).silent = false;
  expect_average(replicas_, {0, 1}, 3);
  expect_average(replicas_, {0, 1, 2}, 4);
}

TEST_F(NcclMeanFailure, AnAverageThatHangsFailsAtItsTimeLimit) {
  faults(0).silent = true;  // also the first message on a new communicator
  Averaging round({0, 1}, 1);
  round.post_all(replicas_);

  EXPECT_THAT(end_of(0) + end_of(1), HasSubstr("in time"));

  given_up(0, 1);
  given_up(1, 1);
  faults(0).silent = false;
  expect_average(replicas_, {0, 1}, 2);
}

TEST_F(NcclMeanFailure, AnAsynchronousErrorFailsTheRoundOfAllMembers) {
  expect_average(replicas_, {0, 1}, 1);
  faults(0).silent = true;
  Averaging round({0, 1}, 2);
  round.post_all(replicas_);
  ASSERT_EQ(end_of(1, 50ms), "not in time");

  faults(1).async_error = true;

  EXPECT_THAT(end_of(1), AllOf(HasSubstr("averages of stage 3 between replicas 0,1"),
                               HasSubstr("remote process exited")));
  given_up(1, 2);
  EXPECT_THAT(end_of(0), HasSubstr("gave this operation up"));
  given_up(0, 2);
  faults(0).silent = faults(1).async_error = false;
  expect_average(replicas_, {0, 1}, 3);
}

TEST_F(NcclMeanFailure, AnIdleCommunicatorThatBrokeIsMadeAgain) {
  expect_average(replicas_, {0, 1}, 1);
  const int before = replicas_.hosts[0]->api->opened();
  Averaging round({0, 1}, 2);
  faults(0).async_error = true;  // found when it is looked for
  round.post(replicas_[0], 0);
  const auto until = std::chrono::steady_clock::now() + 30s;
  while (replicas_.hosts[0]->api->aborted() == 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(1ms);
  }
  faults(0).async_error = false;

  round.post(replicas_[1], 1);

  EXPECT_EQ(end_of(0), "");
  EXPECT_EQ(end_of(1), "");
  EXPECT_EQ(round.means[0], round.expected());
  EXPECT_EQ(replicas_.hosts[0]->api->opened(), before + 1);
}

// Sessions are counted on both sides, whatever has begun of one.
TEST_F(NcclMeanFailure, AMemberThatNeverCameIsToldWhenItDoes) {
  for (const bool computed : {true, false}) {
    const std::uint64_t step = computed ? 1 : 3;
    replicas_.hosts[0]->api->computing() = !computed;
    Averaging round({0, 1}, step);
    round.post(replicas_[0], 0);
    ASSERT_EQ(end_of(0, 50ms), "not in time");

    EXPECT_EQ(given_up(0, step), 1);
    round.post(replicas_[1], 1);
    EXPECT_THAT(end_of(1), HasSubstr("gave this operation up"));
    EXPECT_EQ(given_up(1, step), -1);

    replicas_.hosts[0]->api->computing() = false;
    expect_average(replicas_, {0, 1}, step + 1);
  }
}

TEST_F(NcclMeanFailure, AReplicaThatIsNoMemberMayDie) {
  replicas_[2].abort("killed");
  std::this_thread::sleep_for(50ms);

  expect_average(replicas_, {0, 1}, 1);
}

TEST_F(NcclMeanFailure, AveragesOfOtherSizesAreRefusedBeforeAnyIsLaunched) {
  Averaging longer({0, 1}, 1, 1000), shorter({0, 1}, 1, 999);
  longer.post(replicas_[0], 0);
  shorter.post(replicas_[1], 1);

  EXPECT_THAT(end_of(0) + end_of(1),
              AnyOf(HasSubstr("replica 1 averages 999 values where this rank averages 1000"),
                    HasSubstr("replica 0 averages 1000 values where this rank averages 999")));
  EXPECT_FALSE(replicas_[0].abandon(1)) << "for ever";
}

TEST_F(NcclMeanFailure, ACallOfNcclThatHangsEndsTheGenerationInTime) {
  faults(0).blocks = true;
  Averaging round({0, 1}, 1);
  round.post_all(replicas_);
  ASSERT_NE(end_of(0, 200ms), "");

  const Result<int> left = replicas_[0].abandon(1);

  ASSERT_FALSE(left);
  EXPECT_NE(end_of(0), "not in time") << "for ever";
  EXPECT_THAT(end_of(1), AnyOf(HasSubstr("replica 0"), HasSubstr("in time")));
}

TEST_F(NcclMeanFailure, AKernelThatDoesNotEndLeavesNobodyItsMemory) {
  expect_average(replicas_, {0, 1}, 1);
  faults(0).silent = faults(0).never_ends = true;
  Averaging round({0, 1}, 2);
  round.post_all(replicas_);
  ASSERT_EQ(end_of(0, 50ms), "not in time");

  const Result<int> left = replicas_[0].abandon(2);

  EXPECT_FALSE(left);
  EXPECT_FALSE(replicas_[0].wait(soon(), {})) << "for ever";
}

TEST_F(NcclMeanFailure, AbortFromAnotherThreadWakesTheWait) {
  Averaging round({0, 1}, 1);
  round.post(replicas_[0], 0);
  std::jthread other([this] { replicas_[0].abort("the coordinator said so"); });

  EXPECT_EQ(end_of(0), "the coordinator said so");
  EXPECT_EQ(end_of(0), "the coordinator said so") << "for ever";
}

// Whatever goes wrong in a round: nobody hangs, who has an average has the right one, and rounds
// without faults succeed.
TEST_F(NcclMeanFaults, AnySequenceOfThemLeavesWorkingReplicas) {
  constexpr int kRounds = 80;
  Random random(11);
  int failed = 0;
  for (std::uint64_t step = 1; step <= kRounds; ++step) {
    std::vector<int> members = {0, 1, 2};
    if (const auto without = random.below(4); without < 3) {
      members.erase(members.begin() + static_cast<std::ptrdiff_t>(without));
    }
    const auto one = static_cast<std::size_t>(members[random.below(members.size())]);
    const auto fault = random.below(6);
    faults(one).silent = fault == 0;
    faults(one).async_error = fault == 1;
    faults(one).init_hangs = fault == 2;
    faults(one).init_fails = fault == 3;
    const auto delay = std::chrono::milliseconds(random.below(4));
    Averaging round(members, step);
    const auto models = round.models;
    std::vector<std::future<bool>> ends;
    for (const int r : members) {
      ends.push_back(std::async(std::launch::async, [&, r] {
        Collective& own = replicas_[static_cast<std::size_t>(r)];
        if (static_cast<std::size_t>(r) == one) std::this_thread::sleep_for(delay);
        round.post(own, r);
        const Result<bool> done = own.wait(soon(fault < 4 ? 60ms : 20s), {});
        if (done && *done) return true;
        const Result<int> missing = own.abandon(step);
        EXPECT_TRUE(missing) << "step " << step << ": " << missing.error().message;
        return false;
      }));
    }
    for (std::size_t m = 0; m < members.size(); ++m) {
      const bool done = ends[m].get();
      failed += done ? 0 : 1;
      if (done) {
        EXPECT_EQ(round.means[members[m]], round.expected()) << "step " << step;
      }
      EXPECT_TRUE(done || fault < 4) << "step " << step << " without a fault";
    }
    EXPECT_EQ(round.models, models);
    faults(one).silent = faults(one).async_error = false;
    faults(one).init_hangs = faults(one).init_fails = false;
  }
  EXPECT_GT(failed, 0);
}

}  // namespace means_failure_test
}  // namespace weir::transport::test
