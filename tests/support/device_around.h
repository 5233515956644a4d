// SPDX-License-Identifier: Apache-2.0
// A device in host memory for tests that change a part of it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "worker/device/device.h"

namespace weir::test {

class DeviceAround : public device::Device {
 public:
  explicit DeviceAround(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }
  std::int64_t memory_bytes() const override { return host_->memory_bytes(); }
  std::int64_t memory_free_bytes() const override { return host_->memory_free_bytes(); }
  device::Buffer allocate(std::size_t bytes) override { return host_->allocate(bytes); }
  std::int64_t bytes_in_use() const override { return host_->bytes_in_use(); }
  std::int64_t bytes_peak() const override { return host_->bytes_peak(); }

 private:
  const std::string name_;
  const std::unique_ptr<device::Device> host_ = device::make_host_device();
};

}  // namespace weir::test
