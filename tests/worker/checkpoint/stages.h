// SPDX-License-Identifier: Apache-2.0
// Small stages with trained-looking state, and whole saves of several of them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/strict_device.h"
#include "worker/base/random.h"
#include "worker/checkpoint/save.h"
#include "worker/device/device.h"
#include "worker/device/host_view.h"
#include "worker/stage/stage.h"

namespace weir::checkpoint::test {

inline stage::ModelOptions small_model(const std::string& name = "mlp") {
  return {.name = name, .sequence = 8, .vocabulary = 32};
}

struct SmallStage {
  SmallStage(int first, int last, std::uint64_t seed, const std::string& name = "mlp",
             std::shared_ptr<const stage::LayerSource> source = nullptr)
      : model(*stage::describe_model(small_model(name), std::move(source))),
        device(device::make_host_device()),
        stage(*stage::make_stage(model, first, last, *device)) {
    fill(seed);
  }
  SmallStage(int first, int last, std::uint64_t seed,
             std::unique_ptr<weir::test::StrictDevice> strict)
      : model(*stage::describe_model(small_model())),
        device(std::move(strict)),
        stage(*weir::test::make_strict_stage(model, first, last,
                                             static_cast<weir::test::StrictDevice&>(*device))) {
    fill(seed);
  }
  void fill(std::uint64_t seed) {
    Random random(seed);
    for (const stage::Parameter& p : stage->parameters()) {
      for (const auto part : p.state()) {
        auto view = *device::HostView<float>::to_fill(*device, part);
        for (float& x : view.values()) x = static_cast<float>(random.uniform());
        EXPECT_TRUE(view.write_back());
      }
    }
  }
  // Everything that a checkpoint holds, in the order of the parameters.
  std::vector<float> state() const {
    std::vector<float> all;
    for (const stage::Parameter& p : stage->parameters()) {
      for (const auto part : p.state()) {
        const auto view = *device::HostView<float>::of(*device, part);
        all.insert(all.end(), view.values().begin(), view.values().end());
      }
    }
    return all;
  }

  stage::Model model;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<stage::Stage> stage;
};

// A whole save of step N by one process a stage. The first failure.
inline Status save_all(Disk& disk, const std::string& root, std::int64_t step,
                       std::span<SmallStage* const> stages,
                       const std::vector<std::int64_t>& keep = {}) {
  Manifest manifest{.step = step,
                    .samples = 10 * step,
                    .model = "mlp",
                    .digest = stages.front()->model.digest,
                    .plan_json = "{\"revision\": 3}"};
  for (SmallStage* one : stages) {
    WEIR_TRY(const auto images, copy_layers(*one->stage, [](int) { return true; }));
    WEIR_TRY(const auto files, write_layers(disk, root, step, images));
    manifest.files.insert(manifest.files.end(), files.begin(), files.end());
  }
  WEIR_OK(commit(disk, root, manifest));
  return keep.empty() ? Status(Unit{}) : remove_others(disk, root, keep, -1);
}

}  // namespace weir::checkpoint::test
