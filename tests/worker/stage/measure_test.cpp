// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/measure.h"

#include <gtest/gtest.h>

#include "tests/worker/stage/stage_testing.h"

namespace weir::stage {
namespace measure_test {

using namespace std::chrono_literals;

TEST(Measure, TimesEveryLayerAtEverySampleCount) {
  for (const auto& [name, precision] : test::tested_models()) {
    const Model model = test::model_of(test::small_options(name, precision));
    const auto device = device::make_host_device();
    const auto timings = measure(model, *device, {1, 3}, 2, {});

    ASSERT_TRUE(timings.ok());
    ASSERT_EQ(timings->size(), model.layers.size());
    for (const auto& layer : *timings) {
      ASSERT_EQ(layer.size(), 2U);
      EXPECT_EQ(layer[0].samples, 1);
      EXPECT_EQ(layer[1].samples, 3);
      EXPECT_GT(layer[1].forward, 0ns);
      EXPECT_GT(layer[1].backward, 0ns);
      EXPECT_GT(layer[1].backward_input, 0ns);
      EXPECT_GT(layer[1].backward_weights, 0ns);
      EXPECT_GT(layer[1].update, 0ns);
    }
  }
}

TEST(Measure, TimesEqualLayersOnce) {
  const Model model = test::model_of(test::small_options("gpt-tiny"));
  const auto device = device::make_host_device();
  const auto timings = measure(model, *device, {2}, 1, {});

  ASSERT_TRUE(timings.ok());
  for (std::size_t block = 2; block <= 6; ++block) {
    EXPECT_EQ((*timings)[block][0].forward, (*timings)[1][0].forward);
    EXPECT_EQ((*timings)[block][0].backward, (*timings)[1][0].backward);
  }
}

TEST(Measure, HoldsOneLayerAtATimeAndNothingAfterwards) {
  const Model model = test::model_of(test::small_options("gpt-tiny"));
  const auto device = device::make_host_device();
  ASSERT_TRUE(measure(model, *device, {1}, 1, {}).ok());

  EXPECT_EQ(device->bytes_in_use(), 0);
  EXPECT_LT(device->bytes_peak(), 2 * 4 * model.layers[1].parameter_bytes);
}

TEST(Measure, StopsWhenAsked) {
  const Model model = test::model_of(test::small_options("mlp"));
  const auto device = device::make_host_device();
  std::stop_source stop;
  stop.request_stop();
  const auto timings = measure(model, *device, {1}, 1, stop.get_token());

  ASSERT_FALSE(timings.ok());
  EXPECT_EQ(timings.error().code, Code::kCancelled);
}

}  // namespace measure_test
}  // namespace weir::stage
