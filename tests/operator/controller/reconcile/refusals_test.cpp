// SPDX-License-Identifier: Apache-2.0
// A request that the API server refuses is shown in status. It stops nothing else, and no resource
// is held for good.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace refusals_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kNo = "admission webhook \"no.example.com\" denied the request: not today";

template <class T>
void refuse(World& world) {
  world.refuses = [](const Request& request) {
    return std::holds_alternative<T>(request) ? std::string(kNo) : std::string();
  };
}

int live(const World& world) {
  return static_cast<int>(std::ranges::count_if(world.pods, [](const auto& pod) {
    return (pod.phase == "Running" || pod.phase == "Pending") && !pod.meta.deleting;
  }));
}

// A quota of so many pods, shared by these jobs.
void share_quota(int pods, const std::vector<World*>& jobs) {
  for (World* each : jobs) {
    each->quota = [pods, jobs] {
      int used = 0;
      for (const World* job : jobs) used += live(*job);
      return pods - used;
    };
  }
}

// Some time passes, with kubelets and workers that do their part.
void live_on(World& world, std::chrono::seconds time) {
  for (auto left = time; left > 0s; left -= 5s) {
    world.now += 5s;
    world.kubelets_end();
    world.settle();
    world.kubelets_run();
    world.workers_register();
    world.settle();
    if (world.plan() != nullptr) {
      world.coordinator_applies();
      world.report->body.step += 1;
    }
    world.settle();
  }
}

TEST(Refusals, AFullQuotaIsToldInTheServersWords) {
  World world;
  share_quota(3, {&world});
  EXPECT_NE(world.settle(), 0);

  const auto& scheduled = world.condition("PodsScheduled");
  EXPECT_EQ(scheduled.status, "False");
  EXPECT_EQ(scheduled.reason, "QuotaExceeded");
  EXPECT_THAT(scheduled.message, AllOf(HasSubstr("1 of 4 pods are missing"),
                                       HasSubstr("exceeded quota: q, requested: pods=1")));
  EXPECT_EQ(world.condition("Ready").reason, "Pending");
  EXPECT_THAT(world.condition("Ready").message, HasSubstr("exceeded quota"));
  EXPECT_EQ(world.event_count("QuotaExceeded"), 1);
  EXPECT_EQ(world.job.status.start_time, std::chrono::floor<std::chrono::seconds>(world.now));

  for (int i = 0; i < 20; ++i) {  // the same answer is no news
    world.now += 5s;
    world.settle();
  }
  EXPECT_EQ(world.event_count("QuotaExceeded"), 1);

  world.quota = {};
  live_on(world, 40s);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.condition("PodsScheduled").status, "True");
  EXPECT_NE(world.condition("Degraded").status, "True");
}

TEST(Refusals, IsAskedForAgainEveryHalfMinuteAndAtOnceAfterAnEdit) {
  World world;
  int asked = 0;
  world.refuses = [&](const Request& request) {
    if (!std::holds_alternative<CreatePods>(request)) return "";
    ++asked;
    return kNo;
  };
  world.settle();
  EXPECT_EQ(asked, 1);
  for (int i = 0; i < 290; ++i) {
    world.now += 1s;
    world.settle();
  }
  EXPECT_EQ(asked, 10);
  const auto requeue = world.pass().requeue;
  ASSERT_TRUE(requeue);
  EXPECT_LE(*requeue, 30s);

  world.job.meta.generation += 1;
  world.settle();
  EXPECT_EQ(asked, 11);
}

TEST(Refusals, TheActiveDeadlineCountsFromThePersistedStart) {
  World world;
  world.job.spec.active_deadline_seconds = 60;
  refuse<CreatePods>(world);
  world.settle();
  world.now += 61s;
  world.adaptation = {};  // another leader
  world.refused.clear();
  world.settle();

  EXPECT_EQ(world.condition("Failed").reason, "DeadlineExceeded");
}

