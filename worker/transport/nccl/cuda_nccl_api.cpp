// SPDX-License-Identifier: Apache-2.0
// The only file that includes nccl.h. Communicators are non-blocking: a call that returns
// ncclInProgress continues in the background, and the communicator must not be used otherwise until
// it is ready.
#include "worker/transport/nccl/cuda_nccl_api.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <nccl.h>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "worker/transport/nccl/profiler_plugin.h"
#include "worker/transport/nccl/segment_sum.h"

namespace weir::transport::nccl {
namespace {

static_assert(kUniqueIdBytes == NCCL_UNIQUE_ID_BYTES);
static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0));

// After the abort of a communicator, work on its stream may run this long; afterwards its memory is
// free.
constexpr auto kStreamDrainLimit = std::chrono::seconds(2);
constexpr auto kLaunchWait = std::chrono::microseconds(300);

Error cuda_failure(const char* what, cudaError_t error) {
  return {Code::kInternal, std::string("CUDA: ") + what + ": " + cudaGetErrorString(error)};
}
Error nccl_failure(const char* what, ncclResult_t result, ncclComm_t comm) {
  std::string text = std::string("NCCL: ") + what + ": " + ncclGetErrorString(result);
  const char* more = ncclGetLastError(comm);
  if (more != nullptr && *more != '\0') text += std::string(": ") + more;
  for (char& c : text) {
    if (c == '\n') c = ' ';  // the text must be one line
  }
  return {Code::kUnavailable, text};
}

// An event that is recorded at most once.
class Event {
 public:
  explicit Event(unsigned flags) {
    if (cudaEventCreateWithFlags(&event_, flags) != cudaSuccess) event_ = nullptr;
  }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }

  Status record(cudaStream_t stream) {
    const cudaError_t error = cudaEventRecord(event_, stream);
    if (error != cudaSuccess) return cuda_failure("recording an event", error);
    return Unit{};
  }
  Result<bool> done() const {
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // so that nobody who asks for the last error takes it for a failure
      return false;
    }
    if (error != cudaSuccess) return cuda_failure("an op failed", error);
    return true;
  }
  // Both events must be done. The resolution is about half a microsecond.
  static Result<std::chrono::nanoseconds> between(const Event& first, const Event& last) {
    float milliseconds = 0;
    const cudaError_t error = cudaEventElapsedTime(&milliseconds, first.event_, last.event_);
    if (error != cudaSuccess) return cuda_failure("timing an event", error);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double, std::milli>(milliseconds));
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaMark final : public Mark {
 public:
  CudaMark(int device, cudaStream_t stream)
      : device_(device), event_(cudaEventDisableTiming), recorded_(event_.record(stream)) {}
  Result<bool> done() override {
    if (!recorded_) return recorded_.error();
    cudaSetDevice(device_);
    return event_.done();
  }

 private:
  const int device_;
  Event event_;
  const Status recorded_;
};

