// SPDX-License-Identifier: Apache-2.0
// Host code's access to memory of a device: on the host the memory itself, on another device a copy
// of the range in ordinary memory. Code that only moves bytes calls Device::read() and write()
// instead. Engine thread.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "worker/base/result.h"
#include "worker/device/device.h"

namespace weir::device {

// The device and the memory of the range must outlive the view.
template <class T>
class HostView {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // The range after all ops enqueued so far. kInternal: no memory for the copy, or the device
  // failed.
  static Result<HostView> of(Device& device, std::span<T> range) {
    WEIR_TRY(HostView view, to_fill(device, range));
    if (view.copy_) {
      WEIR_OK(device.read(view.copy_.get(), range.data(), range.size_bytes()));
    } else {
      WEIR_OK(device.synchronize());
    }
    return view;
  }
  // A view that is not read: values() is undefined until the caller has written all of it.
  static Result<HostView> to_fill(Device& device, std::span<T> range) {
    HostView view(device, range);
    if (device.is_host() || range.empty()) return view;
    view.copy_.reset(new (std::nothrow) T[range.size()]);
    if (view.copy_) return view;
    return Error{Code::kInternal,
                 "no memory for a copy of " + std::to_string(range.size_bytes()) + " bytes"};
  }

  std::span<T> values() const { return copy_ ? std::span<T>(copy_.get(), range_.size()) : range_; }
  // Makes changes in values() visible to all later ops. Without this call, only host devices see
  // them.
  Status write_back() {
    if (!copy_) return Unit{};
    return device_->write(range_.data(), copy_.get(), range_.size_bytes());
  }

 private:
  HostView(Device& device, std::span<T> range) : device_(&device), range_(range) {}

  Device* device_;
  std::span<T> range_;
  std::unique_ptr<T[]> copy_;  // null on the host
};

}  // namespace weir::device