TEST(Refusals, TwoJobsUnderAQuotaForOneDoNotBlockEachOther) {
  World one, two;
  for (World* world : {&one, &two}) world->job.spec.scheduling_timeout_seconds = 60;
  two.job.meta.uid = "other-uid";
  share_quota(6, {&one, &two});
  share_quota(3, {&one});  // half of it each, at first
  one.settle();
  two.quota = [&] { return 3 - live(two); };
  two.settle();
  ASSERT_EQ(live(one) + live(two), 6);
  share_quota(6, {&one, &two});

  const auto trains = [](const World& world) {
    return world.condition("Ready").reason == "Running";
  };
  for (int i = 0; i < 400 && !trains(one) && !trains(two); ++i) {
    live_on(one, 5s);
    live_on(two, 5s);
  }
  ASSERT_TRUE(trains(one) || trains(two));
  World& first = trains(one) ? one : two;
  World& second = trains(one) ? two : one;
  first.pods.clear();  // it has ended
  first.quota = [] { return 0; };
  for (int i = 0; i < 200 && !trains(second); ++i) live_on(second, 5s);
  EXPECT_TRUE(trains(second));
}

TEST(Refusals, ARunningJobAboveItsQuotaIsReportedAndAdapted) {
  World world = training();
  world.job.spec.data_parallel = 2;
  world.job.meta.generation += 1;
  share_quota(4, {&world});
  world.settle();
  EXPECT_EQ(world.condition("PodsScheduled").reason, "QuotaExceeded");
  EXPECT_THAT(world.condition("PodsScheduled").message, HasSubstr("4 of 8 pods are missing"));
  EXPECT_EQ(world.condition("Degraded").reason, "QuotaExceeded");
  EXPECT_EQ(world.condition("Ready").reason, "Running");

  const auto step = world.job.report.step;
  world.links(kFast, kSlow);
  for (int i = 0; i < 40; ++i) {
    world.links(kFast, kSlow);
    world.steps(1, 1.2);
  }
  EXPECT_GT(world.job.report.step, step);
  EXPECT_GT(world.job.status.plan.revision, 1) << "it is retuned all the same";
  EXPECT_EQ(live(world), 4) << "what trains is not released";
}

TEST(Refusals, AReplacementThatIsRefusedIsToldAndTheRestIsReleasedInTime) {
  World world = training([](auto& spec) { spec.scheduling_timeout_seconds = 60; });
  refuse<CreatePods>(world);
  world.fail("job-gpu-1", 1);
  for (int i = 0; i < 4; ++i) {
    world.now += 10s;
    world.settle();
  }
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.condition("PodsScheduled").reason, "CreateRefused");
  EXPECT_THAT(world.condition("PodsScheduled").message,
              AllOf(HasSubstr("1 of 4 pods are missing"), HasSubstr(kNo)));
  EXPECT_EQ(live(world), 3);

  for (int i = 0; i < 7; ++i) {
    world.now += 10s;
    world.settle();
  }
  EXPECT_EQ(live(world), 0);
  EXPECT_EQ(world.event_count("SchedulingTimedOut"), 1);
  EXPECT_THAT(world.last_note("SchedulingTimedOut"), HasSubstr(kNo));

  world.refuses = {};
  live_on(world, 120s);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(Refusals, ARefusedReportDoesNotStandBeforeTheEnd) {
  World world = training();
  refuse<PatchReport>(world);
  world.now += 60s;
  world.report->received = world.now;
  world.settle();
  EXPECT_EQ(world.condition("Degraded").reason, "PatchRefused");
  world.report->body.step = 1000;
  world.fail("job-gpu-0", 0);
  world.settle();

  EXPECT_EQ(world.condition("Complete").status, "True");
}

