// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/disk.h"

#include <barrier>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace weir::checkpoint {
namespace disk_test {

// Another process changes the tree while it is removed: one kind of change in each round.
TEST(Disk, RemovesATreeThatAnotherOneChanges) {
  constexpr int kRounds = 300, kFiles = 30;
  const test::TempDir root;
  const auto tree = root.path() / "step-0000000020.tmp";
  const auto file = [&](int index) { return tree / ("layer-" + std::to_string(index)); };
  std::barrier together(2);
  std::jthread other([&] {
    for (int round = 0; round < kRounds; ++round) {
      together.arrive_and_wait();
      for (int i = 0; i < kFiles; ++i) {
        std::error_code gone;
        if (round % 2 == 0) {
          std::filesystem::remove(file(i), gone);
        } else {
          std::ofstream(file(kFiles + i)) << "late";
        }
      }
      together.arrive_and_wait();
    }
  });
  Disk disk;
  for (int round = 0; round < kRounds; ++round) {
    std::filesystem::create_directory(tree);
    for (int i = 0; i < kFiles; ++i) std::ofstream(file(i)) << "bytes";
    together.arrive_and_wait();
    const Status removed = disk.remove_tree(tree.string());
    EXPECT_TRUE(removed) << "round " << round << ": " << removed.error().message;
    together.arrive_and_wait();
    EXPECT_FALSE(std::filesystem::exists(tree)) << "round " << round;
  }
}

TEST(Disk, RemovesATreeThatIsNotThere) {
  const test::TempDir root;
  EXPECT_TRUE(Disk().remove_tree((root.path() / "none").string()));
}

}  // namespace disk_test
}  // namespace weir::checkpoint
