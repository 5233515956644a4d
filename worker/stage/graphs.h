// SPDX-License-Identifier: Apache-2.0
// Runs the ops of a pass (one forward, one backward, or a part of a split one) one by one, or as a
// graph: launching some hundred small kernels takes the host longer than the device needs for them.
// A pass is identified by its ops and their arguments, including addresses. So a graph is launched
// only if it does exactly what the single ops would do, and layers allocate as usual. The allocator
// returns the same addresses for the same order of requests (device/caching_allocator.h), so passes
// recur in every step. Whether a graph is faster is measured for each pass. Engine thread only.
//
// Ops run after layers have freed memory that these ops still use. The memory is not reused
// meanwhile: only the engine thread allocates, kept memory is not returned to the driver before the
// ops are enqueued (Device::ask_before_trim), and kernels need no more scratch memory than the
// first pass of a kind, whose ops run at once.
#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/stage/ops/kernels.h"
#include "worker/stage/stage.h"

namespace weir::stage {

// Measurements of the two ways to run a pass.
struct Ways {
  struct Way {
    int runs = 0;
    // Without the first run, which includes preparations.
    std::chrono::nanoseconds best = std::chrono::nanoseconds::max();
  };
  Way ops, graph;
};
// Chooses the way of the next run. A graph for a pass that does not recur would be wasted, so the
// first run is op by op.
bool runs_as_graph(const Ways& ways, GraphUse use);

// Passes of one kind differ only in addresses.
enum class PassPart : unsigned char { kForward, kBackward, kBackwardInput, kBackwardWeights };
struct PassKind {
  PassPart part = PassPart::kForward;
  int samples = 0;
  auto operator<=>(const PassKind&) const = default;
};

class GraphRunner {
 public:
  // kernels: for `device`, with makes_graphs(). All three references outlive the runner. use: not
  // kOff.
  GraphRunner(ops::Kernels& kernels, device::Device& device, const Clock& clock, GraphUse use);

  GraphRunner(const GraphRunner&) = delete;
  GraphRunner& operator=(const GraphRunner&) = delete;

  // Returns the kernels for the ops of the next pass. Drops ops since the last run().
  ops::Kernels& begin(PassKind kind);
  // Enqueues the ops and waits until they have run. kInternal names what failed.
  Status run();

  std::int64_t launches() const { return launches_; }  // number of passes that ran as graphs
  // True if graphs are useless here: the device refused one, or addresses do not recur.
  bool given_up() const { return given_up_; }

  static constexpr std::size_t kMostPasses = 256;  // number of passes that are remembered

 private:
  using Ops = std::vector<ops::Op>;
  struct Recorder final : ops::Kernels {
    void run(const ops::Op& op) override { recorded.push_back(op); }
    Ops recorded;
  };
  struct Pass {
    Ops ops;
    Ways ways;
    std::unique_ptr<ops::Graph> graph;
    std::int64_t last_run = 0;
  };

  bool enqueue_before_trim();
  Pass& known(Ops ops);
  Status enqueue(Pass& pass);
  void run_all(const Ops& ops);
  void give_up(const std::string& reason);
  void note(Pass& pass, bool as_graph, std::chrono::nanoseconds took);

  ops::Kernels& kernels_;
  device::Device& device_;
  const Clock& clock_;
  const GraphUse use_;
  PassKind kind_;
  std::set<PassKind> kinds_;  // kinds whose first pass has run
  Recorder recorder_;
  bool broken_up_ = false;  // a part of the pass was enqueued early
  // The recording thread; none between run() and begin().
  std::atomic<std::thread::id> recording_ = {};
  std::shared_ptr<void> asked_;
  std::vector<std::unique_ptr<Pass>> passes_;
  std::int64_t runs_ = 0, launches_ = 0, forgotten_ = 0, met_again_ = 0;
  bool given_up_ = false;
};

}  // namespace weir::stage
