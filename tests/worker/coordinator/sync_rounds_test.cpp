// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/sync_rounds.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"
#include "worker/base/random.h"

namespace weir::coordinator::test {
namespace sync_rounds_test {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Replicas = std::vector<int>;

constexpr std::int64_t kTotal = 100;

schedule::Plan averaging(int replicas, std::uint32_t revision = 1) {
  schedule::Plan result = plan(revision, schedule::Trigger::kInitial, 2);
  result.micro_batches.assign(static_cast<std::size_t>(replicas), 4);
  result.sync = {.mode = schedule::SyncMode::kPartial, .group_size_max = replicas};
  result.ranks.clear();
  for (int i = 0; i < 2 * replicas; ++i) {
    result.ranks.push_back({.pod = "pod-" + std::to_string(i), .replica = i / 2, .stage = i % 2});
  }
  return result;
}

// Replicas of two stages: workers 0, 1 and 2, 3 and so on.
struct Job {
  explicit Job(int replicas, std::int64_t total = kTotal)
      : in_force(averaging(replicas)), rounds(total) {
    for (int i = 0; i < 2 * replicas; ++i) members.hello(i + 1, {.member = member(i)}, now);
    rounds.follow(&in_force);
  }

  void take(const SyncRounds::Effects& effects) {
    for (const auto& [index, message] : effects.send) {
      const auto& grant = std::get<protocol::Grant>(message);
      sent.emplace_back(index, grant);
      newest[index / 2] = grant;
    }
    warnings.insert(warnings.end(), effects.warnings.begin(), effects.warnings.end());
  }
  void ready(int replica, std::int64_t step, double seconds = 1,
             std::vector<protocol::SyncReady::Received> received = {}, double average_seconds = 0) {
    take(rounds.on_ready(2 * replica + 1,
                         {.replica = replica,
                          .step = step,
                          .step_seconds = seconds,
                          .received = std::move(received),
                          .average_seconds = average_seconds},
                         members, now));
  }
  // The ranks of a replica have averaged and go on.
  void goes_on(int replica) {
    const std::int64_t step = newest.at(replica).next_step;
    for (const int stage : {1, 0}) {
      rounds.on_status({.epoch = 1, .step = step, .replica = replica, .stage = stage}, now);
    }
  }
  void pass(std::chrono::nanoseconds time) {
    now += time;
    take(rounds.tick(members, now));
  }
  // Receivers of the grants since the last look.
  std::vector<int> told() {
    std::vector<int> list;
    for (const auto& [index, grant] : std::exchange(sent, {})) list.push_back(index);
    return list;
  }

