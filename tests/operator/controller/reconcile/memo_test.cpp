// SPDX-License-Identifier: Apache-2.0
// The memo between passes saves work and changes no decision.
#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/world.h"

namespace weir::reconcile::test {
namespace memo_test {

// The plan of the next pass, made with this memo.
std::optional<schedule::Plan> planned(const World& world, facts::Memo* memo) {
  Snapshot snapshot = world.snapshot();
  snapshot.memo = memo;
  const Outcome outcome = reconcile(snapshot, world.estimates, world.tunables);
  for (const Request& request : outcome.requests) {
    if (const auto* create = std::get_if<CreatePlan>(&request)) return create->plan;
  }
  return std::nullopt;
}

// A job that trains on n1 to n4, whose last worker was replaced while the link between n2 and n3
// was slow (0: as ever): it wants a new plan.
World replaced_worker(double slow) {
  World world;
  world.job.spec.schedule.k_initial.reset();
  world.run();
  world.steps(3, 1);
  if (slow > 0) world.links(1e9, slow);
  world.fail(world.pods[3].meta.name, 1);
  for (int i = 0; i < 4; ++i) {
    world.settle();
    world.now += 20s;
    world.report->received = world.now;
    world.kubelets_run();
  }
  world.workers_register();
  return world;
}

TEST(Memo, PlansAreTheSameWithoutIt) {
  const World world = replaced_worker(1e6);
  facts::Memo fresh;

  const auto with = planned(world, world.memo.get());

  ASSERT_TRUE(with);
  EXPECT_EQ(with->trigger, schedule::Trigger::kRestart);
  EXPECT_EQ(planned(world, nullptr), with);
  EXPECT_EQ(planned(world, &fresh), with);
  EXPECT_EQ(planned(world, &fresh), with) << "filled by the pass before";
}

// Whether a boundary of the plan lies between the two nodes.
bool joins(const schedule::Plan& plan, const std::string& a, const std::string& b) {
  int from = -1, to = -1;
  for (const auto& rank : plan.ranks) {
    if (rank.node == a) from = rank.stage;
    if (rank.node == b) to = rank.stage;
  }
  return std::abs(from - to) == 1;
}

TEST(Memo, APlanFromItReckonsWithTheLinksAsTheyAreNow) {
  const World quiet = replaced_worker(0), slow = replaced_worker(1e6);

  const auto before = planned(quiet, quiet.memo.get()), after = planned(slow, slow.memo.get());

  ASSERT_TRUE(before && after);
  EXPECT_TRUE(joins(*before, "n2", "n3")) << "of equal plans the one nearest to the old";
  EXPECT_FALSE(joins(*after, "n2", "n3"));
}

TEST(Memo, HoldsTheProfileThatWasReadLast) {
  World world = replaced_worker(0);
  ASSERT_TRUE(world.memo->model);
  EXPECT_EQ(world.memo->model->layers.size(), 4U);
  EXPECT_EQ(world.memo->profile, world.members->body.profile_json);
  std::string& text = world.members->body.profile_json;
  text.replace(text.find("\"forward\":0.02"), 14, "\"forward\":0.50");

  const auto plan = planned(world, world.memo.get());

  ASSERT_TRUE(plan);
  EXPECT_EQ(world.memo->profile, text);
  EXPECT_GT(plan->predicted_step_seconds, 16 * 0.5);
}

TEST(Memo, AProfileThatIsNoLongerReadableIsNotAnsweredFromIt) {
  World world = replaced_worker(0);
  world.members->body.profile_json = "{";

  EXPECT_FALSE(planned(world, world.memo.get()));
}

TEST(Memo, AModelOfOtherLayersIsRefusedEachTime) {
  World world = replaced_worker(0);
  world.members->body.model.layers = 5;

  EXPECT_FALSE(planned(world, world.memo.get()));
  EXPECT_FALSE(planned(world, world.memo.get()));
}

}  // namespace memo_test
}  // namespace weir::reconcile::test
