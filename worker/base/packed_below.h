// SPDX-License-Identifier: Apache-2.0
// Where exact sums over replicas are packed: workers pack by it (transport/tcp/packed_sums.h), the
// operator prices sums by it.
#pragma once

namespace weir {

// Bytes per second. Both ends together need about 4 ns a double to pack and unpack; slower sums
// save more time on the network.
inline constexpr double kPackedBelow = 250e6;

}  // namespace weir
