// SPDX-License-Identifier: Apache-2.0
// Keeps freed blocks for the next request of the same size: a device's own allocation stops all of
// its work, and the shapes of a training step repeat. A block freed after an op was enqueued may be
// given to the next one at once, because all ops run in order on one stream. Of several blocks the
// lowest is given: where all have come back, as at the end of a step, the same order of requests
// gets the same blocks again, which graphs of ops live from (stage/graphs.h). Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace weir::device {

class CachingAllocator {
 public:
  struct RawMemory {
    std::function<std::byte*(std::size_t)> allocate;  // null: none left
    std::function<void(std::byte*)> release;
  };
  explicit CachingAllocator(RawMemory raw) : raw_(std::move(raw)) {}
  ~CachingAllocator();  // every block has been freed
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Null when the device has none left, even after the kept blocks went back to it.
  std::byte* allocate(std::size_t bytes);
  void free(std::byte* block, std::size_t bytes);  // bytes as asked for
  void trim();                                     // kept blocks go back to the device
  // Asked, by whoever allocates, before kept blocks go back for want of memory; false: they stay,
  // and allocate() has none. As long as what is returned lives.
  std::shared_ptr<void> ask_before_trim(std::function<bool()> may);

  std::int64_t bytes_in_use() const;    // as asked for
  std::int64_t bytes_peak() const;      // most of them at once
  std::int64_t take_recent_peak();      // most of them at once since the last call
  std::int64_t bytes_reserved() const;  // taken from the device: rounded up, kept ones included

  // What a request takes: multiples of 512 bytes, from 1 MiB on multiples of 128 KiB.
  static std::size_t rounded(std::size_t bytes);

 private:
  void trim_locked();
  bool may_trim(std::unique_lock<std::mutex>& lock);

  const RawMemory raw_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::set<std::byte*>> kept_;  // by rounded size
  std::vector<std::weak_ptr<const std::function<bool()>>> asked_;
  std::int64_t in_use_ = 0, peak_ = 0, recent_peak_ = 0, reserved_ = 0;
};

}  // namespace weir::device
