// SPDX-License-Identifier: Apache-2.0
#include "worker/emulate/usual_lateness.h"

#include <gtest/gtest.h>

namespace weir::emulate {
namespace {

using namespace std::chrono_literals;

TEST(UsualLateness, IsTheMedianOfTheLastWakeUps) {
  UsualLateness usual;
  EXPECT_EQ(usual.early(), 0ns);
  usual.add(300us);
  EXPECT_EQ(usual.early(), 0ns) << "one late wake-up says nothing";
  for (std::size_t i = 0; i < UsualLateness::kKept; ++i) usual.add(i % 10 == 0 ? 20ms : 300us);
  EXPECT_EQ(usual.early(), 300us) << "one in ten does not count";
  for (std::size_t i = 0; i < UsualLateness::kKept; ++i) usual.add(50us);
  EXPECT_EQ(usual.early(), 50us) << "it follows the machine";
}

TEST(UsualLateness, DoesNotSpinForLongOnABusyMachine) {
  UsualLateness usual;
  for (std::size_t i = 0; i < UsualLateness::kKept; ++i) usual.add(8ms);
  EXPECT_EQ(usual.early(), UsualLateness::kMost);
}

}  // namespace
}  // namespace weir::emulate
