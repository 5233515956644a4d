// SPDX-License-Identifier: Apache-2.0
// Device memory and pinned host memory, each with a caching allocator. One stream for ops, one for
// copies beside them (read_beside).
#include "worker/device/cuda/cuda_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include "worker/device/caching_allocator.h"

namespace weir::device {
namespace {

// For bf16, and the lowest architecture for which kernels are compiled.
constexpr int kLeastCapability = 8;

std::string text(cudaError_t error) {
  return cudaGetErrorString(error);
}
Error failure(const char* what, cudaError_t error) {
  return {Code::kInternal, std::string("CUDA: ") + what + ": " + text(error)};
}
// E.g. 13000 -> "13.0".
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

CachingAllocator::RawMemory device_memory() {
  return {.allocate = [](std::size_t bytes) -> std::byte* {
            void* memory = nullptr;
            if (cudaMalloc(&memory, bytes) == cudaSuccess) return static_cast<std::byte*>(memory);
            cudaGetLastError();  // clears the error, so that the next call does not report it
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

// Buffers share the allocator, so they may outlive the device object.
Buffer take(const std::shared_ptr<CachingAllocator>& from, std::size_t bytes, Buffer::Place place) {
  std::byte* block = from->allocate(bytes);
  if (block == nullptr) return {};
  return {
      std::shared_ptr<std::byte>(block, [from, bytes](std::byte* own) { from->free(own, bytes); }),
      bytes, place};
}

constexpr unsigned kEventFlags = cudaEventDisableTiming | cudaEventBlockingSync;
// Size of the pinned memory through which other host memory is copied: large enough to make the
// latency of a copy negligible. Each call allocates this much for its duration.
constexpr std::size_t kPiece = std::size_t{8} << 20U;

class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  // Records the event behind the work in the stream.
  cudaError_t record(cudaStream_t stream) {
    const cudaError_t made = cudaEventCreateWithFlags(&event_, kEventFlags);
    return made == cudaSuccess ? cudaEventRecord(event_, stream) : made;
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CopyBeside final : public PendingCopy {
 public:
  CopyBeside(int index, Event done) : index_(index), done_(std::move(done)) {}
  ~CopyBeside() override { static_cast<void>(wait()); }
  Status wait() override {
    cudaSetDevice(index_);  // the device is a setting of each thread
    const cudaError_t error = cudaEventSynchronize(done_.get());
    if (error != cudaSuccess) return failure("a copy beside the ops failed", error);
    return Unit{};
  }

 private:
  const int index_;
  const Event done_;
};

struct Streams {
  cudaStream_t ops = nullptr, copies = nullptr;
};

class RealCudaDevice final : public CudaDevice {
 public:
  RealCudaDevice(int index, std::string name, std::int64_t total, Streams streams)
      : index_(index),
        name_(std::move(name)),
        total_(total),
        stream_(streams.ops),
        copies_(streams.copies) {}
  ~RealCudaDevice() override {
    for (const cudaStream_t stream : {stream_, copies_}) {
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    }
  }
  RealCudaDevice(const RealCudaDevice&) = delete;
  RealCudaDevice& operator=(const RealCudaDevice&) = delete;

  CUstream_st* stream() const override { return stream_; }
  int index() const override { return index_; }
  bool is_host() const override { return false; }
  std::string name() const override { return name_; }
  std::int64_t memory_bytes() const override { return total_; }
  std::int64_t memory_free_bytes() const override {
    use();  // the device is a setting of each thread
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
    // Kept blocks can be reused, so they count as free.
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
  Status read(void* to, const void* from, std::size_t bytes) override {
    return in_pieces(bytes, [&](std::size_t at, Buffer& pinned, std::size_t count) -> Status {
      WEIR_OK(copy(pinned.data(), offset(from, at), count));
      WEIR_OK(synchronize());
      std::memcpy(static_cast<std::byte*>(to) + at, pinned.data(), count);
      return Unit{};
    });
  }
  Status write(void* to, const void* from, std::size_t bytes) override {
    return in_pieces(bytes, [&](std::size_t at, Buffer& pinned, std::size_t count) -> Status {
      std::memcpy(pinned.data(), offset(from, at), count);
      WEIR_OK(copy(static_cast<std::byte*>(to) + at, pinned.data(), count));
      return synchronize();  // before the pinned memory is filled again
    });
  }
  Status copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return Unit{};
    use();
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_);
    if (error != cudaSuccess) return failure("a copy", error);
    return Unit{};
  }
  Result<std::unique_ptr<PendingCopy>> read_beside(void* to, const void* from,
                                                   std::size_t bytes) override {
    use();
    Event computed, done;
    cudaError_t error = computed.record(stream_);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(copies_, computed.get(), 0);
    if (error == cudaSuccess) {
      error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, copies_);
    }
    if (error == cudaSuccess) error = done.record(copies_);
    if (error == cudaSuccess) {
      return std::unique_ptr<PendingCopy>(std::make_unique<CopyBeside>(index_, std::move(done)));
    }
    cudaStreamSynchronize(copies_);  // so that enqueued work does not write later
    return failure("a copy beside the ops", error);
  }
  std::shared_ptr<void> ask_before_trim(std::function<bool()> may) override {
    return memory_->ask_before_trim(std::move(may));
  }
  Status synchronize() override {
    use();
    const cudaError_t error = cudaStreamSynchronize(stream_);
    if (error != cudaSuccess) return failure("an op failed", error);
    return Unit{};
  }

 private:
  // The runtime's current device is a setting of each thread, so ops set it first.
  void use() const { cudaSetDevice(index_); }

  static const std::byte* offset(const void* from, std::size_t at) {
    return static_cast<const std::byte*>(from) + at;
  }
  // Calls move(offset, pinned memory, bytes) for each piece.
  template <class Move>
  Status in_pieces(std::size_t bytes, Move move) {
    if (bytes == 0) return Unit{};
    Buffer pinned = allocate_staging(std::min(bytes, kPiece));
    if (!pinned) return Error{Code::kInternal, "no pinned host memory left"};
    for (std::size_t at = 0; at < bytes; at += kPiece) {
      WEIR_OK(move(at, pinned, std::min(kPiece, bytes - at)));
    }
    return Unit{};
  }

  const int index_;
  const std::string name_;
  const std::int64_t total_;
  const cudaStream_t stream_, copies_;
  const std::shared_ptr<CachingAllocator> memory_ =
      std::make_shared<CachingAllocator>(device_memory());
  const std::shared_ptr<CachingAllocator> staging_ =
      std::make_shared<CachingAllocator>(pinned_memory());
};

// kNotFound unless there is a driver that is new enough and a device with this index.
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
  // Must come before the first CUDA call: requests the maximum of hardware queues (default: 8).
  // Streams that share a queue wait for each other, and transfers of two ranks could then wait in a
  // circle.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  WEIR_OK(check_driver(index));
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
  Streams streams;
  for (cudaStream_t* stream : {&streams.ops, &streams.copies}) {
    error = cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) return failure("creating a stream", error);
  }
  return std::unique_ptr<Device>(std::make_unique<RealCudaDevice>(
      index, properties.name, static_cast<std::int64_t>(properties.totalGlobalMem), streams));
}

}  // namespace weir::device
