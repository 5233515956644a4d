// SPDX-License-Identifier: Apache-2.0
#include "worker/protocol/profile.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::protocol {
namespace profile_test {

Profile profile_on(const std::string& device, double forward) {
  Profile profile{"gpt-tiny", "sha256:aa", 4, {}};
  for (const char* id : {"embed", "block0"}) {
    ProfileLayer layer{id, "layer", 100, 20, 50, 3, 7, {}};
    layer.times[device] = {{1, forward, 2 * forward, 0.001}, {4, 3 * forward, 6 * forward, 0.001}};
    profile.layers.push_back(layer);
  }
  return profile;
}

std::string error_of(const std::string& json) {
  const auto decoded = decode_profile(json);
  return decoded.ok() ? "no error" : decoded.error().message;
}

std::string with_node(const std::string& node) {
  return R"({"apiVersion":"weir.dev/profile/v1","nodes":[)" + node + "]}";
}

TEST(Profile, SurvivesTheRoundTrip) {
  const auto decoded = decode_profile(encode_profile(profile_on("cpu", 0.5)));

  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, profile_on("cpu", 0.5));
}

TEST(Profile, MaySplitTheBackward) {
  Profile profile = profile_on("cpu", 0.5);
  EXPECT_EQ(encode_profile(profile).find("split"), std::string::npos);
  for (ProfileLayer& layer : profile.layers) {
    layer.split = SplitBytes{.held_per_sample = 80, .transient_per_sample = 5};
    for (ProfileTime& time : layer.times["cpu"]) time.split = SplitTime{0.25, 0.75};
  }
  const auto decoded = decode_profile(encode_profile(profile));

  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, profile);
  EXPECT_EQ(
      error_of(with_node(
          R"({"id":"a","parameterBytes":1,"outputBytesPerSample":9,"times":{"cpu":[{"samples":1,"forward":1,"backward":2,"split":{"input":1}}]}})")),
      "nodes[0].times.cpu[0].split.weights: missing");
}

TEST(Profile, SaysWhatALayerHoldsWhereParametersAloneDoNot) {
  const std::string text = with_node(
      R"({"id":"a","parameterBytes":1,"staticBytes":70,"outputBytesPerSample":9,"times":{"cpu":[{"samples":1,"forward":1,"backward":2}]}})");
  auto decoded = decode_profile(text);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(decoded->layers[0].static_bytes, 70);
  EXPECT_EQ(*decode_profile(encode_profile(*decoded)), *decoded);

  Profile more = *decoded;
  more.layers[0].static_bytes = 90;  // this device keeps a copy for saves, too
  ASSERT_TRUE(merge(*decoded, more));
  EXPECT_EQ(decoded->layers[0].static_bytes, 90);
  EXPECT_EQ(
      error_of(with_node(
          R"({"id":"a","parameterBytes":1,"staticBytes":-1,"outputBytesPerSample":9,"times":{"cpu":[{"samples":1,"forward":1,"backward":2}]}})")),
      "nodes[0].staticBytes: not in 0 .. 2^50 bytes");
}

TEST(Profile, NamesTheTablesThatItsFirstAndLastLayerShare) {
  const std::string node =
      R"(,"parameterBytes":1,"outputBytesPerSample":9,"times":{"cpu":[{"samples":1,"forward":1,"backward":2}]}})";
  const auto with_ties = [&](const std::string& ties) {
    std::string text = with_node(R"({"id":"a")" + node + R"(,{"id":"b")" + node);
    return text.insert(text.rfind('}'), R"(,"ties":)" + ties);
  };
  const auto decoded = decode_profile(with_ties(R"([{"first":"a","last":"b","bytes":40}])"));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(decoded->ties, (std::vector<ProfileTie>{{"a", "b", 40}}));
  EXPECT_EQ(*decode_profile(encode_profile(*decoded)), *decoded);
  EXPECT_EQ(error_of(with_ties(R"([{"first":"b","last":"a","bytes":40}])")),
            "ties[0]: not between the first and the last of the nodes");
  EXPECT_EQ(error_of(with_ties(R"([{"first":"a","last":"b"}])")), "ties[0].bytes: missing");
}

