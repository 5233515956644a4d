// SPDX-License-Identifier: Apache-2.0
// Tier regroup: a node becomes slow for good, and no order of micro-batches hides it.
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/repartition_job.h"
#include "worker/base/gain.h"
#include "worker/base/random.h"
#include "worker/schedule/families.h"

namespace weir::reconcile::test {
namespace repartition_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Job = RepartitionJob;

TEST(Regroup, LeavesANodeWithASlowPortIdleAndTellsWhatItCost) {
  Job job;
  ASSERT_EQ(job.world.plan()->stage_count(), 4);
  job.train(20);
  EXPECT_EQ(job.world.job.status.plan.revision, 1);
  EXPECT_EQ(job.world.adaptation.memory.repartition.searches, 0) << "nothing is wrong";
  const double before_shaping = job.step_seconds();
  const std::string victim = job.node_of_stage(1);
  job.shape(victim);
  const double before = job.step_seconds();
  ASSERT_GT(before, 1.5 * before_shaping);
  for (int i = 0; i < 60 && job.uses(victim); ++i) job.train(1);
  job.train(11);

  const schedule::Plan& plan = *job.world.plan();
  EXPECT_EQ(plan.trigger, schedule::Trigger::kRegroup);
  EXPECT_EQ(plan.state, schedule::StateMove::kMove);
  EXPECT_GT(job.world.adaptation.memory.repartition.searches, 0);
  EXPECT_FALSE(job.uses(victim));
  EXPECT_LE(job.step_seconds(), 0.7 * before);
  EXPECT_EQ(job.world.event_count("PlanRegrouped"), 1);
  EXPECT_THAT(job.world.last_note("PlanRegrouped"),
              AllOf(HasSubstr("4->3 stages, node " + victim + " idle"), HasSubstr("moved 60 MB"),
                    HasSubstr("pause 3.25 s"), HasSubstr("predicted +")));
  EXPECT_THAT(job.world.last_note("PlanOutcome"), HasSubstr("measured +"));
  EXPECT_TRUE(job.world.job.status.regroup_last_change.has_value());
  EXPECT_EQ(job.world.job.status.regroup_cooldown_seconds, 600);
}

// Retune has nothing to choose for such jobs, so a slow node is left to the tiers above.
TEST(Regroup, ActsForJobsWhoseOrderIsFixed) {
  for (const char* family : {"GPipe", "OneFOneB"}) {
    Job job("Auto", 0, family);
    ASSERT_EQ(job.world.plan()->schedule.family, schedule::family_of(family));
    const double before = job.train_until_it_regroups();
    EXPECT_EQ(job.world.plan()->trigger, schedule::Trigger::kRegroup) << family;
    EXPECT_EQ(job.world.plan()->schedule.family, schedule::family_of(family));
    EXPECT_LE(job.step_seconds(), 0.7 * before) << family;
  }
}

// There is a cap for each stage, so their number stays.
TEST(Regroup, KeepsCapsThatAreFixed) {
  const std::vector<int> caps = {4, 3, 2, 2};
  Job job("Auto", 0, "KFKB", caps);
  ASSERT_EQ(job.world.plan()->schedule.caps, caps);
  job.train_until_it_regroups();
  EXPECT_GT(job.world.adaptation.memory.repartition.searches, 0);
  EXPECT_EQ(job.world.plan()->schedule.caps, caps);
}

// It acts a few slow steps after the change; the ten steps before hold mostly fast ones.
TEST(Regroup, IsJudgedAgainstStepsOfTheNetworkThatItAnswersTo) {
  Job job;
  auto& adaptation = job.world.job.spec.adaptation;
  adaptation.retune.enabled = adaptation.regroup.enabled = false;
  job.train_with_ten_step_means(20);
  job.shape(job.node_of_stage(1));
  const double before = job.step_seconds();
  job.train_with_ten_step_means(3);  // as long as the samples take that the prediction is made from
  adaptation.regroup.enabled = true;
  job.train_with_ten_step_means(7);
  ASSERT_EQ(job.world.plan()->trigger, schedule::Trigger::kRegroup);
  const double gain = throughput_gain(before, job.step_seconds());
  job.train_with_ten_step_means(12);

  const std::string note = job.world.last_note("PlanOutcome");
  const auto at = note.find("measured +");
  ASSERT_NE(at, note.npos) << note;
  EXPECT_NEAR(std::stod(note.substr(at + 10)), 100 * gain, 1) << note;
}

// A search is dear: none while the cooldown would keep what it finds waiting.
TEST(Regroup, LooksForNothingDuringItsCooldown) {
  Job job;
  job.train_until_it_regroups();
  const auto begin = job.world.now;
  job.train(20);
  job.shape(job.node_of_stage(1));
  const auto searches = job.world.adaptation.memory.repartition.searches;
  while (job.world.now - begin < 580s) job.train(1);
  EXPECT_EQ(job.world.adaptation.memory.repartition.searches, searches);
  while (job.world.now - begin < 640s) job.train(1);
  EXPECT_GT(job.world.adaptation.memory.repartition.searches, searches);
}

TEST(Regroup, ObserveProposesOnce) {
  Job job("Observe");
  job.train(20);
  const std::string victim = job.node_of_stage(1);
  job.shape(victim);
  Random random(1);
  for (int i = 0; i < 60; ++i) {  // retune proposes, too, and changes its mind with the rates
    job.train(1);
    job.add_noise(random);
  }

  EXPECT_EQ(job.world.job.status.plan.revision, 1);
  EXPECT_EQ(job.world.event_count("PlanRegrouped"), 0);
  std::vector<std::string> proposed;
  for (const auto& event : job.world.events) {
    if (event.reason == "PlanProposed" && event.note.find("moves ") != event.note.npos) {
      proposed.push_back(event.note);
    }
  }
  EXPECT_THAT(proposed, ::testing::ElementsAre(HasSubstr("node " + victim + " idle, moves ")));
}

TEST(Regroup, MovesFrozenParametersToo) {
  const auto moved_bytes = [](int frozen_bytes) {
    Job job("Observe", frozen_bytes);
    job.train(20);
    job.shape(job.node_of_stage(1));
    job.train(20);
    const auto& candidate = job.world.adaptation.memory.repartition.candidate;
    return candidate ? static_cast<double>(candidate->moved_bytes) : 0;
  };
  ASSERT_GT(moved_bytes(0), 0);
  // Of a layer the values and two moments that are trained, 300 kB, and what is frozen.
  EXPECT_DOUBLE_EQ(moved_bytes(600'000) / moved_bytes(0), 3);
}

// Rates are never the same twice, and a busy network sometimes looks like a slow node.
TEST(Regroup, HappensOnNoisyLinksAndLeavesOnlyTheSlowNode) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Job job;
    job.train(20);
    const std::string victim = job.node_of_stage(1);
    job.shape(victim);
    int steps = 0;
    for (; steps < 40 && job.world.plan()->trigger != schedule::Trigger::kRegroup; ++steps) {
      job.add_noise(random);
      job.train(1);
    }
    EXPECT_LE(steps, 20);
    EXPECT_FALSE(job.uses(victim));
    EXPECT_EQ(job.world.plan()->stage_count(), 3);
  }
}

TEST(Regroup, DisabledChangesNoRankMap) {
  Job job;
  job.world.job.spec.adaptation.regroup.enabled = false;
  job.train(20);
  job.shape(job.node_of_stage(1));
  job.train(60);
  EXPECT_TRUE(std::ranges::none_of(job.world.plans, [](const auto& plan) {
    return plan.trigger == schedule::Trigger::kRegroup;
  }));
}

// The new ranks are no faster: another node becomes slow. The change is judged, rolled back at most
// once, and not tried again within the doubled cooldown.
TEST(Regroup, ThatDoesNotHelpIsJudgedAndNotRepeatedWithinTheDoubledCooldown) {
  Job job;
  const double before = job.train_until_it_regroups();
  ASSERT_EQ(job.world.plan()->trigger, schedule::Trigger::kRegroup);
  const auto regrouped = job.world.job.status.plan.revision;
  for (int i = 0; i < 12; ++i) job.world.steps(1, 0.98 * before);  // hardly faster
  EXPECT_THAT(job.world.last_note("PlanOutcome"), HasSubstr("measured +2.0 %"));
  EXPECT_EQ(job.world.job.status.regroup_cooldown_seconds, 1200)
      << job.world.last_note("PlanOutcome");
  job.shape(job.node_of_stage(1));
  const auto since = job.world.now;
  while (job.world.now - since < 1100s) job.train(1);
  EXPECT_FALSE(job.regrouped_after(regrouped));
}

// Earlier changes have doubled the cooldowns, and status shows them.
TEST(Regroup, IsJudgedByANewLeaderWithTheCooldownsOfStatus) {
  Job job;
  const double before = job.train_until_it_regroups();
  job.world.job.status.regroup_cooldown_seconds = 1200;
  job.world.job.status.replace_cooldown_seconds = 700;
  job.world.adaptation = {};
  for (int i = 0; i < 14; ++i) job.world.steps(1, 0.98 * before);  // hardly faster
  ASSERT_EQ(job.world.event_count("PlanOutcome"), 1);
  EXPECT_EQ(job.world.job.status.regroup_cooldown_seconds, 2400)
      << job.world.last_note("PlanOutcome");
  EXPECT_EQ(job.world.job.status.replace_cooldown_seconds, 700);
}

TEST(Regroup, ThatMakesStepsSlowerIsTakenBackOnce) {
  Job job;
  const double before = job.train_until_it_regroups();
  ASSERT_EQ(job.world.plan()->trigger, schedule::Trigger::kRegroup);
  const auto stages = job.world.plan()->parent;
  for (int i = 0; i < 12 && job.world.event_count("PlanRolledBack") == 0; ++i) {
    job.world.steps(1, 1.2 * before);
  }
  ASSERT_EQ(job.world.event_count("PlanRolledBack"), 1);
  EXPECT_EQ(job.world.plan()->trigger, schedule::Trigger::kRegroup);
  EXPECT_EQ(job.world.plan()->state, schedule::StateMove::kMove);
  EXPECT_EQ(job.world.plan()->stage_count(), 4);
  EXPECT_GT(job.world.plan()->revision, stages);
  const auto back = job.world.job.status.plan.revision;
  job.world.coordinator_applies();
  job.measure();
  job.train(40);
  EXPECT_FALSE(job.regrouped_after(back));
  EXPECT_EQ(job.world.event_count("PlanRolledBack"), 1);
}

// A plan without a link measures nothing, so the job could never return from it.
TEST(Regroup, KeepsALinkToSeeTheNetworkBy) {
  Job job;
  job.train(20);
  for (const auto& rank : job.world.plan()->ranks) job.slow_nodes.insert(rank.node);
  job.measure();
  job.train(60);
  EXPECT_GT(job.world.plan()->stage_count(), 1);
}

// The slowness of a device is measured in its stage, and is assumed in any other stage.
TEST(Regroup, LeavesASlowDeviceIdle) {
  Job job;
  const auto slow = job.world.plan()->ranks[2];
  const auto layers = job.world.plan()->stages[2];
  const double usual = 0.01 * (layers.last - layers.first + 1);
  for (const auto& rank : job.world.plan()->ranks) {
    const double forward = rank.pod == slow.pod ? 4 * usual : usual;
    job.world.estimates.worker_seconds[{rank.pod, rank.stage}] = {forward, 2 * forward};
    job.world.estimates.stage_seconds[rank.stage] = {forward, 2 * forward};
  }
  job.measure();
  // Something is lost beside that: the tier looks.
  const double step = 4.5 * job.step_seconds();
  for (int i = 0; i < 60 && job.world.plan()->trigger != schedule::Trigger::kRegroup; ++i) {
    job.world.steps(1, step);
    job.world.coordinator_applies();
    job.world.estimates.last_sample = job.world.now;
    job.world.settle();
  }
  EXPECT_EQ(job.world.plan()->trigger, schedule::Trigger::kRegroup);
  EXPECT_FALSE(job.uses(slow.node));
}

TEST(Regroup, ARefusedOneIsNotAskedForAgain) {
  Job job;
  const auto refused = job.regroups_unapplied();
  job.world.report->body.last_switch = protocol::LastSwitch{
      refused, protocol::Outcome::kRefused, job.world.report->body.step, 0, "no memory"};
  job.world.settle();
  for (int i = 0; i < 100; ++i) {
    job.world.steps(1, 3.9);
    const auto* plan = job.world.plan();
    ASSERT_TRUE(plan->revision == refused || plan->trigger != schedule::Trigger::kRegroup);
  }
}

// After COMMIT the ranks cannot return: they start again with the new plan, from the checkpoint.
TEST(Regroup, ThatBreaksOffIsJudgedOnceItIsInForce) {
  Job job;
  const auto aborted = job.regroups_unapplied();
  auto& report = job.world.report->body;
  const double before = job.step_seconds();
  report.last_switch =
      protocol::LastSwitch{aborted, protocol::Outcome::kAborted, report.step, 0, "broke off"};
  job.world.settle();
  job.world.now += 15s;
  job.world.settle();
  job.world.report->body.step -= 10;
  job.world.coordinator_applies();
  job.world.settle();
  for (int i = 0; i < 12 && job.world.event_count("PlanRolledBack") == 0; ++i) {
    job.world.steps(1, 1.2 * before);
  }
  EXPECT_EQ(job.world.event_count("PlanRolledBack"), 1);
  EXPECT_EQ(job.world.plan()->stage_count(), 4);
}

TEST(Regroup, ThatBreaksOffBeforeCommitIsGivenUp) {
  Job job;
  const auto aborted = job.regroups_unapplied();
  auto& report = job.world.report->body;
  report.last_switch =
      protocol::LastSwitch{aborted, protocol::Outcome::kAborted, report.step, 0, "before COMMIT"};
  job.world.settle();
  EXPECT_TRUE(job.world.adaptation.memory.ranks_change.has_value());
  for (int i = 0; i < 12; ++i) job.world.steps(1, job.step_seconds());
  EXPECT_FALSE(job.world.adaptation.memory.ranks_change.has_value());
}

// Back from three stages to four: the worker that was idle dies when all have committed, and is
// made again. Its plan cannot come any more, and the one before has ended.
TEST(Regroup, ThatBreaksOffForAWorkerThatWasIdleIsFollowedByARestart) {
  Job job;
  job.train_until_it_regroups();
  ASSERT_EQ(job.world.plan()->stage_count(), 3);
  job.train(12);
  job.slow_nodes.clear();
  job.measure();
  job.world.adaptation.memory.repartition.previous_cut->lost_seconds = 1e6;
  for (int i = 0; i < 40 && job.world.plan()->stage_count() == 3; ++i) {
    job.world.steps(1, job.step_seconds());
  }
  ASSERT_EQ(job.world.plan()->stage_count(), 4);
  const auto revision = job.world.plan()->revision;
  const auto& before = job.world.plans[job.world.plans.size() - 2];
  std::string idle;
  for (const auto& rank : job.world.plan()->ranks) {
    if (!std::ranges::any_of(before.ranks, [&](const auto& r) { return r.pod == rank.pod; }))
      idle = rank.pod;
  }
  job.world.fail(idle, 1);
  auto& report = job.world.report->body;
  report.last_switch =
      protocol::LastSwitch{revision, protocol::Outcome::kAborted, report.step, 0, "a rank is lost"};
  const auto again = [&] {
    job.world.settle();
    job.world.kubelets_run();
    job.world.settle();
    job.world.workers_register();
    job.world.members->body.model.layers = 12;
    job.world.settle();
  };
  again();
  EXPECT_EQ(job.world.job.status.plan.revision, revision) << "steps may go on";
  job.world.now += 10s;
  job.world.report->received = job.world.now;
  job.world.settle();
  EXPECT_EQ(job.world.job.status.plan.revision, revision);
  for (int i = 0; i < 5; ++i) {
    job.world.now += 10s;
    job.world.report->received = job.world.now;
    job.world.settle();
  }
  EXPECT_GT(job.world.job.status.plan.revision, revision);
  EXPECT_EQ(job.world.plan()->trigger, schedule::Trigger::kRestart);
}

// ---- nodes with random rates ----

TEST(Regroup, ActsAtMostOnceInACooldownWhateverNodesDo) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Job job(seed % 4 == 0 ? "Observe" : "Auto");
    std::vector<Time> times;
    for (int turn = 0; turn < 12; ++turn) {
      const auto pick = static_cast<int>(random.below(5));
      job.shape(pick == 4 ? "" : "n" + std::to_string(pick + 1));
      for (std::uint64_t i = 0; i < 5 + random.below(20); ++i) {
        const auto revision = job.world.job.status.plan.revision;
        const auto last_change = job.world.job.status.regroup_last_change;
        job.train(1);
        const auto* plan = job.world.plan();
        ASSERT_NE(plan, nullptr);
        if (plan->revision == static_cast<std::uint32_t>(revision)) continue;
        // A rollback is no change of its own.
        if (job.world.job.status.regroup_last_change != last_change) {
          EXPECT_EQ(plan->trigger, schedule::Trigger::kRegroup);
          times.push_back(job.world.now);
        }
        int next = 0;  // legal: every layer once, in order
        for (const auto& range : plan->stages) {
          ASSERT_EQ(range.first, next);
          next = range.last + 1;
        }
        ASSERT_EQ(next, 12);
        ASSERT_EQ(plan->ranks.size(), plan->stages.size());
      }
    }
    if (seed % 4 == 0) {
      EXPECT_EQ(job.world.job.status.plan.revision, 1);
    }
    for (std::size_t i = 1; i < times.size(); ++i) {
      EXPECT_GE(times[i] - times[i - 1], 600s);
    }
    EXPECT_EQ(job.world.pods_deleted, 0);
  }
}

}  // namespace repartition_test
}  // namespace weir::reconcile::test
