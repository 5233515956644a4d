// SPDX-License-Identifier: Apache-2.0
// The seam to NCCL and to CUDA's streams and events: everything else of this room is plain C++ and
// is tested with a fake. No call blocks for long; what takes time is asked for again.
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

// What decides whether NCCL can run here; judged by start_checks.h.
struct Facts {
  int nccl = 0;        // of the loaded library, as NCCL_VERSION_CODE: 22809 is 2.28.9
  int driver = 0;      // newest CUDA that the driver supports: 13000 is 13.0; 0 = no driver
  int runtime = 0;     // CUDA that this program is built with
  int capability = 0;  // of the GPU: 80 is 8.0
  std::string gpu_name;
  std::string gpu;  // equal for two processes if NCCL takes their GPUs for one
};

// How long an operation took on its stream, by events.
struct Timing {
  std::chrono::nanoseconds gap{0};  // since the end of the operation before; 0 for the first
  std::chrono::nanoseconds duration{0};
};

// All that was enqueued on the device's compute stream when it was made. Any thread.
class Mark {
 public:
  virtual ~Mark() = default;
  virtual Result<bool> done() = 0;  // kInternal: an op failed
};

// Device memory to another rank, or from it.
struct Transfer {
  int rank = 0;
  const std::byte* from = nullptr;  // one of both
  std::byte* to = nullptr;
  std::size_t bytes = 0;
};

// out[i] = the float next to the sum over the ranks, in their order, of their i-th double.
struct SegmentSum {
  std::span<const double* const> inputs;  // by rank; at most kMostRanks
  std::size_t count = 0;
  float* out = nullptr;
};
// out[i] = the float next to the sum over the ranks, in their order, of their weight times their
// i-th float, in double.
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

// A communicator with a stream of its own; operations run one after the other. One thread, but
// ready(), times() and NcclApi::abort() from any.
class NcclComm {
 public:
  virtual ~NcclComm() = default;  // after abort()

  // True: an operation may be enqueued. False: not yet, it is being made or is still busy with the
  // exchange before. kUnavailable: broken, for ever.
  virtual Result<bool> ready() = 0;
  // Operations: enqueued only; their memory must stay until they have finished. Transfers of one
  // exchange run all at once; in each other rank's exchange are their other halves.
  virtual Status exchange(std::span<const Transfer> transfers) = 0;
  virtual Status sum(const SegmentSum& segment) = 0;
  virtual Status mean(const SegmentMean& segment) = 0;
  // The oldest operation that has not been taken, once it has finished.
  virtual Result<std::optional<Timing>> take_finished() = 0;
  // What NCCL tells of its transfers; nothing when it does not. Any thread.
  virtual std::optional<CommTimes> times() const = 0;
  // After abort(): false while an operation still runs, that is, uses its memory.
  virtual bool drained() = 0;

  // On a link: rank 0 sends to rank 1.
  Status send(const std::byte* data, std::size_t bytes) {
    const Transfer one{.rank = 1, .from = data, .bytes = bytes};
    return exchange({&one, 1});
  }
  Status receive(std::byte* data, std::size_t bytes) {
    const Transfer one{.rank = 0, .to = data, .bytes = bytes};
    return exchange({&one, 1});
  }
};

// Sums travel when a stage's last backward is nearly done, averages behind it: more than a link,
// far from all.
constexpr int kGroupBlocks = 8;

struct CommOrder {
  UniqueId id{};
  int rank = 0, ranks = 2;
  int most_blocks = 4;  // of the GPU's multiprocessors, while an exchange runs
  std::string name;     // for NCCL's messages
};

class NcclApi {
 public:
  virtual ~NcclApi() = default;

  virtual Facts facts() = 0;
  virtual std::unique_ptr<Mark> mark() = 0;  // by the thread that enqueues ops
  virtual Result<UniqueId> make_id() = 0;
  // Begins to make the communicator of all ranks with the same id.
  virtual Result<std::unique_ptr<NcclComm>> open(const CommOrder& order) = 0;
  // Ends all of them together, as freeing one while another runs can deadlock; what runs or hangs
  // on them ends with an error. Any thread, also while another one is within a call.
  virtual void abort(std::span<NcclComm* const> comms) noexcept = 0;
};

}  // namespace weir::transport::nccl
