// SPDX-License-Identifier: Apache-2.0
#include "worker/app/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/stage/frozen_layers.h"

namespace weir::app {
namespace describe_test {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Description, HasALineForEachLayer) {
  const auto model = stage::describe_model({.name = "llama",
                                            .sequence = 8,
                                            .vocabulary = 32,
                                            .blocks = 1,
                                            .width = 16,
                                            .heads = 2,
                                            .ffn = 24});
  ASSERT_TRUE(model) << model.error().message;
  const auto text = description_of(*model);
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, StartsWith("llama, 3 layers, 0.0 M parameters, built in\n"
                                "layer            kind                   parameters  kept a sample"
                                "  needed a sample\n"
                                "embed            llama-embed                   512           32 B"
                                "              0 B\n"
                                "block0 "));
  EXPECT_THAT(*text, HasSubstr("\nhead             llama-head                    528         1.1 kB"
                               "            512 B\n"));
}

TEST(Description, SaysWhatIsFrozen) {
  const stage::ModelOptions options{.name = "", .sequence = 8, .vocabulary = 60000};
  const auto model =
      stage::describe_model(options, std::make_shared<weir::test::FrozenMlp>(options));
  ASSERT_TRUE(model);
  EXPECT_THAT(*description_of(*model), HasSubstr(" M of them frozen\n"));
}

}  // namespace describe_test
}  // namespace weir::app
