// SPDX-License-Identifier: Apache-2.0
// The threads of a block as coroutines on stacks of their own, resumed by chance: each seed is
// another order ($WEIR_EMULATOR_SEED, set_order()). A barrier counts who has come; threads that
// have ended are not waited for, as on a GPU since Volta.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <ucontext.h>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

namespace weir::stage::ops {

constexpr std::size_t kMostShared = 163 * 1024;  // of a block on compute capability 8.0
// Named by dynamic_shared().
extern float dynamic_memory[];
alignas(128) float dynamic_memory[kMostShared / sizeof(float)];

}  // namespace weir::stage::ops

struct CUgraph_st {
  std::vector<std::function<void()>> ops;
};

namespace weir::emulated {
namespace {

constexpr unsigned kWarp = 32, kMostThreads = 1024, kMostRows = 65535;
constexpr std::size_t kStack = 128 * 1024;
constexpr std::size_t kCopyBytes = 16;  // of one copy beside the threads

struct Barrier {
  unsigned members = 0, arrived = 0, generation = 0;

  void release_if_complete() {
    if (arrived < members || members == 0) return;
    arrived = 0;
    ++generation;
  }
};

struct Thread {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStack]};
  bool done = false;
};

// One block; there is one at a time.
struct Block {
  ucontext_t scheduler;
  std::vector<Thread> threads;
  unsigned size = 0, current = 0, finished = 0;
  Barrier all;
  std::vector<Barrier> warps;
  std::vector<std::uint64_t> exchanged;  // by thread
  struct Copy {
    void* to;
    const void* from;
  };
  std::vector<std::vector<Copy>> copies;  // by thread
  int any = 0;
  const std::function<void()>* body = nullptr;

  Barrier& warp() { return warps[current / kWarp]; }
};
Block block_now;
std::minstd_rand order_now([] {
  const char* seed = std::getenv("WEIR_EMULATOR_SEED");
  return seed != nullptr ? static_cast<unsigned>(std::strtoul(seed, nullptr, 10)) : 1U;
}());
cudaError_t error_now = cudaSuccess;
std::unique_ptr<CUgraph_st> capture;  // null: ops run at once

void thread_main() {
  (*block_now.body)();
  Block& b = block_now;
  b.threads[b.current].done = true;
  ++b.finished;
  for (Barrier* barrier : {&b.all, &b.warp()}) {
    --barrier->members;
    barrier->release_if_complete();
  }
  swapcontext(&b.threads[b.current].context, &b.scheduler);
}

void wait_for(Barrier& barrier) {
  Block& b = block_now;
  const unsigned generation = barrier.generation;
  ++barrier.arrived;
  barrier.release_if_complete();
  while (barrier.generation == generation) {
    swapcontext(&b.threads[b.current].context, &b.scheduler);
  }
}

void prepare(Block& b, unsigned size) {
  if (b.threads.size() < size) b.threads.resize(size);
  b.size = size;
  b.finished = 0;
  b.any = 0;
  b.all = {.members = size};
  b.warps.assign((size + kWarp - 1) / kWarp, {});
  b.exchanged.assign(size, 0);
  b.copies.assign(size, {});
  for (unsigned i = 0; i < size; ++i) {
    ++b.warps[i / kWarp].members;
    Thread& thread = b.threads[i];
    thread.done = false;
    getcontext(&thread.context);
    thread.context.uc_stack = {.ss_sp = thread.stack.get(), .ss_flags = 0, .ss_size = kStack};
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, thread_main, 0);
  }
}

// Whatever changes when somebody gets on.
unsigned progress(const Block& b) {
  unsigned sum = b.finished + b.all.generation;
  for (const Barrier& warp : b.warps) sum += warp.generation;
  return sum;
}

void resume(Block& b, unsigned thread) {
  if (b.threads[thread].done) return;
  b.current = thread;
  threadIdx =
      dim3(thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y);
  swapcontext(&b.scheduler, &b.threads[thread].context);
}

