// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/bounds.h"

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "worker/base/random.h"
#include "worker/schedule/caps.h"
#include "worker/schedule/search_split.h"

namespace weir::schedule {
namespace bounds_test {

using std::chrono::microseconds;

// The parts of a split backward take from half to twice of the whole one.
PipelineModel pipeline(Random& random) {
  const auto time = [&](double least, double most) {
    return microseconds(static_cast<int>(1000 * (least + (most - least) * random.uniform())));
  };
  PipelineModel model;
  const std::size_t stages = 1 + random.below(5);
  for (std::size_t s = 0; s < stages; ++s) {
    model.stages.push_back({.forward = time(5, 15),
                            .backward = time(10, 30),
                            .backward_input = time(5, 25),
                            .backward_weights = time(5, 25)});
    if (s + 1 == stages) break;
    const double slow = random.uniform() < 0.3 ? 25 : 3;
    model.forward.push_back({.transfer = time(0, slow)});
    model.backward.push_back({.transfer = time(0, slow)});
  }
  return model;
}

// Where a backward is shorter as a whole than in its parts, an order that may split need not.
TEST(LeastStep, IsBelowWholeAndSplitOrdersWhateverThePartsTake) {
  int split_orders = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Random random(seed);
    const PipelineModel model = pipeline(random);
    const int stages = static_cast<int>(model.stages.size());
    const int micro_batches = 1 + static_cast<int>(random.below(16));
    const Schedule whole{.family = Family::kKfkb,
                         .dispatch = Dispatch::kHint,
                         .k = 1,
                         .micro_batch_size = 1,
                         .caps = kfkb_caps(stages, micro_batches, 1)};
    const Schedule split = with_split(whole, whole.caps, Dispatch::kHint, micro_batches, model);
    const auto least = least_step(model, micro_batches, Backwards::kSplit);
    EXPECT_LE(least, least_step(model, micro_batches, Backwards::kWhole)) << "seed " << seed;
    for (const Schedule* const schedule : {&whole, &split}) {
      const auto simulated = simulate(*schedule, micro_batches, model);
      ASSERT_TRUE(simulated) << "seed " << seed;
      EXPECT_LE(least, simulated->step) << "seed " << seed;
    }
    if (split.split) ++split_orders;
  }
  EXPECT_GT(split_orders, 100);
}

TEST(LeastStep, OfPartsThatAddUpIsThatOfSplitBackwards) {
  PipelineModel model;
  model.stages.assign(4, {.forward = microseconds(10),
                          .backward = microseconds(20),
                          .backward_input = microseconds(10),
                          .backward_weights = microseconds(10)});
  model.forward.assign(3, {});
  model.backward.assign(3, {});

  EXPECT_EQ(least_step(model, 8, Backwards::kWhole), microseconds(330));
  EXPECT_EQ(least_step(model, 8, Backwards::kSplit), microseconds(270));
}

}  // namespace bounds_test
}  // namespace weir::schedule
