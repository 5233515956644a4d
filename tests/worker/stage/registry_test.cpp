// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/registry.h"

#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/stage/stage_testing.h"

namespace weir::stage {
namespace registry_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Registry, KnowsItsModels) {
  EXPECT_THAT(model_names(), ElementsAre("mlp", "gpt", "llama", "gpt-tiny", "gpt-mini", "gpt-125m",
                                         "gpt-350m", "gpt-1.3b"));
  for (const auto& name : model_names()) {
    const Model model = test::model_of(test::small_options(name));
    EXPECT_GE(model.layers.size(), 8U) << name;
    EXPECT_EQ(model.layers.back().output_bytes_per_sample, 0) << name;
  }
}

TEST(Registry, NamesAnUnknownModelAndTheKnownOnes) {
  const auto described = describe_model(test::small_options("gpt-5"));

  ASSERT_FALSE(described.ok());
  EXPECT_EQ(described.error().code, Code::kInvalid);
  EXPECT_THAT(described.error().message,
              HasSubstr("unknown model gpt-5; known are mlp, gpt, llama, gpt-tiny"));
}

std::int64_t parameters_of(const std::string& name) {
  ModelOptions options = test::small_options(name);
  options.sequence = 1024;
  options.vocabulary = 50304;
  std::int64_t bytes = 0;
  for (const auto& layer : test::model_of(options).layers) bytes += layer.parameter_bytes;
  return bytes / 4;
}

// 12 C^2 + 13 C for each block, V C and T C to embed, V C for the untied head, 2 C for the last
// norm.
TEST(Registry, GptSizesHaveTheirPublishedNumberOfParameters) {
  EXPECT_EQ(parameters_of("gpt-125m"), 12 * 7087872LL + 2 * 50304 * 768 + 1024 * 768 + 2 * 768);
  EXPECT_NEAR(static_cast<double>(parameters_of("gpt-350m") - 50304 * 1024), 355e6, 3e6);
  EXPECT_NEAR(static_cast<double>(parameters_of("gpt-1.3b") - 50304 * 2048), 1.31e9, 2e7);
}

ModelOptions sized(int blocks, int width, int heads, const std::string& name = "gpt") {
  ModelOptions options = test::small_options(name);
  options.blocks = blocks, options.width = width, options.heads = heads;
  return options;
}

TEST(Registry, AGptTakesItsSizeFromTheOptions) {
  const Model model = test::model_of(sized(3, 24, 4));
  ASSERT_EQ(model.layers.size(), 5U);
  EXPECT_EQ(model.layers[1].parameter_bytes, 4 * (12 * 24 * 24 + 13 * 24));
  EXPECT_EQ(model.layers[0].parameter_bytes, 4 * (13 * 24 + 4 * 24));

  // A size that has a name is the same model by its options.
  const Model named = test::model_of(test::small_options("gpt-tiny"));
  const Model same = test::model_of(sized(6, 64, 4));
  for (std::size_t i = 0; i < named.layers.size(); ++i) {
    EXPECT_EQ(same.layers[i].parameter_bytes, named.layers[i].parameter_bytes);
    EXPECT_EQ(same.layers[i].activation_bytes_per_sample,
              named.layers[i].activation_bytes_per_sample);
  }
}

TEST(Registry, ModelsThatDifferInTheirHeadsAloneAreOthers) {
  const Model two = test::model_of(sized(3, 24, 2));
  const Model four = test::model_of(sized(3, 24, 4));

  EXPECT_NE(two.digest, four.digest);
  EXPECT_NE(two.shapes, four.shapes);
}

