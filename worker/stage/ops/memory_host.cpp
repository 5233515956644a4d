// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "worker/stage/ops/host_operands.h"
#include "worker/stage/ops/memory.h"

namespace weir::stage::ops {

void run_on_host(const Zero& op, const Host& host) {
  for_elements(host.team, op.count, [&](Team::Index begin, Team::Index end) {
    std::fill(op.values + begin, op.values + end, 0.0F);
  });
}

void run_on_host(const Copy& op, const Host& host) {
  constexpr Team::Index kLeastBytes = kLeastElements * Team::Index{sizeof(float)};
  host.team.run(static_cast<Team::Index>(op.bytes), kLeastBytes,
                [&](Team::Index begin, Team::Index end) {
                  std::memcpy(static_cast<std::byte*>(op.to) + begin,
                              static_cast<const std::byte*>(op.from) + begin,
                              static_cast<std::size_t>(end - begin));
                });
}

void run_on_host(const RoundValues& op, const Host& host) {
  Out to(op.to, op.count, host);
  for_elements(host.team, op.count, [&](Team::Index begin, Team::Index end) {
    std::copy(op.from + begin, op.from + end, to + begin);
  });
}

}  // namespace weir::stage::ops
