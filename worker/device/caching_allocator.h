// SPDX-License-Identifier: Apache-2.0
// Keeps freed blocks for later requests of the same size, because an allocation of a GPU stops all
// its work, new memory of the host costs a page fault per 4 KiB, and the shapes of a training step
// repeat. A block that is freed after an op was
// enqueued may be reused at once, because all ops run in order on one stream. Of several blocks the
// lowest is used first. So once all blocks are free, as at the end of a step, the same order of
// requests gets the same blocks, which graphs of ops require (stage/graphs.h). Thread-safe.
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
    std::function<std::byte*(std::size_t)> allocate;  // returns null if no memory is left
    std::function<void(std::byte*)> release;
    // Optional: whether kept blocks shall go back before so many more bytes are taken.
    std::function<bool(std::size_t)> is_short = nullptr;
    bool keeps = true;  // false: every freed block goes back at once
  };
  explicit CachingAllocator(RawMemory raw) : raw_(std::move(raw)) {}
  ~CachingAllocator();  // every block must have been freed
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Returns null if the device has no memory left, even after the kept blocks were returned to it.
  std::byte* allocate(std::size_t bytes);
  void free(std::byte* block, std::size_t bytes);  // bytes: the size that was requested
  void trim();                                     // returns kept blocks to the device
  // Registers a callback that allocate() calls before it returns kept blocks to the device for want
  // of memory. If it returns false, they are kept and allocate() returns null. Registered as long
  // as the returned object lives.
  std::shared_ptr<void> ask_before_trim(std::function<bool()> may);

  std::int64_t bytes_in_use() const;    // sum of the requested sizes
  std::int64_t bytes_peak() const;      // maximum of bytes_in_use()
  std::int64_t take_recent_peak();      // maximum of bytes_in_use() since the last call
  std::int64_t bytes_kept() const;      // in blocks that wait for a request
  std::int64_t bytes_reserved() const;  // taken from the device: rounded up, including kept blocks

  // Size of the block for a request: multiples of 512 bytes, from 1 MiB on multiples of 128 KiB.
  static std::size_t rounded(std::size_t bytes);

 private:
  void trim_locked();
  bool may_trim(std::unique_lock<std::mutex>& lock);

  const RawMemory raw_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::set<std::byte*>> kept_;  // by rounded size
  std::vector<std::weak_ptr<const std::function<bool()>>> asked_;
  std::int64_t in_use_ = 0, peak_ = 0, recent_peak_ = 0, reserved_ = 0, kept_bytes_ = 0;
};

}  // namespace weir::device
