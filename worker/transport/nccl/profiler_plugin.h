// SPDX-License-Identifier: Apache-2.0
// NCCL's profiler plugin (version 5 of its interface), inside the worker. NCCL finds it as the
// symbol ncclProfiler_v5 of the program if NCCL_PROFILER_PLUGIN is STATIC_PLUGIN. It needs neither
// NCCL's headers nor CUDA. NCCL's threads call it; it only passes their events on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>

#include "worker/transport/nccl/comm_profile.h"

namespace weir::transport::nccl {

// Call it before the first call of NCCL in this process. A value of NCCL_PROFILER_PLUGIN that the
// user has set is kept; "none" turns profiling off. Returns false if the value is the user's.
bool choose_own_profiler();

// The profile of the communicator with that name, from its making on. One at a time per name; it
// ends with its last owner.
std::shared_ptr<CommProfile> profile_of(const std::string& comm_name);

// The binary interface of NCCL 2.28.9, src/include/plugin/profiler/profiler_v5.h and
// nccl_profiler.h (Copyright (c) 2022-2025 NVIDIA CORPORATION, BSD-3-Clause): our own declaration
// of the layout of the parts that are read here.
namespace abi {

enum EventType : std::uint64_t {
  kEventProxyOp = 1U << 3U,
  kEventProxyStep = 1U << 4U,
  kEventKernelChannel = 1U << 6U,
};
enum State : int {
  kSendGpuWait = 8,
  kSendWait = 9,
  kRecvWait = 10,
  kRecvFlushWait = 11,
  kRecvGpuWait = 12,
  kSendPeerWait = 20,
  kKernelStop = 22,
};

struct Descriptor {
  std::uint64_t type;
  void* parent;
  int rank;
  union {
    struct {
      pid_t pid;
      std::uint8_t channel;
      int peer, steps, chunk, is_send;
    } proxy_op;
    struct {
      std::uint8_t channel;
      std::uint64_t timer;
    } kernel;
    std::uint64_t largest[11];
  };
};
static_assert(sizeof(Descriptor) == 112 && offsetof(Descriptor, proxy_op.pid) == 24 &&
              offsetof(Descriptor, proxy_op.is_send) == 44 &&
              offsetof(Descriptor, kernel.timer) == 32);

union StateArguments {
  std::size_t step_bytes;
  std::uint64_t kernel_timer;
};
static_assert(sizeof(StateArguments) == 8);

struct Profiler {
  const char* name;
  int (*init)(void** context, std::uint64_t comm_id, int* mask, const char* comm_name, int nodes,
              int ranks, int rank, void* logger);
  int (*start)(void* context, void** event, Descriptor* descriptor);
  int (*stop)(void* event);
  int (*record)(void* event, int state, StateArguments* arguments);
  int (*finalize)(void* context);
};
static_assert(sizeof(Profiler) == 48);

}  // namespace abi
}  // namespace weir::transport::nccl

extern "C" __attribute__((visibility("default")))
const weir::transport::nccl::abi::Profiler ncclProfiler_v5;
