// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/foreign/description.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::stage {
namespace description_test {

using testing::HasSubstr;

// A description of two layers, in which `from` is replaced by `to`.
std::string text(const std::string& from = "", const std::string& to = "") {
  std::string all =
      R"({"name": "m", "vocabulary": 0, "layers": [
        {"id": "a", "outputValues": 8, "stashBytesPerSample": 10, "stashBytes": 3,
         "transientBytesPerSample": 5, "transientBytes": 2,
         "parameters": [{"name": "w", "shape": [3, 5]}, {"name": "b", "shape": [5]}]},
        {"id": "z", "kind": "head", "parameters": [{"name": "h", "shape": [2], "decay": true}]}]})";
  const std::size_t at = all.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return all.replace(at, from.size(), to);
}

std::string refusal_of(const std::string& json) {
  const auto read = read_description(json, Precision::kFp32, 256);
  if (read) return "read";
  EXPECT_EQ(read.error().code, Code::kInvalid);
  return read.error().message;
}

TEST(Description, SaysWhichParametersAreTied) {
  const auto model =
      read_description(text(R"("decay": true)", R"("tiedTo": "b")"), Precision::kFp32, 13);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->layers[1].parameters[0].tied_to, "b");
  EXPECT_EQ(model->layers[0].parameters[0].tied_to, "");
}

TEST(Description, SaysWhichParametersAreFrozen) {
  const auto model = read_description(
      text(R"("shape": [3, 5])", R"("shape": [3, 5], "trainable": false)"), Precision::kFp32, 13);
  ASSERT_TRUE(model) << model.error().message;
  const LayerDescription& first = model->layers[0];
  EXPECT_FALSE(first.parameters[0].trainable);
  EXPECT_TRUE(first.parameters[1].trainable);
  EXPECT_EQ(first.info.parameter_bytes, 4 * 32);
  EXPECT_EQ(first.info.frozen_bytes, 4 * 32);
}

TEST(Description, IsReadInBytesOfThePrecision) {
  const auto read = read_description(text(), Precision::kBf16, 256);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->layers.size(), 2U);
  const LayerDescription& first = read->layers[0];
  EXPECT_EQ(first.info.kind, "a") << "without one, a layer is of its own kind";
  EXPECT_EQ(first.info.output_bytes_per_sample, 16);
  EXPECT_EQ(first.info.activation_bytes_per_sample, 10);
  EXPECT_EQ(first.info.activation_bytes, 3);
  EXPECT_EQ(first.info.transient_bytes_per_sample, 5);
  EXPECT_EQ(first.info.transient_bytes, 2);
  EXPECT_TRUE(first.parameters[0].decays());
  EXPECT_FALSE(first.parameters[1].decays());
  EXPECT_EQ(first.parameters[0].count_with_gap(), 32);
  EXPECT_EQ(first.info.parameter_bytes, 4 * 64);
  EXPECT_EQ(read->layers[1].input_bytes_per_sample, 16);
  EXPECT_EQ(read->layers[1].info.activation_bytes_per_sample, 16) << "its input";
  EXPECT_TRUE(read->layers[1].parameters[0].decays());
}

TEST(Description, ThatIsWrongIsRefusedByTheFieldsName) {
  EXPECT_EQ(refusal_of("[]"), "description: is no JSON object");
  EXPECT_EQ(refusal_of("{"), "description: is no JSON object");
  EXPECT_EQ(refusal_of("{}"), "name: is missing or empty");
  EXPECT_EQ(refusal_of(R"({"name": "m", "layers": []})"),
            "layers: is no list of 1 to 65536 layers");
  EXPECT_THAT(refusal_of(text(R"("vocabulary": 0)", R"("vocabulary": 7)")),
              HasSubstr("vocabulary: the model has 7 tokens, --vocab is 256"));
  EXPECT_EQ(refusal_of(text(R"("id": "z")", R"("id": "a")")), "layers[1].id: a is there twice");
  EXPECT_EQ(refusal_of(text(R"("name": "h")", R"("name": "w")")),
            "layers[1]: parameter w is there twice");
  EXPECT_EQ(refusal_of(text(R"("outputValues": 8)", R"("outputValues": 0)")),
            "layers[0].outputValues: must be above 0");
  EXPECT_EQ(refusal_of(text(R"("kind": "head")", R"("outputValues": 1)")),
            "layers[1].outputValues: must be 0 for the last layer");
  EXPECT_EQ(refusal_of(text(R"("stashBytes": 3)", R"("needsTargets": true)")),
            "layers[0].needsTargets: targets reach the last layer only");
  EXPECT_THAT(refusal_of(text("[3, 5]", "[3, 0]")), HasSubstr("layers[0].parameters[0].shape"));
  EXPECT_THAT(refusal_of(text("[3, 5]", "[]")), HasSubstr("layers[0].parameters[0].shape"));
  EXPECT_THAT(refusal_of(text("[3, 5]", "[4611686018427387904, 5]")), HasSubstr("is too large"));
  EXPECT_THAT(refusal_of(text("[3, 5]", "[18446744073709551615]")), HasSubstr("shape"));
  EXPECT_THAT(refusal_of(text(R"("stashBytes": 3)", R"("stashBytes": -3)")),
              HasSubstr("layers[0].stashBytes: is no whole number"));
  EXPECT_THAT(refusal_of(text(R"("stashBytes": 3)", R"("stashBytes": 4e30)")),
              HasSubstr("layers[0].stashBytes: is no whole number"));
  EXPECT_THAT(refusal_of(text(R"("decay": true)", R"("trainable": 0)")),
              HasSubstr("trainable: is neither true nor false"));
  EXPECT_THAT(refusal_of(text(R"("decay": true)", R"("tiedTo": 1)")),
              HasSubstr("tiedTo: is no text"));
  EXPECT_THAT(refusal_of(text(R"("decay": true)", R"("decay": 1)")),
              HasSubstr("is neither true nor false"));
  EXPECT_THAT(refusal_of(text(R"("id": "z")", R"("id": "z\u0007")")),
              HasSubstr("layers[1].id: has a control character"));
}

}  // namespace description_test
}  // namespace weir::stage
