// SPDX-License-Identifier: Apache-2.0
// Where training goes on after a lost worker, and what the job's status and events say of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/controller/reconcile/status/status.h"
#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace recovery_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// 2 stages in `replicas` replicas, at step 70; the newest checkpoint is of step 40.
World training(int replicas, int plan_version = protocol::kNewestPlanVersion) {
  World world = two_stages(replicas);
  world.plan_version = plan_version;
  world.run();
  world.last_checkpoint = 40;
  world.report->body.last_checkpoint_step = 40;
  world.reaches(70);
  return world;
}

void lose(World& world, const std::string& pod) {
  world.fail(pod, 137);
  world.settle();
  world.kubelets_run();
  world.settle();
  world.workers_register();
  world.settle();
}

TEST(Recovery, AnotherReplicaHoldsTheStateSoNoStepIsLost) {
  World world = training(2);
  lose(world, "job-gpu-3");

  ASSERT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kRecover);
  world.coordinator_applies();
  world.report->body.last_switch->pause_seconds = 0.9;
  world.report->body.last_switch->state = schedule::StateMove::kMove;
  world.report->body.last_switch->moved_bytes = 12'000'000;
  world.settle();

  EXPECT_THAT(world.last_note("Recovered"),
              HasSubstr("revision 2: training goes on at step 70 with what the workers hold, "
                        "0 steps are done again, pause 0.90 s, 12 MB moved"));
  EXPECT_EQ(world.event_count("ProgressLost"), 0);
  ASSERT_TRUE(world.job.status.recovery.last);
  EXPECT_EQ(world.job.status.recovery.last->source, "Peers");
  EXPECT_EQ(world.job.status.recovery.last->step, 70);
  EXPECT_EQ(world.job.status.recovery.lost_steps, 0);
}

TEST(Recovery, WithoutAHolderTheCheckpointIsReadAndTheReasonIsTold) {
  World world = training(1);
  lose(world, "job-gpu-1");
  ASSERT_EQ(world.plan()->state, schedule::StateMove::kRecover);
  world.coordinator_applies();
  world.settle();

  EXPECT_THAT(world.last_note("Recovered"),
              HasSubstr("goes on at step 40 from the checkpoint (no worker holds layer 2), "
                        "30 steps are done again"));
  EXPECT_EQ(world.job.status.recovery.last->source, "Checkpoint");
  EXPECT_EQ(world.job.status.recovery.last->reason, "no worker holds layer 2");
  EXPECT_EQ(world.job.status.recovery.lost_steps, 30);

  world.report->body.step = 50;
  world.now += 60s;
  world.report->received = world.now;
  world.settle();
  lose(world, "job-gpu-0");
  world.coordinator_applies();
  world.settle();
  EXPECT_EQ(world.job.status.recovery.last->lost_steps, 10);
  EXPECT_EQ(world.job.status.recovery.lost_steps, 40) << "of both";
}

TEST(Recovery, WorkersOfAnOlderReleaseReadTheCheckpoint) {
  World world = training(2, protocol::kRecoverPlanVersion - 1);
  lose(world, "job-gpu-3");

  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kCheckpoint);
  world.coordinator_applies();
  world.report->body.last_switch->state = schedule::StateMove::kKeep;  // they do not tell it
  world.report->body.last_switch->repeated_steps = 0;
  world.settle();
  EXPECT_EQ(world.job.status.recovery.last->source, "Checkpoint");
  EXPECT_EQ(world.job.status.recovery.lost_steps, 30);
}

TEST(Recovery, StateThatADeviceCannotTakeUpIsReadFromTheCheckpoint) {
  World world = training(2);
  lose(world, "job-gpu-3");
  const auto revision = world.plan()->revision;
  world.report->body.last_switch = protocol::LastSwitch{revision, protocol::Outcome::kRefused, 70,
                                                        0, "job-gpu-3: no memory for the state"};
  world.report->received = world.now;
  world.settle();
  world.now += 60s;
  world.report->received = world.now;
  world.settle();

  ASSERT_EQ(world.plan()->revision, revision + 1);
  EXPECT_EQ(world.plan()->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kCheckpoint);
}

