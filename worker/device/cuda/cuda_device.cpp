// SPDX-License-Identifier: Apache-2.0
// Device memory and pinned host memory each behind a caching allocator. Parameters live in managed
// memory, so that host code (initial values, checkpoints) uses their spans as on the host.
#include "worker/device/cuda/cuda_device.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include "worker/device/caching_allocator.h"

namespace weir::device {
namespace {

constexpr int kLeastCapability = 8;  // bf16 and the architectures that the kernels are compiled for

std::string text(cudaError_t error) {
  return cudaGetErrorString(error);
}
Error failure(const char* what, cudaError_t error) {
  return {Code::kInternal, std::string("CUDA: ") + what + ": " + text(error)};
}
// 13000 -> "13.0"
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

CachingAllocator::RawMemory device_memory() {
  return {.allocate = [](std::size_t bytes) -> std::byte* {
            void* memory = nullptr;
            if (cudaMalloc(&memory, bytes) == cudaSuccess) return static_cast<std::byte*>(memory);
            cudaGetLastError();  // not sticky: the next call shall not see it
            return nullptr;
          },
          .release = [](std::byte* memory) { cudaFree(memory); }};
}
CachingAllocator::RawMemory pinned_memory() {
  return {.allocate = [](std::size_t bytes) -> std::byte* {
            void* memory = nullptr;
            if (cudaMallocHost(&memory, bytes) == cudaSuccess)
              return static_cast<std::byte*>(memory);
            cudaGetLastError();
            return nullptr;
          },
          .release = [](std::byte* memory) { cudaFreeHost(memory); }};
}

// Buffers share the allocator, so that one may outlive the device object.
Buffer take(const std::shared_ptr<CachingAllocator>& from, std::size_t bytes, Buffer::Place place) {
  std::byte* block = from->allocate(bytes);
  if (block == nullptr) return {};
  return {
      std::shared_ptr<std::byte>(block, [from, bytes](std::byte* own) { from->free(own, bytes); }),
      bytes, place};
}

class RealCudaDevice final : public CudaDevice {
 public:
  RealCudaDevice(int index, std::string name, std::int64_t total, cudaStream_t stream)
      : index_(index), name_(std::move(name)), total_(total), stream_(stream) {}
  ~RealCudaDevice() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  RealCudaDevice(const RealCudaDevice&) = delete;
  RealCudaDevice& operator=(const RealCudaDevice&) = delete;

  CUstream_st* stream() const override { return stream_; }
  int index() const override { return index_; }
  bool is_host() const override { return false; }
  std::string name() const override { return name_; }
  std::int64_t memory_bytes() const override { return total_; }
  std::int64_t memory_free_bytes() const override {
    use();  // of the thread that asks
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
    // Kept blocks are ours to use again.
    const std::int64_t kept = memory_->bytes_reserved() - memory_->bytes_in_use();
    return static_cast<std::int64_t>(free) + std::max<std::int64_t>(0, kept);
  }
  std::int64_t bytes_in_use() const override { return memory_->bytes_in_use(); }
  std::int64_t bytes_peak() const override { return memory_->bytes_peak(); }
  std::int64_t take_recent_peak() override { return memory_->take_recent_peak(); }

  Buffer allocate(std::size_t bytes) override {
    use();
    return take(memory_, bytes, Buffer::Place::kDevice);
  }
  Buffer allocate_staging(std::size_t bytes) override {
    use();
    return take(staging_, bytes, Buffer::Place::kHost);
  }
  Buffer allocate_shared(std::size_t bytes) override {
    use();
    void* memory = nullptr;
    if (cudaMallocManaged(&memory, bytes ? bytes : 1) != cudaSuccess) {
      cudaGetLastError();
      return {};
    }
    return {std::shared_ptr<std::byte>(static_cast<std::byte*>(memory),
                                       [](std::byte* own) { cudaFree(own); }),
            bytes};
  }

