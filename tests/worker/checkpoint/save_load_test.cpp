// SPDX-License-Identifier: Apache-2.0
// Saved state comes back bit by bit, in any cut; what is damaged is found; a process that is killed
// anywhere in a save loses nothing that was there before.
#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <sys/resource.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/worker/checkpoint/stages.h"
#include "tests/worker/stage/frozen_layers.h"
#include "worker/checkpoint/load.h"

namespace weir::checkpoint::test {
namespace save_load_test {

using testing::HasSubstr;
using weir::test::TempDir;

constexpr int kLayers = 8;  // of mlp

struct Folder {
  std::string root() const { return folder.path().string(); }
  std::string file(std::int64_t step, int layer) const {
    return root() + "/" + folder_name(step) + "/" + layer_file(layer);
  }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> list;
    const auto found = scan(root());
    for (const Manifest& manifest : found->whole) list.push_back(manifest.step);
    return list;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> list;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      list.push_back(entry.path().filename().string());
    }
    std::ranges::sort(list);
    return list;
  }
  void save(std::int64_t step, SmallStage& stage) {
    const std::array<SmallStage*, 1> one = {&stage};
    const Status saved = save_all(disk, root(), step, one);
    ASSERT_TRUE(saved) << saved.error().message;
  }

  TempDir folder;
  Disk disk;
};

void flip_byte(const std::string& path, std::streamoff at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 1));
}

TEST(Checkpoint, ComesBackBitByBit) {
  Folder folder;
  SmallStage saved(0, kLayers - 1, 1), loaded(0, kLayers - 1, 2);
  folder.save(20, saved);

  const Status done = load_stage(folder.root(), 20, *loaded.stage);

  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(loaded.state(), saved.state());
}

TEST(Checkpoint, IsLoadedInAnotherCut) {
  Folder folder;
  SmallStage whole(0, kLayers - 1, 1);
  SmallStage first(0, 2, 3), second(3, 5, 4), third(6, kLayers - 1, 5);
  const std::array<SmallStage*, 3> cut = {&first, &second, &third};
  ASSERT_TRUE(save_all(folder.disk, folder.root(), 7, cut));

  ASSERT_TRUE(load_stage(folder.root(), 7, *whole.stage));

  std::vector<float> expected;
  for (const SmallStage* part : cut) {
    const auto state = part->state();
    expected.insert(expected.end(), state.begin(), state.end());
  }
  EXPECT_EQ(whole.state(), expected);
  SmallStage middle(2, 4, 9);
  ASSERT_TRUE(load_stage(folder.root(), 7, *middle.stage));
  EXPECT_TRUE(std::ranges::search(expected, middle.state()).size() == middle.state().size());
}

TEST(Checkpoint, HoldsTheValuesOfFrozenParametersAlone) {
  Folder folder;
  const auto source = std::make_shared<weir::test::FrozenMlp>(small_model());
  SmallStage saved(0, kLayers - 1, 1, "", source), loaded(0, kLayers - 1, 2, "", source);
  folder.save(20, saved);

  ASSERT_TRUE(load_stage(folder.root(), 20, *loaded.stage));
  EXPECT_EQ(loaded.state(), saved.state());
  const auto& embed = saved.model.layers[0];
  EXPECT_EQ(embed.parameter_bytes, 0);
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(folder.file(20, 0)));
  EXPECT_GE(size, embed.frozen_bytes);
  EXPECT_LT(size, 2 * embed.frozen_bytes);
  EXPECT_NE(saved.model.shapes, SmallStage(0, 0, 1).model.shapes);

  // A model that trains them has no moments to load, but may begin with the values.
  SmallStage trained(0, kLayers - 1, 3);
  const Status refused = load_stage(folder.root(), 20, *trained.stage);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kConflict);
  ASSERT_TRUE(load_values(folder.root(), *trained.stage));
  const auto value = trained.stage->parameters()[0].value;
  EXPECT_TRUE(std::ranges::equal(value, saved.stage->parameters()[0].value));
}