TEST(Recovery, AnotherLossBeforeTheStartGivesUpNothing) {
  World world = training(2);
  lose(world, "job-gpu-3");
  const auto revision = world.plan()->revision;
  world.report->body.last_switch =
      protocol::LastSwitch{revision, protocol::Outcome::kAborted, 70, 0, "pod job-gpu-2 lost"};
  world.fail("job-gpu-2", 137);
  world.settle();
  world.now += 60s;
  world.settle();
  world.kubelets_run();
  world.settle();
  world.workers_register();
  world.settle();

  ASSERT_GT(world.plan()->revision, revision);
  EXPECT_EQ(world.plan()->state, schedule::StateMove::kRecover);
}

// The same on nodes whose kubelets start single containers again.
World on_new_nodes(const std::function<void(api::JobSpec&)>& edit = nullptr) {
  World world;
  api::Node node;
  node.meta.name = "n0";
  node.kubelet_minor = 35;
  world.nodes = {node};
  world.job.spec.failure_rules = {{"ours", api::RuleAction::kRestart, {42}, {}}};
  if (edit) edit(world.job.spec);
  world.run();
  world.steps(3, 1.2);
  return world;
}

// Its kubelet has not started it again yet.
void end_in_place(World& world, const std::string& name, int exit_code,
                  const std::string& reason = "Error") {
  api::Pod& pod = world.pod(name);
  pod.exit_code = exit_code;
  pod.termination_reason = reason;
  pod.ended = world.now;
  pod.ready = false;
}

void start_again(World& world, const std::string& name) {
  api::Pod& pod = world.pod(name);
  pod.last_end =
      api::ContainerEnd{"trainer", *pod.exit_code, pod.termination_reason, "", pod.ended};
  pod.exit_code.reset();
  pod.ended.reset();
  pod.container_restarts += 1;
  pod.ready = true;
}

// The workers have joined the plan in force again.
protocol::LastSwitch& join_again(World& world, schedule::StateMove state, std::int64_t step,
                                 const std::string& reason) {
  protocol::LastSwitch& last = *world.report->body.last_switch;
  last.incarnation = 1;
  last.state = state;
  last.step = step;
  last.reason = reason;
  return last;
}

schedule::Plan placed(int replicas, const std::vector<std::string>& nodes) {
  schedule::Plan plan;
  plan.micro_batches.assign(static_cast<std::size_t>(replicas), 4);
  const int stages = static_cast<int>(nodes.size()) / replicas;
  for (int stage = 0; stage < stages; ++stage) plan.stages.push_back({stage, stage});
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    plan.ranks.push_back({.pod = "p" + std::to_string(i),
                          .node = nodes[static_cast<std::size_t>(i)],
                          .replica = i / stages,
                          .stage = i % stages});
  }
  return plan;
}

TEST(Recoverable, TellsTheCostOfALoss) {
  const auto told = [](const schedule::Plan& plan, const std::string& copies, bool checkpoint,
                       bool whole_job = false) {
    const Recoverability now = recoverability(plan, copies, checkpoint, whole_job);
    return now.status + "/" + now.reason + ": " + now.message;
  };
  EXPECT_EQ(told(placed(2, {"a", "b", "c", "d"}), "", false),
            "True/Peers: each stage is held by 2 workers");
  EXPECT_THAT(told(placed(2, {"a", "b", "c", "b"}), "", false),
              HasSubstr("those of stage 1 (p1, p3) are all on node b, whose loss would cost it"));
  const schedule::Plan one = placed(1, {"a", "b"});
  EXPECT_THAT(told(one, "each 4 steps, with copies on neighbors", false),
              StartsWith("True/Copies: a loss costs about 7 steps at most"));
  EXPECT_THAT(
      told(one, "each 4 steps, without copies on neighbors: worker 1: a copy needs 9 GB", true),
      AllOf(StartsWith("False/CheckpointOnly: the end of a process costs about 7 steps"),
            HasSubstr("worker 1: a copy needs 9 GB"), HasSubstr("since the newest checkpoint")));
  EXPECT_THAT(told(one, "none of step 8: worker 0: needs 9 GB", false),
              StartsWith("False/Nothing: copies in memory: none of step 8"));
  EXPECT_THAT(told(one, "", false), StartsWith("False/Nothing: each stage is held by one"));
  EXPECT_THAT(told(placed(2, {"a", "b"}), "", true, true), StartsWith("False/CheckpointOnly"));
}

