// SPDX-License-Identifier: Apache-2.0
// Runs the ops of a pass (one forward or backward) op by op, or as a graph: launching some hundred
// small kernels one by one takes the host longer than the device needs for them. A pass is known by
// its ops and their arguments, addresses included. So a graph is launched only where it does
// exactly what op by op would do, and layers allocate as they always do; since the allocator gives
// the same addresses for the same order of requests (device/caching_allocator.h), passes come again
// in every step. Whether a graph pays is measured, pass by pass. Engine thread only.
//
// Ops are called after layers have given back memory that these ops still use. Nobody else gets at
// it meanwhile: allocations are the engine thread's, kept memory does not go back to the driver
// before the ops are enqueued (Device::ask_before_trim), and kernels need no more scratch than the
// first pass of a kind has taken, whose ops are called at once.
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
#include "worker/stage/ops/calls.h"
#include "worker/stage/ops/kernels.h"
#include "worker/stage/stage.h"

namespace weir::stage {

// What is known of the two ways to run a pass.
struct Ways {
  struct Way {
    int runs = 0;
    std::chrono::nanoseconds best = std::chrono::nanoseconds::max();  // not counting the first run,
                                                                      // which prepares things
  };
  Way ops, graph;
};
// The way to run it next. A pass that never comes again is not worth a graph, so the first run is
// op by op.
bool runs_as_graph(const Ways& ways, GraphUse use);

// Passes of a kind differ in addresses only.
struct PassKind {
  bool forward = true;
  int samples = 0;
  auto operator<=>(const PassKind&) const = default;
};

class GraphRunner {
 public:
  // kernels: of `device`, with makes_graphs(); all three outlive the runner. use: not kOff.
  GraphRunner(ops::Kernels& kernels, device::Device& device, const Clock& clock, GraphUse use);

  GraphRunner(const GraphRunner&) = delete;
  GraphRunner& operator=(const GraphRunner&) = delete;

  // Where the ops of the next pass are called; forgets what was called since the last run().
  ops::Kernels& begin(PassKind kind);
  // Enqueues them and waits until they have run. kInternal: what failed.
  Status run();

  std::int64_t launches() const { return launches_; }  // passes run as graphs so far
  // Graphs are of no use here: the device refused one, or addresses do not come again.
  bool given_up() const { return given_up_; }

  static constexpr std::size_t kMostPasses = 256;  // known at a time

 private:
  using Calls = std::vector<std::unique_ptr<ops::Call>>;
  struct Pass {
    Calls calls;
    Ways ways;
    std::unique_ptr<ops::Graph> graph;
    std::int64_t last_run = 0;
  };

  bool enqueue_before_trim();
  Pass& known(Calls calls);
  Status enqueue(Pass& pass);
  void call_all(const Calls& calls);
  void give_up(const std::string& reason);
  void note(Pass& pass, bool as_graph, std::chrono::nanoseconds took);

  ops::Kernels& kernels_;
  device::Device& device_;
  const Clock& clock_;
  const GraphUse use_;
  PassKind kind_;
  std::set<PassKind> kinds_;  // whose first pass has run
  Calls calls_;
  ops::CallRecorder recorder_;
  bool broken_up_ = false;                       // a part of the pass was enqueued early
  std::atomic<std::thread::id> recording_ = {};  // the thread; none between run() and begin()
  std::shared_ptr<void> asked_;
  std::vector<std::unique_ptr<Pass>> passes_;
  std::int64_t runs_ = 0, launches_ = 0, forgotten_ = 0, met_again_ = 0;
  bool given_up_ = false;
};

}  // namespace weir::stage
