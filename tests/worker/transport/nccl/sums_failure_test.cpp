// SPDX-License-Identifier: Apache-2.0
// What breaks sums by NCCL: they end in time at all replicas, say what it was, abort the
// communicator, and the next generation works.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/transport/nccl/sums_rig.h"

namespace weir::transport::test {
namespace sums_failure_test {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr std::size_t kCount = 1000;

class NcclSumFailure : public ::testing::Test {
 protected:
  void SetUp() override { replicas_.connect(); }
  Faults& faults(std::size_t replica) { return replicas_.hosts[replica]->api->faults(); }
  void post(std::size_t replica) {
    replicas_[replica].all_reduce(sums_.terms[replica]->sum({.step = 1}, replicas_.all()));
    replicas_[replica].all_gather(cards_.gather({.step = 1, .part = 1}, replicas_.all()));
  }
  void post_all() {
    for (std::size_t r = 0; r < replicas_.members.size(); ++r) post(r);
  }
  // "" when all is complete.
  std::string end_of(std::size_t replica) {
    const Result<bool> done = replicas_[replica].wait(soon(), {});
    if (!done) return done.error().message;
    return *done ? "" : "not in time";
  }
  void expect_recovery() {
    replicas_.end();
    for (const auto& host : replicas_.hosts) {
      EXPECT_EQ(host->api->aborted(), host->api->opened());
      Faults& own = host->api->faults();
      own.async_error = own.silent = own.blocks = false;
    }
    replicas_.connect(2);
    Summing again(kCount, replicas_.members.size());
    for (std::size_t r = 0; r < replicas_.members.size(); ++r) {
      replicas_[r].all_reduce(again.terms[r]->sum({.step = 1}, replicas_.all()));
    }
    for (std::size_t r = 0; r < replicas_.members.size(); ++r) {
      expect_done(replicas_[r]);
      EXPECT_EQ(again.terms[r]->out, again.expected());
    }
  }