  SteadyTime now = SteadyTime(1h);
  schedule::Plan in_force;
  Members members;
  SyncRounds rounds;
  std::vector<std::pair<int, protocol::Grant>> sent;
  std::map<int, protocol::Grant> newest;  // by replica
  std::vector<std::string> warnings;
};

TEST(SyncRounds, TellAllRanksOfAllMembers) {
  Job job(2);
  job.ready(0, 1);
  job.ready(1, 1);

  EXPECT_THAT(job.newest.at(1).members, ElementsAre(0, 1));
  EXPECT_THAT(job.newest.at(1).weights, ElementsAre(0.5, 0.5));
  EXPECT_EQ(job.newest.at(0).step, 1);
  EXPECT_EQ(job.newest.at(0).next_step, 1);
  EXPECT_FALSE(job.newest.at(0).all);
  EXPECT_THAT(job.told(), ElementsAre(0, 1, 2, 3));
}

// 0 does three steps alone while 1 does one; both go on at the step of the faster.
TEST(SyncRounds, TakeASlowReplicaAlongToTheStepOfTheFast) {
  Job job(2);
  for (std::int64_t step = 1; step <= 3; ++step) {
    job.ready(0, step);
    job.pass(2s);  // nobody comes in the window
    ASSERT_TRUE(job.newest.contains(0)) << step;
    EXPECT_THAT(job.newest.at(0).members, ElementsAre(0));
    job.goes_on(0);
  }
  job.told();
  job.ready(1, 1, 6);
  job.ready(0, 4);

  EXPECT_THAT(job.newest.at(1).members, ElementsAre(0, 1));
  EXPECT_EQ(job.newest.at(1).step, 1);
  EXPECT_EQ(job.newest.at(1).next_step, 4);
  EXPECT_EQ(job.newest.at(0).next_step, 4);
  EXPECT_EQ(job.rounds.reached(), 4);
  // Progress: (4 + 1) / 2 of both.
  EXPECT_DOUBLE_EQ(job.newest.at(0).staleness, 0);
  const auto groups = job.rounds.totals();
  ASSERT_TRUE(groups.has_value());
  EXPECT_EQ(groups->rounds, 4);
  EXPECT_DOUBLE_EQ(groups->mean_group_size, 5.0 / 4);
  EXPECT_DOUBLE_EQ(groups->max_staleness, 3);
}

// All members of an average are as slow as its slowest; what is told to each is its own port.
TEST(SyncRounds, TellEachReplicaTheRateOfItsOwnPort) {
  Job job(3);
  for (int r = 0; r < 3; ++r) job.ready(r, 1);
  EXPECT_EQ(job.newest.at(0).node_bytes_per_second, 0) << "nothing is known yet";
  for (int r = 0; r < 3; ++r) job.goes_on(r);
  job.ready(0, 2, 1, {{1, 1e9}, {2, 1e8}});
  job.ready(1, 2, 1, {{0, 1e9}, {2, 1e8}});
  job.ready(2, 2, 1, {{0, 1e9}, {1, 1e9}});
  job.pass(2s);

  EXPECT_DOUBLE_EQ(job.newest.at(0).node_bytes_per_second, 1e9);
  EXPECT_DOUBLE_EQ(job.newest.at(1).node_bytes_per_second, 1e9);
  EXPECT_DOUBLE_EQ(job.newest.at(2).node_bytes_per_second, 1e8);
}

// Its members tell how long their last averages took; claims that cannot be are ignored.
TEST(SyncRounds, LetAnAverageThatTakesLongGoOnBesideTheNextStep) {
  const auto overlaps = [](double seconds) {
    Job job(2);
    int common = 0, beside = 0;
    for (int step = 1; step <= 10; ++step) {
      job.pass(1s);
      for (int r = 0; r < 2; ++r) job.ready(r, step, 1, {}, seconds);
      for (int r = 0; r < 2; ++r) job.goes_on(r);
      for (const auto& [index, grant] : std::exchange(job.sent, {})) {
        common += grant.members.size() == 2 ? 1 : 0;
        beside += grant.overlaps ? 1 : 0;
      }
    }
    EXPECT_GE(common, 8) << "two averages, told to both ranks of both";
    return beside > 0;
  };
  EXPECT_TRUE(overlaps(0.5)) << "half a step";
  EXPECT_FALSE(overlaps(0.1)) << "a tenth";
  EXPECT_FALSE(overlaps(-1));
  EXPECT_FALSE(overlaps(1e30));
}

TEST(SyncRounds, IgnoreRepetitionsStrangersAndWhatIsNoReplica) {
  Job job(2);
  job.ready(0, 1);
  job.ready(0, 1);
  job.take(job.rounds.on_ready(1, {.replica = 1, .step = 1}, job.members, job.now));
  job.take(job.rounds.on_ready(3, {.replica = 7, .step = 1}, job.members, job.now));
  job.take(job.rounds.on_ready(3, {.replica = -1, .step = 1}, job.members, job.now));
  job.take(job.rounds.on_ready(9, {.replica = 1, .step = 1}, job.members, job.now));
  job.take(job.rounds.on_ready(2, {.replica = 1, .step = 1}, job.members, job.now));  // stage 0
  EXPECT_THAT(job.told(), IsEmpty());

  job.ready(1, 1);
  EXPECT_THAT(job.told(), SizeIs(4));
  job.ready(1, 1);
  EXPECT_THAT(job.told(), IsEmpty());
}

TEST(SyncRounds, SayNothingInAnExactPlan) {
  Job job(2);
  schedule::Plan exact = job.in_force;
  exact.sync.mode = schedule::SyncMode::kExact;
  job.rounds.follow(nullptr);
  job.rounds.follow(&exact);

  job.ready(0, 1);
  job.ready(1, 1);

  EXPECT_THAT(job.told(), IsEmpty());
  EXPECT_EQ(job.rounds.timer(), std::nullopt);
}

TEST(SyncRounds, EverybodyMeetsAtTheLastStep) {
  Job job(2, 3);
  for (const std::int64_t step : {1, 2}) {
    job.ready(0, step);
    job.pass(2s);
    job.goes_on(0);
  }
  job.told();
  job.ready(0, 3);
  job.pass(60s);
  EXPECT_THAT(job.told(), IsEmpty());  // held, however long the other takes

  job.ready(1, 1);

  EXPECT_THAT(job.newest.at(1).members, ElementsAre(0, 1));
  EXPECT_TRUE(job.newest.at(1).all);
  EXPECT_EQ(job.newest.at(1).next_step, 3);
}

TEST(SyncRounds, EverybodyMeetsWhereACheckpointOrAPlanIsDueAndNobodyGoesBeyond) {
  Job job(3);
  for (int r = 0; r < 3; ++r) job.ready(r, 1);
  for (int r = 0; r < 3; ++r) job.goes_on(r);
  job.told();
  const std::int64_t soonest = job.rounds.reached() + 1;
  job.rounds.gather_at(soonest);

  job.ready(0, 2);
  job.ready(1, 2);
  job.pass(60s);
  EXPECT_THAT(job.told(), IsEmpty());
  job.ready(2, 2);

  EXPECT_TRUE(job.newest.at(2).all);
  EXPECT_EQ(job.newest.at(2).next_step, soonest);
  EXPECT_THAT(job.told(), SizeIs(6));
  for (int r = 0; r < 3; ++r) job.goes_on(r);
  for (int r = 0; r < 3; ++r) job.ready(r, 3);
  EXPECT_FALSE(job.newest.at(0).all);
}

// A step that is behind, or that a rank may already be doing, is nowhere to meet.
TEST(SyncRounds, ForgetAMeetingThatComesTooLate) {
  Job job(2);
  for (int r = 0; r < 2; ++r) job.ready(r, 1);
  for (int r = 0; r < 2; ++r) job.goes_on(r);
  job.rounds.gather_at(1);
  job.rounds.gather_at(0);

  for (int r = 0; r < 2; ++r) job.ready(r, 2);

  EXPECT_FALSE(job.newest.at(0).all);
}

// The ranks of the generation that ends still have to come to the boundary.
TEST(SyncRounds, GoOnUntilTheNextGenerationBegins) {
  Job job(2);
  job.ready(0, 1);
  job.rounds.follow(nullptr);
  job.rounds.gather_at(3);
  job.ready(1, 1);
  EXPECT_THAT(job.told(), SizeIs(4));
  for (int r = 0; r < 2; ++r) job.ready(r, 2);
  for (int r = 0; r < 2; ++r) job.ready(r, 3);
  EXPECT_TRUE(job.newest.at(0).all);
  job.told();

  job.rounds.follow(&job.in_force);  // GO: rounds and clocks begin anew
  EXPECT_EQ(job.rounds.reached(), 0);
  job.ready(0, 1);
  job.ready(1, 1);
  EXPECT_THAT(job.told(), SizeIs(4));
  EXPECT_EQ(job.newest.at(0).round, 1);
}

TEST(SyncRounds, KeepTheirClocksThroughAPlanOfTheSameGeneration) {
  Job job(2);
  for (int r = 0; r < 2; ++r) job.ready(r, 1);
  for (int r = 0; r < 2; ++r) job.goes_on(r);
  schedule::Plan uneven = averaging(2, 2);
  uneven.micro_batches = {6, 2};
  job.rounds.follow(&uneven);

  job.now += 1320ms;  // 0 has more to do: it is due after 1.4 s
  job.ready(1, 2);
  job.now += 80ms;
  job.ready(0, 2);

  EXPECT_THAT(job.newest.at(0).weights, ElementsAre(0.75, 0.25));
  EXPECT_EQ(job.newest.at(0).round, 2);
}

TEST(SyncRounds, GiveMembersADeadlineThatFollowsTheStep) {
  Job job(2);
  for (int r = 0; r < 2; ++r) job.ready(r, 1);
  EXPECT_DOUBLE_EQ(job.newest.at(0).deadline_seconds, 10);
  for (int r = 0; r < 2; ++r) job.goes_on(r);
  for (std::int64_t step = 2; step <= 12; ++step) {
    for (int r = 0; r < 2; ++r) job.ready(r, step, 6);
  }
  EXPECT_NEAR(job.newest.at(0).deadline_seconds, 30, 0.1);
}

TEST(SyncRounds, LeaveOutAMemberThatDidNotComeUntilItIsReadyAgain) {
  Job job(3);
  for (int r = 0; r < 3; ++r) job.ready(r, 1);
  const std::int64_t round = job.newest.at(0).round;
  for (const int rank : {0, 1, 2}) {  // each rank says so; 3 has averaged
    job.take(job.rounds.on_failed(
        rank, {.replica = rank / 2, .round = round, .missing = 2, .reason = "closed"}, job.members,
        job.now));
  }
  EXPECT_THAT(job.warnings, SizeIs(1));
  for (const int r : {0, 1}) job.goes_on(r);
  job.told();

  job.now += 1s;
  for (const int r : {0, 1}) job.ready(r, 2);
  EXPECT_THAT(job.newest.at(0).members, ElementsAre(0, 1));
  EXPECT_GT(job.newest.at(0).round, round);
  for (const int r : {0, 1}) job.goes_on(r);

  job.now += 1s;
  job.ready(2, 2);
  job.ready(0, 3);
  job.pass(1s);  // 1 does not come in the window
  EXPECT_THAT(job.newest.at(0).members, ElementsAre(0, 2));
}

TEST(SyncRounds, IgnoreFailuresThatStrangersTellOrThatCannotBe) {
  Job job(2);
  for (int r = 0; r < 2; ++r) job.ready(r, 1);
  const std::int64_t round = job.newest.at(0).round;
  for (const protocol::RoundFailed& failed :
       {protocol::RoundFailed{.replica = 1, .round = round, .missing = 0, .reason = ""},
        protocol::RoundFailed{.replica = 7, .round = round, .missing = 1, .reason = ""},
        protocol::RoundFailed{.replica = 0, .round = -1, .missing = 1, .reason = ""}}) {
    job.take(job.rounds.on_failed(0, failed, job.members, job.now));
  }
  EXPECT_THAT(job.warnings, IsEmpty());
  for (const int missing : {-5, 0, 2}) {  // itself, or nobody
    job.take(job.rounds.on_failed(
        0, {.replica = 0, .round = round, .missing = missing, .reason = ""}, job.members, job.now));
  }
  for (int r = 0; r < 2; ++r) job.goes_on(r);
  job.now += 1s;
  for (int r = 0; r < 2; ++r) job.ready(r, 2);
  EXPECT_THAT(job.newest.at(0).members, ElementsAre(0, 1));
}

TEST(SyncRounds, GoOnWithoutAReplicaThatHasLostARank) {
  Job job(3);
  for (int r = 0; r < 3; ++r) job.ready(r, 1);
  for (int r = 0; r < 3; ++r) job.goes_on(r);
  job.told();
  job.rounds.gather_at(2);
  for (const int r : {0, 1}) job.ready(r, 2);
  EXPECT_THAT(job.told(), IsEmpty());

  job.take(job.rounds.without({2}, job.members, job.now));  // who waited for it need not
  EXPECT_THAT(job.told(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(job.newest.at(0).members, ElementsAre(0, 1));

  job.ready(2, 2);  // of its last stage, which does not know it yet
  for (const int r : {0, 1}) job.goes_on(r);
  job.rounds.gather_at(3);
  for (const int r : {0, 1}) job.ready(r, 3);
  EXPECT_TRUE(job.newest.at(0).all) << "those who are left meet";
  EXPECT_THAT(job.newest.at(0).members, ElementsAre(0, 1));

  job.rounds.follow(nullptr);
  job.rounds.follow(&job.in_force);  // the next generation has all of them
  for (int r = 0; r < 3; ++r) job.ready(r, 1);
  EXPECT_THAT(job.newest.at(0).members, ElementsAre(0, 1, 2));
}

TEST(SyncRounds, OneReplicaAloneTrainsOn) {
  Job job(2);
  job.take(job.rounds.without({0}, job.members, job.now));
  job.ready(1, 1);
  EXPECT_THAT(job.newest.at(1).members, ElementsAre(1));
}

// Random speeds, one replica slow: nobody stands still for ever, steps only grow, weights sum to 1,
// rounds grow, nobody is in two groups at once, all end together at the last step.
TEST(SyncRounds, BringReplicasOfAnySpeedToTheEndTogether) {
  constexpr int kReplicas = 5, kSeeds = 20;
  int meetings = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Random random(seed);
    Job job(kReplicas);
    std::map<SteadyTime, int> due;  // the end of a step
    std::vector<std::int64_t> at(kReplicas, 0);
    std::vector<bool> waits(kReplicas, false);
    std::int64_t last_round = 0;
    const auto begin = [&](int r) {
      const double seconds = (r == 0 ? 4 : 1) * (0.8 + 0.4 * random.uniform());
      due[job.now + std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9))] = r;
    };
    for (int r = 0; r < kReplicas; ++r) begin(r);
    while (std::ranges::count(at, kTotal) < kReplicas) {
      const auto timer = job.rounds.timer();
      ASSERT_TRUE(!due.empty() || timer) << "seed " << seed << ": nothing will ever happen";
      if (timer && (due.empty() || *timer <= due.begin()->first)) {
        job.now = std::max(job.now, *timer);
        job.pass(0s);
      } else {
        const auto [time, r] = *due.begin();
        due.erase(due.begin());
        job.now = std::max(job.now, time);
        waits[static_cast<std::size_t>(r)] = true;
        job.ready(r, at[static_cast<std::size_t>(r)] + 1, r == 0 ? 4 : 1);
      }
      if (random.uniform() < 0.01) job.rounds.gather_at(job.rounds.reached() + 1);
      for (const auto& [index, grant] : std::exchange(job.sent, {})) {
        if (index % 2 == 1) continue;
        const int r = index / 2;
        const auto i = static_cast<std::size_t>(r);
        ASSERT_TRUE(waits[i]) << "seed " << seed;
        waits[i] = false;
        ASSERT_EQ(grant.step, at[i] + 1);
        ASSERT_GE(grant.next_step, grant.step);
        ASSERT_GE(grant.round, last_round);
        last_round = grant.round;
        double sum = 0;
        for (const double weight : grant.weights) sum += weight;
        ASSERT_NEAR(sum, 1, 1e-12);
        if (grant.all) {
          ASSERT_THAT(grant.members, SizeIs(kReplicas));
          ++meetings;
        }
        at[i] = grant.next_step;
        job.goes_on(r);
        if (at[i] < kTotal) begin(r);
      }
    }
  }
  EXPECT_GT(meetings, kSeeds * kReplicas) << "nobody met before the end";
}

}  // namespace sync_rounds_test
}  // namespace weir::coordinator::test
