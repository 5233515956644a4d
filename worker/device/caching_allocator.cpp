// SPDX-License-Identifier: Apache-2.0
#include "worker/device/caching_allocator.h"

#include <algorithm>
#include <utility>

#include "worker/base/check.h"

namespace weir::device {
namespace {

constexpr std::size_t kSmallGrain = 512, kLargeGrain = std::size_t{128} << 10;
constexpr std::size_t kLarge = std::size_t{1} << 20;

}  // namespace

std::size_t CachingAllocator::rounded(std::size_t bytes) {
  const std::size_t grain = bytes < kLarge ? kSmallGrain : kLargeGrain;
  return std::max(grain, (bytes + grain - 1) / grain * grain);
}

CachingAllocator::~CachingAllocator() {
  WEIR_CHECK(in_use_ == 0, "buffers end before their device");
  trim();
}

std::byte* CachingAllocator::allocate(std::size_t bytes) {
  std::unique_lock lock(mutex_);
  const std::size_t size = rounded(bytes);
  std::byte* block = nullptr;
  if (const auto kept = kept_.find(size); kept != kept_.end() && !kept->second.empty()) {
    block = kept->second.extract(kept->second.begin()).value();
    kept_bytes_ -= static_cast<std::int64_t>(size);
  } else {
    const bool is_short = kept_bytes_ > 0 && raw_.is_short != nullptr && raw_.is_short(size);
    if (!is_short) block = raw_.allocate(size);
    if (block == nullptr && may_trim(lock)) {
      trim_locked();
      block = raw_.allocate(size);
    }
    if (block == nullptr) return nullptr;
    reserved_ += static_cast<std::int64_t>(size);
  }
  in_use_ += static_cast<std::int64_t>(bytes);
  peak_ = std::max(peak_, in_use_);
  recent_peak_ = std::max(recent_peak_, in_use_);
  return block;
}

void CachingAllocator::free(std::byte* block, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t size = rounded(bytes);
  kept_[size].insert(block);
  kept_bytes_ += static_cast<std::int64_t>(size);
  in_use_ -= static_cast<std::int64_t>(bytes);
  if (!raw_.keeps) trim_locked();
}

void CachingAllocator::trim() {
  const std::lock_guard lock(mutex_);
  trim_locked();
}

std::shared_ptr<void> CachingAllocator::ask_before_trim(std::function<bool()> may) {
  auto asked = std::make_shared<std::function<bool()>>(std::move(may));
  const std::lock_guard lock(mutex_);
  asked_.push_back(asked);
  return asked;
}

bool CachingAllocator::may_trim(std::unique_lock<std::mutex>& lock) {
  std::erase_if(asked_, [](const auto& one) { return one.expired(); });
  const auto asked = asked_;
  lock.unlock();  // a callback may free blocks
  const bool all = std::ranges::all_of(asked, [](const auto& one) {
    const auto may = one.lock();
    return may == nullptr || (*may)();
  });
  lock.lock();
  return all;
}

void CachingAllocator::trim_locked() {
  for (auto& [size, blocks] : kept_) {
    for (std::byte* block : blocks) raw_.release(block);
  }
  reserved_ -= std::exchange(kept_bytes_, 0);
  kept_.clear();
}

std::int64_t CachingAllocator::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}
std::int64_t CachingAllocator::bytes_peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}
std::int64_t CachingAllocator::take_recent_peak() {
  const std::lock_guard lock(mutex_);
  return std::exchange(recent_peak_, in_use_);
}
std::int64_t CachingAllocator::bytes_kept() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}
std::int64_t CachingAllocator::bytes_reserved() const {
  const std::lock_guard lock(mutex_);
  return reserved_;
}

}  // namespace weir::device
