// SPDX-License-Identifier: Apache-2.0
// A rank that is told to leave between COMMIT and GO: the others begin only with it.
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"

namespace weir::engine::test {
namespace leave_test {

using schedule::Dispatch;
using schedule::Family;
using testing::Each;

constexpr std::int64_t kEndless = 1'000'000;
constexpr auto kAWhile = std::chrono::milliseconds(300);  // several looks at its letters

// Two ranks that have said READY_STATE of plan 1.
struct Ready {
  explicit Ready(Saves* saves = nullptr) : group("mlp", 2, kEndless, 0, saves) {
    const auto plan = plan_of(2, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict);
    EXPECT_EQ(group.prepare(plan), "");
    EXPECT_EQ(group.commit(2, 1, 0), "");
  }
  void go() {
    for (int i = 0; i < 2; ++i) group.engine(i).mailbox().put(protocol::Go{1});
  }
  void end() {
    group.engine(0).leave(std::chrono::seconds(0));
    EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
  }
  Group group;
};

TEST(Leave, BetweenReadyStateAndGoWaitsForGo) {
  Ready job;
  job.group.engine(1).leave_saved(kPatience);
  std::this_thread::sleep_for(kAWhile);
  job.go();
  EXPECT_TRUE(job.group.reaches(1, 1)) << "it does the step that the first stage begins";
  job.end();
}

TEST(Leave, BetweenReadyStateAndGoWaitsForGoAndThenForItsCheckpoint) {
  Saves saves;
  Ready job(&saves);
  job.group.engine(1).leave_saved(kPatience);
  std::this_thread::sleep_for(kAWhile);
  job.go();
  for (int i = 0; i < 2; ++i) job.group.engine(i).mailbox().put(protocol::Save{.step = 300});
  ASSERT_TRUE(eventually([&] { return saves.copies(300) == 2; }));
  for (int i = 0; i < 2; ++i) {
    job.group.engine(i).mailbox().put(protocol::Saved{.step = 300, .leave = i == 1});
  }
  job.end();
  EXPECT_EQ(job.group.records(1).size(), 300U);
}

TEST(Leave, BetweenReadyStateAndGoEndsAtAnAbort) {
  for (const bool with_saves : {false, true}) {
    Saves saves;
    Ready job(with_saves ? &saves : nullptr);
    job.group.engine(1).leave_saved(kPatience * 100);
    for (int i = 0; i < 2; ++i) job.group.engine(i).mailbox().put(protocol::Abort{1});
    job.end();
    EXPECT_TRUE(job.group.records(1).empty());
  }
}

TEST(Leave, BetweenReadyStateAndGoEndsWhenNoGoCanCome) {
  for (const bool with_saves : {false, true}) {
    Saves saves;
    Ready job(with_saves ? &saves : nullptr);
    job.group.engine(1).mailbox().session_lost();
    job.group.engine(1).leave_saved(kPatience * 100);
    job.end();
  }
}

TEST(Leave, BetweenReadyStateAndGoEndsWithItsGrace) {
  for (const bool with_saves : {false, true}) {
    Saves saves;
    Ready job(with_saves ? &saves : nullptr);
    job.group.engine(1).leave_saved(std::chrono::milliseconds(50));
    job.end();
  }
}

// Rank 1 has got COMMIT and connects; rank 0 has not.
struct Connecting {
  explicit Connecting(Saves* saves = nullptr) : group("mlp", 2, kEndless, 0, saves) {
    const auto plan = plan_of(2, group.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict);
    EXPECT_EQ(group.prepare(plan), "");
    second = group.ask_rank(1, protocol::Commit{1, 0});
    EXPECT_TRUE(eventually([&] { return !group.calls().empty(); }));
  }
  bool second_answers() { return second.wait_for(kPatience) == std::future_status::ready; }
  Group group;
  std::future<std::string> second;
};

TEST(Leave, WhileItConnectsBeginsWithTheOthers) {
  for (const bool with_saves : {false, true}) {
    Saves saves;
    Connecting job(with_saves ? &saves : nullptr);
    job.group.engine(1).leave_saved(kPatience);
    std::this_thread::sleep_for(kAWhile);
    EXPECT_EQ(job.group.ask(std::vector{0}, protocol::Commit{1, 0}), "");
    ASSERT_TRUE(job.second_answers());
    EXPECT_EQ(job.second.get(), "");
    for (int i = 0; i < 2; ++i) job.group.engine(i).mailbox().put(protocol::Go{1});
    EXPECT_TRUE(job.group.reaches(1, 1)) << "it does the step that the first stage begins";
    for (int i = 0; i < 2; ++i) job.group.engine(i).leave(std::chrono::seconds(1));
    EXPECT_THAT(job.group.finish(), Each(Exit::kTerminated));
  }
}

TEST(Leave, WhileItConnectsEndsAtAnAbort) {
  for (const bool with_saves : {false, true}) {
    Saves saves;
    Connecting job(with_saves ? &saves : nullptr);
    job.group.engine(1).leave_saved(kPatience * 100);
    for (int i = 0; i < 2; ++i) job.group.engine(i).mailbox().put(protocol::Abort{1});
    job.group.engine(0).leave(std::chrono::seconds(0));
    EXPECT_THAT(job.group.finish(), Each(Exit::kTerminated));
  }
}

TEST(Leave, WhileItConnectsEndsWithItsSession) {
  for (const bool with_saves : {false, true}) {
    Saves saves;
    Connecting job(with_saves ? &saves : nullptr);
    const auto begin = std::chrono::steady_clock::now();
    job.group.engine(1).leave_saved(kPatience * 100);
    for (int i = 0; i < 2; ++i) job.group.engine(i).mailbox().session_lost();
    job.group.engine(0).leave(std::chrono::seconds(0));
    EXPECT_THAT(job.group.finish(), Each(Exit::kTerminated));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience) << "the time to connect";
  }
}

TEST(Leave, WhileItConnectsEndsWithItsGrace) {
  for (const bool with_saves : {false, true}) {
    Saves saves;
    Connecting job(with_saves ? &saves : nullptr);
    const auto begin = std::chrono::steady_clock::now();
    job.group.engine(1).leave_saved(kAWhile);
    ASSERT_TRUE(job.second_answers());
    EXPECT_NE(job.second.get(), "");
    job.group.engine(0).leave(std::chrono::seconds(0));
    EXPECT_THAT(job.group.finish(), Each(Exit::kTerminated));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience) << "the time to connect";
  }
}

}  // namespace leave_test
}  // namespace weir::engine::test
