// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstring>
#include <sys/resource.h>

#include <gtest/gtest.h>

#include "worker/device/device.h"

namespace weir::device {
namespace host_device_test {

TEST(HostDevice, CountsWhatIsHeldAndTheMostThatWas) {
  const auto device = make_host_device();
  Buffer first = device->allocate(1000);
  Buffer second = device->allocate(24);
  first = Buffer();

  EXPECT_EQ(device->bytes_in_use(), 24);
  EXPECT_EQ(device->bytes_peak(), 1024);
}

TEST(HostDevice, FreesABufferWithItsLastOwner) {
  const auto device = make_host_device();
  Buffer first = device->allocate(100);
  const Buffer copy = first;
  first = Buffer();

  EXPECT_EQ(device->bytes_in_use(), 100);
  EXPECT_EQ(copy.size(), 100U);
}

TEST(HostDevice, AlignsEveryBufferToACacheLine) {
  const auto device = make_host_device();

  for (const std::size_t size : {1U, 63U, 64U, 65U, 1000U}) {
    const Buffer buffer = device->allocate(size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U) << size;
  }
}

// New memory costs a page fault per 4 KiB, in each step again. Not so under the address sanitizer,
// which could not see a use of freed memory then.
TEST(HostDevice, KeepsMemoryForTheNextRequestOfItsSize) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "keeps nothing";
#endif
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const auto device = make_host_device();
  const auto fill = [&] {
    const Buffer buffer = device->allocate(kBytes);
    std::memset(buffer.data(), 1, kBytes);
    return buffer.data();
  };
  const std::byte* first = fill();
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
  };
  const auto before = faults();

  EXPECT_EQ(fill(), first);
  EXPECT_LT(faults() - before, 100) << "of 16384 pages";
  EXPECT_EQ(device->bytes_in_use(), 0);
}

TEST(HostDevice, GivesAnEmptyButValidBufferForNoBytes) {
  const auto device = make_host_device();

  EXPECT_TRUE(device->allocate(0));
}

TEST(HostDevice, RefusesMoreThanItsMemory) {
  const auto device = make_host_device();
  const auto total = static_cast<std::size_t>(device->memory_bytes());

  EXPECT_FALSE(device->allocate(total + 1));
  EXPECT_FALSE(device->allocate(SIZE_MAX));
  EXPECT_EQ(device->bytes_in_use(), 0);
}

TEST(HostDevice, LetsBuffersOutliveIt) {
  auto device = make_host_device();
  const Buffer buffer = device->allocate(8);
  device.reset();

  buffer.as<double>()[0] = 1;
  EXPECT_EQ(buffer.as<double>()[0], 1);
}

TEST(HostDevice, TellsItsClassAndItsMemory) {
  const auto device = make_host_device("A100-40");

  EXPECT_EQ(device->name(), "A100-40");
  EXPECT_GT(device->memory_bytes(), 1 << 20);
  EXPECT_GT(device->memory_free_bytes(), 0);
  EXPECT_LE(device->memory_free_bytes(), device->memory_bytes());
}

TEST(HostDevice, TellsThePeakSinceItWasLastAsked) {
  const auto device = make_host_device();
  const Buffer kept = device->allocate(1000);
  {
    const Buffer gone = device->allocate(500);
  }
  EXPECT_EQ(device->take_recent_peak(), 1500);
  EXPECT_EQ(device->take_recent_peak(), 1000);
  EXPECT_EQ(device->bytes_peak(), 1500);
}

}  // namespace host_device_test
}  // namespace weir::device
