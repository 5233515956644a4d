// SPDX-License-Identifier: Apache-2.0
// Memory for tensors and parameters: host memory, or a CUDA device if the worker is built with
// WEIR_CUDA. Ops are enqueued on the device's only stream and run in order. Host code accesses
// their data only by download(), upload(), read() and write() (host_view.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "worker/base/result.h"

namespace weir::device {

// Memory of one device. Copies of a Buffer share it; it is freed with its last owner.
class Buffer {
 public:
  // kDevice: host code cannot access the memory, only ops can.
  enum class Place : unsigned char { kHost, kDevice };

  Buffer() = default;
  Buffer(std::shared_ptr<std::byte> data, std::size_t size, Place place = Place::kHost)
      : data_(std::move(data)), size_(size), place_(place) {}
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  bool on_device() const { return place_ == Place::kDevice; }
  explicit operator bool() const { return data_ != nullptr; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  std::shared_ptr<std::byte> data_;  // shared: an op, a send and the stage may hold the same tensor
  std::size_t size_ = 0;
  Place place_ = Place::kHost;
};

// A copy that the device makes while ops run.
class PendingCopy {
 public:
  virtual ~PendingCopy() = default;  // waits for the copy, so that its memory may be freed
  // Waits until the copy is complete. kInternal names what failed. Any single thread.
  virtual Status wait() = 0;
};

// One device. allocate() is called on the engine thread; any thread may read the usage.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // device class: "cpu", the CUDA name, or the emulated one
  virtual std::int64_t memory_bytes() const = 0;  // total
  // Free memory now, including blocks that this device keeps for reuse. Any thread.
  virtual std::int64_t memory_free_bytes() const = 0;
  // 64-byte aligned, not initialised; an empty Buffer if no memory is left.
  virtual Buffer allocate(std::size_t bytes) = 0;
  virtual std::int64_t bytes_in_use() const = 0;  // from allocate()
  virtual std::int64_t bytes_peak() const = 0;
  // Maximum of bytes in use since the last call. Called at the end of each step, it is that of the
  // step.
  virtual std::int64_t take_recent_peak() { return bytes_peak(); }

  // The defaults below are for host memory; other devices override them. Engine thread.
  virtual bool is_host() const { return true; }
  // Threads that run an op together, the engine's included; 1 if the device itself computes.
  virtual int threads() const { return 1; }
  // Host memory for messages that are received or sent; pinned on CUDA.
  virtual Buffer allocate_staging(std::size_t bytes) { return allocate(bytes); }
  // Copies a staged tensor to device memory, or a tensor to staging memory (complete on return). On
  // the host both return the buffer itself. kInternal: no memory left, or the device failed.
  virtual Result<Buffer> upload(Buffer staged);
  virtual Result<Buffer> download(Buffer tensor);
  // Copies device memory to any host memory, or back, in order with the ops enqueued so far, and is
  // complete on return. Works in pieces, so any size is possible. kInternal: as above.
  virtual Status read(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return Unit{};
  }
  virtual Status write(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return Unit{};
  }
  // Enqueues the op to = from. Both are device or staging memory; `from` must not change until
  // synchronize(). kInternal: the op was not enqueued.
  virtual Status copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return Unit{};
  }
  // Copies device memory, as it is after the ops enqueued so far, to staging memory while later ops
  // run. Those ops must not write to it before the copy is complete. kInternal: it was not
  // enqueued.
  virtual Result<std::unique_ptr<PendingCopy>> read_beside(void* to, const void* from,
                                                           std::size_t bytes);
  // Registers a callback that is called before the device returns kept memory to its driver. If it
  // returns false, the memory is kept and the allocation fails. For code that will enqueue ops on
  // memory that has been freed. Registered as long as the returned object lives.
  virtual std::shared_ptr<void> ask_before_trim(std::function<bool()> /*may*/) { return nullptr; }
  // Waits for the ops enqueued so far. kInternal names what failed in them.
  virtual Status synchronize() { return Unit{}; }
};

// Host memory. Its size is the container's limit (cgroup), else the machine's.
std::unique_ptr<Device> make_host_device(std::string device_class = "cpu", int threads = 1);

// name: "cpu", "cuda" or "cuda:N" (N from 0). threads: of
// the host; its class is "cpu-4" with 4 of them, because the times of layers differ. kInvalid:
// another name, or a build without CUDA. kNotFound: no such device, its driver is too old, or its
// compute capability is below 8.0.
Result<std::unique_ptr<Device>> open_device(std::string_view name, int threads = 1);

}  // namespace weir::device
