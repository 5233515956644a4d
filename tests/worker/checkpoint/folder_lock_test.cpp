// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/folder_lock.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace weir::checkpoint {
namespace folder_lock_test {

using namespace std::chrono_literals;
using testing::HasSubstr;

LockOwner owner(const std::string& job, const std::string& host = "host-a") {
  return {.job = "team/" + job, .uid = "uid-" + job, .pod = job + "-0", .host = host, .process = 1};
}

constexpr LockTimes kQuick{.beat = 10ms, .stale = 60s};       // its owner must be seen alive
constexpr LockTimes kImpatient{.beat = 10ms, .stale = 50ms};  // its owner is dead

class Lock : public testing::Test {
 protected:
  auto take(const LockOwner& who, LockTimes times = kQuick) {
    return FolderLock::take(folder_.path().string(), who, times, {},
                            [this](const std::string&) { lost_ = true; });
  }
  std::string text() const {
    std::ifstream file(folder_.path() / kLockName);
    std::ostringstream all;
    all << file.rdbuf();
    return all.str();
  }
  bool exists() const { return std::filesystem::exists(folder_.path() / kLockName); }
  // As a process that was killed leaves it.
  void leave_behind(const LockOwner& who) const {
    folder_.file(kLockName, encode({.owner = who, .mark = "x", .beat = 7}));
  }

  test::TempDir folder_;
  std::atomic<bool> lost_{false};
};

TEST_F(Lock, IsThereWhileItIsHeld) {
  {
    const auto lock = take(owner("a"));
    ASSERT_TRUE(lock) << lock.error().message;
    EXPECT_EQ(decode_lock(text())->owner, owner("a"));
    EXPECT_TRUE((*lock)->check());
  }
  EXPECT_FALSE(exists());
}

TEST_F(Lock, OfALivingJobRefusesAnotherOneByName) {
  const auto first = take(owner("a"));
  ASSERT_TRUE(first);

  const auto second = take(owner("b", "host-b"));

  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kConflict);
  EXPECT_THAT(second.error().message, HasSubstr("is in use by job team/a (pod a-0, host host-a"));
  EXPECT_TRUE((*first)->check());
  EXPECT_FALSE(lost_);
}

TEST_F(Lock, OfTheSameJobIsTakenAtOnceAndTheOldOwnerFindsOut) {
  const auto before = take(owner("a"));
  ASSERT_TRUE(before);

  const auto after = take(owner("a", "host-b"));

  ASSERT_TRUE(after) << after.error().message;
  EXPECT_TRUE((*after)->check());
  EXPECT_EQ((*before)->check().error().code, Code::kConflict);
  const auto until = std::chrono::steady_clock::now() + 60s;
  while (!lost_ && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(lost_);
}

TEST_F(Lock, OfAJobThatIsGoneIsTakenAfterAWhile) {
  leave_behind(owner("a"));

  const auto lock = take(owner("b", "host-b"), kImpatient);

  ASSERT_TRUE(lock) << lock.error().message;
  EXPECT_TRUE((*lock)->check());
}

TEST_F(Lock, ThatCannotBeReadIsNobodys) {
  folder_.file(kLockName, "half of a");

  EXPECT_TRUE(take(owner("b"), kImpatient));
}

TEST_F(Lock, ThatCannotBeWrittenIsNamed) {
  const auto lock =
      FolderLock::take(folder_.path().string() + "/missing", owner("a"), kQuick, {}, nullptr);

  ASSERT_FALSE(lock);
  EXPECT_THAT(lock.error().message, HasSubstr("missing/writer.lock: open: No such file"));
}

TEST(LockClaim, IsByJobThenByProcess) {
  LockOwner found = owner("a");
  found.process = 10;
  LockOwner same = owner("a", "host-b");
  EXPECT_EQ(claim(found, same, true), Claim::kTake);

  LockOwner by_hand{.host = "host-a", .process = 11};  // no uid: it may be anybody
  LockOwner other_by_hand{.host = "host-a", .process = 12};
  EXPECT_EQ(claim(by_hand, other_by_hand, true), Claim::kWatch);
  EXPECT_EQ(claim(by_hand, other_by_hand, false), Claim::kTake) << "it was killed";
  EXPECT_EQ(claim(by_hand, by_hand, true), Claim::kTake)
      << "this process, in a container as before";
  other_by_hand.host = "host-b";
  EXPECT_EQ(claim(by_hand, other_by_hand, false), Claim::kWatch)
      << "that host's processes are its own";
}

TEST(LockText, ComesBackAsItWas) {
  const LockText text{.owner = owner("a"), .mark = "m", .beat = 3};
  EXPECT_EQ(*decode_lock(encode(text)), text);
  for (const char* const bad :
       {"", "[]", "{}", R"({"apiVersion":"weir.dev/checkpoint-lock/v2"})"}) {
    EXPECT_FALSE(decode_lock(bad)) << bad;
  }
}

}  // namespace folder_lock_test
}  // namespace weir::checkpoint
