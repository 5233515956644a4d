// SPDX-License-Identifier: Apache-2.0
// Replicas that average in groups, the test as the coordinator that forms them.
#include <array>
#include <atomic>
#include <cmath>
#include <set>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"
#include "tests/worker/engine/rounds.h"
#include "worker/base/units.h"
#include "worker/engine/received_rates.h"
#include "worker/engine/state_average.h"

namespace weir::engine {
namespace averages_test {

using test::averaging;
using test::Group;
using test::Rounds;
using testing::Each;

struct Trained {
  std::vector<Exit> endings;
  std::vector<StepRecord> last;  // of the last rank
  std::set<std::vector<int>> groups;
};

Trained train(int replicas, int stages, std::size_t wanted, std::int64_t steps, test::Saves* saves,
              double grad_clip = 0, bool overlaps = false) {
  Rounds rounds(replicas, stages, wanted, steps, {}, overlaps);
  Group group("mlp", replicas * stages, steps, grad_clip, saves,
              [&](int replica, std::int64_t step) { rounds.on_ready(replica, step); });
  rounds.attach(group);
  const auto plan =
      averaging(stages, group.layers(), std::vector(static_cast<std::size_t>(replicas), 3));
  EXPECT_EQ(group.start(plan), "");
  if (saves != nullptr) {
    for (int rank = 0; rank < replicas * stages; ++rank) {
      group.engine(rank).mailbox().put(protocol::Save{.step = steps});
    }
    for (int rank = 0; rank < replicas * stages; ++rank) group.reaches(rank, steps);
    for (int rank = 0; rank < replicas * stages; ++rank) {
      group.engine(rank).mailbox().put(protocol::Saved{.step = steps});
    }
  }
  Trained trained{.endings = group.finish(), .groups = rounds.groups()};
  trained.last = group.records(replicas * stages - 1);
  return trained;
}

TEST(Averages, LearnInPairsAndEndWithOneModelInAllBits) {
  constexpr std::int64_t kSteps = 100;  // of which a replica that others leave behind does fewer
  for (const bool overlaps : {false, true}) {
    test::Saves saves;
    const Trained trained = train(4, 2, 2, kSteps, &saves, 0, overlaps);

    EXPECT_THAT(trained.endings, Each(Exit::kFinished));
    EXPECT_EQ(saves.copies(kSteps), 8);
    EXPECT_EQ(saves.unequal(kSteps), 0) << "parameters and moments are everybody's";
    EXPECT_GT(trained.groups.size(), 1U);
    ASSERT_GT(trained.last.size(), 10U);
    EXPECT_EQ(trained.last.back().next_step, kSteps);
    EXPECT_LT(trained.last.back().loss, 0.8 * trained.last.front().loss);
  }
}

// Everybody in every group: a step of one replica with a quarter of the batch, averaged.
TEST(Averages, OfAllInEveryStepStayCloseToExactSteps) {
  constexpr std::int64_t kSteps = 40;
  const Trained trained = train(2, 1, 2, kSteps, nullptr);
  EXPECT_THAT(trained.endings, Each(Exit::kFinished));
  const auto exact = test::reference_losses("mlp", 6, kSteps);
  ASSERT_EQ(trained.last.size(), exact.size());
  EXPECT_NEAR(trained.last.back().loss, exact.back(), 0.1 * exact.back());
}

TEST(Averages, WorkWithTheClip) {
  for (const bool overlaps : {false, true}) {
    EXPECT_THAT(train(2, 2, 2, 5, nullptr, 1e-3, overlaps).endings, Each(Exit::kFinished));
  }
}

// Two replicas of one stage: who of them is granted what, after each step.
class TwoReplicas {
 public:
  explicit TwoReplicas(std::int64_t steps)
      : steps_(steps), group_("mlp", 2, steps, 0, &saves_, [this](int replica, std::int64_t) {
          ++ready_[at(replica)];
        }) {
    EXPECT_EQ(group_.start(averaging(1, group_.layers(), {2, 2})), "");
    for (int rank = 0; rank < 2; ++rank) {
      group_.engine(rank).mailbox().put(protocol::Save{.step = steps});
    }
  }
  ~TwoReplicas() { EXPECT_THAT(group_.finish(), Each(Exit::kFinished)); }
  TwoReplicas(const TwoReplicas&) = delete;
  TwoReplicas& operator=(const TwoReplicas&) = delete;

