// SPDX-License-Identifier: Apache-2.0
// The largest numbers that a file of a model or of a cluster may hold; what is above is a wrong
// unit or an attack. Only the readers of this room include this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir::planner {

inline constexpr std::size_t kMostDevices = 4096;  // as many as the largest job of tests/scale has
inline constexpr std::size_t kMostLayers = 65536;
inline constexpr double kMostLayerSeconds = 86400;
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;  // of a tensor or a memory
inline constexpr std::size_t kMostTextBytes = 64U << 20;           // of a file

}  // namespace weir::planner
