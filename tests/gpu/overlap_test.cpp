// SPDX-License-Identifier: Apache-2.0
// A stage on a device tells of the layers of its last backward while that is under way, so that
// their sums can travel meanwhile.
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tests/gpu/gpu.h"
#include "tests/worker/stage/stage_testing.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/stage/builtin_stage.h"

namespace weir::test {
namespace overlap_test {

// Counts who waits for the device.
class WatchedDevice final : public device::CudaDevice {
 public:
  explicit WatchedDevice(device::CudaDevice& own) : own_(own) {}
  int waits() const { return waits_; }

  CUstream_st* stream() const override { return own_.stream(); }
  int index() const override { return own_.index(); }
  bool is_host() const override { return false; }
  std::string name() const override { return own_.name(); }
  std::int64_t memory_bytes() const override { return own_.memory_bytes(); }
  std::int64_t memory_free_bytes() const override { return own_.memory_free_bytes(); }
  device::Buffer allocate(std::size_t bytes) override { return own_.allocate(bytes); }
  device::Buffer allocate_staging(std::size_t bytes) override {
    return own_.allocate_staging(bytes);
  }
  std::int64_t bytes_in_use() const override { return own_.bytes_in_use(); }
  std::int64_t bytes_peak() const override { return own_.bytes_peak(); }
  Result<device::Buffer> upload(device::Buffer staged) override {
    ++waits_;
    return own_.upload(std::move(staged));
  }
  Result<device::Buffer> download(device::Buffer tensor) override {
    ++waits_;
    return own_.download(std::move(tensor));
  }
  Status read(void* to, const void* from, std::size_t bytes) override {
    ++waits_;
    return own_.read(to, from, bytes);
  }
  Status write(void* to, const void* from, std::size_t bytes) override {
    ++waits_;
    return own_.write(to, from, bytes);
  }
  Status copy(void* to, const void* from, std::size_t bytes) override {
    return own_.copy(to, from, bytes);
  }
  Result<std::unique_ptr<device::PendingCopy>> read_beside(void* to, const void* from,
                                                           std::size_t bytes) override {
    return own_.read_beside(to, from, bytes);
  }
  Status synchronize() override {
    ++waits_;
    return own_.synchronize();
  }

 private:
  device::CudaDevice& own_;
  int waits_ = 0;
};

class GpuOverlap : public OnGpu {
 protected:
  struct Told {
    std::size_t layer = 0;
    int waits = 0;        // for the device since the backward began
    device::Buffer sums;  // in staging memory, copied beside the ops that follow
    std::unique_ptr<device::PendingCopy> copy;
  };
  static std::unique_ptr<stage::Stage> whole(const stage::Model& model, WatchedDevice& watched) {
    auto kernels = kernels_of(watched, model.options.precision);
    EXPECT_TRUE(kernels) << kernels.error().message;
    auto made =
        stage::make_builtin_stage(model, 0, last_layer(model), watched, *std::move(kernels));
    EXPECT_TRUE(made) << made.error().message;
    return *std::move(made);
  }
  // Of the last of two micro-batches.
  std::vector<Told> backward_with_hook(stage::Stage& stage, const Batch& batch,
                                       WatchedDevice& watched) {
    stage.begin_step(0, 2 * batch.tokens().samples);
    forward(stage, 0, {}, batch.tokens());
    forward(stage, 1, {}, batch.tokens());
    backward(stage, 0, {});
    std::vector<Told> told;
    const int before = watched.waits();
    const std::vector<stage::LayerSum> sums = stage.layer_sums();
    stage.on_layer_summed([&](std::size_t layer) {
      const auto bytes = std::as_bytes(sums[layer].sums);
      Told one{.layer = layer,
               .waits = watched.waits() - before,
               .sums = watched.allocate_staging(bytes.size())};
      auto copy = watched.read_beside(one.sums.data(), bytes.data(), bytes.size());
      EXPECT_TRUE(copy);
      one.copy = *std::move(copy);
      told.push_back(std::move(one));
    });
    backward(stage, 1, {});
    for (const Told& one : told) {
      EXPECT_TRUE(one.copy->wait());
      const std::span<const double> last = sums[one.layer].sums;
      std::vector<double> values(last.size());
      EXPECT_TRUE(watched.read(values.data(), last.data(), last.size_bytes()));
      EXPECT_EQ(std::memcmp(one.sums.data(), values.data(), last.size_bytes()), 0)
          << "layer " << one.layer;
    }
    return told;
  }
};

TEST_F(GpuOverlap, LayersAreToldWhenTheirSumsAreEnqueuedAndHoldThemInOrder) {
  WatchedDevice watched(dynamic_cast<device::CudaDevice&>(*device_));
  for (const TestedModel& tested : few_models()) {
    const stage::Model model = model_of(small_options(tested.name, tested.precision));
    const auto stage = whole(model, watched);
    const Batch batch(model.options, 3, 5);

    const auto told = backward_with_hook(*stage, batch, watched);

    ASSERT_EQ(told.size(), model.layers.size());
    for (std::size_t i = 0; i < told.size(); ++i) {
      EXPECT_EQ(told[i].layer, told.size() - 1 - i) << "the last layer first";
      EXPECT_EQ(told[i].waits, 0);
    }
  }
}

}  // namespace overlap_test
}  // namespace weir::test