  bool ready(int replica, int step) {  // waits for it
    test::eventually([&] { return ready_[at(replica)] >= step; });
    return ready_[at(replica)] == step;
  }
  void grant(int replica, std::int64_t step, protocol::Grant grant) {
    ASSERT_TRUE(ready(replica, static_cast<int>(step)));
    grant.round = grant.step = grant.next_step = step;
    group_.engine(replica).mailbox().put(grant);
  }
  void grant_both(std::int64_t step, const protocol::Grant& both) {
    for (const int replica : {0, 1}) grant(replica, step, both);
  }
  bool does(int replica, std::int64_t step) { return group_.reaches(replica, step); }
  std::int64_t steps(int replica) { return group_.engine(replica).statistics().step; }
  // Of both, parameters one after the other, after all steps.
  std::vector<float> end() {
    for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(does(rank, steps_));
    for (int rank = 0; rank < 2; ++rank) {
      group_.engine(rank).mailbox().put(protocol::Saved{.step = steps_});
    }
    EXPECT_EQ(saves_.unequal(steps_), 0);
    std::vector<float> all;
    for (const auto& [name, state] : saves_.state(steps_)) {  // and two moments
      const auto values = static_cast<std::ptrdiff_t>(state.size() / 3);
      all.insert(all.end(), state.begin(), state.begin() + values);
    }
    return all;
  }

 private:
  static std::size_t at(int replica) { return static_cast<std::size_t>(replica); }

