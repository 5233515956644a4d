// SPDX-License-Identifier: Apache-2.0
#include "worker/base/settings.h"

#include <gtest/gtest.h>

namespace weir {
namespace settings_test {

TEST(Settings, ThatDifferAreNamedWithBothValues) {
  const Settings here{{"--seq", "32"}, {"--lr", "0.001"}, {"--seed", "7"}};
  const Settings there{{"--seed", "1"}, {"--lr", "0.001"}, {"--seq", "16"}};

  EXPECT_EQ(describe(differences(here, there), "worker 0"),
            "--seq is 32, worker 0 has 16; --seed is 7, worker 0 has 1");
  EXPECT_EQ(describe(differences(here, here), "worker 0"), "");
}

TEST(Settings, ThatOnlyOneVersionKnowsAreNotCompared) {
  const Settings older{{"--lr", "1"}}, newer{{"--lr", "1"}, {"--later", "x"}};

  EXPECT_TRUE(differences(older, newer).empty());
  EXPECT_TRUE(differences(newer, older).empty());
  EXPECT_TRUE(differences(newer, {}).empty());
}

TEST(Settings, NumbersKeepAllTheirBits) {
  for (const double value : {0.1, 1e-3, 3e-4, 1.0 / 3, 0.0, 1e300}) {
    EXPECT_EQ(std::stod(exact_text(value)), value);
  }
  EXPECT_EQ(exact_text(0.001), "0.001");
}

}  // namespace settings_test
}  // namespace weir