  Result<Buffer> upload(Buffer staged) override {
    if (staged.size() == 0) return staged;
    Buffer tensor = allocate(staged.size());
    if (!tensor) return Error{Code::kInternal, "device " + name_ + " has no memory left"};
    const cudaError_t error = cudaMemcpyAsync(tensor.data(), staged.data(), staged.size(),
                                              cudaMemcpyHostToDevice, stream_);
    if (error != cudaSuccess) return failure("copy to the device", error);
    // The staging block must not be filled again before the copy has read it.
    WEIR_TRY([[maybe_unused]] const Unit done, synchronize());
    return tensor;
  }
  Result<Buffer> download(Buffer tensor) override {
    if (tensor.size() == 0) return tensor;
    Buffer staged = allocate_staging(tensor.size());
    if (!staged) return Error{Code::kInternal, "no pinned host memory left"};
    const cudaError_t error = cudaMemcpyAsync(staged.data(), tensor.data(), tensor.size(),
                                              cudaMemcpyDeviceToHost, stream_);
    if (error != cudaSuccess) return failure("copy from the device", error);
    WEIR_TRY([[maybe_unused]] const Unit done, synchronize());
    return staged;
  }
  Status copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    use();
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_);
    if (error != cudaSuccess) return failure("copy on the device", error);
    return Unit{};
  }
  Status synchronize() override {
    use();
    const cudaError_t error = cudaStreamSynchronize(stream_);
    if (error != cudaSuccess) return failure("an op failed", error);
    return Unit{};
  }

 private:
  // The runtime's choice of a device is per thread; whoever calls first in an op sets it.
  void use() const { cudaSetDevice(index_); }

  const int index_;
  const std::string name_;
  const std::int64_t total_;
  const cudaStream_t stream_;
  const std::shared_ptr<CachingAllocator> memory_ =
      std::make_shared<CachingAllocator>(device_memory());
  const std::shared_ptr<CachingAllocator> staging_ =
      std::make_shared<CachingAllocator>(pinned_memory());
};

// kNotFound unless there is a driver that is new enough and a device of this index.
Result<Unit> check_driver(int index) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0 && driver < CUDART_VERSION) {
    return Error{Code::kNotFound, "the driver supports CUDA " + version_text(driver) +
                                      ", this worker needs " + version_text(CUDART_VERSION)};
  }
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ||
      (error == cudaSuccess && count == 0)) {
    return Error{Code::kNotFound,
                 "no CUDA device: " + (error == cudaSuccess ? "none is visible" : text(error))};
  }
  if (error != cudaSuccess) return Error{Code::kNotFound, "no CUDA device: " + text(error)};
  if (index >= count) {
    return Error{Code::kNotFound, "no CUDA device " + std::to_string(index) + ": " +
                                      std::to_string(count) + " visible"};
  }
  return Unit{};
}

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(int index) {
  // Before the first call of CUDA: as many hardware queues as there can be, since streams that
  // share one wait for each other, and transfers of two ranks may then wait in a circle.
  // Default: 8.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  WEIR_TRY([[maybe_unused]] const Unit driver, check_driver(index));
  cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) return failure("device properties", error);
  if (properties.major < kLeastCapability) {
    return Error{Code::kNotFound, std::string(properties.name) + " has compute capability " +
                                      std::to_string(properties.major) + "." +
                                      std::to_string(properties.minor) +
                                      "; the GPU worker needs 8.0 or more (A100, L4, H100)"};
  }
  error = cudaSetDevice(index);
  if (error != cudaSuccess) return failure("choosing the device", error);
  cudaStream_t stream = nullptr;
  error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return failure("creating a stream", error);
  return std::unique_ptr<Device>(std::make_unique<RealCudaDevice>(
      index, properties.name, static_cast<std::int64_t>(properties.totalGlobalMem), stream));
}

}  // namespace weir::device
