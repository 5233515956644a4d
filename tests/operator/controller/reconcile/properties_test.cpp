// SPDX-License-Identifier: Apache-2.0
// tests/README.md "Invariants of a job" in random histories in the model world.
// A failing seed is printed; WEIR_SEED=<seed> runs that one alone and prints its history.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>

#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/model.h"

namespace weir::reconcile::test {
namespace properties_test {

#ifdef WEIR_SANITIZED  // ten to twenty times slower
constexpr std::uint64_t kHistories = 1'000, kCrashHistories = 150, kOrderHistories = 100,
                        kRefusedHistories = 200;
#else
constexpr std::uint64_t kHistories = 10'000, kCrashHistories = 1'500, kOrderHistories = 500,
                        kRefusedHistories = 1'000;
#endif
constexpr std::uint64_t kRecovers = 8;  // of so many histories one is followed to a good end
constexpr int kLength = 14, kCrashLength = 24;

template <class Run>
void for_each_seed(std::uint64_t count, Run&& run) {
  const char* only = std::getenv("WEIR_SEED");
  const std::uint64_t first = only == nullptr ? 1 : std::strtoull(only, nullptr, 10);
  const std::uint64_t last = only == nullptr ? count : first;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) +
                 ", repeat with WEIR_SEED=" + std::to_string(seed));
    run(seed);
    if (::testing::Test::HasFailure()) return;
  }
}

int live_pods(const World& world) {
  return static_cast<int>(std::count_if(world.pods.begin(), world.pods.end(), [](const auto& pod) {
    return !pod.meta.deleting && !pod.exit_code &&
           (pod.phase == "Running" || pod.phase == "Pending");
  }));
}

int wanted_pods(const World& world) {
  return 3 * world.job.spec.data_parallel + world.job.spec.worker_groups[0].spares;
}

// Restarts whose cause is not the failure of a pod.
int deadline_restarts(const World& world) {
  int counted = 0;
  for (const auto& each : world.job.status.restart_reasons) {
    if (each.reason == "NoProgress" || each.reason == "StartupTimedOut") counted += each.count;
  }
  return counted;
}

// Invariants 1, 4, 5, 6 and 7, and: restarts are never more than what happened; the end is final;
// a job that nothing is wrong with any more trains; one that was done does not.
TEST(Properties, HoldInRandomHistories) {
  for_each_seed(kHistories, [](std::uint64_t seed) {
    Model model(seed);
    std::string end;
    for (const auto& event : random_history(seed, kLength, false)) {
      model.happen(event);
      const bool settled = model.settle(10);
      if (std::getenv("WEIR_SEED") != nullptr)
        std::cout << text(event) << ": " << model.text() << "\n";
      ASSERT_TRUE(settled) << "no fixed point within 10 passes";
      const auto& complete = model.world.condition("Complete");
      const auto& failed = model.world.condition("Failed");
      EXPECT_FALSE(complete.status == "True" && failed.status == "True");
      const std::string now = complete.status == "True" ? "Complete"
                              : failed.status == "True" ? failed.reason
                                                        : "";
      if (!end.empty()) {
        EXPECT_EQ(now, end) << "the end is final";
      }
      end = now;
      const int counted = model.world.job.status.restarts - deadline_restarts(model.world);
      EXPECT_LE(counted, model.failures) << "a restart was counted twice";
      if (model.done) {
        ASSERT_NE(end, "") << "a job that was done is trained again";
      }
    }
    if (seed % kRecovers != 0) return;
    model.recover();
    if (model.world.condition("Failed").status == "True" ||
        model.world.condition("Complete").status == "True")
      return;
    EXPECT_EQ(model.world.condition("Ready").reason, "Running");
    EXPECT_EQ(live_pods(model.world), wanted_pods(model.world));
    EXPECT_EQ(model.world.job.status.data_parallel, model.world.job.spec.data_parallel);
  });
}