// Warps in any order, each for as long as chance lets it before the next one's turn; its lanes
// forwards, backwards or mixed: a barrier that is missing lets one read what another has yet to
// write, or has overwritten.
bool run_block(Block& b) {
  constexpr std::array<unsigned, 4> kTurns = {1, 2, 8, 1000};
  std::vector<unsigned> warps(b.warps.size()), lanes(kWarp);
  std::iota(warps.begin(), warps.end(), 0U);
  while (b.finished < b.size) {
    const unsigned before = progress(b);
    std::shuffle(warps.begin(), warps.end(), order_now);
    for (const unsigned warp : warps) {
      const unsigned first = warp * kWarp;
      std::iota(lanes.begin(), lanes.end(), first);
      const auto how = order_now() % 3;
      if (how == 1) std::reverse(lanes.begin(), lanes.end());
      if (how == 2) std::shuffle(lanes.begin(), lanes.end(), order_now);
      unsigned reached = progress(b) + 1;  // differs
      for (unsigned turns = kTurns[order_now() % kTurns.size()]; turns > 0; --turns) {
        if (progress(b) == reached) break;  // waits for another warp
        reached = progress(b);
        for (const unsigned thread : lanes) {
          if (thread < b.size) resume(b, thread);
        }
      }
    }
    if (progress(b) == before) return false;
  }
  return true;
}

}  // namespace

void run_grid(dim3 grid, dim3 block, std::size_t shared, const std::function<void()>& thread) {
  using stage::ops::dynamic_memory;
  const unsigned size = block.x * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.y > kMostRows || size == 0 || size > kMostThreads ||
      shared > stage::ops::kMostShared) {
    error_now = cudaErrorInvalidValue;
    return;
  }
  gridDim = grid;
  blockDim = block;
  block_now.body = &thread;
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      blockIdx = dim3(x, y, 0);
      // NaN: what nobody has written shows.
      std::memset(static_cast<void*>(dynamic_memory), 0xff, shared);
      prepare(block_now, size);
      if (!run_block(block_now)) {
        error_now = cudaErrorInvalidValue;
        return;
      }
    }
  }
}

void enqueue(std::function<void()> op) {
  if (capture) {
    capture->ops.push_back(std::move(op));
  } else {
    op();
  }
}

cudaError_t last_error() {
  return error_now;
}
void set_order(unsigned seed) {
  order_now.seed(seed);
}
void fail() {
  error_now = cudaErrorInvalidValue;
}
void wait_for_block() {
  wait_for(block_now.all);
}
void wait_for_warp() {
  wait_for(block_now.warp());
}

int lane() {
  return static_cast<int>(block_now.current % kWarp);
}

int any_of_block(int value) {
  block_now.any |= value;
  wait_for_block();
  const int any = block_now.any;
  wait_for_block();  // all have read it
  block_now.any = 0;
  wait_for_block();  // before the next one's values
  return any;
}

const std::uint64_t* of_warp(std::uint64_t value) {
  block_now.exchanged[block_now.current] = value;
  wait_for_warp();
  return &block_now.exchanged[block_now.current / kWarp * kWarp];
}

void copy_later(void* to, const void* from) {
  for (const void* const address : {static_cast<const void*>(to), from}) {
    if (reinterpret_cast<std::uintptr_t>(address) % kCopyBytes != 0) fail();
  }
  block_now.copies[block_now.current].push_back({to, from});
}
void finish_copies() {
  for (const auto& [to, from] : std::exchange(block_now.copies[block_now.current], {})) {
    if (from == nullptr) {
      std::memset(to, 0, kCopyBytes);
    } else {
      std::memcpy(to, from, kCopyBytes);
    }
  }
}

std::uint64_t exchange(std::uint64_t value, int offset) {
  const unsigned own = block_now.current;
  block_now.exchanged[own] = value;
  wait_for_warp();
  const unsigned other = own ^ static_cast<unsigned>(offset);
  const std::uint64_t found = block_now.exchanged[other];
  wait_for_warp();  // all have read theirs
  return found;
}

}  // namespace weir::emulated

using weir::emulated::capture;

cudaError_t cudaGetLastError() {
  return std::exchange(weir::emulated::error_now, cudaSuccess);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  if (capture) return cudaErrorInvalidValue;
  capture = std::make_unique<CUgraph_st>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = capture.release();
  return *graph != nullptr ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = new CUgraph_st(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  if (capture) return cudaErrorInvalidValue;
  for (const auto& op : graph->ops) op();
  return cudaSuccess;
}
