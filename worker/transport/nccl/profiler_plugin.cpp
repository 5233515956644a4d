// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/profiler_plugin.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unistd.h>

namespace weir::transport::nccl {
namespace {

using std::chrono::steady_clock;
using Event = CommProfile::Event;
using Waits = CommProfile::Waits;

constexpr int kSuccess = 0;

// The only global of this room: NCCL's interface cannot pass a pointer of ours until it knows the
// communicator.
struct Profiles {
  std::mutex mutex;  // guards both maps
  std::map<std::string, std::weak_ptr<CommProfile>> expected;
  std::map<void*, std::shared_ptr<CommProfile>> contexts;  // in use by NCCL
};
Profiles& profiles() {
  static Profiles all;
  return all;
}

int init(void** context, std::uint64_t /*comm_id*/, int* mask, const char* comm_name, int /*nodes*/,
         int /*ranks*/, int /*rank*/, void* /*logger*/) {
  // The mask applies to all communicators of the process.
  *mask = abi::kEventProxyOp | abi::kEventProxyStep | abi::kEventKernelChannel;
  *context = nullptr;
  Profiles& all = profiles();
  const std::lock_guard lock(all.mutex);
  const auto found = all.expected.find(comm_name == nullptr ? "" : comm_name);
  if (found == all.expected.end()) return kSuccess;
  if (std::shared_ptr<CommProfile> profile = found->second.lock()) {
    *context = profile.get();
    all.contexts[*context] = std::move(profile);
  }
  return kSuccess;
}

int finalize(void* context) {
  Profiles& all = profiles();
  const std::lock_guard lock(all.mutex);
  all.contexts.erase(context);
  return kSuccess;
}

Event* started(void* context, const abi::Descriptor& descriptor) {
  auto* const profile = static_cast<CommProfile*>(context);
  switch (descriptor.type) {
    case abi::kEventProxyOp:
      // A proxy may work for another process, to which the context then belongs.
      if (descriptor.proxy_op.pid != ::getpid() || profile == nullptr) return nullptr;
      return profile->start_op(descriptor.proxy_op.is_send != 0);
    case abi::kEventProxyStep:
      if (descriptor.parent == nullptr) return nullptr;
      return static_cast<Event*>(descriptor.parent)
          ->profile()
          .start_step(*static_cast<Event*>(descriptor.parent));
    case abi::kEventKernelChannel:
      if (profile == nullptr) return nullptr;
      return profile->start_kernel(descriptor.kernel.timer);
    default:
      return nullptr;  // NCCL also asks for the parents of these; it remembers that there is none
  }
}

int start(void* context, void** event, abi::Descriptor* descriptor) {
  *event = started(context, *descriptor);
  return kSuccess;
}

int stop(void* event) {
  if (event == nullptr) return kSuccess;
  auto& one = *static_cast<Event*>(event);
  one.profile().stop(one, steady_clock::now());
  return kSuccess;
}

int record(void* event, int state, abi::StateArguments* arguments) {
  if (event == nullptr) return kSuccess;
  auto& one = *static_cast<Event*>(event);
  CommProfile& profile = one.profile();
  switch (state) {
    case abi::kSendGpuWait:
    case abi::kRecvFlushWait:
    case abi::kRecvGpuWait:
      profile.waits(one, Waits::kGpu, steady_clock::now());
      break;
    case abi::kSendPeerWait:
      profile.waits(one, Waits::kPeer, steady_clock::now());
      break;
    case abi::kSendWait:
      profile.waits(one, Waits::kNetwork, steady_clock::now(),
                    arguments == nullptr ? 0 : arguments->step_bytes);
      break;
    case abi::kRecvWait:
      profile.waits(one, Waits::kNetwork, steady_clock::now());
      break;
    case abi::kKernelStop:
      if (arguments != nullptr) profile.kernel_ends(one, arguments->kernel_timer);
      break;
    default:
      break;
  }
  return kSuccess;
}

}  // namespace

bool choose_own_profiler() {
  constexpr const char* kVariable = "NCCL_PROFILER_PLUGIN";
  constexpr const char* kOwn = "STATIC_PLUGIN";
  ::setenv(kVariable, kOwn, 0);
  return std::strcmp(std::getenv(kVariable), kOwn) == 0;
}

std::shared_ptr<CommProfile> profile_of(const std::string& comm_name) {
  Profiles& all = profiles();
  auto profile = std::make_shared<CommProfile>();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.expected, [](const auto& one) { return one.second.expired(); });
  all.expected[comm_name] = profile;
  return profile;
}

}  // namespace weir::transport::nccl

extern "C" const weir::transport::nccl::abi::Profiler ncclProfiler_v5 = {
    .name = "weir",
    .init = weir::transport::nccl::init,
    .start = weir::transport::nccl::start,
    .stop = weir::transport::nccl::stop,
    .record = weir::transport::nccl::record,
    .finalize = weir::transport::nccl::finalize};
