// SPDX-License-Identifier: Apache-2.0
// A device without a GPU that forgives nothing: its memory is closed to host code but while ops or
// copies run (a touch ends the process), ops run only when somebody waits for them, memory that
// nobody has written is full of NaN, and a copy beside the ops happens at the last moment. Ops are
// the host's, so results are its bits. Any thread may wait; one enqueues.
//
// With graphs, ops are called after memory was given that they use first and others next; so memory
// is not filled there.
//
// What it misses: host code that touches its memory just while another thread runs ops.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "worker/device/caching_allocator.h"
#include "worker/device/device.h"
#include "worker/stage/ops/kernels.h"
#include "worker/stage/stage.h"

namespace weir::test {

class StrictDevice final : public device::Device {
 public:
  enum class Graphs : unsigned char { kNone, kMade };
  explicit StrictDevice(Graphs graphs = Graphs::kNone);
  bool makes_graphs() const { return graphs_ == Graphs::kMade; }

  std::string name() const override { return "strict"; }
  bool is_host() const override { return false; }
  std::int64_t memory_bytes() const override;
  std::int64_t memory_free_bytes() const override { return memory_bytes() - bytes_in_use(); }
  device::Buffer allocate(std::size_t bytes) override;
  device::Buffer allocate_staging(std::size_t bytes) override;
  std::int64_t bytes_in_use() const override;
  std::int64_t bytes_peak() const override;
  Status read(void* to, const void* from, std::size_t bytes) override;
  Status write(void* to, const void* from, std::size_t bytes) override;
  Status copy(void* to, const void* from, std::size_t bytes) override;
  Result<std::unique_ptr<device::PendingCopy>> read_beside(void* to, const void* from,
                                                           std::size_t bytes) override;
  Status synchronize() override;

  using Op = std::function<void()>;
  void enqueue(Op op);
  std::size_t enqueued() const;         // ops so far
  std::size_t done() const;             // those of them that have run
  int waits() const { return waits_; }  // calls of synchronize()

 private:
  class Beside;
  class Arena;

  void run(std::size_t until, const Op& then = nullptr);
  void run_all(const Op& then = nullptr);
  void check_on_device(const void* memory, std::size_t bytes) const;

  const Graphs graphs_;
  const std::shared_ptr<Arena> arena_;
  const std::shared_ptr<device::CachingAllocator> memory_;
  mutable std::mutex mutex_;  // guards all below, and the arena's doors
  std::deque<Op> ops_;
  std::size_t done_ = 0;
  std::atomic<int> waits_{0};
};

// Operations of the host, deferred.
std::unique_ptr<stage::ops::Kernels> make_strict_kernels(StrictDevice& device,
                                                         stage::Precision precision);
// stage::make_stage() on it.
Result<std::unique_ptr<stage::Stage>> make_strict_stage(
    const stage::Model& model, int first_layer, int last_layer, StrictDevice& device,
    stage::GraphUse graphs = stage::GraphUse::kOff);

}  // namespace weir::test
