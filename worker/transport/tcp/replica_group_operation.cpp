// SPDX-License-Identifier: Apache-2.0
// An operation of the group: its members send each other contributions, combine them, and send
// the results.
#include "worker/transport/tcp/replica_group_operation.h"

#include <utility>

#include "worker/base/check.h"
#include "worker/transport/tcp/replica_group.h"

namespace weir::transport::tcp {
namespace {

using std::chrono::steady_clock;

std::span<const double> doubles_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const double*>(bytes.data()), bytes.size() / sizeof(double)};
}
std::span<double> doubles_of(std::vector<std::byte>& bytes) {
  return {reinterpret_cast<double*>(bytes.data()), bytes.size() / sizeof(double)};
}

}  // namespace

void ReplicaGroup::begin(const Pointer& operation) {
  active_.push_back(operation);
  operation->begun = steady_clock::now();
  operation->session.assign(operation->members.size(), 0);
  for (Peer& peer : peers_) {
    if (!operation->has(peer.link->replica())) continue;
    operation->session[operation->index_of(peer.link->replica())] =
        peer.sessions.begin(operation->tag);
    peer.link->retry();
  }
  const std::size_t others = operation->members.size() - 1;
  operation->contributions_due = others;
  operation->frames_due.assign(operation->members.size(), operation->reduce ? 2 : 1);
  operation->frames_due[operation->self] = 0;
  if (others == 0) operation->all_begun = operation->begun;
  if (operation->reduce) begin_reduce(operation);
  if (operation->gather) begin_gather(operation);
}

void ReplicaGroup::begin_reduce(const Pointer& operation) {
  Operation& op = *operation;
  op.results_due = op.members.size() - 1;
  op.inputs.resize(op.members.size());
  op.packed_in.resize(op.members.size());
  op.packed_out.resize(op.members.size());
  for (std::size_t m = 0; m < op.members.size(); ++m) {
    if (m == op.self) continue;
    op.inputs[m].resize(op.in(op.self).size());
    const auto sums = doubles_of(op.in(m));
    std::size_t length = 0;
    if (op.reduce->exact_sums && packing_.packs()) {
      op.packed_out[m] = take_room(packing_room(sums.size()));
      length = pack_sums(sums, op.packed_out[m]);
    }
    if (length > 0) {
      send(operation, m, ReplicaGroupPhase::kPackedContribution,
           std::span(op.packed_out[m]).first(length));
      const std::lock_guard lock(mutex_);
      counters_.packed_payload += static_cast<std::int64_t>(sums.size_bytes());
    } else {
      send(operation, m, ReplicaGroupPhase::kContribution, op.in(m));
    }
  }
  if (op.contributions_due == 0) combine(operation);
}

// Fresh memory costs more than packing does, so it is used again.
std::vector<std::byte> ReplicaGroup::take_room(std::size_t bytes) {
  std::vector<std::byte> room;
  if (!rooms_.empty()) {
    room = std::move(rooms_.back());
    rooms_.pop_back();
  }
  if (room.size() < bytes) room.resize(bytes);
  return room;
}

void ReplicaGroup::begin_gather(const Pointer& operation) {
  Operation& op = *operation;
  op.gather->blocks->assign(op.members.size(), {});
  for (std::size_t m = 0; m < op.members.size(); ++m) {
    (*op.gather->blocks)[m].resize(op.gather->sizes[m]);
    if (m != op.self) send(operation, m, ReplicaGroupPhase::kContribution, op.gather->own);
  }
  (*op.gather->blocks)[op.self] = op.gather->own;
}

Status ReplicaGroup::arrived(const Peer& peer, const ReplicaGroupFrame& frame,
                             const Arrival& arrival) {
  const int replica = peer.link->replica();
  {
    const std::lock_guard lock(mutex_);
    CollectiveCounters::Received& received = counters_.received[replica];
    received.bytes += static_cast<std::int64_t>(frame.length);
    received.counted_bytes += arrival.counted_bytes;
    received.busy += arrival.busy;
  }
  const Pointer operation = active_with(replica, frame);
  WEIR_CHECK(operation != nullptr, "an operation lasts until its frames are there");
  const std::size_t member = operation->index_of(replica);
  --operation->frames_due[member];
  if (frame.phase == ReplicaGroupPhase::kResult) {
    --operation->results_due;
    return Unit{};
  }
  if (frame.phase == ReplicaGroupPhase::kPackedContribution) {
    auto packed = std::exchange(operation->packed_in[member], {});
    WEIR_OK(
        unpack_sums(std::span(packed).first(frame.length), doubles_of(operation->inputs[member])));
    rooms_.push_back(std::move(packed));
  }
  if (--operation->contributions_due == 0 && operation->reduce) combine(operation);
  return Unit{};
}

void ReplicaGroup::combine(const Pointer& operation) {
  Operation& op = *operation;
  std::vector<const std::byte*> inputs;
  for (std::size_t m = 0; m < op.members.size(); ++m) {
    inputs.push_back(m == op.self ? op.in(m).data() : op.inputs[m].data());
  }
  const auto out = op.out(op.self);
  if (!out.empty()) op.reduce->combine(inputs, op.reduce->segment_count(op.self), out.data());
  op.inputs.clear();
  for (std::size_t m = 0; m < op.members.size(); ++m) {
    if (m != op.self) send(operation, m, ReplicaGroupPhase::kResult, out);
  }
}

}  // namespace weir::transport::tcp
