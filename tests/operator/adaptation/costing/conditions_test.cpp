// SPDX-License-Identifier: Apache-2.0
// Steps of two plans under the conditions of one: what is a link of sums under one plan is a link
// between stages under the other.
#include "operator/adaptation/costing/conditions.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "operator/planner/model/profile_json.h"
#include "tests/operator/controller/reconcile/equal_layers.h"

namespace weir::costing {
namespace conditions_test {

constexpr double kFast = 4e8, kSlow = 1e6;  // bytes per second, inside a rack and across
constexpr double kSumAcross = 6;            // seconds: 3 x 1/2 x 4 MB at kSlow

// Two racks, a and b, of two nodes each. Two replicas of two stages: `before` has a replica in each
// rack, `after` a stage in each, and the pairs of nodes that it connects carried no sums before.
struct Racks {
  api::JobSpec spec;
  api::JobStatus status;
  estimator::Estimates estimates;
  facts::History history;
  std::vector<schedule::Plan> plans;
  api::NodeTable nodes;
  protocol::Register members;
  schedule::Plan before = plan(1, {"a0", "a1", "b0", "b1"}),
                 after = plan(2, {"a0", "b1", "a1", "b0"});
  planner::Model model =
      *planner::decode_profile(reconcile::test::equal_layers(4, 2'000'000, 10'000));

  Racks() {
    for (const char* pod : {"a0", "a1", "b0", "b1"}) {
      members.members.push_back(
          {.pod = pod, .pod_uid = pod, .node = pod, .ranks = {{.device = "A"}}});
    }
  }
  // ranks: of replica 0 by stage, then of replica 1.
  static schedule::Plan plan(std::uint32_t revision, const std::vector<std::string>& ranks) {
    schedule::Plan plan;
    plan.revision = revision;
    plan.schedule.caps = {2, 1};
    plan.schedule.micro_batch_size = 4;
    plan.stages = {{0, 1}, {2, 3}};
    plan.micro_batches = {4, 4};
    for (int i = 0; i < 4; ++i) {
      const std::string& node = ranks[static_cast<std::size_t>(i)];
      plan.ranks.push_back(
          {.pod = node, .pod_uid = node, .node = node, .replica = i / 2, .stage = i % 2});
    }
    return plan;
  }
  facts::Facts facts(const schedule::Plan& in_force) const {
    facts::Facts facts{.spec = spec,
                       .status = status,
                       .estimates = estimates,
                       .history = &history,
                       .plans = plans,
                       .nodes = nodes};
    facts.members = &members;
    facts.plan = &in_force;
    facts.planned_replicas = 2;
    for (const auto& member : members.members) {
      facts.workers.push_back({.pod_uid = member.pod_uid, .pod = member.pod, .node = member.node});
    }
    return facts;
  }
  // Measures the links of that plan, as estimates.
  void measure(const schedule::Plan& plan) {
    estimates.links.clear();
    estimates.sync_links.clear();
    using estimator::Direction;
    const auto add = [&](auto& links, const estimator::LinkKey& key, int from, int to) {
      const std::string& sends = plan.ranks[static_cast<std::size_t>(from)].node;
      const std::string& receives = plan.ranks[static_cast<std::size_t>(to)].node;
      const double rate = sends[0] == receives[0] ? kFast : kSlow;
      links.push_back(
          {.link = key, .from_node = sends, .to_node = receives, .now = rate, .mean = rate});
    };
    for (int i = 0; i < 2; ++i) {  // a replica, and a stage
      add(estimates.links, {i, 0, Direction::kForward}, 2 * i, 2 * i + 1);
      add(estimates.links, {i, 0, Direction::kBackward}, 2 * i + 1, 2 * i);
      add(estimates.sync_links, {0, i, Direction::kSync, 1}, 2 + i, i);
      add(estimates.sync_links, {1, i, Direction::kSync, 0}, i, 2 + i);
    }
  }
};

TEST(Conditions, KnowTheLinksOfSumsOfThePlanBefore) {
  Racks racks;
  racks.measure(racks.before);
  const Evidence then = estimated(racks.facts(racks.before), &racks.model, 6.6, false);
  racks.measure(racks.after);
  const facts::Facts facts = racks.facts(racks.after);
  const Evidence now = estimated(facts, &racks.model, 0.7, false);
  Conditions both = now.conditions;
  complete(both, then.conditions);

  EXPECT_TRUE(covers(both, racks.before));
  EXPECT_GT(step_under(both, facts, racks.model, racks.before), kSumAcross);
  EXPECT_LT(step_under(both, facts, racks.model, racks.after), 1);
  Conditions back = then.conditions;
  complete(back, now.conditions);
  EXPECT_NEAR(step_under(back, facts, racks.model, racks.before),
              step_under(both, facts, racks.model, racks.before), 0.01)
      << "the network has not changed";
}

TEST(Conditions, TakeTheNewestRateOfALinkWhateverUsedIt) {
  Conditions own, other;
  own.links[{"a", "b"}] = {.bytes_per_second = 1};
  own.sum_links[{"b", "c"}] = 2;
  other.sum_links[{"a", "b"}] = 10;
  other.links[{"b", "c"}] = {.bytes_per_second = 20, .latency_seconds = 0.5};
  other.sum_links[{"c", "d"}] = 30;
  complete(own, other);

  EXPECT_FALSE(own.sum_links.contains({"a", "b"}));
  const auto changed = own.links.at({"b", "c"});
  EXPECT_EQ(changed.bytes_per_second, 2);
  EXPECT_EQ(changed.latency_seconds, 0.5);
  EXPECT_EQ(own.sum_links.at({"c", "d"}), 30);
}

TEST(Conditions, LeaveOutLinksOfSumsOfAnotherPlan) {
  Racks racks;
  racks.measure(racks.before);
  const auto known = [&](const schedule::Plan& in_force) {
    return estimated(racks.facts(in_force), nullptr, 1, false).conditions.sum_links;
  };
  EXPECT_EQ(known(racks.before).size(), 4U);
  EXPECT_TRUE(known(racks.after).empty());
}

TEST(Conditions, PriceSumsByWhatIsSent) {
  Racks racks;
  racks.measure(racks.before);
  const auto step = [&] {
    const facts::Facts facts = racks.facts(racks.before);
    return step_under(estimated(facts, &racks.model, 6.6, false).conditions, facts, racks.model,
                      racks.before);
  };
  const double raw = step();
  racks.estimates.packed_part = 0.5;
  EXPECT_NEAR(raw - step(), kSumAcross / 3, 1e-6) << "doubles are two thirds of what is sent";
}

}  // namespace conditions_test
}  // namespace weir::costing