TEST(Checkpoint, IsSharedByReplicasOfAStage) {
  SmallStage stage(0, kLayers - 1, 1);

  const auto even = copy_layers(*stage.stage, [](int layer) { return layer % 2 == 0; });

  ASSERT_TRUE(even);
  EXPECT_EQ(even->size(), kLayers / 2);
  EXPECT_EQ((*even)[1].layer, 2);
}

TEST(Checkpoint, WithAFlippedByteIsFoundOnLoad) {
  Folder folder;
  SmallStage stage(0, kLayers - 1, 1);
  folder.save(20, stage);
  const auto size = std::filesystem::file_size(folder.file(20, 3));
  for (const std::streamoff at :
       {std::streamoff{0}, std::streamoff{40}, static_cast<std::streamoff>(size) - 1}) {
    flip_byte(folder.file(20, 3), at);
    EXPECT_EQ(folder.steps(), std::vector<std::int64_t>{20});  // nothing to see from outside

    const Status loaded = load_stage(folder.root(), 20, *stage.stage);

    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Code::kInvalid);
    EXPECT_THAT(loaded.error().message, HasSubstr("layer-00003.safetensors"));
    flip_byte(folder.file(20, 3), at);
  }
  EXPECT_TRUE(load_stage(folder.root(), 20, *stage.stage));
}

TEST(Checkpoint, ThatIsTornOrIncompleteIsNoneButNamed) {
  SmallStage stage(0, kLayers - 1, 1);
  const std::vector<void (*)(const Folder&)> damages = {
      [](const Folder& f) { std::filesystem::resize_file(f.file(20, 3), 100); },
      [](const Folder& f) { std::filesystem::remove(f.file(20, 3)); },
      [](const Folder& f) {
        std::filesystem::remove(f.root() + "/" + folder_name(20) + "/" + kManifestName);
      },
      [](const Folder& f) {
        std::filesystem::resize_file(f.root() + "/" + folder_name(20) + "/" + kManifestName, 50);
      },
      [](const Folder& f) {
        std::filesystem::rename(f.root() + "/" + folder_name(20), f.root() + "/" + folder_name(21));
      }};
  for (const auto damage : damages) {
    Folder folder;
    folder.save(10, stage);
    folder.save(20, stage);

    damage(folder);

    const auto found = scan(folder.root());
    ASSERT_TRUE(found);
    ASSERT_EQ(found->whole.size(), 1U);
    EXPECT_EQ(found->whole[0].step, 10);
    ASSERT_EQ(found->damaged.size(), 1U);
    EXPECT_THAT(found->damaged[0], HasSubstr("step-000000002"));
  }
}

TEST(Checkpoint, OfAnotherModelIsRefused) {
  Folder folder;
  SmallStage mlp(0, kLayers - 1, 1), gpt(0, kLayers - 1, 1, "gpt-tiny");
  folder.save(20, mlp);

  const Status loaded = load_stage(folder.root(), 20, *gpt.stage);

  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::kConflict);
}

TEST(Checkpoint, InAFolderThatIsNotThereIsNoDamage) {
  Folder folder;
  SmallStage stage(0, 1, 1);

  EXPECT_EQ(load_stage(folder.root(), 20, *stage.stage).error().code, Code::kNotFound);
  EXPECT_EQ(scan(folder.root() + "/none").error().code, Code::kNotFound);
  EXPECT_TRUE(scan(folder.root())->whole.empty());
}

TEST(Checkpoint, GivesItsValuesToANewRun) {
  Folder folder;
  SmallStage old(0, kLayers - 1, 1), fresh(0, 1, 2);
  folder.save(10, old);
  const auto moment = fresh.stage->parameters()[0].adam_m[0];

  ASSERT_TRUE(load_values(folder.root(), *fresh.stage));  // the newest
  EXPECT_EQ(fresh.stage->parameters()[0].value[5], old.stage->parameters()[0].value[5]);
  EXPECT_EQ(fresh.stage->parameters()[0].adam_m[0], moment);
  EXPECT_TRUE(load_values(folder.root() + "/" + folder_name(10), *fresh.stage));
  EXPECT_EQ(load_values(folder.root() + "/none", *fresh.stage).error().code, Code::kNotFound);
}

