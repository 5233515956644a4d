// SPDX-License-Identifier: Apache-2.0
// Snapshots in their folder: what a process finds that is started again.
#include "worker/app/snapshots.h"

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "worker/base/random.h"
#include "worker/device/device.h"

namespace weir::app::test {
namespace snapshots_test {

using testing::ElementsAre;
using testing::IsEmpty;

struct Process {
  explicit Process(const weir::test::TempDir& folder, const std::string& owner = "uid/pod",
                   stage::ModelOptions options = {.name = "mlp", .sequence = 8, .vocabulary = 32},
                   const Settings& settings = {{"lr", "0.1"}})
      : model(*stage::describe_model(options)),
        device(device::make_host_device()),
        stage(*stage::make_stage(model, 2, 4, *device)),
        kept(folder.path().string() + "/pod", owner, model, settings, {}) {
    kept.tell([this](const protocol::Message& message) {
      if (const auto* const saved = std::get_if<protocol::Saved>(&message)) {
        EXPECT_TRUE(saved->snapshot);
        said.set_value(saved->error);
      }
    });
  }

  void fill(std::uint64_t seed) {
    Random random(seed);
    for (const stage::Parameter& one : stage->parameters()) {
      for (const std::span<float> part : one.state()) {
        for (float& x : part) x = static_cast<float>(random.uniform());
      }
    }
  }
  std::vector<float> state() const {
    std::vector<float> all;
    for (const stage::Parameter& one : stage->parameters()) {
      for (const std::span<float> part : one.state()) {
        all.insert(all.end(), part.begin(), part.end());
      }
    }
    return all;
  }
  // What SAVED says.
  std::string take(std::int64_t step) {
    said = {};
    fill(static_cast<std::uint64_t>(step));
    kept.take(*stage, {2, 4}, step, step / 5);
    return said.get_future().get();
  }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> list;
    for (const protocol::Held& one : kept.inventory().held) {
      EXPECT_TRUE(one.snapshot);
      EXPECT_EQ(one.first, 2);
      EXPECT_EQ(one.last, 4);
      list.push_back(one.step);
    }
    return list;
  }

  stage::Model model;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<stage::Stage> stage;
  std::promise<std::string> said;
  Snapshots kept;
};

TEST(Snapshots, OfAProcessAreThoseOfItsSuccessor) {
  const weir::test::TempDir folder;
  std::vector<float> at_20;
  {
    Process before(folder);
    before.kept.begin(1, 0);
    EXPECT_EQ(before.take(10), "");
    before.kept.taken_by_all(10, true);
    EXPECT_EQ(before.take(20), "");
    at_20 = before.state();
    EXPECT_THAT(before.steps(), ElementsAre(10, 20)) << "the older one stays until all have both";
    before.kept.taken_by_all(20, true);
    EXPECT_EQ(before.take(30), "");
    before.kept.taken_by_all(30, false);
    EXPECT_THAT(before.steps(), ElementsAre(20));
  }
  Process again(folder);
  EXPECT_EQ(again.kept.inventory().held.at(0).compressed_steps, 20 / 5);
  EXPECT_EQ(again.kept.inventory().history, 1);
  EXPECT_THAT(again.steps(), ElementsAre(20));
  again.fill(1);
  ASSERT_TRUE(again.kept.load(*again.stage, 20));
  EXPECT_EQ(again.state(), at_20);
}

TEST(Snapshots, AboveTheStartOfAGenerationGoAndTheOthersBelongToIt) {
  const weir::test::TempDir folder;
  {
    Process before(folder);
    before.kept.begin(1, 0);
    EXPECT_EQ(before.take(10), "");
    EXPECT_EQ(before.take(20), "");
    before.kept.await(2, 10);
  }
  {
    Process again(folder);  // its predecessor died before the GO
    const protocol::Inventory told = again.kept.inventory();
    EXPECT_EQ(told.history, 1);
    ASSERT_EQ(told.held.size(), 2U);
    EXPECT_EQ(told.held[0].pending, 2);
    EXPECT_EQ(told.held[1].history, 1);
    EXPECT_EQ(told.held[1].pending, 0) << "step 20 lies above the start";
    again.kept.await(2, 10);
    again.kept.begin(2, 10);
    again.kept.runs(7, 1);
  }
  const Process last(folder);
  EXPECT_EQ(last.kept.inventory().history, 2);
  EXPECT_THAT(last.steps(), ElementsAre(10));
  EXPECT_EQ(last.kept.inventory().held[0].history, 2);
  EXPECT_EQ(last.kept.inventory().revision, 7U);
  EXPECT_EQ(last.kept.inventory().incarnation, 1);
}

TEST(Snapshots, ThatAreForeignOrDamagedAreIgnored) {
  const weir::test::TempDir folder;
  const auto taken = [&] {
    Process before(folder);
    before.kept.begin(1, 0);
    EXPECT_EQ(before.take(10), "");
  };
  taken();
  EXPECT_THAT(Process(folder, "uid/other").steps(), IsEmpty());
  taken();
  EXPECT_THAT(Process(folder, "uid/pod", {.name = "mlp", .sequence = 8, .vocabulary = 33}).steps(),
              IsEmpty());
  taken();
  EXPECT_THAT(
      Process(folder, "uid/pod", {.name = "mlp", .sequence = 8, .vocabulary = 32}, {{"lr", "0.2"}})
          .steps(),
      IsEmpty());
  taken();
  std::filesystem::remove(folder.path() / "pod" / "histories.json");
  EXPECT_THAT(Process(folder).steps(), IsEmpty());
  taken();
  const auto file = folder.path() / "pod" / "step-0000000010" / "layer-00003.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_THAT(Process(folder).steps(), IsEmpty());
  taken();
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(-5, std::ios::end)
      << '!';
  Process again(folder);
  EXPECT_THAT(again.steps(), ElementsAre(10)) << "its content is read when it is needed";
  EXPECT_EQ(again.kept.load(*again.stage, 10).error().code, Code::kInvalid);
  EXPECT_THAT(again.steps(), IsEmpty());
}

TEST(Snapshots, WithoutAFolderFailWithAReason) {
  const weir::test::TempDir folder;
  folder.file("pod", "a file");
  Process process(folder);
  EXPECT_NE(process.take(10), "");
  EXPECT_THAT(process.steps(), IsEmpty());
}

}  // namespace snapshots_test
}  // namespace weir::app::test
