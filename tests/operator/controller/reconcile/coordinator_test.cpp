// SPDX-License-Identifier: Apache-2.0
// Another worker coordinates when most of those with a rank do not hear the present one.
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace coordinator_test {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr auto kSpare = "job-gpu-s0";

std::vector<std::string> ranks_of(const schedule::Plan& plan) {
  std::vector<std::string> pods;
  for (const auto& rank : plan.ranks) pods.push_back(rank.pod);
  return pods;
}

void claim(World& world, std::initializer_list<const char*> pods, std::int64_t term = 1,
           std::chrono::seconds age = 0s) {
  world.claims.clear();
  for (const char* pod : pods)
    world.claims.push_back({world.pod(pod).meta.uid, term, world.now - age});
}

// The operator has heard nothing for 7 s, and neither have these workers.
void lose(World& world, std::initializer_list<const char*> claimants, std::int64_t term = 1) {
  world.now += 7s;
  claim(world, claimants, term);
}

// Four workers in four stages; the second coordinates in term 2.
World moved() {
  World world = training();
  lose(world, {"job-gpu-1", "job-gpu-2"});
  world.settle();
  return world;
}

// The present coordinator has met all workers whose pods run, but for `lost`.
void coordinator_reports(World& world, const std::string& lost = "") {
  world.workers_register();
  std::erase_if(world.members->body.members,
                [&](const protocol::Member& member) { return member.pod == lost; });
  world.report->body.members.clear();
  for (const auto& member : world.members->body.members)
    world.report->body.members.push_back({.pod = member.pod, .pod_uid = member.pod_uid});
  world.report->received = world.now;
}

World two_and_a_spare() {
  World world = two_stages(1);
  world.job.spec.worker_groups[0].spares = 1;
  world.run();
  world.steps(3, 1.2);
  return world;
}

// "" = the one of index 0, from the start.
std::string coordinator(const World& world) {
  const auto& named = world.job.status.coordinator;
  return named ? named->pod + " " + std::to_string(named->term) : "";
}

TEST(Coordinator, MovesWhenMostWorkersWithARankClaimItsLoss) {
  World world = training();
  const std::string former = world.pod("job-gpu-0").meta.uid;
  lose(world, {"job-gpu-2", "job-gpu-1"});
  const auto outcome = world.pass();
  ASSERT_TRUE(outcome.status);
  EXPECT_TRUE(outcome.status->guarded) << "two leaders must not name one for the same term";

  world.settle();

  ASSERT_TRUE(world.job.status.coordinator);
  const auto& named = *world.job.status.coordinator;
  EXPECT_EQ(named.pod, "job-gpu-1") << "the lowest index of those that claim";
  EXPECT_EQ(named.pod_uid, world.pod("job-gpu-1").meta.uid);
  EXPECT_EQ(named.lost_pod_uid, former);
  EXPECT_EQ(named.term, 2);
  EXPECT_EQ(named.time, std::chrono::floor<std::chrono::seconds>(world.now));
  EXPECT_EQ(world.last_note("CoordinatorMoved"),
            "term 2: pod job-gpu-1 coordinates, since job-gpu-0 is no longer heard");
  EXPECT_EQ(world.event_count("CoordinatorMoved"), 1);
}

TEST(Coordinator, StaysWithoutAMajority) {
  for (const bool others : {false, true}) {
    World world = training();
    if (others) {
      lose(world, {"job-gpu-0", "job-gpu-3"});
      world.claims.push_back({"unknown", 1, world.now});
    } else {
      lose(world, {"job-gpu-3"});
    }
    world.settle();
    EXPECT_EQ(coordinator(world), "");
  }
}

TEST(Coordinator, OnlyNewClaimsOfThePresentTermCount) {
  for (const auto& [term, age, counts] :
       {std::tuple(1, 15s, true), {1, 16s, false}, {0, 0s, false}, {2, 0s, false}}) {
    World world = training();
    lose(world, {});
    claim(world, {"job-gpu-1", "job-gpu-2", "job-gpu-3"}, term, age);
    world.settle();
    EXPECT_EQ(coordinator(world), counts ? "job-gpu-1 2" : "") << term << " " << age.count();
  }
}

TEST(Coordinator, StaysAsLongAsTheOperatorHearsIt) {
  World world = training();
  world.now += 5s;
  claim(world, {"job-gpu-1", "job-gpu-2", "job-gpu-3"});
  const auto outcome = world.pass();
  EXPECT_FALSE(outcome.status && outcome.status->status.coordinator);
  ASSERT_TRUE(outcome.requeue);
  EXPECT_LE(*outcome.requeue, 1s) << "when the report is 6 s old";
  world.report->received = world.now;
  world.now += 5s;
  world.settle();
  EXPECT_EQ(coordinator(world), "") << "another report has come";
  world.now += 1s;
  world.settle();
  EXPECT_EQ(coordinator(world), "job-gpu-1 2");

  World restarted = training();
  lose(restarted, {"job-gpu-1", "job-gpu-2", "job-gpu-3"});
  restarted.workers_register();
  restarted.settle();
  EXPECT_EQ(coordinator(restarted), "") << "it has registered again";
}

TEST(Coordinator, MovesAtOnceWhenItsPodIsGoneOrHasEnded) {
  for (const bool gone : {true, false}) {
    World world = training();
    claim(world, {"job-gpu-2", "job-gpu-3"});
    if (gone) {
      std::erase_if(world.pods, [](const auto& pod) { return pod.meta.name == "job-gpu-0"; });
    } else {
      world.fail("job-gpu-0", 137);
    }
    world.settle();
    EXPECT_EQ(coordinator(world), "job-gpu-2 2");
    EXPECT_THAT(world.last_note("CoordinatorMoved"),
                HasSubstr(gone ? "since job-gpu-0 is gone" : "since job-gpu-0 has ended"));
    EXPECT_EQ(world.job.status.restarts, 1);
  }
}

TEST(Coordinator, WhoseContainerIsStartedAgainGetsTheTimeOfAReport) {
  World world;
  world.nodes.emplace_back();
  world.nodes.back().meta.name = "new";
  world.nodes.back().kubelet_minor = 35;
  world.run();
  world.steps(3, 1.2);
  world.pod("job-gpu-0").exit_code = 137;
  world.pod("job-gpu-0").ended = world.now;
  claim(world, {"job-gpu-1", "job-gpu-2", "job-gpu-3"});
  world.settle();
  EXPECT_EQ(coordinator(world), "");
  world.now += 6s;
  world.settle();
  EXPECT_EQ(coordinator(world), "job-gpu-1 2");
}

TEST(Coordinator, IsOfTheWorkersWithARank) {
  World world = two_stages(1);
  world.job.spec.worker_groups[0].count = 3;
  world.job.spec.worker_groups[0].spares = 1;
  world.run();
  world.steps(3, 1.2);
  ASSERT_THAT(ranks_of(*world.plan()), UnorderedElementsAre("job-gpu-0", "job-gpu-1"));
  lose(world, {"job-gpu-2", kSpare});
  world.settle();
  EXPECT_EQ(coordinator(world), "") << "one that is idle has no vote";
  claim(world, {"job-gpu-2", kSpare, "job-gpu-1"});
  world.settle();
  EXPECT_EQ(coordinator(world), "job-gpu-1 2");
}

World alone_with_spares(int spares) {
  World world = two_stages(1);
  world.job.spec.worker_groups[0].count = 1;
  world.job.spec.worker_groups[0].spares = spares;
  world.job.spec.stages = 1;
  world.run();
  world.steps(3, 1.2);
  return world;
}

TEST(Coordinator, OfOneRankIsAnIdleWorkerWhereMostOfThemClaimItsLoss) {
  struct Case {
    const char* what;
    std::chrono::seconds unheard;
    std::vector<const char*> claimants;
    bool registered;
    const char* coordinator;
  };
  const auto second = "job-gpu-s1";
  for (const Case& one :
       {Case{"most", 7s, {kSpare, second}, true, "job-gpu-s0 2"},
        {"one of two", 7s, {second}, true, ""},
        {"the operator hears it", 5s, {kSpare, second}, true, ""},
        {"the present one claims, too", 7s, {"job-gpu-0", second}, true, ""},
        {"the other is no member, so it has no vote", 7s, {second}, false, "job-gpu-s1 2"}}) {
    World world = alone_with_spares(2);
    if (!one.registered) {
      std::erase_if(world.members->body.members,
                    [](const protocol::Member& member) { return member.pod == kSpare; });
    }
    world.now += one.unheard;
    for (const char* pod : one.claimants)
      world.claims.push_back({world.pod(pod).meta.uid, 1, world.now});
    world.settle();
    EXPECT_EQ(coordinator(world), one.coordinator) << one.what;
  }
}

TEST(Coordinator, ThatWasIdleTakesTheOnlyRankAtOnce) {
  World world = alone_with_spares(1);
  lose(world, {kSpare});
  world.settle();
  ASSERT_EQ(coordinator(world), "job-gpu-s0 2");
  EXPECT_EQ(world.job.status.last_restart_reason, "WorkerSilent");
  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_THAT(ranks_of(*world.plan()), UnorderedElementsAre(kSpare));
  EXPECT_EQ(world.last_note("SpareUsed"), "job-gpu-s0 takes stage 0 of job-gpu-0");

  world.claims.clear();
  world.coordinator_applies();
  world.settle();
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  world.kubelets_run();
  coordinator_reports(world);
  world.settle();
  EXPECT_EQ(world.job.status.recovery.spares, "1/1") << "the new pod of worker 0";
  EXPECT_EQ(world.job.status.restarts, 1);

  world.fail(kSpare, 0);
  world.settle();
  EXPECT_EQ(world.condition("Complete").status, "True");
}

TEST(Coordinator, WorkersThatHaveEndedHaveNoVote) {
  World world = training();
  world.fail("job-gpu-2", 137);
  world.fail("job-gpu-3", 137);
  lose(world, {"job-gpu-1"});
  world.settle();
  EXPECT_EQ(coordinator(world), "job-gpu-1 2");

  World none = training();
  for (const char* pod : {"job-gpu-1", "job-gpu-2", "job-gpu-3"}) none.fail(pod, 137);
  lose(none, {"job-gpu-1"});
  none.settle();
  EXPECT_EQ(coordinator(none), "");
}

TEST(Coordinator, MovesAgainFromTermToTerm) {
  World world = moved();
  const std::string second = world.pod("job-gpu-1").meta.uid;
  coordinator_reports(world);
  lose(world, {"job-gpu-2", "job-gpu-3"}, 1);
  world.settle();
  EXPECT_EQ(coordinator(world), "job-gpu-1 2") << "claims of the term before";
  claim(world, {"job-gpu-0", "job-gpu-3"}, 2);
  world.settle();
  EXPECT_EQ(coordinator(world), "job-gpu-0 3");
  EXPECT_EQ(world.job.status.coordinator->lost_pod_uid, second);
  EXPECT_EQ(world.event_count("CoordinatorMoved"), 2);
}

TEST(Coordinator, OneThatWasJustNamedGetsTheTimeOfAReport) {
  World world = moved();
  claim(world, {"job-gpu-2", "job-gpu-3"}, 2);
  world.settle();
  EXPECT_EQ(coordinator(world), "job-gpu-1 2");
  world.now += 6s;
  world.settle();
  EXPECT_EQ(coordinator(world), "job-gpu-2 3");
}

TEST(Coordinator, ANewLeaderWaitsForAReport) {
  World world = training();
  lose(world, {"job-gpu-1", "job-gpu-2", "job-gpu-3"});
  world.report.reset();
  world.members.reset();
  world.leading_since = world.now - 3s;
  world.settle();
  EXPECT_EQ(coordinator(world), "");
  world.now += 3s;
  world.settle();
  EXPECT_EQ(coordinator(world), "job-gpu-1 2");
}

TEST(Coordinator, IsNobodyElseBeforeAPlan) {
  World world;
  world.settle();
  world.kubelets_run();
  world.settle();
  claim(world, {"job-gpu-1", "job-gpu-2", "job-gpu-3"});
  std::erase_if(world.pods, [](const auto& pod) { return pod.meta.name == "job-gpu-0"; });
  world.settle();
  EXPECT_EQ(coordinator(world), "");

  World registered;
  registered.settle();
  registered.kubelets_run();
  registered.workers_register();
  registered.members->body.profile_json.clear();
  registered.settle();
  ASSERT_TRUE(registered.plans.empty());
  lose(registered, {"job-gpu-1", "job-gpu-2", "job-gpu-3"});
  registered.settle();
  EXPECT_EQ(coordinator(registered), "");
}

TEST(Coordinator, TheRankOfTheFormerOneGoesToASpareAtOnce) {
  World world = two_and_a_spare();
  lose(world, {"job-gpu-1"});
  world.settle();

  EXPECT_EQ(coordinator(world), "job-gpu-1 2");
  EXPECT_GE(world.pod_lists, 1) << "silence counts when the pods were listed";
  EXPECT_EQ(world.job.status.last_restart_reason, "WorkerSilent");
  ASSERT_EQ(world.job.status.plan.revision, 2);
  EXPECT_THAT(ranks_of(*world.plan()), UnorderedElementsAre("job-gpu-1", kSpare));
  EXPECT_EQ(world.last_note("SpareUsed"), "job-gpu-s0 takes stage 0 of job-gpu-0");
  EXPECT_EQ(world.pod("job-gpu-0-1").phase, "Pending");

  world.claims.clear();
  world.coordinator_applies();
  world.settle();
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.job.status.recovery.spares, "0/1");
  world.kubelets_run();
  coordinator_reports(world);
  world.settle();
  EXPECT_EQ(world.job.status.recovery.spares, "1/1") << "the new pod of worker 0";
  EXPECT_EQ(coordinator(world), "job-gpu-1 2");
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.plan.revision, 2);

  world.fail("job-gpu-1", 0);
  world.settle();
  EXPECT_EQ(world.condition("Complete").status, "True");
}