TEST(Profile, WithoutKeptActivationsTheOutputCounts) {
  const auto decoded = decode_profile(with_node(
      R"({"id":"a","parameterBytes":1,"outputBytesPerSample":9,"times":{"cpu":[{"samples":1,"forward":1,"backward":2}]}})"));

  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(decoded->layers[0].activation_bytes_per_sample, 9);
  EXPECT_DOUBLE_EQ(decoded->state_factor, schedule::kStateFactor);
}

TEST(Profile, NamesTheWrongField) {
  const std::string sizes = R"("id":"a","parameterBytes":1,"outputBytesPerSample":9)";
  EXPECT_EQ(error_of("{}"), "apiVersion: missing");
  EXPECT_EQ(error_of(R"({"apiVersion":"v2"})"),
            "apiVersion: 'v2' is not known, expected weir.dev/profile/v1");
  EXPECT_EQ(error_of(R"({"apiVersion":"weir.dev/profile/v1"})"), "nodes: missing");
  EXPECT_EQ(error_of(with_node("3")), "nodes[0]: 3 is not an object");
  EXPECT_EQ(error_of(with_node(R"({"id":"a"})")), "nodes[0].parameterBytes: missing");
  EXPECT_EQ(error_of(with_node("{" + sizes + "}")), "nodes[0].times: missing");
  EXPECT_EQ(error_of(with_node("{" + sizes + R"(,"stashBytesPerSample":-1,"times":{"c":[]}})")),
            "nodes[0].stashBytesPerSample: not in 0 .. 2^50 bytes");
  EXPECT_EQ(error_of(with_node("{" + sizes + R"(,"times":{"c":[]}})")),
            "nodes[0].times.c: not a list of times");
  EXPECT_EQ(
      error_of(with_node(
          "{" + sizes +
          R"(,"times":{"c":[{"samples":2,"forward":1,"backward":1},{"samples":2,"forward":1,"backward":1}]}})")),
      "nodes[0].times.c[1].samples: 2 is below 3, or not rising");
  EXPECT_EQ(error_of(with_node("{" + sizes +
                               R"(,"times":{"c":[{"samples":1,"forward":-1,"backward":1}]}})")),
            "nodes[0].times.c[0].forward: not in 0 .. 86400 seconds");
}

TEST(ProfileMerge, AddsTheTimesOfAnotherDeviceClass) {
  Profile profile = profile_on("A100", 0.1);

  ASSERT_TRUE(merge(profile, profile_on("L4", 0.3)).ok());

  ASSERT_EQ(profile.layers[1].times.size(), 2U);
  EXPECT_DOUBLE_EQ(profile.layers[1].times["A100"][0].forward, 0.1);
  EXPECT_DOUBLE_EQ(profile.layers[1].times["L4"][0].forward, 0.3);
}

TEST(ProfileMerge, KeepsTheFirstTimesOfAClass) {
  Profile profile = profile_on("L4", 0.1);

  ASSERT_TRUE(merge(profile, profile_on("L4", 0.3)).ok());

  EXPECT_EQ(profile, profile_on("L4", 0.1));
}

TEST(ProfileMerge, RefusesAnotherModelAndChangesNothing) {
  Profile profile = profile_on("L4", 0.1);
  Profile other = profile_on("A100", 0.1);

  other.digest = "sha256:bb";
  EXPECT_FALSE(merge(profile, other).ok());
  other = profile_on("A100", 0.1);
  other.layers[1].id = "block7";
  EXPECT_EQ(merge(profile, other).error().message, "nodes[1].id: block0 is not block7");
  other.layers.pop_back();
  EXPECT_FALSE(merge(profile, other).ok());

  EXPECT_EQ(profile, profile_on("L4", 0.1));
}

}  // namespace profile_test
}  // namespace weir::protocol
