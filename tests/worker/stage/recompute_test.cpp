// SPDX-License-Identifier: Apache-2.0
// Which layers are recomputed, and what they keep. Their bits: stage_cut_test.cpp; their memory to
// the byte: stage_memory_test.cpp.
#include "worker/stage/recompute.h"

#include <gtest/gtest.h>

#include "tests/worker/stage/stage_testing.h"

namespace weir::stage {
namespace recompute_test {

ModelOptions options(const std::string& choice) {
  ModelOptions chosen = test::small_options("gpt-tiny");
  chosen.recompute = choice;
  return chosen;
}

// The ids of the layers that are recomputed.
std::string recomputed(const std::string& choice) {
  const Model plain = test::model_of(options("none")), model = test::model_of(options(choice));
  std::string ids;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (model.layers[i].kind != plain.layers[i].kind) ids += model.layers[i].id + " ";
  }
  return ids;
}

TEST(Recompute, TakesTheLayersThatAreChosen) {
  EXPECT_EQ(recomputed("none"), "");
  EXPECT_EQ(recomputed("all"), "block0 block1 block2 block3 block4 block5 head ");
  EXPECT_EQ(recomputed("block0"), "block0 ");
  EXPECT_EQ(recomputed("block1-block2,head"), "block1 block2 head ");
  EXPECT_EQ(recomputed("embed-block0"), "block0 ") << "the first layer has no input";
  EXPECT_EQ(recomputed("block4-head"), "block4 block5 head ");
}

TEST(Recompute, NamesALayerThatIsNotThere) {
  const auto message = [](const std::string& choice) {
    const auto described = describe_model(options(choice));
    return described ? "" : described.error().message;
  };
  EXPECT_EQ(message("block7"),
            "recompute: the model has no layer 'block7'; its layers are embed to head");
  EXPECT_EQ(message("block0-block9"),
            "recompute: the model has no layer 'block0-block9'; its layers are embed to head");
  EXPECT_EQ(message("block3-block1"), "recompute: 'block3-block1' ends before it begins");
}

TEST(Recompute, KeepsTheInputAloneAndIsTheSameModel) {
  const Model plain = test::model_of(options("none")), model = test::model_of(options("all"));

  EXPECT_EQ(model.digest, plain.digest);
  EXPECT_EQ(model.shapes, plain.shapes);
  for (std::size_t i = 1; i < model.layers.size(); ++i) {
    const std::int64_t targets = i + 1 == model.layers.size() ? 4 * model.options.sequence : 0;
    EXPECT_EQ(model.layers[i].activation_bytes_per_sample,
              model.layers[i - 1].output_bytes_per_sample + targets);
    EXPECT_GT(model.layers[i].transient_bytes_per_sample,
              plain.layers[i].transient_bytes_per_sample);
  }
}

}  // namespace recompute_test
}  // namespace weir::stage
