// SPDX-License-Identifier: Apache-2.0
#include "worker/app/profile.h"

#include <gtest/gtest.h>

#include "worker/protocol/profile.h"

namespace weir::app {
namespace profile_test {

protocol::Profile profile_of(stage::Precision precision, bool saves = false) {
  const auto model = stage::describe_model(
      {.name = "gpt-tiny", .sequence = 4, .vocabulary = 13, .precision = precision});
  EXPECT_TRUE(model);
  const auto device = device::make_host_device();
  const protocol::Measured measured = measure_profile(
      {.model = *model, .device = *device, .saves = saves}, {.samples = {1, 2}, .rounds = 1}, {});
  EXPECT_EQ(measured.error, "");
  const auto profile = protocol::decode_profile(measured.profile_json);
  EXPECT_TRUE(profile) << profile.error().message;
  return *profile;
}

TEST(MeasuredProfile, HasWhatBf16Takes) {
  const protocol::Profile wide = profile_of(stage::Precision::kFp32);
  const protocol::Profile narrow = profile_of(stage::Precision::kBf16);

  EXPECT_EQ(wide.state_factor, 6);
  EXPECT_EQ(narrow.state_factor, 6.5);
  ASSERT_EQ(narrow.layers.size(), wide.layers.size());
  for (std::size_t i = 0; i < wide.layers.size(); ++i) {
    EXPECT_EQ(narrow.layers[i].parameter_bytes, wide.layers[i].parameter_bytes);
    EXPECT_EQ(2 * narrow.layers[i].output_bytes_per_sample, wide.layers[i].output_bytes_per_sample);
    EXPECT_LE(narrow.layers[i].activation_bytes_per_sample,
              wide.layers[i].activation_bytes_per_sample);
    EXPECT_EQ(narrow.layers[i].times.at("cpu").size(), 2U);
    ASSERT_TRUE(narrow.layers[i].split && wide.layers[i].split);
    EXPECT_LE(narrow.layers[i].split->held_per_sample, wide.layers[i].split->held_per_sample);
    for (const protocol::ProfileTime& time : wide.layers[i].times.at("cpu")) {
      ASSERT_TRUE(time.split);
      EXPECT_GT(time.split->input + time.split->weights, 0);
    }
  }
}

TEST(MeasuredProfile, CountsTheCopyThatASaveHolds) {
  EXPECT_EQ(profile_of(stage::Precision::kFp32, true).state_factor, 9);
}

}  // namespace profile_test
}  // namespace weir::app
