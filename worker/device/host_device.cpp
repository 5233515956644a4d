// SPDX-License-Identifier: Apache-2.0
// Host memory with exact accounting: the requested bytes. Freed blocks are kept, so that a step
// meets no page faults. Buffers share the allocator, so they may outlive the device. Linux
// overcommits, so this class enforces the limit: a request above the total fails, instead of the
// process being killed later.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include <sanitizer/asan_interface.h>

#include "worker/device/caching_allocator.h"
#include "worker/device/device.h"
#include "worker/device/system_memory.h"

namespace weir::device {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line and the widest vector register

// The address sanitizer sees a use of freed memory only if it goes back to malloc.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kKeepsBlocks = false;
#else
constexpr bool kKeepsBlocks = true;
#endif

CachingAllocator::RawMemory host_memory() {
  return {.allocate =
              [](std::size_t bytes) {
                return static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes));
              },
          .release = [](std::byte* memory) { std::free(memory); },
          .is_short =
              [](std::size_t bytes) {
                return read_system_memory().free < static_cast<std::int64_t>(bytes);
              },
          .keeps = kKeepsBlocks};
}

class HostDevice final : public Device {
 public:
  HostDevice(std::string device_class, int threads)
      : name_(std::move(device_class)), threads_(threads), total_(read_system_memory().total) {}

  std::string name() const override { return name_; }
  int threads() const override { return threads_; }
  std::int64_t memory_bytes() const override { return total_; }
  std::int64_t memory_free_bytes() const override {
    return std::min(total_, read_system_memory().free + memory_->bytes_kept());
  }
  std::int64_t bytes_in_use() const override { return memory_->bytes_in_use(); }
  std::int64_t bytes_peak() const override { return memory_->bytes_peak(); }
  std::int64_t take_recent_peak() override { return memory_->take_recent_peak(); }

  Buffer allocate(std::size_t bytes) override {
    if (bytes > static_cast<std::size_t>(total_) ||
        bytes_in_use() + static_cast<std::int64_t>(bytes) > total_) {
      return {};
    }
    std::byte* data = memory_->allocate(bytes);
    if (data == nullptr) return {};
    ASAN_POISON_MEMORY_REGION(data + bytes, CachingAllocator::rounded(bytes) - bytes);
    const auto release = [memory = memory_, bytes](std::byte* block) {
      memory->free(block, bytes);
    };
    return {std::shared_ptr<std::byte>(data, release), bytes};
  }

 private:
  const std::string name_;
  const int threads_;
  const std::int64_t total_;
  const std::shared_ptr<CachingAllocator> memory_ =
      std::make_shared<CachingAllocator>(host_memory());
};

}  // namespace

std::unique_ptr<Device> make_host_device(std::string device_class, int threads) {
  return std::make_unique<HostDevice>(std::move(device_class), threads);
}

}  // namespace weir::device
