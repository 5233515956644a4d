// SPDX-License-Identifier: Apache-2.0
// Accounting and reuse, over a device that the test plays.
#include "worker/device/caching_allocator.h"

#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "worker/base/random.h"

namespace weir::device {
namespace caching_allocator_test {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Hands out at most `limit` bytes.
struct FakeMemory {
  std::size_t limit = 64 * kMiB;
  std::size_t held = 0;
  int allocations = 0;
  std::map<std::byte*, std::size_t> blocks;

  CachingAllocator::RawMemory raw() {
    return {.allocate = [this](std::size_t bytes) -> std::byte* {
              if (held + bytes > limit) return nullptr;
              auto* block = new std::byte[bytes];
              held += bytes;
              ++allocations;
              blocks[block] = bytes;
              return block;
            },
            .release =
                [this](std::byte* block) {
                  held -= blocks.at(block);
                  blocks.erase(block);
                  delete[] block;
                }};
  }
};

TEST(CachingAllocator, GivesAFreedBlockToTheNextRequestOfItsSize) {
  FakeMemory memory;
  CachingAllocator allocator(memory.raw());
  std::byte* first = allocator.allocate(1000);
  allocator.free(first, 1000);

  EXPECT_EQ(allocator.allocate(900), first) << "both take 1024 bytes";
  EXPECT_EQ(memory.allocations, 1);
  allocator.free(first, 900);
}

// Graphs of ops are launched again where their memory is the same.
TEST(CachingAllocator, GivesTheSameBlocksInEveryStepWhateverOrderTheyCameBackIn) {
  FakeMemory memory;
  CachingAllocator allocator(memory.raw());
  std::vector<std::byte*> first;
  for (int i = 0; i < 4; ++i) first.push_back(allocator.allocate(1000));
  for (const int i : {2, 0, 3, 1}) allocator.free(first[static_cast<std::size_t>(i)], 1000);
  std::vector<std::byte*> second;
  for (int i = 0; i < 4; ++i) second.push_back(allocator.allocate(1000));
  for (const int i : {1, 3, 2, 0}) allocator.free(second[static_cast<std::size_t>(i)], 1000);

  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(allocator.allocate(1000), second[static_cast<std::size_t>(i)]);
  }
  for (std::byte* const block : second) allocator.free(block, 1000);
}

TEST(CachingAllocator, CountsWhatWasAskedForAndWhatTheDeviceGave) {
  FakeMemory memory;
  CachingAllocator allocator(memory.raw());
  std::byte* small = allocator.allocate(100);
  std::byte* large = allocator.allocate(kMiB + 1);

  EXPECT_EQ(allocator.bytes_in_use(), static_cast<std::int64_t>(kMiB) + 101);
  EXPECT_EQ(allocator.bytes_reserved(), static_cast<std::int64_t>(memory.held));
  EXPECT_EQ(memory.held, 512 + kMiB + (std::size_t{128} << 10));
  allocator.free(large, kMiB + 1);

  EXPECT_EQ(allocator.bytes_in_use(), 100);
  EXPECT_EQ(allocator.bytes_peak(), static_cast<std::int64_t>(kMiB) + 101);
  allocator.free(small, 100);
}

TEST(CachingAllocator, GivesKeptBlocksBackBeforeItSaysNo) {
  FakeMemory memory{.limit = 8 * kMiB};
  CachingAllocator allocator(memory.raw());
  std::byte* block = allocator.allocate(6 * kMiB);
  allocator.free(block, 6 * kMiB);

  std::byte* other = allocator.allocate(7 * kMiB);
  ASSERT_NE(other, nullptr) << "the kept 6 MiB are in the way";
  EXPECT_EQ(allocator.allocate(2 * kMiB), nullptr);
  EXPECT_EQ(allocator.bytes_in_use(), static_cast<std::int64_t>(7 * kMiB));
  allocator.free(other, 7 * kMiB);
}

TEST(CachingAllocator, AsksBeforeItGivesKeptBlocksBack) {
  FakeMemory memory{.limit = 8 * kMiB};
  CachingAllocator allocator(memory.raw());
  allocator.free(allocator.allocate(6 * kMiB), 6 * kMiB);
  bool may = false;
  int asked = 0;
  auto token = allocator.ask_before_trim([&] {
    ++asked;
    EXPECT_EQ(allocator.bytes_in_use(), 0) << "who is asked may look";
    return may;
  });

  EXPECT_EQ(allocator.allocate(7 * kMiB), nullptr);
  EXPECT_EQ(memory.held, 6 * kMiB) << "it stays";
  std::byte* small = allocator.allocate(kMiB);
  EXPECT_NE(small, nullptr) << "nothing has to go for this one";
  allocator.free(small, kMiB);
  EXPECT_EQ(asked, 1);
  may = true;
  std::byte* large = allocator.allocate(7 * kMiB);
  EXPECT_NE(large, nullptr);
  EXPECT_EQ(asked, 2);
  allocator.free(large, 7 * kMiB);
  token.reset();
  may = false;
  large = allocator.allocate(8 * kMiB);
  EXPECT_NE(large, nullptr) << "nobody is asked any more";
  allocator.free(large, 8 * kMiB);
}

TEST(CachingAllocator, GivesKeptBlocksBackWhereMemoryIsShort) {
  FakeMemory memory;
  CachingAllocator::RawMemory raw = memory.raw();
  std::size_t asked = 0;
  bool is_short = false;
  raw.is_short = [&](std::size_t bytes) {
    asked = bytes;
    return is_short;
  };
  CachingAllocator allocator(raw);
  std::byte* first = allocator.allocate(kMiB);
  EXPECT_EQ(asked, 0U) << "nothing is kept that could go back";
  allocator.free(first, kMiB);
  EXPECT_EQ(allocator.bytes_kept(), static_cast<std::int64_t>(kMiB));

  allocator.free(allocator.allocate(2 * kMiB), 2 * kMiB);
  EXPECT_EQ(asked, 2 * kMiB);
  EXPECT_EQ(memory.held, 3 * kMiB) << "there was enough";
  is_short = true;
  allocator.free(allocator.allocate(kMiB), kMiB);
  EXPECT_EQ(memory.held, 3 * kMiB) << "a kept block takes no memory";
  std::byte* last = allocator.allocate(4 * kMiB);
  EXPECT_NE(last, nullptr);
  EXPECT_EQ(memory.held, 4 * kMiB);
  EXPECT_EQ(allocator.bytes_kept(), 0);
  EXPECT_EQ(allocator.bytes_reserved(), static_cast<std::int64_t>(4 * kMiB));
  allocator.free(last, 4 * kMiB);
}

TEST(CachingAllocator, GivesEachBlockBackAtOnceWhereItKeepsNone) {
  FakeMemory memory;
  CachingAllocator::RawMemory raw = memory.raw();
  raw.keeps = false;
  CachingAllocator allocator(raw);
  std::byte* first = allocator.allocate(kMiB);
  std::byte* second = allocator.allocate(kMiB);
  allocator.free(first, kMiB);

  EXPECT_EQ(memory.held, kMiB);
  EXPECT_EQ(allocator.bytes_reserved(), static_cast<std::int64_t>(kMiB));
  allocator.free(second, kMiB);
  EXPECT_EQ(memory.held, 0U);
}

TEST(CachingAllocator, GivesEverythingBackAtTheEnd) {
  FakeMemory memory;
  {
    CachingAllocator allocator(memory.raw());
    Random random(7);
    std::map<std::byte*, std::size_t> live;
    std::int64_t bytes = 0;
    for (int i = 0; i < 2000; ++i) {
      if (live.empty() || random.below(2) == 0) {
        const std::size_t size = 1 + random.below(3 * kMiB);
        if (std::byte* block = allocator.allocate(size)) {
          ASSERT_TRUE(live.emplace(block, size).second) << "a block has one owner";
          bytes += static_cast<std::int64_t>(size);
        }
      } else {
        const auto victim = live.begin();
        allocator.free(victim->first, victim->second);
        bytes -= static_cast<std::int64_t>(victim->second);
        live.erase(victim);
      }
      ASSERT_EQ(allocator.bytes_in_use(), bytes);
      ASSERT_EQ(allocator.bytes_reserved(), static_cast<std::int64_t>(memory.held));
    }
    for (const auto& [block, size] : live) allocator.free(block, size);
  }
  EXPECT_EQ(memory.held, 0U);
}

}  // namespace caching_allocator_test
}  // namespace weir::device
