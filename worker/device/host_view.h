// SPDX-License-Identifier: Apache-2.0
// How host code looks at what a device holds: on the host the memory itself, on another device a
// copy in ordinary memory, as large as the range. Who only moves bytes to a place of his own calls
// Device::read() and write(). Engine thread.
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

// The device, and the memory of the range, outlive it.
template <class T>
class HostView {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // What the ops enqueued so far make of the range. kInternal: no memory for the copy, or the
  // device failed.
  static Result<HostView> of(Device& device, std::span<T> range) {
    WEIR_TRY(HostView view, to_fill(device, range));
    if (view.copy_) {
      WEIR_TRY([[maybe_unused]] const Unit read,
               device.read(view.copy_.get(), range.data(), range.size_bytes()));
    } else {
      WEIR_TRY([[maybe_unused]] const Unit done, device.synchronize());
    }
    return view;
  }
  // Not read: values() holds anything until the caller has written all of it.
  static Result<HostView> to_fill(Device& device, std::span<T> range) {
    HostView view(device, range);
    if (device.is_host() || range.empty()) return view;
    view.copy_.reset(new (std::nothrow) T[range.size()]);
    if (view.copy_) return view;
    return Error{Code::kInternal,
                 "no memory for a copy of " + std::to_string(range.size_bytes()) + " bytes"};
  }

  std::span<T> values() const { return copy_ ? std::span<T>(copy_.get(), range_.size()) : range_; }
  // What was changed in values() is in the range for all ops from here on; without it, that is sure
  // on the host only.
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
