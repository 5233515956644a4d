// SPDX-License-Identifier: Apache-2.0
// An operation of a ReplicaGroup, from its call until it is complete or dropped. Used by the thread
// of the group only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "worker/transport/collective.h"
#include "worker/transport/tcp/replica_group.h"

namespace weir::transport::tcp {

struct ReplicaGroup::Operation {
  CollectiveTag tag;
  std::vector<int> members;
  std::size_t self = 0;  // index of this replica in members
  bool background = false;
  std::optional<AllReduce> reduce;
  std::optional<AllGather> gather;

  std::vector<std::uint32_t> session;  // by member
  // By member: its contribution to the segment of this replica.
  std::vector<std::vector<std::byte>> inputs;
  // By member: packed contributions to its segment, and from it.
  std::vector<std::vector<std::byte>> packed_out, packed_in;
  std::vector<int> frames_due;  // by member
  std::int64_t bytes_sent = 0;
  std::size_t contributions_due = 0, results_due = 0, unwritten = 0;
  std::size_t members_begun = 0;  // other members whose first frame has come
  std::optional<Time> all_begun;
  Time begun;

  std::span<const std::byte> in(std::size_t member) const {
    if (reduce->count == 0) return {};
    const std::size_t size = reduce->in.size() / reduce->count;
    return reduce->in.subspan(reduce->segment_begin(member) * size,
                              reduce->segment_count(member) * size);
  }
  std::span<std::byte> out(std::size_t member) const {
    if (reduce->count == 0) return {};
    const std::size_t size = reduce->out.size() / reduce->count;
    return reduce->out.subspan(reduce->segment_begin(member) * size,
                               reduce->segment_count(member) * size);
  }
  std::size_t index_of(int replica) const {
    return static_cast<std::size_t>(std::ranges::find(members, replica) - members.begin());
  }
  bool has(int replica) const { return index_of(replica) < members.size(); }
  bool complete() const { return contributions_due == 0 && results_due == 0 && unwritten == 0; }
};

}  // namespace weir::transport::tcp
