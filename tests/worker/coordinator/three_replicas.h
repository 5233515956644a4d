// SPDX-License-Identifier: Apache-2.0
// A job that has done five steps, with three replicas of two stages: workers 0, 1; 2, 3; 4, 5.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/worker/coordinator/switch_world.h"

namespace weir::coordinator::test {

struct ThreeReplicas : World {
  explicit ThreeReplicas(double seconds = 0.01) : World(6) {
    step_seconds = seconds;
    offer(replicated(1, schedule::Trigger::kInitial, {2, 3, 4}));
    all_ready(1, 0, 6);
    all_loaded(1, 6);
    for (std::int64_t step = 1; step <= 5; ++step) all_finish_step(1, step, 6);
    forget();
  }
  void ready(int incarnation, const Ranks& who, std::uint32_t revision = 1) {
    for (const int index : who) {
      say(index, protocol::Ready{.revision = revision, .incarnation = incarnation});
    }
  }
  void loaded(const Ranks& who, std::int64_t step, std::uint32_t revision = 1) {
    for (const int index : who)
      say(index, protocol::ReadyState{.revision = revision, .step = step});
  }
  void finish(const Ranks& who, std::int64_t step, std::uint32_t revision = 1) {
    for (const int index : who) finish_step(index, revision, step);
  }
  // Replica 1 is lost at step 5, and the others have done step 6 without it.
  void cover() {
    lose(3);
    ready(1, {0, 1, 4, 5});
    loaded({0, 1, 4, 5}, 5);
    finish({0, 1, 4, 5}, 6);
  }
  // The lost rank is back and a join is agreed on. Returns its boundary, which the others are at.
  std::int64_t cover_until_the_join() {
    cover();
    come(3);
    ready(2, {0, 1, 2, 3, 4, 5});
    const auto at = last<protocol::Commit>().at_step;
    finish({0, 1, 4, 5}, at);
    return at;
  }
  schedule::Plan prepare() const { return last<protocol::Prepare>().plan; }
};

}  // namespace weir::coordinator::test
