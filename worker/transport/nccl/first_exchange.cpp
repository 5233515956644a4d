// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/first_exchange.h"

#include <vector>

namespace weir::transport::nccl {
namespace {

constexpr std::size_t kBytes = 4;  // size of one message

}  // namespace

std::size_t first_exchange_bytes(std::size_t ranks) {
  return 2 * ranks * kBytes;
}

Status begin_first_exchange(NcclComm& comm, std::size_t rank, std::size_t ranks,
                            std::byte* memory) {
  std::vector<Transfer> transfers;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (r == rank) continue;
    std::byte* const place = memory + 2 * r * kBytes;
    const int other = static_cast<int>(r);
    transfers.push_back({.rank = other, .from = place, .bytes = kBytes});
    transfers.push_back({.rank = other, .to = place + kBytes, .bytes = kBytes});
  }
  return comm.exchange(transfers);
}

}  // namespace weir::transport::nccl