TEST(Coordinator, MovesAloneWhenNobodyCanTakeTheRankOfTheFormerOne) {
  World world = moved();
  EXPECT_EQ(world.pods_deleted, 0);
  EXPECT_EQ(world.job.status.restarts, 0);
  EXPECT_EQ(world.pod("job-gpu-0").phase, "Running");
}

// Its machine stood still for a while, say.
TEST(Coordinator, AFormerOneThatJoinsTheNextIsAWorkerLikeAnyOther) {
  for (const bool joins : {true, false}) {
    World world = two_and_a_spare();
    world.pod(kSpare).ready = false;
    lose(world, {"job-gpu-1"});
    world.settle();
    ASSERT_EQ(coordinator(world), "job-gpu-1 2");
    EXPECT_EQ(world.job.status.restarts, 0) << "the spare is not ready";
    world.now += 5s;
    coordinator_reports(world, joins ? "" : "job-gpu-0");
    world.members->received = world.now - 60s;  // the report alone may tell of it
    world.pod(kSpare).ready = true;
    world.settle();
    EXPECT_EQ(world.job.status.restarts, joins ? 0 : 1);
    EXPECT_EQ(world.event_count("SpareUsed"), joins ? 0 : 1);
    if (!joins) continue;

    world.report->body.members[0].silent_seconds = 5.2;
    world.settle();
    EXPECT_EQ(world.event_count("SpareUsed"), 1) << "it is silent again";
  }
}