TEST(Checkpoint, OldOnesAndWhatFailedSavesLeftAreRemoved) {
  Folder folder;
  SmallStage stage(0, kLayers - 1, 1);
  for (const std::int64_t step : {10, 20, 30}) folder.save(step, stage);
  for (const std::int64_t step : {35, 40}) {
    const auto images = copy_layers(*stage.stage, [](int) { return true; });
    ASSERT_TRUE(write_layers(folder.disk, folder.root(), step, *images));
  }
  std::ofstream(folder.root() + "/notes.txt") << "the user's";

  const std::vector<std::int64_t> keep = {20, 30};
  ASSERT_TRUE(remove_others(folder.disk, folder.root(), keep, 40));

  EXPECT_EQ(folder.names(), (std::vector<std::string>{"notes.txt", folder_name(20), folder_name(30),
                                                      unfinished_name(40)}));
}

TEST(Checkpoint, ReplacesADamagedOneOfTheSameStep) {
  Folder folder;
  SmallStage stage(0, kLayers - 1, 1);
  folder.save(10, stage);
  flip_byte(folder.file(10, 0), 9);
  ASSERT_FALSE(load_stage(folder.root(), 10, *stage.stage));

  folder.save(10, stage);

  EXPECT_TRUE(load_stage(folder.root(), 10, *stage.stage));
}

TEST(Checkpoint, IsNotCommittedWithoutAFile) {
  Folder folder;
  SmallStage stage(0, kLayers - 1, 1);
  const auto images = copy_layers(*stage.stage, [](int) { return true; });
  auto files = write_layers(folder.disk, folder.root(), 5, *images);
  ASSERT_TRUE(files);
  std::filesystem::remove(folder.root() + "/" + unfinished_name(5) + "/" + layer_file(2));

  const Status done = commit(folder.disk, folder.root(),
                             {.step = 5, .digest = stage.model.digest, .files = *files});

  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr(layer_file(2)));
  EXPECT_TRUE(folder.steps().empty());
}

// The saver's life ends at its 1st, 2nd, ... system call, each time in a fresh folder that holds
// step 10: afterwards there is step 10 or 20, whole, and a later save works.
TEST(Checkpoint, SurvivesAKillAtEverySystemCall) {
  SmallStage before(0, 3, 1), after(0, 3, 2), loaded(0, 3, 3);
  const std::array<SmallStage*, 1> first = {&before}, second = {&after};
  bool finished = false;
  int calls = 0;
  for (; !finished; ++calls) {
    Folder folder;
    folder.save(10, before);
    int left = calls;
    Disk mortal([&left](std::string_view, const std::string&) { return left-- > 0; });

    finished = save_all(mortal, folder.root(), 20, second, {20}).ok();

    const auto steps = folder.steps();
    ASSERT_FALSE(steps.empty()) << "killed at call " << calls;
    EXPECT_TRUE(scan(folder.root())->damaged.empty()) << "killed at call " << calls;
    ASSERT_TRUE(load_stage(folder.root(), steps.back(), *loaded.stage));
    EXPECT_EQ(loaded.state(), steps.back() == 10 ? before.state() : after.state());
    ASSERT_TRUE(save_all(folder.disk, folder.root(), 20, first, {20}))
        << "killed at call " << calls;
    ASSERT_TRUE(load_stage(folder.root(), 20, *loaded.stage));
    EXPECT_EQ(loaded.state(), before.state());
    EXPECT_EQ(folder.names(), std::vector<std::string>{folder_name(20)});
  }
  EXPECT_GT(calls, 20);  // 4 layers and a manifest, each open, write, fsync, close, rename
}

