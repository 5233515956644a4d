// SPDX-License-Identifier: Apache-2.0
// Nodes that are not ready: what is lost, and what trains on although nobody hears the kubelet.
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace lost_nodes_test {

TEST(LostNodes, TheCoordinatorsFreshWordOutweighsANode) {
  World world = training();
  auto& pod = world.pod("job-gpu-1");
  world.report->body.members.push_back(
      {.pod = "job-gpu-1", .pod_uid = pod.meta.uid, .ready = true});
  world.lose_node(pod.node);
  pod.ready = false;
  pod.conditions.push_back({"Ready", "False", "NodeNotReady", "", world.now});
  world.steps(60, 10);
  EXPECT_EQ(world.job.status.restarts, 0);

  world.report->body.members.back().ready = false;
  world.steps(1, 10);

  EXPECT_EQ(world.job.status.last_restart_reason, "NodeLost");
}

TEST(LostNodes, WithoutAReportItsWordIsWorthHalfAMinute) {
  World world = training();
  world.report->body.members.push_back(
      {.pod = "job-gpu-1", .pod_uid = world.pod("job-gpu-1").meta.uid, .ready = true});
  world.steps(1, 1);
  world.lose_node(world.pod("job-gpu-1").node);
  world.now += 61s;
  world.settle();

  EXPECT_EQ(world.job.status.last_restart_reason, "NodeLost");
}

// The control plane says after 40 s that a node is not ready; the coordinator has long known.
TEST(LostNodes, CountFromTheWorkersLastSignOfLife) {
  World world = training();
  auto& pod = world.pod("job-gpu-1");
  const Time dies = world.now;
  const auto at = [&](std::chrono::seconds after) {
    world.now = dies + after;
    world.report->body.members = {{.pod = "job-gpu-1",
                                   .pod_uid = pod.meta.uid,
                                   .silent_seconds = static_cast<double>(after.count())}};
    world.report->received = world.now;
    world.settle();
    return world.job.status.restarts;
  };
  EXPECT_EQ(at(44s), 0);
  world.lose_node(pod.node);
  EXPECT_EQ(at(46s), 0);
  EXPECT_EQ(at(59s), 0) << "the machine may come back";
  EXPECT_EQ(at(61s), 1);
  EXPECT_EQ(world.job.status.last_restart_reason, "NodeLost");
}

TEST(LostNodes, MostNodesAreNotLostAtOnce) {
  World world = training();
  for (const auto& pod : std::vector(world.pods)) world.lose_node(pod.node);
  std::erase_if(world.nodes, [](const auto& node) { return node.meta.name == "healthy-1"; });
  for (auto& pod : world.pods) {
    pod.ready = false;
    pod.conditions.push_back({"Ready", "False", "NodeNotReady", "", world.now});
  }
  world.now += 600s;
  world.settle();
  EXPECT_EQ(world.job.status.restarts, 0);

  world.nodes.back().ready = true;  // four of seven; its kubelet has yet to say how its pod is
  world.nodes.back().ready_since = world.now;
  world.settle();

  EXPECT_EQ(world.job.status.last_restart_reason, "NodeLost");
}

}  // namespace lost_nodes_test
}  // namespace weir::reconcile::test