TEST(Registry, NamesASizeThatNoGptHas) {
  const auto message_of = [](const ModelOptions& options) {
    const auto described = describe_model(options);
    return described.ok() ? "" : described.error().message;
  };
  EXPECT_EQ(message_of(sized(0, 8, 2)), "layers: 0 is not within 1..1024");
  EXPECT_EQ(message_of(sized(1, 20000, 2)), "width: 20000 is not within 1..16384");
  EXPECT_EQ(message_of(sized(1, 8, 9)), "heads: 9 is not within 1..8");
  EXPECT_EQ(message_of(sized(1, 8, 3)), "heads: 3 do not divide width 8");
  EXPECT_EQ(message_of(sized(1, 512, 2)), "heads: 2 of width 512 are wider than 128 each");
  ModelOptions large = sized(1, 8192, 64);
  large.sequence = 65536;
  EXPECT_EQ(message_of(large), "width: 8192 is too much for sequence 65536 and vocabulary 13");
  large.sequence = 4;
  large.vocabulary = 1 << 20;
  EXPECT_THAT(message_of(large), HasSubstr("and vocabulary 1048576"));
}

// Of a block: q and o of H D by C, k and v of G D by C, three matrices of F by C, two norms.
TEST(Registry, ALlamaTakesItsSizeFromTheOptions) {
  ModelOptions options = sized(3, 24, 4, "llama");
  options.kv_heads = 2;
  options.ffn = 40;
  const Model model = test::model_of(options);
  ASSERT_EQ(model.layers.size(), 5U);
  EXPECT_EQ(model.layers[0].parameter_bytes, 4 * 13 * 24);
  EXPECT_EQ(model.layers[1].parameter_bytes,
            4 * (2 * 24 * 24 + 2 * 12 * 24 + 3 * 40 * 24 + 2 * 24));
  EXPECT_EQ(model.layers[4].parameter_bytes, 4 * (13 * 24 + 24));

  ModelOptions usual = options;
  usual.kv_heads = usual.ffn = 0;  // as many as heads; 8/3 of the width
  EXPECT_EQ(test::model_of(usual).layers[1].parameter_bytes,
            4 * (4 * 24 * 24 + 3 * 64 * 24 + 2 * 24));
  EXPECT_NE(test::model_of(usual).shapes, model.shapes);
}

TEST(Registry, NamesASizeThatNoLlamaHas) {
  const auto message_of = [](int width, int heads, int kv_heads) {
    ModelOptions options = sized(1, width, heads, "llama");
    options.kv_heads = kv_heads;
    const auto described = describe_model(options);
    return described.ok() ? "" : described.error().message;
  };
  EXPECT_EQ(message_of(8, 3, 0), "heads: 3 do not divide width 8");
  EXPECT_EQ(message_of(8, 4, 3), "kv heads: 3 do not divide heads 4");
  EXPECT_EQ(message_of(8, 4, 8), "kv heads: 8 is not within 1..4");
  EXPECT_EQ(message_of(12, 4, 2),
            "heads: the size 3 of a head is odd; rotary positions need an even one");
  EXPECT_EQ(message_of(1024, 4, 2), "heads: 4 of width 1024 are wider than 128 each");
}

TEST(Registry, TellsThePrecisionsApart) {
  const Model wide = test::model_of(test::small_options("gpt-tiny"));
  const Model narrow = test::model_of(test::small_options("gpt-tiny", Precision::kBf16));
  EXPECT_NE(wide.digest, narrow.digest);
}

TEST(Registry, GivesEqualLayersOneKind) {
  const Model model = test::model_of(test::small_options("gpt-tiny"));
  std::set<std::string> kinds, ids;
  for (const auto& layer : model.layers) {
    kinds.insert(layer.kind);
    ids.insert(layer.id);
  }

  EXPECT_EQ(kinds.size(), 3U);
  EXPECT_EQ(ids.size(), 8U);
  EXPECT_EQ(model.layers[1].id, "block0");
  EXPECT_EQ(model.layers[6].id, "block5");
}

