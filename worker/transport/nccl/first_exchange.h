// SPDX-License-Identifier: Apache-2.0
// The first messages on a communicator of several ranks, from each rank to each other one. NCCL
// connects lazily, and later transfers must be timed without that.
#pragma once

#include <cstddef>

#include "worker/transport/nccl/nccl_api.h"

namespace weir::transport::nccl {

// Size of the device memory, which must not be used otherwise until the exchange has finished.
std::size_t first_exchange_bytes(std::size_t ranks);
Status begin_first_exchange(NcclComm& comm, std::size_t rank, std::size_t ranks, std::byte* memory);

}  // namespace weir::transport::nccl
