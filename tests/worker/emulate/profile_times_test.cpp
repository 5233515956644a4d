// SPDX-License-Identifier: Apache-2.0
#include "worker/emulate/profile_times.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace weir::emulate {
namespace profile_times_test {

using namespace std::chrono_literals;
using testing::HasSubstr;

stage::Model two_layers() {
  stage::Model model;
  model.options.name = "toy";
  model.layers = {{.id = "a"}, {.id = "b"}};
  return model;
}

std::string profile(const std::string& times_of_a, const std::string& extra = "") {
  return R"({"apiVersion": "weir.dev/profile/v1", )" + extra +
         R"("nodes": [{"id": "a", "times": {"A100": [)" + times_of_a +
         R"(]}}, {"id": "b", "times": {"A100": [{"samples": 1, "forward": 0.001}]}}]})";
}

ProfileTimes decoded(const std::string& text) {
  auto result = ProfileTimes::decode(text, two_layers(), "A100");
  EXPECT_TRUE(result) << result.error().message;
  return *result;
}

const char* const kTwoCounts =
    R"({"samples": 2, "forward": 0.004, "backward": 0.008, "update": 0.001},
       {"samples": 4, "forward": 0.006, "backward": 0.016, "update": 0.001})";

TEST(ProfileTimes, InterpolatesBetweenSampleCounts) {
  const ProfileTimes times = decoded(profile(kTwoCounts));

  EXPECT_EQ(times.layer(0, 2).forward, 4ms);
  EXPECT_EQ(times.layer(0, 3).forward, 5ms);
  EXPECT_EQ(times.layer(0, 3).backward, 12ms);
  EXPECT_EQ(times.layer(0, 1).forward, 4ms);   // splitting gains nothing below the smallest
  EXPECT_EQ(times.layer(0, 8).forward, 12ms);  // proportional above the largest
  EXPECT_EQ(times.layer(0, 8).update, 1ms);    // once a step, whatever the batch
}

TEST(ProfileTimes, ScalesProportionallyWhenItSaysSo) {
  const ProfileTimes times = decoded(profile(kTwoCounts, R"("scaling": "proportional", )"));

  EXPECT_EQ(times.layer(0, 1).forward, 2ms);
}

TEST(ProfileTimes, AddsTheLayersOfAStage) {
  const StageTimes times = decoded(profile(kTwoCounts)).stage(0, 1);

  EXPECT_EQ(times.forward(2), 6ms);   // 4 + 2 x 1
  EXPECT_EQ(times.backward(2), 8ms);  // absent times are 0
  EXPECT_EQ(times.update, 1ms);
}

TEST(ProfileTimes, HasThePartsOfASplitBackward) {
  const ProfileTimes times = decoded(profile(
      R"({"samples": 2, "forward": 0.004, "backward": 0.008, "split": {"input": 0.005, "weights": 0.004}},
         {"samples": 4, "forward": 0.006, "backward": 0.016, "split": {"input": 0.009, "weights": 0.008}})"));

  EXPECT_EQ(times.layer(0, 3).backward_input, 7ms);
  EXPECT_EQ(times.layer(0, 8).backward_weights, 16ms);
  EXPECT_EQ(times.stage(0, 1).backward_input(2), 5ms);
  EXPECT_EQ(times.stage(0, 1).backward_weights(4), 8ms);
  EXPECT_EQ(times.stage(0, 1).weights_until(0, 4), 8ms);
  EXPECT_EQ(times.stage(0, 1).weights_until(1, 4), times.layer(1, 4).backward_weights);
  EXPECT_EQ(times.stage(0, 1).backward_until(0, 4), times.stage(0, 1).backward(4));
  EXPECT_EQ(times.stage(0, 1).backward_until(1, 4), times.layer(1, 4).backward);
}

TEST(ProfileTimes, WithoutPartsHasAllInTheFirst) {
  const ProfileTimes times = decoded(profile(kTwoCounts));

  EXPECT_EQ(times.stage(0, 1).backward_input(3), 12ms);
  EXPECT_EQ(times.stage(0, 1).backward_weights(3), 0ms);
}

TEST(ProfileTimes, TakesTheOnlyDeviceClassWhenNoneIsNamed) {
  const auto result = ProfileTimes::decode(profile(kTwoCounts), two_layers(), "");

  ASSERT_TRUE(result);
  EXPECT_EQ(result->device_class(), "A100");
}

TEST(ProfileTimes, NamesWhatIsWrong) {
  struct Case {
    std::string text, device, names;
  };
  const std::vector<Case> cases = {
      {"not json", "A100", "not valid JSON"},
      {R"({"apiVersion": "weir.dev/profile/v2"})", "A100", "apiVersion"},
      {R"({"apiVersion": "weir.dev/profile/v1", "nodes": [{"id": "a", "times": {"A100": [{"samples": 1}]}}]})",
       "A100", "the model toy has 2"},
      {profile(kTwoCounts), "H100", "there is: A100"},
      {profile(R"({"samples": 0, "forward": 1})"), "A100", "samples"},
      {profile(R"({"samples": 2}, {"samples": 2})"), "A100", "not rising"},
      {profile(R"({"samples": 1, "forward": -1})"), "A100", "forward"},
      {profile(R"({"samples": 1, "backward": "fast"})"), "A100", "backward"},
      {profile(R"({"samples": 1, "forward": 1e9})"), "A100", "forward"},
      {profile(""), "A100", "times"},
      {profile(kTwoCounts, R"("scaling": "magic", )"), "A100", "scaling"},
  };
  for (const Case& one : cases) {
    const auto result = ProfileTimes::decode(one.text, two_layers(), one.device);
    ASSERT_FALSE(result) << one.names;
    EXPECT_THAT(result.error().message, HasSubstr(one.names));
  }
}

TEST(ProfileTimes, RefusesAProfileOfAnotherModel) {
  stage::Model other = two_layers();
  other.layers[1].id = "c";

  const auto result = ProfileTimes::decode(profile(kTwoCounts), other, "A100");

  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("nodes[1].id"));
}

TEST(ProfileTimes, ErrorsBeginWithTheFile) {
  const weir::test::TempDir folder;
  const std::string path = folder.file("p.json", "{}");

  EXPECT_THAT(ProfileTimes::read(path, two_layers(), "").error().message,
              testing::StartsWith(path));
  EXPECT_EQ(ProfileTimes::read("/no/such", two_layers(), "").error().message,
            "/no/such: cannot be read: No such file or directory");
}

}  // namespace profile_times_test
}  // namespace weir::emulate