TEST(Recoverable, IsToldWhenItEnds) {
  World world = on_new_nodes([](api::JobSpec& spec) { spec.data_parallel = 1; });
  world.report->body.snapshots = "each 4 steps, with copies on neighbors";
  world.settle();
  EXPECT_EQ(world.condition("Recoverable").reason, "Copies");
  world.report->body.snapshots.clear();  // of a new coordinator
  world.settle();
  EXPECT_EQ(world.condition("Recoverable").reason, "Copies");
  EXPECT_EQ(world.event_count("NotRecoverable"), 0);
  world.report->body.snapshots = "none of step 8: worker 0: needs 9 GB";
  world.settle();
  EXPECT_EQ(world.condition("Recoverable").status, "False");
  world.settle();
  EXPECT_EQ(world.event_count("NotRecoverable"), 1);
}

TEST(RestartsInPlace, ArePartOfThePodsOnNewNodesOnly) {
  EXPECT_EQ(on_new_nodes().last_created.front().final_exit_codes,
            (std::vector<int>{0, 2, 42, 81, 82, 83, 84, 85, 143}));
  World world = on_new_nodes();
  world.nodes[0].kubelet_minor = 34;
  world.fail("job-gpu-1", 42);
  world.settle();
  EXPECT_EQ(world.last_created.front().attempt, 1);
  EXPECT_TRUE(world.last_created.front().final_exit_codes.empty());
  const auto whole = [](api::JobSpec& spec) { spec.restart_scope = api::RestartScope::kJob; };
  EXPECT_TRUE(on_new_nodes(whole).last_created.front().final_exit_codes.empty());
}

TEST(RestartsInPlace, CountAsRestartsAndKeepThePod) {
  World world = on_new_nodes();
  const int made = world.pods_created;
  end_in_place(world, "job-gpu-2", 137);
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 1) << "before the kubelet has started it again";
  start_again(world, "job-gpu-2");
  world.settle();

  EXPECT_EQ(world.pods_created, made);
  EXPECT_EQ(world.pods_deleted, 0);
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.job.status.restart_budget_used, 1);
  EXPECT_EQ(world.job.status.pod_generation, 0);
  EXPECT_EQ(world.job.status.plan.revision, 1) << "the workers join the same plan again";
  EXPECT_THAT(world.last_note("WorkerLost"),
              HasSubstr("pod job-gpu-2: exit code 137; its container is started again"));
  EXPECT_THAT(world.last_note("Restarting"), HasSubstr("restart 1 (Crashed, budget used 1"));

  join_again(world, schedule::StateMove::kMove, 3, "joined again, incarnation 1").pause_seconds =
      0.25;
  world.settle();
  world.settle();
  EXPECT_THAT(world.last_note("Recovered"),
              HasSubstr("revision 1: training goes on at step 3 with what the workers hold, "
                        "0 steps are done again, pause 0.25 s"));
  EXPECT_EQ(world.event_count("Recovered"), 1);
  EXPECT_EQ(world.job.status.recovery.last->reason, "");
}

TEST(RestartsInPlace, FromTheStartTellWhatIsLost) {
  World world = on_new_nodes();
  end_in_place(world, "job-gpu-2", 1);
  world.settle();
  join_again(world, schedule::StateMove::kCheckpoint, 0, "no worker holds layer 2").repeated_steps =
      3;
  world.settle();

  EXPECT_THAT(world.last_note("ProgressLost"), HasSubstr("no worker holds layer 2: training"));
  EXPECT_EQ(world.job.status.recovery.last->source, "Start");
  EXPECT_EQ(world.job.status.recovery.lost_steps, 3);
}

TEST(RestartsInPlace, WithSnapshotsTellWhatIsDoneAgain) {
  World world = on_new_nodes();
  end_in_place(world, "job-gpu-2", 1);
  world.settle();
  auto& last = join_again(world, schedule::StateMove::kKeep, 2, "");
  last.repeated_steps = 1;
  last.snapshots = true;
  world.settle();

  EXPECT_THAT(world.last_note("Recovered"),
              HasSubstr("goes on at step 2 from copies in memory, 1 steps are done again"));
  EXPECT_EQ(world.job.status.recovery.last->source, "Copies");
  EXPECT_EQ(world.job.status.recovery.lost_steps, 1);
}

