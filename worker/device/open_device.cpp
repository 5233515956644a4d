// SPDX-License-Identifier: Apache-2.0
// Only this file knows which devices the build has.
#include <charconv>
#include <string>

#include "worker/device/device.h"
#ifdef WEIR_CUDA
#include "worker/device/cuda/cuda_device.h"
#endif

namespace weir::device {

Result<std::unique_ptr<Device>> open_device(std::string_view name, int threads) {
  if (name == "cpu") {
    return make_host_device(threads == 1 ? "cpu" : "cpu-" + std::to_string(threads), threads);
  }
  constexpr std::string_view kCuda = "cuda";
  int index = 0;
  bool known = name.substr(0, kCuda.size()) == kCuda;
  if (known && name.size() > kCuda.size()) {
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + kCuda.size() + 1, end, index);
    known =
        name[kCuda.size()] == ':' && parsed.ec == std::errc() && parsed.ptr == end && index >= 0;
  }
  if (!known) return invalid("device " + std::string(name) + ": known are cpu, cuda and cuda:N");
#ifdef WEIR_CUDA
  return make_cuda_device(index);
#else
  return invalid("device " + std::string(name) +
                 ": this weir-worker was built without CUDA (WEIR_CUDA=OFF)");
#endif
}

}  // namespace weir::device