TEST(Registry, DigestsWhatDecidesTheMathematics) {
  const auto digest_with = [](const std::function<void(ModelOptions&)>& change) {
    ModelOptions options = test::small_options("gpt-tiny");
    change(options);
    return test::model_of(options).digest;
  };
  const std::set<std::string> digests = {
      digest_with([](ModelOptions&) {}),
      digest_with([](ModelOptions& o) { o.name = "mlp"; }),
      digest_with([](ModelOptions& o) { o.sequence = 5; }),
      digest_with([](ModelOptions& o) { o.vocabulary = 14; }),
      digest_with([](ModelOptions& o) { o.seed = 2; }),
      digest_with([](ModelOptions& o) { o.learning_rate = 2e-2; }),
      digest_with([](ModelOptions& o) { o.weight_decay = 0; }),
      digest_with([](ModelOptions& o) { o.warmup_steps = 1; }),
      digest_with([](ModelOptions& o) { o.schedule = "wsd", o.total_steps = 100; }),
      digest_with(
          [](ModelOptions& o) { o.schedule = "wsd", o.total_steps = 100, o.decay_steps = 20; }),
      digest_with([](ModelOptions& o) { o.schedule = "linear", o.total_steps = 100; }),
      digest_with(
          [](ModelOptions& o) { o.schedule = "linear", o.total_steps = 100, o.min_ratio = 0.2; }),
  };

  EXPECT_EQ(digests.size(), 12U);
  EXPECT_THAT(*digests.begin(), StartsWith("sha256:"));
  EXPECT_EQ(digest_with([](ModelOptions&) {}), digest_with([](ModelOptions&) {}));
}

TEST(Registry, ShapesAreOfTheLayersAlone) {
  const auto shapes_with = [](const std::function<void(ModelOptions&)>& change) {
    ModelOptions options = test::small_options("gpt-tiny");
    change(options);
    return test::model_of(options).shapes;
  };
  const std::string plain = shapes_with([](ModelOptions&) {});

  EXPECT_EQ(shapes_with([](ModelOptions& o) { o.seed = 2; }), plain);
  EXPECT_EQ(shapes_with([](ModelOptions& o) { o.learning_rate = 2e-2; }), plain);
  EXPECT_EQ(shapes_with([](ModelOptions& o) { o.precision = Precision::kBf16; }), plain);
  EXPECT_NE(shapes_with([](ModelOptions& o) { o.sequence = 5; }), plain);
  EXPECT_NE(shapes_with([](ModelOptions& o) { o.vocabulary = 14; }), plain);
  EXPECT_NE(shapes_with([](ModelOptions& o) { o.name = "mlp"; }), plain);
}

TEST(Registry, NamesTheOptionThatIsWrong) {
  const auto message_with = [](const std::function<void(ModelOptions&)>& change) {
    ModelOptions options = test::small_options("mlp");
    change(options);
    const auto described = describe_model(options);
    return described.ok() ? "" : described.error().message;
  };

  EXPECT_EQ(message_with([](ModelOptions& o) { o.sequence = 0; }),
            "sequence: 0 is not within 1..65536");
  EXPECT_THAT(message_with([](ModelOptions& o) { o.vocabulary = 1; }), StartsWith("vocabulary: 1"));
  EXPECT_THAT(message_with([](ModelOptions& o) { o.beta1 = 1; }), StartsWith("beta1:"));
  EXPECT_THAT(message_with([](ModelOptions& o) { o.beta2 = -1; }), StartsWith("beta2:"));
  EXPECT_THAT(message_with([](ModelOptions& o) { o.epsilon = 0; }), StartsWith("epsilon:"));
  EXPECT_THAT(message_with([](ModelOptions& o) { o.learning_rate = -1; }),
              StartsWith("learning rate:"));
  EXPECT_THAT(message_with([](ModelOptions& o) { o.weight_decay = -1; }),
              StartsWith("weight decay:"));
  EXPECT_THAT(message_with([](ModelOptions& o) { o.warmup_steps = -1; }), StartsWith("warmup:"));
  EXPECT_THAT(message_with([](ModelOptions& o) { o.schedule = "steps"; }),
              HasSubstr("steps is none of constant, cosine, linear, wsd"));
  EXPECT_THAT(message_with([](ModelOptions& o) { o.schedule = "cosine"; }),
              HasSubstr("needs the total number of steps"));
}

}  // namespace registry_test
}  // namespace weir::stage