// The API server refuses random requests for random times. Status shows each refusal within one
// pass, the passes reach a fixed point, no restart is counted twice, and afterwards the job trains.
TEST(Properties, RefusalsOfTheApiServerHideAndHoldNothing) {
  for_each_seed(kRefusedHistories, [](std::uint64_t seed) {
    Model model(seed);
    Random random(mix_seed(seed, "refusals"));
    static constexpr std::array kSpans = {5, 40, 700, 100'000};
    for (const auto& event : random_history(seed, kLength, false)) {
      if (random.below(3) == 0) {
        model.refuse(static_cast<Refuses>(random.below(3)),
                     std::chrono::seconds(kSpans[random.below(kSpans.size())]));
      }
      model.happen(event);
      ASSERT_TRUE(model.settle(20)) << "no fixed point within 20 passes after " << text(event);
      if (std::getenv("WEIR_SEED") != nullptr)
        std::cout << text(event) << ": " << model.text() << "\n";
      const Snapshot snapshot = model.world.snapshot();
      const auto of_status = [](const auto& no) { return no.subject == kStatusSubject; };
      const bool ended = model.world.condition("Complete").status == "True" ||
                         model.world.condition("Failed").status == "True";
      if (ended || snapshot.refused.empty() || std::ranges::any_of(snapshot.refused, of_status))
        continue;
      EXPECT_EQ(model.world.condition("Degraded").status, "True");
      EXPECT_NE(model.world.condition("Degraded").message.find(kRefusal), std::string::npos)
          << model.world.condition("Degraded").message;
    }
    model.recover();
    EXPECT_LE(model.world.job.status.restarts, model.failures + deadline_restarts(model.world))
        << model.text() << ", " << model.world.last_note("Restarting");
    if (model.world.condition("Failed").status == "True" ||
        model.world.condition("Complete").status == "True")
      return;
    EXPECT_EQ(model.world.condition("Ready").reason, "Running");
    EXPECT_EQ(live_pods(model.world), wanted_pods(model.world));
  });
}

// Any workers claim at any time that they do not hear the coordinator. The passes reach a fixed
// point, terms never fall, and afterwards the job trains.
TEST(Properties, ClaimsAgainstTheCoordinatorHoldNothing) {
  int moves = 0;
  for_each_seed(kRefusedHistories, [&moves](std::uint64_t seed) {
    Model model(seed);
    World& world = model.world;
    Random random(mix_seed(seed, "claims"));
    const auto term = [&world] {
      const auto& named = world.job.status.coordinator;
      return named ? named->term : protocol::kFirstTerm;
    };
    for (const auto& event : random_history(seed, kLength, false)) {
      model.happen(event);
      const std::int64_t before = term();
      world.claims.clear();
      if (random.below(2) == 0) {
        world.now += 7s;
        for (const auto& pod : world.pods) {
          if (random.below(4) > 0) world.claims.push_back({pod.meta.uid, before, world.now});
        }
      }
      ASSERT_TRUE(model.settle(10)) << "no fixed point within 10 passes after " << text(event);
      if (std::getenv("WEIR_SEED") != nullptr)
        std::cout << text(event) << ": term " << term() << ", " << model.text() << "\n";
      EXPECT_GE(term(), before);
    }
    moves += world.event_count("CoordinatorMoved");
    world.claims.clear();
    model.recover();
    if (world.condition("Failed").status == "True" || world.condition("Complete").status == "True")
      return;
    EXPECT_EQ(world.condition("Ready").reason, "Running");
    EXPECT_EQ(live_pods(world), wanted_pods(world));
  });
  if (std::getenv("WEIR_SEED") != nullptr) return;
  EXPECT_GT(moves, 100) << "of so many histories";
}

// Invariant 2: a crash of the operator after any action, and a new leader that remembers nothing,
// end at the same place, with no restart counted more. Deadlines are far away: their clocks may
// start anew.
TEST(Properties, CrashesOfTheOperatorChangeNothing) {
  for_each_seed(kCrashHistories, [](std::uint64_t seed) {
    Model calm(seed), crashing(seed);
    crashing.crashes = true;
    for (const auto& event : random_history(seed, kCrashLength, true)) {
      calm.happen(event);
      crashing.happen(event);
      ASSERT_TRUE(calm.settle());
      ASSERT_TRUE(crashing.settle());
      if (std::getenv("WEIR_SEED") != nullptr)
        std::cout << text(event) << ":\n  " << calm.text() << "\n  " << crashing.text() << "\n";
    }
    crashing.crashes = false;
    calm.recover();
    crashing.recover();

    const auto& want = calm.world.job.status;
    const auto& got = crashing.world.job.status;
    EXPECT_EQ(got.restarts, want.restarts);
    EXPECT_EQ(got.restart_budget_used, want.restart_budget_used);
    EXPECT_EQ(got.pod_generation, want.pod_generation);
    EXPECT_EQ(live_pods(crashing.world), live_pods(calm.world));
    for (const char* type : {"Accepted", "Ready", "Suspended", "Complete", "Failed"}) {
      EXPECT_EQ(crashing.world.condition(type).status, calm.world.condition(type).status) << type;
      EXPECT_EQ(crashing.world.condition(type).reason, calm.world.condition(type).reason) << type;
    }
  });
}

// Invariant 3: neither the order of lists nor the order of what happened between two passes
// matters.
TEST(Properties, TheOrderOfEventsDoesNotMatter) {
  for_each_seed(kOrderHistories, [](std::uint64_t seed) {
    Model first(seed), second(seed);
    second.shuffles = true;
    for (Model* model : {&first, &second}) model->world.run();
    const auto events = random_history(seed, 6, true);
    std::vector<Event> batch;
    std::vector<bool> slots(3, false);
    for (const auto& event : events) {  // at most one thing for each worker
      const bool of_worker = event.what == Happening::kCrash || event.what == Happening::kDisrupt ||
                             event.what == Happening::kDelete || event.what == Happening::kNodeLost;
      if (!of_worker || slots[static_cast<std::size_t>(event.slot)]) continue;
      slots[static_cast<std::size_t>(event.slot)] = true;
      batch.push_back(event);
    }
    for (const auto& event : batch) first.happen(event);
    std::reverse(batch.begin(), batch.end());
    for (const auto& event : batch) second.happen(event);
    for (Model* model : {&first, &second}) {
      model->settle();
      model->recover();
    }

    EXPECT_EQ(second.world.job.status.restarts, first.world.job.status.restarts);
    EXPECT_EQ(second.world.job.status.restart_reasons, first.world.job.status.restart_reasons);
    EXPECT_EQ(second.world.job.status.restart_budget_used,
              first.world.job.status.restart_budget_used);
    EXPECT_EQ(second.world.job.status.avoided_nodes, first.world.job.status.avoided_nodes);
    EXPECT_EQ(second.world.condition("Ready").reason, first.world.condition("Ready").reason);
    EXPECT_EQ(second.world.condition("Failed").reason, first.world.condition("Failed").reason);
  });
}

}  // namespace properties_test
}  // namespace weir::reconcile::test
