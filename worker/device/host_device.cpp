// SPDX-License-Identifier: Apache-2.0
// Host memory with exact accounting: the requested bytes, without the allocator's overhead. Buffers
// share the counters, so they may outlive the device. Linux overcommits, so this class enforces the
// limit: a request above the total fails, instead of the process being killed later.
#include <atomic>
#include <cstdlib>
#include <utility>

#include "worker/device/device.h"
#include "worker/device/system_memory.h"

namespace weir::device {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line and the widest vector register

struct Usage {
  std::atomic<std::int64_t> in_use{0}, peak{0}, recent_peak{0};

  void add(std::int64_t bytes) {
    const std::int64_t now = in_use.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    for (std::atomic<std::int64_t>* most : {&peak, &recent_peak}) {
      std::int64_t seen = most->load(std::memory_order_relaxed);
      while (now > seen && !most->compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
      }
    }
  }
};

class HostDevice final : public Device {
 public:
  HostDevice(std::string device_class, int threads)
      : name_(std::move(device_class)), threads_(threads), total_(read_system_memory().total) {}

  std::string name() const override { return name_; }
  int threads() const override { return threads_; }
  std::int64_t memory_bytes() const override { return total_; }
  std::int64_t memory_free_bytes() const override { return read_system_memory().free; }
  std::int64_t bytes_in_use() const override { return usage_->in_use.load(); }
  std::int64_t bytes_peak() const override { return usage_->peak.load(); }
  std::int64_t take_recent_peak() override {
    return usage_->recent_peak.exchange(usage_->in_use.load());
  }

  Buffer allocate(std::size_t bytes) override {
    if (bytes > static_cast<std::size_t>(total_) ||
        bytes_in_use() + static_cast<std::int64_t>(bytes) > total_) {
      return {};
    }
    const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    auto* data =
        static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded ? rounded : kAlignment));
    if (data == nullptr) return {};
    usage_->add(static_cast<std::int64_t>(bytes));
    const auto release = [usage = usage_, bytes](std::byte* memory) {
      std::free(memory);
      usage->in_use.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
    };
    return {std::shared_ptr<std::byte>(data, release), bytes};
  }

 private:
  const std::string name_;
  const int threads_;
  const std::int64_t total_;
  const std::shared_ptr<Usage> usage_ = std::make_shared<Usage>();
};

}  // namespace

std::unique_ptr<Device> make_host_device(std::string device_class, int threads) {
  return std::make_unique<HostDevice>(std::move(device_class), threads);
}

}  // namespace weir::device