TEST(Refusals, NoPodIsMadeThatWouldWaitForWhatIsRefused) {
  World world;
  refuse<CreateService>(world);
  world.settle();
  EXPECT_EQ(live(world), 0);
  EXPECT_EQ(world.condition("PodsScheduled").reason, "CreateRefused");
  EXPECT_THAT(world.condition("PodsScheduled").message, HasSubstr("Service refused"));

  refuse<ApplyControlConfigMap>(world);
  world.control_ca.clear();
  world.now += 31s;
  world.settle();
  EXPECT_EQ(live(world), 0);
  world.refuses = {};
  world.now += 31s;
  world.run();
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(Refusals, AnAnswerThatCannotBeFetchedIsToldToo) {
  World world;
  refuse<DryRunPods>(world);
  world.settle();
  EXPECT_EQ(world.condition("Accepted").reason, "CreateRefused");
  EXPECT_THAT(world.condition("Accepted").message, HasSubstr(kNo));
  world.refuses = {};
  world.now += 31s;
  world.run();
  EXPECT_EQ(world.condition("Accepted").status, "True");
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(Refusals, StatusNamesNoPlanThatCouldNotBeWritten) {
  World world;
  refuse<CreatePlan>(world);
  live_on(world, 100s);
  EXPECT_EQ(world.job.status.plan.revision, 0);
  EXPECT_EQ(world.event_count("PlanCreated"), 0);
  EXPECT_EQ(world.condition("Degraded").reason, "CreateRefused");
  EXPECT_THAT(world.condition("Degraded").message,
              AllOf(HasSubstr("plan refused"), HasSubstr(kNo)));
  EXPECT_EQ(live(world), 4);

  live_on(world, 830s);
  EXPECT_EQ(world.event_count("SchedulingTimedOut"), 1) << "after startupTimeoutSeconds";
  EXPECT_EQ(world.pods_deleted, 4) << "idle workers hold nothing for ever";
  world.refuses = {};
  live_on(world, 60s);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
  EXPECT_EQ(world.condition("Failed").status, "Unknown");
}

TEST(Refusals, ARefusedStatusIsToldByAnEventAndPlansWaitForIt) {
  World world;
  world.settle();
  world.kubelets_run();
  refuse<PatchStatus>(world);
  world.settle();
  EXPECT_EQ(world.event_count("PatchRefused"), 1);
  EXPECT_THAT(world.last_note("PatchRefused"), HasSubstr(kNo));
  world.workers_register();
  for (int i = 0; i < 300; ++i) {
    world.now += 1s;
    world.settle();
  }
  EXPECT_LE(world.plans.size(), 12U) << "one with each try at most";
  EXPECT_EQ(world.event_count("PatchRefused"), 1);
  world.refuses = {};
  live_on(world, 60s);
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

TEST(Refusals, ARefusedDeletionHoldsNoOtherBack) {
  World world = training();
  world.refuses = [](const Request& request) -> std::string {
    const auto* removal = std::get_if<DeletePod>(&request);
    return removal != nullptr && removal->name == "job-gpu-0" ? kNo : "";
  };
  world.job.spec.suspend = true;
  world.settle();
  EXPECT_EQ(live(world), 1);
  EXPECT_EQ(world.condition("Suspended").reason, "Suspending");
  EXPECT_EQ(world.condition("Degraded").reason, "DeleteRefused");
  world.refuses = {};
  world.now += 31s;
  world.settle();
  EXPECT_EQ(world.condition("Suspended").status, "True");
  EXPECT_NE(world.condition("Degraded").status, "True");
}

TEST(Refusals, LongWordsFreezeNothing) {
  World world;
  world.settle();
  for (auto& pod : world.pods) {
    pod.conditions.push_back(
        {"PodScheduled", "False", "Unschedulable", std::string(5000, 'x'), {}});
  }
  EXPECT_NE(world.settle(), 0) << "what is cut is no news in the next pass";
  EXPECT_EQ(world.job.status.worker_groups[0].pending_reason.size(), 1024U);

  World asked = training();
  asked.job.meta.annotations["weir.dev/replan"] = std::string(300, 'a');
  asked.links(kFast, kFast);
  asked.now += 10s;
  asked.report->received = asked.now;
  asked.links(kFast, kFast);
  EXPECT_NE(asked.settle(), 0);
  EXPECT_EQ(asked.job.status.last_replan_request, std::string(253, 'a'));
}

TEST(Refusals, AStepBeyondTheLastOneIsAllOfThem) {
  World world = training();
  world.report->body.step = 31'000;
  world.report->body.loss = 3e27;
  world.now += 60s;
  world.report->received = world.now;
  world.settle();
  EXPECT_EQ(world.job.report.percentage, 100);
  EXPECT_EQ(world.job.report.estimated_remaining_seconds, 0);
  EXPECT_EQ(world.job.report.loss, "3.0000e+27");
}

}  // namespace refusals_test
}  // namespace weir::reconcile::test
