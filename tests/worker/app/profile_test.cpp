// SPDX-License-Identifier: Apache-2.0
#include "worker/app/profile.h"

#include <gtest/gtest.h>

#include "tests/worker/stage/frozen_layers.h"
#include "worker/protocol/profile.h"

namespace weir::app {
namespace profile_test {

protocol::Profile profile_of(const Result<stage::Model>& model, bool saves) {
  EXPECT_TRUE(model);
  const auto device = device::make_host_device();
  const protocol::Measured measured = measure_profile(
      {.model = *model, .device = *device, .saves = saves}, {.samples = {1, 2}, .rounds = 1}, {});
  EXPECT_EQ(measured.error, "");
  const auto profile = protocol::decode_profile(measured.profile_json);
  EXPECT_TRUE(profile) << profile.error().message;
  return *profile;
}

protocol::Profile profile_of(stage::Precision precision, bool saves = false) {
  return profile_of(
      stage::describe_model(
          {.name = "gpt-tiny", .sequence = 4, .vocabulary = 13, .precision = precision}),
      saves);
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

TEST(MeasuredProfile, SaysWhatFrozenParametersHold) {
  for (const bool saves : {false, true}) {
    const stage::ModelOptions options{
        .name = "", .sequence = 4, .vocabulary = 13, .precision = stage::Precision::kBf16};
    const auto model =
        stage::describe_model(options, std::make_shared<weir::test::FrozenMlp>(options));
    const protocol::Profile profile = profile_of(model, saves);
    const std::int64_t embed = model->layers[0].frozen_bytes;
    EXPECT_GT(embed, 4 * 13);
    EXPECT_EQ(profile.layers[0].parameter_bytes, 0);
    EXPECT_EQ(profile.layers[0].static_bytes, embed + embed / 2 + (saves ? embed : 0));
    const stage::LayerInfo& hidden = model->layers[1];
    EXPECT_EQ(profile.layers[1].static_bytes,
              hidden.parameter_bytes * 13 / 2 + hidden.frozen_bytes * 3 / 2 +
                  (saves ? 3 * hidden.parameter_bytes + hidden.frozen_bytes : 0));
    EXPECT_FALSE(profile.layers.back().static_bytes) << "the head is trained";
  }
}

}  // namespace profile_test
}  // namespace weir::app