class CudaNcclComm final : public NcclComm {
 public:
  CudaNcclComm(int device, cudaStream_t stream, ncclComm_t comm,
               std::unique_ptr<const std::string> name, std::shared_ptr<CommProfile> profile)
      : device_(device),
        stream_(stream),
        name_(std::move(name)),
        profile_(std::move(profile)),
        comm_(comm) {}
  ~CudaNcclComm() override {
    const auto limit = std::chrono::steady_clock::now() + kStreamDrainLimit;
    while (!drained() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    cudaStreamDestroy(stream_);
  }
  CudaNcclComm(const CudaNcclComm&) = delete;
  CudaNcclComm& operator=(const CudaNcclComm&) = delete;

  Result<bool> ready() override {
    const std::unique_lock lock(calls_mutex_, std::try_to_lock);
    if (!lock) return false;
    return state();
  }
  Status exchange(std::span<const Transfer> transfers) override {
    const std::lock_guard lock(calls_mutex_);
    WEIR_OK(begin());
    ncclResult_t result = ncclGroupStart();
    for (const Transfer& one : transfers) {
      if (result != ncclSuccess && result != ncclInProgress) break;
      result = one.from != nullptr
                   ? ncclSend(one.from, one.bytes, ncclInt8, one.rank, comm_, stream_)
                   : ncclRecv(one.to, one.bytes, ncclInt8, one.rank, comm_, stream_);
    }
    const ncclResult_t ended = ncclGroupEnd();
    const bool failed = result != ncclSuccess && result != ncclInProgress;
    WEIR_OK(enqueued("send and receive", failed ? result : ended));
    return settle_soon();
  }
  Status sum(const SegmentSum& segment) override {
    const std::lock_guard lock(calls_mutex_);
    WEIR_OK(begin());
    operations_.back().transfers = false;
    sum_in_order(stream_, segment.inputs.data(), segment.inputs.size(), segment.count, segment.out);
    const cudaError_t error = cudaPeekAtLastError();
    if (error != cudaSuccess) return cuda_failure("adding gradients", error);
    return settle();
  }
  Status mean(const SegmentMean& segment) override {
    const std::lock_guard lock(calls_mutex_);
    WEIR_OK(begin());
    operations_.back().transfers = false;
    mean_in_order(stream_, segment.inputs.data(), segment.weights.data(), segment.inputs.size(),
                  segment.count, segment.out);
    const cudaError_t error = cudaPeekAtLastError();
    if (error != cudaSuccess) return cuda_failure("averaging parameters", error);
    return settle();
  }
  Result<std::optional<Timing>> take_finished() override {
    const std::lock_guard lock(calls_mutex_);
    cudaSetDevice(device_);
    WEIR_OK(settle());
    if (operations_.empty() || !operations_.front().enqueued) return std::optional<Timing>();
    Operation& oldest = operations_.front();
    WEIR_TRY(const bool done, oldest.end.done());
    if (!done) return std::optional<Timing>();
    Timing timing;
    WEIR_TRY(timing.duration, Event::between(oldest.start, oldest.end));
    if (before_) {
      WEIR_TRY(timing.gap, Event::between(*before_, oldest.start));
    }
    before_ = std::move(oldest.end);
    if (oldest.transfers) event_time_ += timing.duration.count();
    operations_.pop_front();
    return std::optional(timing);
  }

  std::optional<CommTimes> times() const override {
    if (!profile_) return std::nullopt;
    const auto now = std::chrono::steady_clock::now();
    CommTimes times{.sent = profile_->sent(now), .received = profile_->received(now)};
    times.sent.events = times.received.events = std::chrono::nanoseconds(event_time_);
    return times;
  }

  bool drained() override {
    cudaSetDevice(device_);
    return cudaStreamQuery(stream_) != cudaErrorNotReady;
  }

  // For NcclApi::abort(): returns the communicator once, then null.
  ncclComm_t release() { return comm_.exchange(nullptr); }

 private:
  struct Operation {
    Event start{cudaEventDefault}, end{cudaEventDefault};
    bool enqueued = false;  // completely: its end has been recorded
    bool transfers = true;  // false for a sum
  };

  Result<bool> state() {
    ncclComm_t comm = comm_;
    if (comm == nullptr) return Error{Code::kUnavailable, "NCCL: aborted"};
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    if (asked != ncclSuccess) return nccl_failure("the communicator", asked, comm);
    if (state == ncclInProgress) return false;
    if (state != ncclSuccess) return nccl_failure("the communicator", state, comm);
    return true;
  }
  Status begin() {
    cudaSetDevice(device_);
    WEIR_OK(settle());
    return operations_.emplace_back().start.record(stream_);
  }
  Status enqueued(const char* what, ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress) {
      return nccl_failure(what, result, comm_);
    }
    return settle();
  }
  // A thread of NCCL launches what a non-blocking communicator exchanges, 30 to 80 us later
  // (src/group.cc, ncclGroupEndInternal). An end that is recorded at the driver's next poll only
  // would count the time until then as time of the link.
  Status settle_soon() {
    const auto limit = std::chrono::steady_clock::now() + kLaunchWait;
    while (!operations_.back().enqueued && std::chrono::steady_clock::now() < limit) {
      WEIR_OK(settle());
    }
    return Unit{};
  }
  // NCCL may enqueue the newest operation later, when it has connected. The end is recorded after
  // that.
  Status settle() {
    if (operations_.empty() || operations_.back().enqueued) return Unit{};
    WEIR_TRY(const bool all, state());
    if (!all) return Unit{};
    operations_.back().enqueued = true;
    return operations_.back().end.record(stream_);
  }

