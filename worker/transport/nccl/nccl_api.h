// SPDX-License-Identifier: Apache-2.0
// The seam to NCCL and to CUDA's streams and events. Everything else in this room is plain C++ and
// is tested with a fake. No call blocks for long; anything slow is polled.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "worker/base/result.h"
#include "worker/transport/link_stats.h"

namespace weir::transport::nccl {

constexpr std::size_t kUniqueIdBytes = 128;  // NCCL_UNIQUE_ID_BYTES
using UniqueId = std::array<std::byte, kUniqueIdBytes>;

// Facts that decide whether NCCL can run here; start_checks.h checks them.
struct Facts {
  int nccl = 0;        // version of the loaded library, as NCCL_VERSION_CODE: 22809 is 2.28.9
  int driver = 0;      // newest CUDA that the driver supports: 13000 is 13.0; 0 = no driver
  int runtime = 0;     // CUDA with which this program is built
  int capability = 0;  // of the GPU: 80 is 8.0
  std::string gpu_name;
  std::string gpu;  // equal for two processes if NCCL takes their GPUs for one
};

// Time that an operation took on its stream, by events.
struct Timing {
  std::chrono::nanoseconds gap{0};  // since the end of the previous operation; 0 for the first
  std::chrono::nanoseconds duration{0};
};

// Marks everything that was enqueued on the device's compute stream when the mark was made. Any
// thread.
class Mark {
 public:
  virtual ~Mark() = default;
  virtual Result<bool> done() = 0;  // kInternal: an op failed
};

// A transfer of device memory to another rank or from it.
struct Transfer {
  int rank = 0;
  const std::byte* from = nullptr;  // either `from` or `to` is set
  std::byte* to = nullptr;
  std::size_t bytes = 0;
};

// out[i] = the float nearest to the sum of the i-th doubles of the ranks, added in the order of the
// ranks.
struct SegmentSum {
  std::span<const double* const> inputs;  // by rank; at most kMostRanks
  std::size_t count = 0;
  float* out = nullptr;
};
// out[i] = the float nearest to the sum of weight times i-th float of the ranks, computed in double
// in the order of the ranks.
struct SegmentMean {
  std::span<const float* const> inputs;  // by rank, as the weights; at most kMostRanks
  std::span<const double> weights;
  std::size_t count = 0;
  float* out = nullptr;
};
constexpr std::size_t kMostRanks = 256;

struct CommTimes {
  TransferTimes sent, received;
};

// A communicator with a stream of its own; operations run one after the other. One thread uses it,
// but any thread may call ready(), times() and NcclApi::abort().
class NcclComm {
 public:
  virtual ~NcclComm() = default;  // call abort() first

  // True: an operation may be enqueued. False: the communicator is being made or is busy with the
  // previous exchange. kUnavailable: it is broken; final.
  virtual Result<bool> ready() = 0;
  // Operations are only enqueued; their memory must stay valid until they have finished. The
  // transfers of one exchange run in parallel. Their counterparts are in the exchanges of the other
  // ranks.
  virtual Status exchange(std::span<const Transfer> transfers) = 0;
  virtual Status sum(const SegmentSum& segment) = 0;
  virtual Status mean(const SegmentMean& segment) = 0;
  // Returns the oldest operation that has finished and has not been taken.
  virtual Result<std::optional<Timing>> take_finished() = 0;
  // Times that NCCL reports about its transfers; nothing if it does not report. Any thread.
  virtual std::optional<CommTimes> times() const = 0;
  // After abort(): false while an operation still runs and uses its memory.
  virtual bool drained() = 0;

  // On a link, rank 0 sends to rank 1.
  Status send(const std::byte* data, std::size_t bytes) {
    const Transfer one{.rank = 1, .from = data, .bytes = bytes};
    return exchange({&one, 1});
  }
  Status receive(std::byte* data, std::size_t bytes) {
    const Transfer one{.rank = 0, .to = data, .bytes = bytes};
    return exchange({&one, 1});
  }
};

// Sums are transferred when a stage's last backward is nearly done, and averages after it. So a
// group gets more blocks than a link, but far from all.
constexpr int kGroupBlocks = 8;

struct CommOrder {
  UniqueId id{};
  int rank = 0, ranks = 2;
  int most_blocks = 4;  // multiprocessors of the GPU that an exchange may use
  std::string name;     // for NCCL's messages
};

class NcclApi {
 public:
  virtual ~NcclApi() = default;

  virtual Facts facts() = 0;
  virtual std::unique_ptr<Mark> mark() = 0;  // called by the thread that enqueues ops
  virtual Result<UniqueId> make_id() = 0;
  // Starts to make the communicator of all ranks with the same id.
  virtual Result<std::unique_ptr<NcclComm>> open(const CommOrder& order) = 0;
  // Ends all of them together, because freeing one while another one runs can deadlock. Running and
  // hanging operations end with an error. Any thread, also while another thread is inside a call.
  virtual void abort(std::span<NcclComm* const> comms) noexcept = 0;
};

}  // namespace weir::transport::nccl
