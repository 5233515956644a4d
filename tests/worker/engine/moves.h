// SPDX-License-Identifier: Apache-2.0
// A change of the cut in the middle of training, with the test as coordinator.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"

namespace weir::engine::test {

constexpr int kMovedMicroBatches = 4;
constexpr std::int64_t kMovedSteps = 30, kMovedAt = 12;

// Stage s runs on rank ranks[s], with layers up to and including ends[s].
inline schedule::Plan plan_on(Group& group, std::uint32_t revision, const std::vector<int>& ranks,
                              const std::vector<int>& ends) {
  const auto stages = static_cast<int>(ranks.size());
  auto plan = plan_of(stages, group.layers(), kMovedMicroBatches, schedule::Family::kOneFOneB, 1,
                      schedule::Dispatch::kStrict);
  plan.revision = revision;
  plan.trigger = revision == 1 ? schedule::Trigger::kInitial : schedule::Trigger::kRegroup;
  int first = 0;
  for (int s = 0; s < stages; ++s) {
    const auto at = static_cast<std::size_t>(s);
    plan.stages[at] = {first, ends[at]};
    first = ends[at] + 1;
    plan.ranks.push_back({.pod = "w" + std::to_string(ranks[at]),
                          .ip = "127.0.0.1",
                          .stage = s,
                          .data_port = group.data_port(ranks[at])});
  }
  return plan;
}

inline schedule::Plan moving(schedule::Plan next, const schedule::Plan& current) {
  next.state = schedule::StateMove::kMove;
  for (const schedule::RankPlace& rank : current.ranks) {
    next.holders.push_back({.pod = rank.pod,
                            .ip = rank.ip,
                            .data_port = rank.data_port,
                            .stage = rank.stage,
                            .layers = current.stages[static_cast<std::size_t>(rank.stage)]});
  }
  return next;
}

// The coordinator's part: all ranks of the group answer, then GO. The first reason against it.
inline std::string enter(Group& group, int workers, const schedule::Plan& plan,
                         std::int64_t at_step) {
  std::string reason = group.ask(workers, protocol::Prepare{plan});
  if (reason.empty()) reason = group.ask(workers, protocol::Commit{plan.revision, at_step});
  if (!reason.empty()) return reason;
  for (int i = 0; i < workers; ++i) group.engine(i).mailbox().put(protocol::Go{plan.revision});
  return "";
}

struct Cut {
  std::vector<int> ranks, ends;
};

// From one cut to another in the middle; what the ranks have moved.
inline std::vector<std::int64_t> expect_equal_losses(int workers, const Cut& before,
                                                     const Cut& after,
                                                     Group::On on = Group::On::kHost,
                                                     const std::string& model = "mlp") {
  Group group(model, workers, kMovedSteps, 0, nullptr, nullptr, nullptr, on);
  const auto first = plan_on(group, 1, before.ranks, before.ends);
  EXPECT_EQ(enter(group, workers, first, 0), "");
  const auto second = moving(plan_on(group, 2, after.ranks, after.ends), first);
  EXPECT_EQ(enter(group, workers, second, kMovedAt), "");
  // An idle rank ends when the others have; the coordinator says so.
  std::vector<bool> trains(static_cast<std::size_t>(workers));
  for (const int rank : after.ranks) trains[static_cast<std::size_t>(rank)] = true;
  EXPECT_TRUE(group.reaches(after.ranks.back(), kMovedSteps));
  for (int i = 0; i < workers; ++i) {
    if (!trains[static_cast<std::size_t>(i)]) group.engine(i).mailbox().put(protocol::Leave{});
  }
  EXPECT_THAT(group.finish(), testing::Each(Exit::kFinished));

  std::vector<double> losses = losses_of(group.records(before.ranks.back()));
  losses.resize(static_cast<std::size_t>(kMovedAt));
  for (const StepRecord& record : group.records(after.ranks.back())) {
    if (record.step >= kMovedAt) losses.push_back(record.loss);
  }
  EXPECT_EQ(losses, reference_losses(model, kMovedMicroBatches, kMovedSteps));
  std::vector<std::int64_t> moved;
  for (int i = 0; i < workers; ++i) moved.push_back(group.moved_bytes(i));
  return moved;
}

}  // namespace weir::engine::test
