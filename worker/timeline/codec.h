// SPDX-License-Identifier: Apache-2.0
// Records as octets, which --trace-file writes. A file holds any number of records one behind the
// other, so files may be joined by `cat`. Numbers are little-endian:
//   8 bytes "WEIRREC1", u32 length of the body, u32 crc32c of the body, then the body:
//   i64 wall_less_own, u32 revision, u16 replica, replicas, stage, stages,
//   job, pod, node: each a u16 length and its bytes,
//   u32 count, then per event: i64 begin, end, extra, u32 step, u16 micro-batch, u8 kind, u8 detail
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "worker/base/result.h"
#include "worker/timeline/record.h"

namespace weir::timeline {

inline constexpr std::size_t kEventBytes = 32;
inline constexpr std::size_t kMostBodyBytes = std::size_t{64} << 20U;

// Texts are cut to 1024 bytes.
std::string encode(const RankRecord& record);

// Leaves out the oldest steps, or of the newest one the oldest events, until encode() makes at most
// so many bytes. Without room for one event none is left.
void keep_newest(RankRecord& record, std::size_t bytes);

// The same records in at most about so many bytes: each leaves out its oldest steps, so that all
// have as much room. Octets that cannot be read: none.
std::string cut_to(std::string_view octets, std::size_t bytes);

// At least one record. kInvalid: "byte N: ...", the first place that is not as above.
Result<std::vector<RankRecord>> decode(std::string_view octets);

}  // namespace weir::timeline
