// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/sailor/network.h"

#include <fstream>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/support/damage.h"

namespace weir::planner {
namespace network_test {

std::string published() {
  std::ifstream stream(WEIR_SOURCE_DIR "/tests/data/planner/sailor/network_coeffs_all_homo.json");
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::string refusal(const std::string& text) {
  const Result<SailorNetwork> network = decode_sailor_network(text, "t");
  return network.ok() ? "accepted" : network.error().message;
}

TEST(SailorNetwork, ReadsThePublishedCurves) {
  const Result<SailorNetwork> network = decode_sailor_network(published(), "n.json");
  ASSERT_TRUE(network.ok()) << network.error().message;
  EXPECT_EQ(network->between.size(), 24U);
  EXPECT_NEAR(network->between.at({"A100-40", 1}).c, 1.116822757, 1e-9);
  EXPECT_NEAR(network->inside.at({"V100-16", 4}).most_bytes_per_second, 68172954066, 1);
}

TEST(SailorNetwork, RefusesWithLineAndPointer) {
  EXPECT_EQ(refusal("{\"inter\": {\"X\": {\"1\": [[1,2],3]}}}"),
            "t:1: /inter/X/1: expected [[a, b, c], max]");
  EXPECT_EQ(refusal("{\"inter\": {\"X\": {\"1\": [[1,2,3],4]}}}"), "t:1: /intra: missing");
}

TEST(SailorNetwork, SurvivesDamagedFiles) {
  std::mt19937 random(13);
  const std::string original = published();
  for (int round = 0; round < 300; ++round) {
    const std::string text = test::damaged(original, random);
    const std::string message = refusal(text);
    EXPECT_TRUE(message == "accepted" || message.starts_with("t:")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

}  // namespace network_test
}  // namespace weir::planner
