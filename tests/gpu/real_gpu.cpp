// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/gpu.h"

namespace weir::test {

Result<std::unique_ptr<device::Device>> open_gpu() {
  return device::open_device("cuda");
}
Result<std::unique_ptr<stage::ops::Kernels>> kernels_of(device::Device& device,
                                                        stage::Precision precision) {
  return stage::ops::make_kernels(device, precision);
}

}  // namespace weir::test
