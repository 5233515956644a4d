// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/pauses.h"

#include <gtest/gtest.h>

namespace weir::engine {
namespace pauses_test {

using namespace std::chrono_literals;
using Ops = std::vector<std::chrono::nanoseconds>;

TEST(Pauses, AreWhatAnOpTakesBeyondTheMedianIfItTakesFarLonger) {
  EXPECT_EQ(pauses_in(Ops{10ms, 11ms, 90ms, 10ms, 9ms}), 80ms);
  EXPECT_EQ(pauses_in(Ops{10ms, 14ms, 10ms, 9ms}), 0ms) << "ops scatter";
  EXPECT_EQ(pauses_in(Ops{10ms, 30ms, 10ms, 10ms, 50ms, 10ms}), 60ms);
}

TEST(Pauses, AreUnknownWithoutAUsualOp) {
  EXPECT_EQ(pauses_in(Ops{}), 0ms);
  EXPECT_EQ(pauses_in(Ops{10ms, 90ms, 10ms}), 0ms);
}

}  // namespace pauses_test
}  // namespace weir::engine
