// SPDX-License-Identifier: Apache-2.0
#include "worker/emulate/slowness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace weir::emulate {
namespace slowness_test {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(Slowness, HoldsFromItsStepToTheNextLine) {
  const test::TempDir folder;
  const auto slowness = Slowness::read(folder.file("slow.txt", "# a spell\n3 2.5\n\n5 1\n"));
  ASSERT_TRUE(slowness) << slowness.error().message;
  EXPECT_DOUBLE_EQ(slowness->factor(1, 1h), 1);
  EXPECT_DOUBLE_EQ(slowness->factor(3, 0s), 2.5);
  EXPECT_DOUBLE_EQ(slowness->factor(4, 0s), 2.5);
  EXPECT_DOUBLE_EQ(slowness->factor(5, 0s), 1);
  EXPECT_DOUBLE_EQ(slowness->factor(1'000'000, 0s), 1);
}

TEST(Slowness, OrFromItsTime) {
  const test::TempDir folder;
  const auto slowness = Slowness::read(folder.file("slow.txt", "0s 3\n1.5s 1 # the spell ends\n"));
  ASSERT_TRUE(slowness) << slowness.error().message;
  EXPECT_DOUBLE_EQ(slowness->factor(100, 1499ms), 3);
  EXPECT_DOUBLE_EQ(slowness->factor(1, 1500ms), 1);
}

TEST(Slowness, NamesTheWrongLine) {
  const test::TempDir folder;
  for (const char* const text :
       {"1 2\nfast\n", "1 2\n2\n", "1 2\n2 0\n", "1 2\n2 1e9\n", "1 2\n1 3\n", "1 2\n2 3 4\n",
        "1 2\n2 nan\n", "1 2\n2.5 3\n", "1 2\n2s 3\n", "1s 2\nxs 3\n", "1s 2\n-2s 3\n"}) {
    const auto slowness = Slowness::read(folder.file("slow.txt", text));
    ASSERT_FALSE(slowness) << text;
    EXPECT_THAT(slowness.error().message, HasSubstr("slow.txt:2: "));
  }
  EXPECT_FALSE(Slowness::read("/nowhere/slow.txt"));
}

}  // namespace slowness_test
}  // namespace weir::emulate
