// SPDX-License-Identifier: Apache-2.0
// Placement mode Pinned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace pinned_test {

using ::testing::HasSubstr;

api::Node node(const std::string& name, const std::string& rack, const std::string& gpus) {
  api::Node out;
  out.meta.name = name;
  out.meta.labels = {{"kubernetes.io/hostname", name}, {"rack", rack}};
  out.allocatable = {{"nvidia.com/gpu", gpus}};
  return out;
}

World pinned_job() {
  World world;
  world.job.spec.placement_mode = "Pinned";
  world.job.spec.topology_keys = {"rack", "kubernetes.io/hostname"};
  world.job.spec.worker_groups[0].resources = R"({"limits":{"nvidia.com/gpu":1}})";
  return world;
}

TEST(Pinned, TakesTheNarrowestDomainThatHoldsAllWorkers) {
  World world = pinned_job();
  world.nodes = {node("a1", "a", "2"), node("b2", "b", "2"), node("b1", "b", "2"),
                 node("c1", "c", "2")};
  world.settle();

  EXPECT_EQ(world.last_created.front().gates, std::vector<std::string>{"weir.dev/plan"});
  EXPECT_EQ(
      world.pinned,
      (std::map<std::string, std::string>{
          {"job-gpu-0", "b1"}, {"job-gpu-1", "b1"}, {"job-gpu-2", "b2"}, {"job-gpu-3", "b2"}}));
  world.run();
  EXPECT_EQ(world.condition("Ready").reason, "Running");
}

void run_where_pinned(World& world) {
  world.settle();
  for (auto& pod : world.pods) {
    if (!world.pinned.contains(pod.meta.name)) continue;
    pod.node = world.pinned[pod.meta.name];
    pod.phase = "Running";
    pod.ready = pod.started = true;
  }
  world.settle();
}

TEST(Pinned, SparesGetNodesWithoutWorkersAndNobodyWaitsForThem) {
  World world = pinned_job();
  world.job.spec.worker_groups[0].spares = 2;
  world.nodes = {node("a1", "a", "5"), node("b1", "b", "1")};
  run_where_pinned(world);
  EXPECT_EQ(world.pinned["job-gpu-3"], "a1");
  EXPECT_EQ(world.pinned["job-gpu-s0"], "b1");
  EXPECT_EQ(world.pinned["job-gpu-s1"], "a1") << "better than none";

  World full = pinned_job();
  full.job.spec.worker_groups[0].spares = 1;
  full.nodes = {node("a1", "a", "4")};
  run_where_pinned(full);
  full.run();
  EXPECT_FALSE(full.pinned.contains("job-gpu-s0"));
  EXPECT_EQ(full.condition("Ready").reason, "Running");
  EXPECT_EQ(full.condition("PodsScheduled").status, "True");
  full.nodes.push_back(node("b1", "b", "1"));
  full.settle();
  EXPECT_EQ(full.pinned["job-gpu-s0"], "b1");
}

TEST(Pinned, OneNodeIsBestAndOthersAreTriedAfterATimeout) {
  World world = pinned_job();
  world.nodes = {node("a1", "a", "4"), node("b1", "b", "8")};
  world.settle();
  EXPECT_EQ(world.pinned["job-gpu-3"], "a1");
  world.now += 601s;
  world.settle();
  EXPECT_EQ(world.event_count("SchedulingTimedOut"), 1);
  world.now += 31s;
  world.settle();

  EXPECT_EQ(world.pinned["job-gpu-0"], "b1");
}

TEST(Pinned, ANodeWithADeadLinkIsTheLastResort) {
  for (const bool other : {true, false}) {
    World world = pinned_job();
    world.nodes = {node("a1", "a", "4")};
    if (other) world.nodes.push_back(node("b1", "b", "4"));
    world.job.status.avoided_nodes = {{"a1", "LinkDead", world.now + 1h}};
    world.settle();
    EXPECT_EQ(world.pinned["job-gpu-0"], other ? "b1" : "a1");
  }
}

TEST(Pinned, LeavesOutNodesThatDoNotSuit) {
  World world = pinned_job();
  world.job.spec.worker_groups[0].node_selector = {{"rack", "b"}};
  world.job.spec.worker_groups[0].tolerations = R"([{"key":"gpu","operator":"Exists"}])";
  world.nodes = {node("a1", "a", "8"), node("b1", "b", "8"), node("b2", "b", "8"),
                 node("b3", "b", "8"), node("b4", "b", "8")};
  world.nodes[1].ready = false;
  world.nodes[2].schedulable = false;
  world.nodes[3].taints = {{"other", "", "NoSchedule"}};
  world.nodes[4].taints = {{"gpu", "yes", "NoSchedule"}};
  world.settle();

  EXPECT_EQ(world.pinned["job-gpu-0"], "b4");
}

TEST(Pinned, SaysWhenNothingHoldsTheJobAndOpensNoGate) {
  World world = pinned_job();
  world.nodes = {node("a1", "a", "3")};
  EXPECT_GT(world.settle(), 0);

  EXPECT_TRUE(world.pinned.empty());
  EXPECT_EQ(world.condition("PodsScheduled").reason, "Unschedulable");
  EXPECT_THAT(world.condition("PodsScheduled").message, HasSubstr("no set of nodes has room"));
  EXPECT_EQ(world.condition("Ready").reason, "Pending");
  world.now += 24h;
  world.nodes.push_back(node("b1", "b", "4"));
  world.settle();
  EXPECT_EQ(world.event_count("SchedulingTimedOut"), 1) << "our own gate is no queue";
  world.now += 31s;
  world.settle();
  EXPECT_EQ(world.pinned.size(), 4U);
}

}  // namespace pinned_test
}  // namespace weir::reconcile::test