  NcclReplicas replicas_{3, {.transfer = 1500ms, .watch_interval = 20ms}};
  Summing sums_{kCount, 3};
  Cards cards_;
};

TEST_F(NcclSumFailure, AnAsynchronousErrorEndsAllReplicasAndNamesTheSums) {
  faults(1).async_error = true;
  post_all();

  EXPECT_THAT(end_of(1), AllOf(HasSubstr("sums of stage 3 over 3 replicas"),
                               HasSubstr("remote process exited")));
  EXPECT_THAT(end_of(0), AnyOf(HasSubstr("replica 1 at"), HasSubstr("replica 2 at")));
  EXPECT_THAT(end_of(2), AnyOf(HasSubstr("replica 1 at"), HasSubstr("replica 0 at")));
  expect_recovery();
}

TEST_F(NcclSumFailure, ASumThatHangsEndsAtItsTimeLimit) {
  faults(2).silent = true;
  const auto begin = std::chrono::steady_clock::now();

  post_all();

  std::string said;
  for (std::size_t r = 0; r < 3; ++r) said += end_of(r);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_THAT(said, AllOf(HasSubstr("sums of stage 3"), HasSubstr("time limit")));
  expect_recovery();
}

TEST_F(NcclSumFailure, ACallOfNcclThatHangsIsAborted) {
  faults(0).blocks = true;

  post_all();

  for (std::size_t r = 0; r < 3; ++r) EXPECT_NE(end_of(r), "");
  expect_recovery();
}

TEST_F(NcclSumFailure, ADeadReplicaIsNamedBeforeTheTimeLimit) {
  for (std::size_t r = 0; r < 3; ++r) faults(r).silent = true;  // the kernels never end
  post_all();
  ASSERT_TRUE(replicas_[0].wait(soon(100ms), {}));
  const auto begin = std::chrono::steady_clock::now();

  replicas_[2].abort("killed");

  EXPECT_THAT(end_of(0), AnyOf(HasSubstr("replica 2 at"), HasSubstr("replica 1 at")));
  EXPECT_THAT(end_of(1), AnyOf(HasSubstr("replica 2 at"), HasSubstr("replica 0 at")));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
  expect_recovery();
}

TEST_F(NcclSumFailure, AReplicaThatNeverComesIsNamedWhenItEnds) {
  post(0);
  post(1);
  ASSERT_TRUE(replicas_[0].wait(soon(50ms), {}));

  replicas_.members[2].reset();

  EXPECT_THAT(end_of(0), AnyOf(HasSubstr("replica 2 at"), HasSubstr("replica 1 at")));
  EXPECT_THAT(end_of(1), AnyOf(HasSubstr("replica 2 at"), HasSubstr("replica 0 at")));
}

TEST_F(NcclSumFailure, SumsOfOtherSizesAreRefusedBeforeAnyIsLaunched) {
  Summing shorter(kCount - 1, 3);
  replicas_[0].all_reduce(sums_.terms[0]->sum({.step = 1}, replicas_.all()));
  replicas_[1].all_reduce(sums_.terms[1]->sum({.step = 1}, replicas_.all()));
  replicas_[2].all_reduce(shorter.terms[2]->sum({.step = 1}, replicas_.all()));

  const std::string said = end_of(0) + end_of(1) + end_of(2);

  EXPECT_THAT(said, HasSubstr("replica 2 sums 999 values where this rank sums 1000"));
  expect_recovery();
}

TEST_F(NcclSumFailure, ASumThatIsUnderWayCannotBeGivenUpAlone) {
  post(0);

  const Result<int> given_up = replicas_[0].abandon(1);

  ASSERT_FALSE(given_up);
  EXPECT_THAT(given_up.error().message, HasSubstr("cannot be given up alone"));
  expect_recovery();
}

TEST_F(NcclSumFailure, AbortFromAnotherThreadWakesTheWait) {
  post(0);
  std::jthread other([this] { replicas_[0].abort("the coordinator said so"); });

  EXPECT_EQ(end_of(0), "the coordinator said so");
  EXPECT_EQ(end_of(0), "the coordinator said so") << "for ever";
  other.join();
  expect_recovery();
}

TEST_F(NcclSumFailure, ReplicasThatEndWithoutSumsUnderWayFailNobody) {
  post_all();
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(end_of(r), "");

  replicas_.members[1].reset();
  std::this_thread::sleep_for(100ms);  // several looks of the watchdog

  EXPECT_EQ(end_of(0), "");
  EXPECT_EQ(sums_.terms[0]->out, sums_.expected());
}

TEST(NcclGroup, RefusesTwoReplicasOnOneGpu) {
  NcclReplicas replicas(2);
  nccl::Facts same = replicas.hosts[0]->api->facts();
  replicas.hosts[1]->api->set_facts(same);

  for (const auto& made : replicas.join(1, 5s)) {
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message,
                AllOf(HasSubstr("replica "), HasSubstr("uses the same GPU as this worker")));
  }
}

TEST(NcclGroup, EndsAtTheDeadlineWhenACommunicatorDoesNotCome) {
  NcclReplicas replicas(2);
  replicas.hosts[1]->api->faults().init_hangs = true;

  const auto made = replicas.join(1, 1s);

  std::string said;
  for (const auto& one : made) {
    ASSERT_FALSE(one);
    said += one.error().message;
  }
  // Whoever is first tells the other.
  EXPECT_THAT(
      said, AllOf(HasSubstr("sums of stage 3 over 2 replicas"), HasSubstr("did not come in time")));
  for (const auto& host : replicas.hosts) EXPECT_EQ(host->api->aborted(), host->api->opened());
}

TEST(NcclGroup, AReplicaThatCannotMakeItTellsTheOthers) {
  NcclReplicas replicas(2);
  replicas.hosts[1]->api->faults().init_fails = true;
  const auto begin = std::chrono::steady_clock::now();

  const auto made = replicas.join();

  ASSERT_FALSE(made[0]);
  ASSERT_FALSE(made[1]);
  EXPECT_THAT(made[0].error().message, HasSubstr("replica 1 at"));
  EXPECT_THAT(made[1].error().message, HasSubstr("unhandled system error"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(NcclGroup, WithoutAUniqueIdSaysWhy) {
  NcclReplicas replicas(2);
  replicas.hosts[0]->api->faults().no_id = true;

  const auto made = replicas.join(1, 5s);

  ASSERT_FALSE(made[0]);
  ASSERT_FALSE(made[1]);
  EXPECT_THAT(made[0].error().message, HasSubstr("no network"));
}

TEST(NcclGroup, OpensOneCommunicatorForEachGeneration) {
  NcclReplicas replicas(4);

  replicas.connect(1);
  replicas.connect(2);

  for (const auto& host : replicas.hosts) EXPECT_EQ(host->api->opened(), 2);
}

}  // namespace sums_failure_test
}  // namespace weir::transport::test