TEST(RestartsInPlace, OfOneEpisodeAreOneRestart) {
  World world = on_new_nodes();
  end_in_place(world, "job-gpu-2", 137);
  world.settle();
  world.now += 5s;
  end_in_place(world, "job-gpu-1", 80);
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 1);
  EXPECT_EQ(world.event_count("WorkerLost"), 2);

  start_again(world, "job-gpu-2");
  start_again(world, "job-gpu-1");
  world.now += 60s;
  end_in_place(world, "job-gpu-1", 139);
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 2);
}

// A worker has ended in place, and so long after that the job has recovered just now.
World recovered_after(std::chrono::seconds time) {
  World world = on_new_nodes();
  end_in_place(world, "job-gpu-2", 137);
  world.settle();
  start_again(world, "job-gpu-2");
  world.now += time;
  world.report->body.last_switch->incarnation = 1;
  world.settle();
  return world;
}

TEST(RestartsInPlace, AfterARecoveryAreAnotherRestart) {
  World world = recovered_after(3s);
  ASSERT_TRUE(world.job.status.recovery.last);
  world.now += 3s;
  end_in_place(world, "job-gpu-1", 137);
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 2);
}

// The recovery of the same second, or of the next one, was before both ends.
TEST(RestartsInPlace, OfNeighbouringSecondsAreOneRestart) {
  World world = recovered_after(60s);
  ASSERT_EQ(world.job.status.recovery.last->time,
            std::chrono::floor<std::chrono::seconds>(world.now));
  end_in_place(world, "job-gpu-2", 137);
  world.settle();
  world.now += 1s;
  end_in_place(world, "job-gpu-1", 137);
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 2);
}

TEST(RestartsInPlace, UseTheBudget) {
  World world = on_new_nodes([](api::JobSpec& spec) { spec.max_restarts = 0; });
  end_in_place(world, "job-gpu-2", 137);
  world.settle();
  EXPECT_EQ(world.condition("Failed").reason, "RestartLimitExceeded");
}

TEST(RestartsInPlace, EndWithTheThirdEndOrWithoutMemoryOrByARule) {
  const auto ended = [](int times, int exit_code, const std::string& reason) {
    World world = on_new_nodes();
    for (int i = 1; i <= times; ++i) {
      end_in_place(world, "job-gpu-2", exit_code, reason);
      world.settle();
      if (i < times) start_again(world, "job-gpu-2");
      world.now += 60s;
    }
    world.settle();
    return world;
  };
  EXPECT_EQ(ended(2, 137, "Error").job.status.pod_generation, 0);
  const World third = ended(3, 137, "Error");
  EXPECT_EQ(third.job.status.pod_generation, 1);
  EXPECT_EQ(third.job.status.restarts, 3);
  EXPECT_EQ(third.pods_created, 5);
  EXPECT_EQ(ended(1, 137, "OOMKilled").job.status.last_restart_reason, "OutOfMemory");
  EXPECT_EQ(ended(1, 137, "OOMKilled").pods_created, 5);
  EXPECT_EQ(ended(1, 42, "Error").pods_created, 5);
  EXPECT_EQ(ended(1, 82, "Error").job.status.last_restart_reason, "DeviceFault");
}

TEST(RestartsInPlace, ThatWaitForTheKubeletAreNoFailedPods) {
  World world = on_new_nodes();
  end_in_place(world, "job-gpu-2", 137);
  world.settle();
  start_again(world, "job-gpu-2");
  world.now += 60s;
  api::Pod& pod = world.pod("job-gpu-2");  // it waits 10 s after its second end
  pod.started = pod.ready = false;
  pod.waiting_reason = "CrashLoopBackOff";
  pod.last_end->time = world.now;
  world.settle();

  EXPECT_EQ(world.job.status.restarts, 2);
  EXPECT_EQ(world.pods_created, 4);
}

}  // namespace recovery_test
}  // namespace weir::reconcile::test