  const int device_;
  const cudaStream_t stream_;
  const std::unique_ptr<const std::string> name_;
  const std::shared_ptr<CommProfile> profile_;  // null: the user has chosen another profiler
  // Guards calls of NCCL except for the abort, which must not wait. Asking for the state needs the
  // mutex, too: it joins and frees the thread that has made the communicator or launched its newest
  // operation (src/init.cc, ncclCommGetAsyncError), twice if two threads ask at once.
  std::mutex calls_mutex_;
  std::atomic<ncclComm_t> comm_;
  std::atomic<std::chrono::nanoseconds::rep> event_time_ = 0;
  std::deque<Operation> operations_;  // only the newest may not be enqueued yet
  std::optional<Event> before_;       // end of the last operation that was taken
};

class CudaNcclApi final : public NcclApi {
 public:
  explicit CudaNcclApi(const device::CudaDevice& device)
      : device_(device.index()), compute_(device.stream()), profiles_(choose_own_profiler()) {}

  Facts facts() override {
    Facts facts{.runtime = CUDART_VERSION};
    ncclGetVersion(&facts.nccl);
    cudaDriverGetVersion(&facts.driver);
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device_) != cudaSuccess) return facts;
    facts.capability = properties.major * 10 + properties.minor;
    facts.gpu_name = properties.name;
    facts.gpu = "GPU-" + hex(properties.uuid.bytes, sizeof properties.uuid.bytes);
    // NCCL assumes one machine per value of NCCL_HOSTID.
    if (const char* host = std::getenv("NCCL_HOSTID")) facts.gpu += std::string("@") + host;
    return facts;
  }
  std::unique_ptr<Mark> mark() override {
    cudaSetDevice(device_);
    return std::make_unique<CudaMark>(device_, compute_);
  }
  Result<UniqueId> make_id() override {
    ncclUniqueId id;
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) return nccl_failure("a unique id", result, nullptr);
    UniqueId bytes;
    std::memcpy(bytes.data(), &id, sizeof id);
    return bytes;
  }
  Result<std::unique_ptr<NcclComm>> open(const CommOrder& order) override {
    cudaSetDevice(device_);
    cudaStream_t stream = nullptr;
    const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) return cuda_failure("creating a stream", error);
    const cudaError_t loaded = load_segment_kernels();
    if (loaded != cudaSuccess) {
      cudaStreamDestroy(stream);
      return cuda_failure("loading kernels", loaded);
    }
    ncclUniqueId id;
    std::memcpy(&id, order.id.data(), sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.minCTAs = 1;
    config.maxCTAs = order.most_blocks;
    auto kept_name = std::make_unique<const std::string>(order.name);  // NCCL may print it later
    config.commName = kept_name->c_str();
    std::shared_ptr<CommProfile> profile = profiles_ ? profile_of(order.name) : nullptr;
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&comm, order.ranks, id, order.rank, &config);
    if (result != ncclSuccess && result != ncclInProgress) {
      cudaStreamDestroy(stream);
      return nccl_failure("making a communicator", result, nullptr);
    }
    return std::unique_ptr<NcclComm>(std::make_unique<CudaNcclComm>(
        device_, stream, comm, std::move(kept_name), std::move(profile)));
  }
  // Each in a thread of its own: an abort sets its communicator's flag and then waits for what that
  // communicator has launched, which may wait for the device while a kernel of another one spins
  // until its own flag is set.
  void abort(std::span<NcclComm* const> comms) noexcept override {
    const auto abort_one = [device = device_](ncclComm_t comm) {
      cudaSetDevice(device);
      ncclCommAbort(comm);
    };
    std::vector<std::thread> threads;
    for (NcclComm* one : comms) {
      ncclComm_t comm = static_cast<CudaNcclComm*>(one)->release();
      if (comm == nullptr) continue;
      try {
        threads.emplace_back(abort_one, comm);
      } catch (const std::exception&) {  // no thread or no memory is left
        abort_one(comm);
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  static std::string hex(const char* bytes, std::size_t count) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
      const auto byte = static_cast<unsigned char>(bytes[i]);
      text += kDigits[byte >> 4];
      text += kDigits[byte & 15];
    }
    return text;
  }

  const int device_;
  const cudaStream_t compute_;
  const bool profiles_;  // NCCL uses our profiler
};

}  // namespace

std::shared_ptr<NcclApi> make_cuda_nccl_api(const device::CudaDevice& device) {
  return std::make_shared<CudaNcclApi>(device);
}

}  // namespace weir::transport::nccl
