// SPDX-License-Identifier: Apache-2.0
// Checkpoints of stages whose memory the host does not reach.
#include "tests/support/strict_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/worker/checkpoint/stages.h"
#include "worker/checkpoint/load.h"

namespace weir::checkpoint::test {
namespace strict_device_test {

SmallStage on_device(int first, int last, std::uint64_t seed) {
  return {first, last, seed, std::make_unique<weir::test::StrictDevice>()};
}

TEST(SaveAndLoad, OfAStrictDeviceAreThoseOfTheHost) {
  weir::test::TempDir folder;
  const std::string root = folder.path().string();
  SmallStage saved = on_device(0, 7, 1), on_host(0, 7, 1);
  ASSERT_EQ(saved.state(), on_host.state());
  Disk disk;
  const std::array<SmallStage*, 1> strict = {&saved}, plain = {&on_host};
  ASSERT_TRUE(save_all(disk, root, 20, strict));
  ASSERT_TRUE(save_all(disk, root, 40, plain));

  SmallStage loaded = on_device(0, 7, 2), other(0, 7, 3);
  ASSERT_NE(loaded.state(), saved.state());
  ASSERT_TRUE(load_stage(root, 40, *loaded.stage));
  ASSERT_TRUE(load_stage(root, 20, *other.stage));

  EXPECT_EQ(loaded.state(), on_host.state());
  EXPECT_EQ(other.state(), on_host.state());
}

TEST(SaveAndLoad, ToAStrictDeviceOfValuesAloneLeaveTheMoments) {
  weir::test::TempDir folder;
  SmallStage saved(0, 7, 1), loaded = on_device(0, 7, 2);
  Disk disk;
  const std::array<SmallStage*, 1> all = {&saved};
  ASSERT_TRUE(save_all(disk, folder.path().string(), 20, all));
  const std::vector<float> before = loaded.state();

  ASSERT_TRUE(load_values(folder.path().string(), *loaded.stage));

  const std::vector<float> after = loaded.state(), wanted = saved.state();
  std::size_t at = 0;
  for (const stage::Parameter& p : loaded.stage->parameters()) {
    for (std::size_t i = 0; i < 3 * p.value.size(); ++i, ++at) {
      ASSERT_EQ(after[at], i < p.value.size() ? wanted[at] : before[at]) << p.name << " " << i;
    }
  }
}

// It is the state that the ops so far make.
TEST(SaveAndLoad, OfAStrictDeviceWaitForItsOps) {
  weir::test::TempDir folder;
  SmallStage one = on_device(0, 0, 1);
  const stage::Parameter p = one.stage->parameters().front();
  auto& device = static_cast<weir::test::StrictDevice&>(*one.device);
  device.enqueue([p] { p.value[0] = -5; });

  const auto images = copy_layers(*one.stage, [](int) { return true; });

  ASSERT_TRUE(images);
  const auto tensors = decode_tensors(images->front().file.view());
  ASSERT_TRUE(tensors);
  const auto found = std::ranges::find(*tensors, "value/" + p.name, &TensorView::name);
  ASSERT_NE(found, tensors->end());
  float value = 0;
  std::memcpy(&value, found->bytes.data(), sizeof value);
  EXPECT_EQ(value, -5);
}

}  // namespace strict_device_test
}  // namespace weir::checkpoint::test
