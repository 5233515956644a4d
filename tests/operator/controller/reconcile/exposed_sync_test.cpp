// SPDX-License-Identifier: Apache-2.0
// Slow links between replicas change places with links between stages, where an order of
// micro-batches hides them.
#include <map>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/equal_layers.h"
#include "tests/operator/controller/reconcile/world.h"
#include "worker/base/units.h"

namespace weir::reconcile::test {
namespace exposed_sync_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kAcross = 1e6;  // bytes per second between racks when a tenant takes them

// Equal layers of 30 ms for four samples, 40 kB at each boundary, 2 MB of parameters.
std::string heavy_layers(int count) {
  return equal_layers(count, 2'000'000, 10'000);
}

// Two replicas of two stages of two layers; the nodes of each replica are a rack of their own.
struct RackJob {
  World world;
  std::set<std::string> rack;  // of replica 0; all other nodes are the other one's
  double across = kFast;
  bool baselines = true;
  bool untimed = false;  // what a quick link carries comes in one piece, so it has no rate

  explicit RackJob(const std::string& mode = "Auto") {
    world.job.spec.worker_groups[0].count = 2;
    world.job.spec.stages = 2;
    world.job.spec.data_parallel = 2;
    world.job.spec.profile.source = "ConfigMap";
    world.profile = ProfileView{heavy_layers(4), ""};
    world.job.spec.adaptation.mode = mode;
    world.job.spec.adaptation.regroup.cooldown_seconds = 600;
    for (int i = 0; i < 4; ++i) {
      world.settle();
      world.kubelets_run();
      world.settle();
      world.workers_register();
      world.members->body.model.layers = 4;
      world.settle();
      world.coordinator_applies();
      world.settle();
    }
    for (const auto& rank : world.plan()->ranks) {
      if (rank.replica == 0) rack.insert(rank.node);
    }
    measure();
  }
  std::string node(int replica, int stage) const {
    for (const auto& rank : world.plan()->ranks) {
      if (rank.replica == replica && rank.stage == stage) return rank.node;
    }
    return "";
  }
  double rate(const std::string& from, const std::string& to) const {
    return rack.contains(from) == rack.contains(to) ? kFast : across;
  }
  bool replicas_cross() const {  // their links between stages do
    return rack.contains(node(0, 0)) != rack.contains(node(0, 1));
  }
  void measure() {
    world.scrape_afresh();
    world.estimates.sync_links.clear();
    using estimator::Direction;
    const auto add = [&](estimator::LinkKey key, const std::string& from, const std::string& to) {
      const double now = rate(from, to);
      if (untimed && now == kFast) return;
      estimator::LinkEstimate link{.link = key, .from_node = from, .to_node = to};
      link.now = link.mean = now;
      link.baseline = baselines ? kFast : 0;
      link.preempted = baselines && now < kFast;
      if (key.direction == Direction::kSync) return world.estimates.sync_links.push_back(link);
      world.estimates.links.push_back(link);
      world.estimates.rates.rates[key].assign(16, now);
    };
    for (int r = 0; r < 2; ++r) {
      add({r, 0, Direction::kForward}, node(r, 0), node(r, 1));
      add({r, 0, Direction::kBackward}, node(r, 1), node(r, 0));
      for (int s = 0; s < 2; ++s) add({r, s, Direction::kSync, 1 - r}, node(1 - r, s), node(r, s));
    }
  }
  // Transfers of 40 kB hide behind stages of 60 ms with k >= 2 and cost 1F1B twice their time; sums
  // of stage 0 hide behind nothing.
  double own_seconds() const {
    const auto& plan = *world.plan();
    const double transfer = 40000 / rate(node(0, 0), node(0, 1));
    const double exposed = plan.schedule.caps[0] > 2 ? 0 : transfer;
    return (0.06 + exposed) * (plan.micro_batches[0] + 1) + 2 * transfer;
  }
  double exposed_sync() const { return 3 * 0.5 * 4e6 / rate(node(0, 0), node(1, 0)); }
  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      const auto revision = world.job.status.plan.revision;
      world.replica_seconds({own_seconds(), own_seconds()});
      world.steps(1, own_seconds() + exposed_sync());
      if (world.job.status.plan.revision == revision) continue;
      world.coordinator_applies();
      world.report->body.last_switch->moved_bytes = 24'000'000;
      world.report->body.last_switch->pause_seconds = 2;
      measure();
      world.settle();
    }
  }
};