// The same where training comes to step 10 a second time; with names that can be exchanged, and
// without, as on NFS.
TEST(Checkpoint, ThatIsReplacedIsThereUntilTheNewOneIs) {
  SmallStage before(0, 3, 1), after(0, 3, 2), loaded(0, 3, 3);
  const std::array<SmallStage*, 1> second = {&after};
  for (const bool exchanges : {true, false}) {
    bool finished = false;
    int calls = 0;
    for (; !finished; ++calls) {
      Folder folder;
      folder.save(10, before);
      int left = calls;
      Disk mortal([&left](std::string_view, const std::string&) { return left-- > 0; }, exchanges);

      finished = save_all(mortal, folder.root(), 10, second, {10}).ok();
      ASSERT_TRUE(repair(folder.disk, folder.root()));

      EXPECT_EQ(folder.names(), std::vector<std::string>{folder_name(10)}) << "killed at " << calls;
      ASSERT_TRUE(load_stage(folder.root(), 10, *loaded.stage)) << "killed at call " << calls;
      EXPECT_TRUE(loaded.state() == before.state() || loaded.state() == after.state());
    }
    EXPECT_EQ(loaded.state(), after.state());
  }
}

TEST(Checkpoint, OfCertainStepsIsRemovedAndNothingElse) {
  Folder folder;
  SmallStage stage(0, kLayers - 1, 1);
  for (const std::int64_t step : {10, 20}) folder.save(step, stage);
  const auto images = copy_layers(*stage.stage, [](int) { return true; });
  for (const std::int64_t step : {20, 30, 40}) {
    ASSERT_TRUE(write_layers(folder.disk, folder.root(), step, *images));
  }

  ASSERT_TRUE(remove_steps(folder.disk, folder.root(), std::vector<std::int64_t>{10},
                           std::vector<std::int64_t>{30}));

  EXPECT_EQ(folder.names(),
            (std::vector<std::string>{folder_name(20), unfinished_name(20), unfinished_name(40)}));
}

TEST(Checkpoint, OfAStateThatIsNoNumberIsNotWritten) {
  Folder folder;
  SmallStage stage(0, kLayers - 1, 1);
  stage.stage->parameters()[0].value[3] = std::numeric_limits<float>::quiet_NaN();
  const auto images = copy_layers(*stage.stage, [](int) { return true; });
  ASSERT_TRUE(images);

  const auto files = write_layers(folder.disk, folder.root(), 5, *images);

  ASSERT_FALSE(files);
  EXPECT_THAT(files.error().message, HasSubstr("values that are not finite"));
}

TEST(Checkpoint, CopiesAreOfTheDevicesMemory) {
  SmallStage stage(0, kLayers - 1, 1);
  device::Device& device = stage.stage->device();
  const std::int64_t before = device.bytes_in_use();
  {
    const auto images = copy_layers(*stage.stage, [](int) { return true; });
    ASSERT_TRUE(images);
    std::int64_t parameters = 0;
    for (const auto& layer : stage.model.layers) parameters += layer.parameter_bytes;
    EXPECT_GE(device.bytes_in_use() - before, kCopyFactor * parameters);
  }
  EXPECT_EQ(device.bytes_in_use(), before);
}

TEST(Checkpoint, OfAnotherModelIsKnownByItsShapesBeforeItIsRead) {
  Folder folder;
  SmallStage stage(0, kLayers - 1, 1);
  folder.save(20, stage);
  const auto manifest = scan(folder.root())->whole.back();
  Manifest other = manifest;
  other.shapes = "sha256:other";
  std::ofstream(folder.root() + "/" + folder_name(20) + "/" + kManifestName) << encode(other);

  const Status loaded = load_stage(folder.root(), 20, *stage.stage, "sha256:this");

  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::kConflict);
  EXPECT_TRUE(load_stage(folder.root(), 20, *stage.stage, "sha256:other"));
}

// A write above `ulimit -f`: the signal is ignored by the program, the error is named.
TEST(Disk, NamesTheLimitOfAFilesSize) {
  Folder folder;
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit tight{.rlim_cur = 1000, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);

  const Status written = folder.disk.write_file(folder.root() + "/large", std::string(5000, 'x'));

  setrlimit(RLIMIT_FSIZE, &old);
  static_cast<void>(std::signal(SIGXFSZ, before));
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("ulimit -f) is 1000 bytes"));
  EXPECT_TRUE(folder.names().empty()) << "nothing stays behind";
}

}  // namespace save_load_test
}  // namespace weir::checkpoint::test
