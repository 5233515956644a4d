// SPDX-License-Identifier: Apache-2.0
// The device of the GPU tests without a GPU: the host's memory under the name of a CUDA device, the
// worker's own kernels run by the emulator, and cuBLASLt's part in plain loops.
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include "tests/gpu/gpu.h"
#include "worker/device/caching_allocator.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/stage/ops/bf16.h"
#include "worker/stage/ops/cuda/gemm.h"

namespace weir::test {
namespace {

class EmulatedDevice final : public device::CudaDevice {
 public:
  CUstream_st* stream() const override { return nullptr; }
  int index() const override { return 0; }
  bool is_host() const override { return false; }
  std::string name() const override { return "emulated GPU"; }
  std::int64_t memory_bytes() const override { return host_->memory_bytes(); }
  std::int64_t memory_free_bytes() const override { return host_->memory_free_bytes(); }
  device::Buffer allocate(std::size_t bytes) override {
    const auto most = static_cast<std::size_t>(memory_bytes());
    std::byte* const block = bytes <= most ? memory_->allocate(bytes) : nullptr;
    if (block == nullptr) return {};
    const auto free = [memory = memory_, bytes](std::byte* own) { memory->free(own, bytes); };
    return {std::shared_ptr<std::byte>(block, free), bytes, device::Buffer::Place::kDevice};
  }
  device::Buffer allocate_staging(std::size_t bytes) override { return host_->allocate(bytes); }
  std::shared_ptr<void> ask_before_trim(std::function<bool()> may) override {
    return memory_->ask_before_trim(std::move(may));
  }
  std::int64_t bytes_in_use() const override { return memory_->bytes_in_use(); }
  std::int64_t bytes_peak() const override { return memory_->bytes_peak(); }

 private:
  static constexpr std::size_t kAlignment = 256;  // cudaMalloc's

  std::unique_ptr<device::Device> host_ = device::make_host_device();
  // As the real device has one: the same requests get the same blocks again.
  std::shared_ptr<device::CachingAllocator> memory_ =
      std::make_shared<device::CachingAllocator>(device::CachingAllocator::RawMemory{
          .allocate =
              [](std::size_t bytes) {
                return static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes));
              },
          .release = [](std::byte* block) { std::free(block); }});
};

}  // namespace

Result<std::unique_ptr<device::Device>> open_gpu() {
  return std::unique_ptr<device::Device>(std::make_unique<EmulatedDevice>());
}
Result<std::unique_ptr<stage::ops::Kernels>> kernels_of(device::Device& device,
                                                        stage::Precision precision) {
  return stage::ops::make_cuda_kernels(device, precision);
}

}  // namespace weir::test

namespace weir::stage::ops {
namespace {

double at(const void* from, Precision precision, std::ptrdiff_t index) {
  if (precision == Precision::kBf16) return widened(static_cast<const Bf16*>(from)[index]);
  return static_cast<const float*>(from)[index];
}

class PlainGemm final : public Gemm {
 public:
  void run(const Product& product, const Operands& operands) override {
    emulated::enqueue([=] { multiply(product, operands); });
  }
  const std::string& failure() const override { return failure_; }
  void forget_failure() override { failure_.clear(); }

 private:
  static void multiply(const Product& p, const Operands& o) {
    for (std::ptrdiff_t column = 0; column < p.n; ++column) {
      for (std::ptrdiff_t row = 0; row < p.m; ++row) {
        double sum = o.bias != nullptr ? at(o.bias, p.output, row) : 0;
        const std::ptrdiff_t index = column * p.m + row;
        if (o.c != nullptr) sum += at(o.c, p.output, index);
        for (std::ptrdiff_t i = 0; i < p.k; ++i) {
          sum += at(o.a, p.inputs, p.transpose_a ? row * p.k + i : i * p.m + row) *
                 at(o.b, p.inputs, p.transpose_b ? i * p.n + column : column * p.k + i);
        }
        const auto value = static_cast<float>(sum);
        if (p.output == Precision::kBf16) {
          static_cast<Bf16*>(o.d)[index] = rounded<Bf16>(value);
        } else {
          static_cast<float*>(o.d)[index] = value;
        }
      }
    }
  }

  std::string failure_;
};

}  // namespace

Result<std::unique_ptr<Gemm>> Gemm::make(device::CudaDevice&) {
  return std::unique_ptr<Gemm>(std::make_unique<PlainGemm>());
}

}  // namespace weir::stage::ops