TEST(Roles, ASlowLinkBetweenReplicasBecomesOneBetweenStages) {
  RackJob job;
  ASSERT_FALSE(job.replicas_cross());
  job.train(20);
  EXPECT_EQ(job.world.job.status.plan.revision, 1);
  job.across = kAcross;
  job.measure();
  const double before = job.own_seconds() + job.exposed_sync();
  ASSERT_GT(before, 6.0);
  for (int i = 0; i < 40 && job.world.plan()->revision == 1; ++i) job.train(1);
  ASSERT_TRUE(job.replicas_cross());
  EXPECT_EQ(job.world.plan()->trigger, schedule::Trigger::kRegroup);
  EXPECT_EQ(job.world.plan()->state, schedule::StateMove::kMove);
  job.train(30);

  EXPECT_TRUE(job.replicas_cross());
  EXPECT_LT(job.own_seconds() + job.exposed_sync(), 0.25 * before);
  EXPECT_EQ(job.world.event_count("NetworkContended"), 1);
  EXPECT_EQ(job.world.event_count("PlanRegrouped"), 1);
  EXPECT_THAT(job.world.last_note("PlanRegrouped"),
              AllOf(HasSubstr("another rank map"), HasSubstr("predicted +")));
  EXPECT_EQ(job.world.event_count("PlanRolledBack"), 0);
}

// The previous cut had uneven shares with Exact; now the replicas average in groups.
TEST(Roles, APreviousCutThatReturnsIntoGroupsHasEvenShares) {
  RackJob job;
  job.train(20);
  job.across = kAcross;
  job.measure();
  for (int i = 0; i < 40 && !job.replicas_cross(); ++i) job.train(1);
  job.train(30);
  ASSERT_TRUE(job.replicas_cross());
  const auto revision = job.world.plan()->revision;
  job.world.job.spec.sync_mode = "Partial";
  for (auto& plan : job.world.plans) plan.sync.mode = schedule::SyncMode::kPartial;
  auto& cut = job.world.adaptation.memory.repartition.previous_cut;
  ASSERT_TRUE(cut.has_value());
  cut->plan.micro_batches = {10, 6};
  cut->lost_seconds = 1e6;
  for (int i = 0; i < 40 && job.replicas_cross(); ++i) job.train(1);

  ASSERT_FALSE(job.replicas_cross());
  EXPECT_GT(job.world.plan()->revision, revision);
  EXPECT_THAT(job.world.plan()->micro_batches, testing::ElementsAre(8, 8));
}

// Quick links have no rate, and no link of the new plan has carried anything: the path between the
// racks limits them all the same.
TEST(Roles, TakeTheSlowPathForUnmeasuredLinksBetweenTheRacks) {
  RackJob job;
  job.untimed = true;
  job.train(20);
  job.across = kAcross;
  job.measure();
  const double before = job.own_seconds() + job.exposed_sync();
  for (int i = 0; i < 40 && !job.replicas_cross(); ++i) job.train(1);
  ASSERT_TRUE(job.replicas_cross());
  EXPECT_EQ(job.world.plan()->revision, 2) << "at once";
  const double gain = before / (job.own_seconds() + job.exposed_sync()) - 1;
  EXPECT_NEAR(job.world.plan()->predicted_gain, gain, gain / 4);
}

TEST(Roles, LinksThatCarryNothingButSumsAreInStatus) {
  RackJob job;
  job.across = kAcross;
  job.measure();
  job.train(1);
  const auto& worst = job.world.job.report.worst_links;
  ASSERT_EQ(worst.size(), 8U);
  EXPECT_EQ(worst.front().from_stage, worst.front().to_stage);
  EXPECT_EQ(worst.front().bandwidth, "8.0Mbit/s");
}

TEST(Roles, ObserveProposesIt) {
  RackJob job("Observe");
  job.across = kAcross;
  job.measure();
  job.train(40);

  EXPECT_FALSE(job.replicas_cross());
  EXPECT_GE(job.world.event_count("PlanProposed"), 1);
}

// While no baseline is known, the rate of the fastest link counts as usual.
TEST(Roles, ChangeBeforeTheFirstBaselines) {
  RackJob job;
  job.baselines = false;
  job.train(20);
  job.across = kAcross;
  job.measure();
  for (int i = 0; i < 40 && !job.replicas_cross(); ++i) job.train(1);
  EXPECT_TRUE(job.replicas_cross());
}

// Sums that take long on links that are as fast as ever are no matter of the network.
TEST(Roles, StayWhereLinksAreAsUsual) {
  RackJob job;
  for (int i = 0; i < 40; ++i) {
    job.world.replica_seconds({job.own_seconds(), job.own_seconds()});
    job.world.steps(1, job.own_seconds() + 1.0);
  }
  EXPECT_EQ(job.world.job.status.plan.revision, 1);
  EXPECT_LE(job.world.adaptation.memory.repartition.searches, 1)
      << "what is not understood does not add up";
}

}  // namespace exposed_sync_test
}  // namespace weir::reconcile::test
