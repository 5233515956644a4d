// SPDX-License-Identifier: Apache-2.0
// Where tensors and parameters live: host memory, or a CUDA device when the worker is built with
// WEIR_CUDA. Ops are enqueued on the device's one stream and run in order; host code reaches what
// they read and write by download(), upload(), read() and write() alone (host_view.h).
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

// Memory of one device. Moves, never copies; freed with its last owner.
class Buffer {
 public:
  // kDevice: only ops reach it, host code does not.
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
  std::shared_ptr<std::byte> data_;  // shared: an op, a send and a stash may hold the same tensor
  std::size_t size_ = 0;
  Place place_ = Place::kHost;
};

// A copy that the device makes beside its ops.
class PendingCopy {
 public:
  virtual ~PendingCopy() = default;  // waits for it: its memory may go then
  // Until it is complete; kInternal names what failed. Any one thread.
  virtual Status wait() = 0;
};

// One device. allocate() from the engine thread; usage() from any.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // device class: "cpu", CUDA name, or the emulated one
  virtual std::int64_t memory_bytes() const = 0;  // total
  // Now, whoever uses the rest; blocks that this device keeps for reuse count as free. Any thread.
  virtual std::int64_t memory_free_bytes() const = 0;
  virtual Buffer allocate(std::size_t bytes) = 0;  // 64-byte aligned, not initialised; empty Buffer
                                                   // when there is none left
  virtual std::int64_t bytes_in_use() const = 0;   // of allocate()
  virtual std::int64_t bytes_peak() const = 0;
  // Most bytes in use at once since the last call: of one step, when asked at the end of each.
  virtual std::int64_t take_recent_peak() { return bytes_peak(); }

  // What follows differs from the defaults only where memory is not the host's. Engine thread.
  virtual bool is_host() const { return true; }
  // Host memory that messages are received into and sent from; pinned on CUDA.
  virtual Buffer allocate_staging(std::size_t bytes) { return allocate(bytes); }
  // A staged tensor in device memory, and a tensor in staging memory (complete on return). On the
  // host both are the buffer itself. kInternal: no memory left, or the device failed.
  virtual Result<Buffer> upload(Buffer staged);
  virtual Result<Buffer> download(Buffer tensor);
  // Bytes of device memory to any memory of the host, and back. In order with the ops enqueued so
  // far and complete on return; in pieces, so that they may be of any size. kInternal: as above.
  virtual Status read(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return Unit{};
  }
  virtual Status write(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return Unit{};
  }
  // An op: to = from, both device or staging memory, which stays as it is until synchronize().
  // kInternal: it was not enqueued.
  virtual Status copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return Unit{};
  }
  // Device memory, as the ops enqueued so far leave it, to staging memory, while later ops run;
  // they must not write to it before the copy is complete. kInternal: it was not enqueued.
  virtual Result<std::unique_ptr<PendingCopy>> read_beside(void* to, const void* from,
                                                           std::size_t bytes);
  // Asked, by whoever allocates, before memory that this device keeps for reuse goes back to its
  // driver; false: it stays, at the cost of that allocation. For those who have yet to enqueue ops
  // on memory that is free again. As long as what is returned lives.
  virtual std::shared_ptr<void> ask_before_trim(std::function<bool()> /*may*/) { return nullptr; }
  // Waits for the ops enqueued so far; kInternal names what failed in them.
  virtual Status synchronize() { return Unit{}; }
};

// Host memory. The container's limit counts as memory (cgroup), else the machine's.
std::unique_ptr<Device> make_host_device(std::string device_class = "cpu");

// "cpu", "cuda" or "cuda:N" (N from 0). kInvalid: another name, or a build without CUDA; kNotFound:
// no such device, its driver is too old, or its compute capability is below 8.0. One line each.
Result<std::unique_ptr<Device>> open_device(std::string_view name);

}  // namespace weir::device
