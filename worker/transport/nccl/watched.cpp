// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/watched.h"

#include "worker/base/log.h"
#include "worker/base/units.h"

namespace weir::transport::nccl {

void Watched::log_times() const {
  const std::optional<CommTimes> times = comm->times();
  if (!times) return;
  log_info("transport", "NCCL's account of its transfers",
           {{"communicator", name},
            {"sent_bytes", times->sent.bytes},
            {"send_network_seconds", to_seconds(times->sent.network)},
            {"send_peer_seconds", to_seconds(times->sent.peer)},
            {"send_gpu_seconds", to_seconds(times->sent.gpu)},
            {"receive_network_seconds", to_seconds(times->received.network)},
            {"receive_gpu_seconds", to_seconds(times->received.gpu)},
            {"kernel_seconds", to_seconds(times->sent.kernel)},
            {"event_seconds", to_seconds(times->sent.events)}});
}

}  // namespace weir::transport::nccl
