// SPDX-License-Identifier: Apache-2.0
// A stage whose ops are launched as graphs does, bit for bit, what it does op by op.
#include <cstring>
#include <memory>
#include <vector>

#include "tests/gpu/gpu.h"
#include "tests/worker/stage/stage_testing.h"
#include "worker/base/random.h"
#include "worker/stage/builtin_stage.h"
#include "worker/stage/measure.h"

namespace weir::test {
namespace graph_test {

using stage::GraphUse;
using stage::Precision;

class GpuGraphs : public OnGpu, public testing::WithParamInterface<TestedModel> {
 protected:
  struct Trained {
    std::vector<double> losses;
    std::vector<std::uint32_t> parameters;
    std::int64_t launches = 0;
  };
  // The last two layers, on random input: steps of micro-batches of several sizes, up to two of
  // them in flight.
  Trained train(GraphUse graphs, bool split = false) {
    const stage::Model model = model_of(small_options(GetParam().name, GetParam().precision));
    const int last = last_layer(model);
    Random random(3);
    auto kernels = kernels_of(*device_, model.options.precision);
    EXPECT_TRUE(kernels) << kernels.error().message;
    auto made =
        stage::make_builtin_stage(model, last - 1, last, *device_, *std::move(kernels), graphs);
    EXPECT_TRUE(made) << made.error().message;
    stage::Stage& stage = **made;
    Trained trained;
    for (int step = 0; step < kSteps; ++step) {
      // Larger ones come when there are graphs already: their scratch must not move under these.
      const int samples = step % 4 == 3 ? 5 : 2;
      stage.begin_step(step, kMicroBatches * samples);
      for (int m = 0; m <= kMicroBatches; ++m) {
        const auto seed = static_cast<std::uint64_t>(step * kMicroBatches + m + 1);
        const Batch batch(model.options, samples, seed);
        if (m < kMicroBatches) {
          const auto input = stage::random_values(*device_, stage.input_bytes(samples),
                                                  GetParam().precision, random);
          EXPECT_TRUE(input) << input.error().message;
          forward(stage, m, *input, batch.tokens());
        }
        if (m == 0) continue;
        if (split) {
          backward_input(stage, m - 1, {});
          if (m > 1) {
            EXPECT_TRUE(stage.backward_weights(m - 2));
          }
        } else {
          backward(stage, m - 1, {});
        }
      }
      if (split) {
        EXPECT_TRUE(stage.backward_weights(kMicroBatches - 1));
      }
      stage.optimizer_step();
      trained.losses.push_back(stage.loss());
    }
    trained.parameters = parameter_bits(stage);
    trained.launches = stage.graph_launches();
    return trained;
  }

  static constexpr int kSteps = 8, kMicroBatches = 2;
};

TEST_P(GpuGraphs, GiveTheSameBits) {
  const Trained ops = train(GraphUse::kOff), graphs = train(GraphUse::kAlways);
  EXPECT_EQ(graphs.losses, ops.losses);
  EXPECT_TRUE(graphs.parameters == ops.parameters);
  EXPECT_EQ(ops.launches, 0);
  EXPECT_GE(graphs.launches, 2 * kMicroBatches * (kSteps - 4)) << "addresses recur";
  EXPECT_EQ(train(GraphUse::kWhereFaster).losses, ops.losses);
}

TEST_P(GpuGraphs, OfSplitBackwardsGiveTheBitsOfWholeOnes) {
  const Trained whole = train(GraphUse::kOff), graphs = train(GraphUse::kAlways, true);
  EXPECT_EQ(graphs.losses, whole.losses);
  EXPECT_TRUE(graphs.parameters == whole.parameters);
  EXPECT_GT(graphs.launches, 2 * kMicroBatches * (kSteps - 4)) << "addresses recur";
  EXPECT_TRUE(train(GraphUse::kOff, true).parameters == whole.parameters);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuGraphs, testing::ValuesIn(few_models()), tested_name);

// What a graph writes beside its arguments stays its own when larger ops need more of it.
using GpuGraphScratch = OnGpu;

TEST_F(GpuGraphScratch, IsNotGivenToOthers) {
  using namespace stage::ops;
  auto made = kernels_of(*device_, Precision::kFp32);
  ASSERT_TRUE(made) << made.error().message;
  Kernels& kernels = **made;
  const LayerNormShape small{8, 16}, large{4096, 1024};
  const auto memory_of = [&](std::size_t floats) {
    return to_device(std::vector<float>(floats, 1.0F));
  };
  const auto backward = [](LayerNormShape shape, const device::Buffer& x,
                           const device::Buffer& row) {
    float* const sums = row.as<float>();
    auto* const elements = x.as<Element>();
    return LayerNormBackward{shape,   elements, x.as<float>(), elements, elements,
                             nullptr, elements, sums,          sums};
  };
  const device::Buffer x = memory_of(8 * 16), row = memory_of(16);
  kernels.run(backward(small, x, row));
  ASSERT_TRUE(device_->synchronize());
  auto graph = kernels.make_graph(std::vector<Op>{backward(small, x, row)});
  ASSERT_TRUE(graph) << graph.error().message;
  const device::Buffer wide = memory_of(4096 * 1024), wide_row = memory_of(1024);
  kernels.run(backward(large, wide, wide_row));
  ASSERT_TRUE(device_->synchronize());

  // Of the size that the small one's scratch had: sums of one slice of rows, of both parameters.
  std::vector<device::Buffer> others;
  for (int i = 0; i < 8; ++i) others.push_back(memory_of(2 * 16));
  ASSERT_TRUE((*graph)->launch());

  for (const device::Buffer& other : others) {
    EXPECT_EQ(floats_of(other), std::vector<float>(other.size() / sizeof(float), 1.0F));
  }
  ASSERT_TRUE(kernels.status()) << kernels.status().error().message;
}

}  // namespace graph_test
}  // namespace weir::test
