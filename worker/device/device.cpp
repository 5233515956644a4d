// SPDX-License-Identifier: Apache-2.0
// Functions that all devices share.
#include "worker/device/device.h"

#include <utility>

namespace weir::device {
namespace {

// A copy of host memory is complete as soon as it is requested.
class Done final : public PendingCopy {
 public:
  Status wait() override { return Unit{}; }
};

}  // namespace

Result<Buffer> Device::upload(Buffer staged) {
  if (is_host() || staged.size() == 0) return staged;
  Buffer tensor = allocate(staged.size());
  if (!tensor) return Error{Code::kInternal, "device " + name() + " has no memory left"};
  WEIR_OK(copy(tensor.data(), staged.data(), staged.size()));
  // The staging block must not be filled again before the copy has read it, so wait for the copy.
  WEIR_OK(synchronize());
  return tensor;
}

Result<Buffer> Device::download(Buffer tensor) {
  if (is_host() || tensor.size() == 0) return tensor;
  Buffer staged = allocate_staging(tensor.size());
  if (!staged) return Error{Code::kInternal, "no staging memory left"};
  WEIR_OK(copy(staged.data(), tensor.data(), tensor.size()));
  WEIR_OK(synchronize());
  return staged;
}

Result<std::unique_ptr<PendingCopy>> Device::read_beside(void* to, const void* from,
                                                         std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return std::unique_ptr<PendingCopy>(std::make_unique<Done>());
}

}  // namespace weir::device
