// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/sailor_profile.h"

#include <fstream>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/support/damage.h"

namespace weir::planner {
namespace sailor_profile_test {

std::string file(const std::string& name) {
  std::ifstream stream(std::string(WEIR_SOURCE_DIR) + "/tests/data/planner/sailor/" + name);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

template <class T>
std::string refusal(const Result<T>& result) {
  return result.ok() ? "accepted" : result.error().message;
}

TEST(SailorProfile, ReadsThePublishedTimes) {
  const Result<SailorTimes> times = decode_sailor_times(file("opt-350m-A100-40.json"), "a.json");
  ASSERT_TRUE(times.ok()) << times.error().message;
  EXPECT_EQ(times->layers, 26U);
  EXPECT_EQ(times->entries.size(), 12U);
  EXPECT_EQ((times->entries.at({1, 2})[1]), (std::array<double, 3>{0.001853, 0.003388, 0.001504}));
  const Result<SailorTimes> neo = decode_sailor_times(file("gpt-neo-2.7b-V100-16.json"), "n.json");
  ASSERT_TRUE(neo.ok());
  EXPECT_EQ(neo->layers, 34U);
  EXPECT_FALSE(neo->entries.contains({8, 1}));  // not profiled: not available
}

TEST(SailorProfile, ReadsSizes) {
  const Result<SailorSizes> sizes = decode_sailor_sizes(file("llm_info.json"), "OPT-350", "i.json");
  ASSERT_TRUE(sizes.ok()) << sizes.error().message;
  EXPECT_EQ(sizes->at(1)[0].parameter_floats, 53608448);
  EXPECT_EQ(sizes->at(1).size(), 26U);
}

TEST(SailorProfile, BecomesAChainOfTheOtherEngines) {
  const Result<SailorTimes> times = decode_sailor_times(file("opt-350m-A100-40.json"), "a.json");
  const Result<SailorSizes> sizes = decode_sailor_sizes(file("llm_info.json"), "OPT-350", "i.json");
  const Result<Model> model = model_of_sailor({{"A100-40", *times}}, *sizes);
  ASSERT_TRUE(model.ok());
  ASSERT_EQ(model->layers.size(), 26U);
  EXPECT_EQ(model->layers[0].parameter_bytes, 53608448 * 4);
  const auto& entries = model->layers[1].times.at("A100-40");
  ASSERT_EQ(entries.size(), 4U);
  EXPECT_EQ(entries[0].samples, 1);
  EXPECT_EQ(entries[3].samples, 8);
  EXPECT_GT(entries[3].forward, entries[0].forward);
  EXPECT_TRUE(model->edges.empty() && !model->edges_given);

  const Result<SailorSizes> other =
      decode_sailor_sizes(file("llm_info.json"), "GPT-Neo-2.7", "i.json");
  EXPECT_EQ(refusal(model_of_sailor({{"A100-40", *times}}, *other)),
            "sailor: class A100-40 has times of 26 layers, the model has 34");
  EXPECT_EQ(refusal(model_of_sailor({}, {})), "sailor: no sizes of the model");
}

TEST(SailorProfile, RefusesWithLineAndPointer) {
  const auto times = [](const std::string& text) {
    return refusal(decode_sailor_times(text, "t"));
  };
  EXPECT_EQ(times("[]"), "t:1: /: expected an object with members");
  EXPECT_EQ(times("{\n\"x\": {}}"), "t:2: /x: expected a key that is a number >= 1");
  EXPECT_EQ(times("{\"0\": {}}"), "t:1: /0: expected a key that is a number >= 1");
  EXPECT_EQ(times("{\"1\": {}}"), "t:1: /1: expected an object with members");
  EXPECT_EQ(times("{\"1\":\n {\"1\": {\"1\": [1,1,1]}}}"), "t:2: /1/1/0: missing");
  EXPECT_EQ(times("{\"1\": {\"1\": {\"0\": [1,1]}}}"),
            "t:1: /1/1/0: expected [forward, backward, update]");
  EXPECT_EQ(times("{\"1\": {\"1\": {\"0\": [1,1,\"x\"]}}}"), "t:1: /1/1/0/2: expected a number");
  EXPECT_EQ(times("{\"1\": {\"1\": {\"0\": [1,-1,1]}}}"), "t:1: /1/1/0/1: out of range");
  EXPECT_EQ(times("{\"1\": {\"1\": {\"0\": [1,1,1]}, \"2\": {\"0\": [1,1,1], \"1\": [1,1,1]}}}"),
            "t:1: /1/2: 2 layers, others have 1");
  EXPECT_EQ(refusal(decode_sailor_sizes("{\"A\": 1, \"B\": 1}", "C", "t")),
            "t:1: /C: no such model (known: A, B)");
  EXPECT_EQ(
      refusal(decode_sailor_sizes("{\"A\": {\"1\": {\"0\": {\"params_floats\": 1}}}}", "A", "t")),
      "t:1: /A/1/0/act_output_floats: missing");
}

TEST(SailorProfile, SurvivesDamagedFiles) {
  std::mt19937 random(13);
  const std::string original = file("opt-350m-A100-40.json");
  for (int round = 0; round < 300; ++round) {
    const std::string text = test::damaged(original, random);
    for (const std::string& message :
         {refusal(decode_sailor_times(text, "t")), refusal(decode_sailor_sizes(text, "1", "t"))}) {
      EXPECT_TRUE(message == "accepted" || message.starts_with("t:")) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos);
    }
  }
}

}  // namespace sailor_profile_test
}  // namespace weir::planner