  const std::int64_t steps_;
  std::array<std::atomic<int>, 2> ready_{};
  test::Saves saves_;
  Group group_;
};

protocol::Grant all_as(int replica) {
  return {.members = {0, 1}, .weights = {1.0 - replica, 1.0 * replica}, .all = true};
}

// x0 and x1 after a step; the mean is x0. Replica 1's gradient of its second step is at x1, whose
// update is then of x0.
TEST(OverlappedAverages, AreTheMeanThenTheUpdateOfTheStepThatTheyWentOnBeside) {
  const auto after_one_step = [](int replica) {
    TwoReplicas two(1);
    two.grant_both(1, all_as(replica));
    return two.end();
  };
  const std::vector<float> x0 = after_one_step(0), x1 = after_one_step(1);
  const auto after_two = [](const protocol::Grant& of_0, const protocol::Grant& of_1) {
    TwoReplicas two(2);
    two.grant(0, 1, of_0);
    two.grant(1, 1, of_1);
    two.grant_both(2, all_as(1));
    return two.end();
  };
  const std::vector<float> alone =
      after_two({.members = {0}, .weights = {1}}, {.members = {1}, .weights = {1}});
  const protocol::Grant overlapping{.members = {0, 1}, .weights = {1, 0}, .overlaps = true};
  const std::vector<float> overlapped = after_two(overlapping, overlapping);

  ASSERT_EQ(overlapped.size(), x0.size());
  double apart = 0, off = 0;
  for (std::size_t i = 0; i < x0.size(); ++i) {
    const double expected = x0[i] + (alone[i] - x1[i]);
    off = std::max(off, std::abs(overlapped[i] - expected));
    apart = std::max(apart, static_cast<double>(std::abs(x0[i] - x1[i])));
  }
  EXPECT_LT(off, 3e-5) << "the decay is that of other weights";
  EXPECT_GT(apart, 1e-2);
}

TEST(OverlappedAverages, GoOnBesideTheNextStepToItsEnd) {
  TwoReplicas two(2);
  const protocol::Grant overlapping{.members = {0, 1}, .weights = {0.5, 0.5}, .overlaps = true};
  two.grant(0, 1, overlapping);
  EXPECT_TRUE(two.does(0, 1)) << "without replica 1";
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(two.ready(0, 1)) << "its second step ends with the mean";
  two.grant(1, 1, overlapping);
  two.grant_both(2, all_as(0));
  two.end();
}

TEST(OverlappedAverages, AreThoseOfGrantsThatSaySo) {
  TwoReplicas two(2);
  const protocol::Grant waits{.members = {0, 1}, .weights = {0.5, 0.5}};
  two.grant(0, 1, waits);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(two.steps(0), 0);
  two.grant(1, 1, waits);
  two.grant_both(2, all_as(0));
  two.end();
}

TEST(Averages, ARankThatLeavesDoesNotWaitForAnAnswer) {
  Group group("mlp", 2, 5, 0, nullptr, [](int, std::int64_t) {});
  ASSERT_EQ(group.start(averaging(1, group.layers(), {2, 2})), "");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto begin = std::chrono::steady_clock::now();
  for (int rank = 0; rank < 2; ++rank) group.engine(rank).leave(std::chrono::seconds(25));
  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Averages, OfALostReplicaEndTheStepOfItsGroup) {
  Rounds rounds(2, 1, 2, 1'000'000);
  Group group("mlp", 2, 1'000'000, 0, nullptr,
              [&](int replica, std::int64_t step) { rounds.on_ready(replica, step); });
  rounds.attach(group);
  ASSERT_EQ(group.start(averaging(1, group.layers(), {2, 2})), "");
  ASSERT_TRUE(group.reaches(0, 5));
  group.engine(1).leave(std::chrono::seconds(0));
  // The other one is in a round with it, or waits for an answer that never comes: it is told.
  group.engine(0).mailbox().put(protocol::PeerLost{.reason = "replica 1 has left"});
  EXPECT_TRUE(group.reaches(0, 5));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  group.engine(0).leave(std::chrono::seconds(25));
  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
}

// It leaves in the middle of a round, or while the others wait for it: they finish all steps.
TEST(Averages, GoOnWithoutAReplicaThatLeaves) {
  for (const auto& [stages, overlaps] : {std::pair{1, false}, {2, false}, {1, true}, {2, true}}) {
    constexpr std::int64_t kSteps = 400;
    Rounds rounds(3, stages, 3, kSteps, {}, overlaps);
    Group group("mlp", 3 * stages, kSteps, 0, nullptr,
                [&](int replica, std::int64_t step) { rounds.on_ready(replica, step); });
    rounds.attach(group);
    ASSERT_EQ(group.start(averaging(stages, group.layers(), {2, 2, 2})), "");
    ASSERT_TRUE(group.reaches(0, 20));
    for (int rank = 2 * stages; rank < 3 * stages; ++rank) {
      group.engine(rank).leave(std::chrono::seconds(0));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    rounds.lose_one();

    const auto endings = group.finish();
    for (int rank = 0; rank < 2 * stages; ++rank) {
      EXPECT_EQ(endings[static_cast<std::size_t>(rank)], Exit::kFinished) << rank;
      EXPECT_EQ(group.records(rank).back().next_step, kSteps);
      EXPECT_TRUE(group.lost(rank).empty());
    }
  }
}

TEST(Averages, RefuseAGrantThatCannotBe) {
  const protocol::Grant good{
      .round = 1, .step = 4, .next_step = 4, .members = {0, 2}, .weights = {0.5, 0.5}};
  EXPECT_EQ(objection(good, 2, 3), "");
  EXPECT_NE(objection(good, 1, 3), "");  // no member
  const auto changed = [&](auto change) {
    protocol::Grant grant = good;
    change(grant);
    return objection(grant, 2, 3);
  };
  EXPECT_NE(changed([](protocol::Grant& g) { g.members = {2, 0}; }), "");
  EXPECT_NE(changed([](protocol::Grant& g) { g.members = {2, 2}; }), "");
  EXPECT_NE(changed([](protocol::Grant& g) { g.members = {2, 3}; }), "");
  EXPECT_NE(changed([](protocol::Grant& g) { g.members = {-1, 2}; }), "");
  EXPECT_NE(changed([](protocol::Grant& g) { g.members = {}; }), "");
  EXPECT_NE(changed([](protocol::Grant& g) { g.weights = {1}; }), "");
  EXPECT_NE(changed([](protocol::Grant& g) { g.weights = {0.9, 0.9}; }), "");
  EXPECT_NE(changed([](protocol::Grant& g) { g.weights = {1.5, -0.5}; }), "");
  EXPECT_NE(changed([](protocol::Grant& g) { g.weights = {std::nan(""), 1}; }), "");
  EXPECT_NE(changed([](protocol::Grant& g) { g.next_step = 3; }), "");
}

// Of an average: so many bytes of which so many count, in so many milliseconds, from each replica.
transport::CollectiveCounters received(
    const std::vector<std::tuple<int, std::int64_t, std::int64_t, double>>& from) {
  transport::CollectiveCounters counters;
  for (const auto& [replica, bytes, counted, ms] : from) {
    counters.received[replica] = {
        .bytes = bytes, .counted_bytes = counted, .busy = from_seconds(ms / 1e3)};
  }
  return counters;
}

double rate(std::int64_t bytes, std::int64_t counted, double ms) {
  return received_rates({}, received({{1, bytes, counted, ms}})).at(0).bytes_per_second;
}

// On a fast network the times of averages are noise: 1 and 5 ms are as good as each other, 200 ms
// are not as good as 40 (worker/groups/README.md "Gates": half of the median).
TEST(ReceivedRates, TellNoNoise) {
  constexpr std::int64_t kBytes = 330'000;
  EXPECT_GT(rate(kBytes, kBytes, 5), 0.5 * rate(kBytes, kBytes, 1));
  EXPECT_LT(rate(kBytes, kBytes, 200), 0.5 * rate(kBytes, kBytes, 40));
  EXPECT_DOUBLE_EQ(rate(kBytes, kBytes / 2, 100), rate(kBytes, kBytes, 200));
}

// A last short frame that waited 12 ms for an acknowledgement would stand for half a second.
TEST(ReceivedRates, TooFewBytesSayNothing) {
  EXPECT_TRUE(received_rates({}, received({{1, 330'000, 8'000, 12}})).empty());
  EXPECT_TRUE(received_rates({}, received({{1, 330'000, 0, 0}})).empty()) << "all in one piece";
  EXPECT_EQ(received_rates({}, received({{1, 330'000, 90'000, 12}})).size(), 1U);
}

TEST(ReceivedRates, TellTheSlowSenderFromTheOthers) {
  const auto before = received({{1, 1000, 1000, 5}, {2, 500'000, 500'000, 900}, {4, 10, 10, 1}});
  const auto after = received(
      {{1, 101'000, 101'000, 55}, {2, 600'000, 600'000, 940}, {3, 100'000, 0, 0}, {4, 10, 10, 1}});
  const auto rates = received_rates(before, after);
  ASSERT_EQ(rates.size(), 2U) << "nothing came from replica 4, and from 3 in one piece";
  EXPECT_EQ(rates[0].from, 1);
  EXPECT_DOUBLE_EQ(rates[0].bytes_per_second, 3 * 100'000 / 0.060);
  EXPECT_EQ(rates[1].from, 2);
  EXPECT_DOUBLE_EQ(rates[1].bytes_per_second, 3 * 100'000 / 0.050);
}

}  // namespace averages_test
}  // namespace weir::engine