TEST(Coordinator, OfAJobWithoutPodsIsTheFirstOneOfTheNextPods) {
  World world = moved();
  world.claims.clear();
  world.job.spec.suspend = true;
  world.settle();
  ASSERT_TRUE(world.pods.empty());
  EXPECT_EQ(coordinator(world), "job-gpu-1 2");
  world.job.spec.suspend = false;
  world.settle();
  const api::Pod& first = world.pods.front();
  EXPECT_EQ(first.meta.labels.at("weir.dev/worker-index"), "0");
  EXPECT_EQ(coordinator(world), first.meta.name + " 3") << "before it runs";
  EXPECT_EQ(world.job.status.coordinator->pod_uid, first.meta.uid);
  EXPECT_THAT(world.last_note("CoordinatorMoved"), HasSubstr("since job-gpu-1 is gone"));
  world.run();
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.job.status.coordinator->term, 3);
}

TEST(Coordinator, IsNamedBeforeThereIsAPlan) {
  World world;
  world.job.status.coordinator =
      api::CoordinatorStatus{.pod = "job-gpu-1", .pod_uid = "gone", .term = 2};
  world.settle();
  EXPECT_EQ(coordinator(world), "job-gpu-0 3");
  world.run();
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(Coordinator, ARestartOfTheWholeJobBeginsWithTheFirstWorker) {
  World world = training([](api::JobSpec& spec) { spec.restart_scope = "Job"; });
  world.graceful = true;
  lose(world, {"job-gpu-1", "job-gpu-2"});
  world.settle();
  ASSERT_EQ(coordinator(world), "job-gpu-1 2");
  world.fail("job-gpu-2", 137);
  world.settle();
  claim(world, {"job-gpu-0", "job-gpu-3"}, 2);
  world.settle();
  EXPECT_EQ(coordinator(world), "job-gpu-1 2") << "it has not ended yet";
  for (auto& pod : world.pods) {
    pod.phase = "Failed";
    pod.ended = world.now;
  }
  world.settle();
  EXPECT_EQ(coordinator(world), "job-gpu-0-1 3") << "no worker that goes has a vote";
}

TEST(Coordinator, OneThatIsBeingDeletedCoordinatesUntilItEnds) {
  World world = moved();
  coordinator_reports(world);
  world.graceful = true;
  api::Pod& pod = world.pod("job-gpu-1");
  pod.meta.deletion_grace_seconds = 120;
  pod.meta.deleting = world.now + 120s;
  world.settle();
  ASSERT_EQ(world.pod("job-gpu-1-1").phase, "Pending") << "the next pod of its slot";
  for (int i = 0; i < 3; ++i) {
    world.now += 5s;
    world.report->received = world.now;
    claim(world, {"job-gpu-0", "job-gpu-2", "job-gpu-3"}, 2);
    world.settle();
    EXPECT_EQ(coordinator(world), "job-gpu-1 2");
  }
  world.fail("job-gpu-1", 0);
  world.settle();
  EXPECT_EQ(coordinator(world), "job-gpu-0 3");
}

TEST(Coordinator, ItsEndWithCodeZeroIsThatOfTheJob) {
  World former = moved();
  former.claims.clear();
  coordinator_reports(former);
  former.fail("job-gpu-0", 0);
  former.settle();
  EXPECT_NE(former.condition("Complete").status, "True") << "it does not coordinate any more";

  World world = moved();
  world.claims.clear();
  world.fail("job-gpu-1", 0);
  world.settle();
  EXPECT_EQ(world.condition("Complete").status, "True");
}

TEST(Coordinator, OfAJobWithoutClaimsIsNotNamed) {
  World world = training();
  world.fail("job-gpu-0", 137);
  world.now += 60s;
  world.settle();
  EXPECT_FALSE(world.job.status.coordinator);
  EXPECT_EQ(world.event_count("CoordinatorMoved"), 0);
}

// Of two workers that do not reach each other, the one that does not coordinate is made again.
TEST(Coordinator, IsTheLastOfEqualOnesToBeMadeAgainForADeadLink) {
  for (const bool has_moved : {false, true}) {
    World world = has_moved ? moved() : training();
    world.claims.clear();
    coordinator_reports(world);
    world.report->body.dead_links = {{.from = "job-gpu-0", .to = "job-gpu-1", .seconds = 500}};
    world.settle();
    EXPECT_THAT(world.last_note("WorkerLost"),
                HasSubstr(has_moved ? "pod job-gpu-0: no connection" : "pod job-gpu-1: no conn"));
  }
}

}  // namespace coordinator_test
}  // namespace weir::reconcile::test
