// SPDX-License-Identifier: Apache-2.0
// Where tensors live. Host memory here; the CUDA device fulfils the same interface behind WEIR_CUDA
// (cuda.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace weir::device {

// Memory of one device. Moves, never copies; freed with its last owner.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<std::byte> data, std::size_t size) : data_(std::move(data)), size_(size) {}
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  std::shared_ptr<std::byte> data_;  // shared: an op, a send and a stash may hold the same tensor
  std::size_t size_ = 0;
};

// One device. allocate() from the engine thread; usage() from any.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // device class: "cpu", CUDA name, or the emulated one
  virtual std::int64_t memory_bytes() const = 0;       // total
  virtual std::int64_t memory_free_bytes() const = 0;  // as the system sees it now
  virtual Buffer allocate(std::size_t bytes) = 0;  // 64-byte aligned, not initialised; empty Buffer
                                                   // when there is none left
  virtual std::int64_t bytes_in_use() const = 0;   // of allocate()
  virtual std::int64_t bytes_peak() const = 0;
};

// Host memory. The container's limit counts as memory (cgroup), else the machine's.
std::unique_ptr<Device> make_host_device(std::string device_class = "cpu");

}  // namespace weir::device
