// SPDX-License-Identifier: Apache-2.0
// ReplicaGroup if a replica does not come: finds operations that can never be complete, and
// abandons them.
#include <algorithm>
#include <iterator>

#include "worker/transport/tcp/replica_group.h"
#include "worker/transport/tcp/replica_group_operation.h"

namespace weir::transport::tcp {

Result<int> ReplicaGroup::abandon(std::uint64_t step) {
  std::unique_lock lock(mutex_);
  abandoned_ = step;
  wake();
  changed_.wait(lock, [this] { return error_ || !abandoned_; });
  if (error_) return *error_;
  return awaited_;
}

std::optional<Error> ReplicaGroup::missing_for(const Operation& operation) {
  for (std::size_t m = 0; m < operation.members.size(); ++m) {
    if (m == operation.self) continue;
    const Peer& peer = *peer_of(operation.members[m]);
    const bool due = operation.frames_due[m] > 0;
    if (peer.lost && (due || peer.link->wants_to_write())) return peer.lost;
    if (peer.link->closed() && due) {
      return Error{Code::kUnavailable, peer.link->name() + ": closed by the peer"};
    }
    if (peer.given_up == operation.session[m]) {
      return Error{Code::kUnavailable, peer.link->name() + ": gave this operation up"};
    }
  }
  return std::nullopt;
}

std::optional<Absence> ReplicaGroup::absent(std::span<const int> members,
                                            std::uint64_t step) const {
  const std::lock_guard lock(mutex_);
  if (error_) return Absence{.error = *error_};
  for (const int replica : members) {
    const auto gone = gone_ones_.find(replica);
    if (gone != gone_ones_.end()) return Absence{.replica = replica, .error = gone->second};
  }
  for (const int replica : members) {
    const auto given_up = given_up_.find(replica);
    if (given_up == given_up_.end() || given_up->second != step) continue;
    return Absence{.error = {Code::kUnavailable,
                             "replica " + std::to_string(replica) + ": gave this operation up"}};
  }
  return std::nullopt;
}

void ReplicaGroup::look_for_missing() {
  for (const Pointer& operation : active_) {
    const std::optional<Error> error = missing_for(*operation);
    if (!error) continue;
    {
      const std::lock_guard lock(mutex_);
      if (missing_) return;
      missing_ = error;
    }
    changed_.notify_all();
    return;
  }
}

// The awaited replica: one that has left, or else the one from which least has come.
int ReplicaGroup::awaited_by(const Operation& operation) {
  int awaited = -1, most = 0;
  for (std::size_t m = 0; m < operation.members.size(); ++m) {
    const int due = operation.frames_due[m];
    if (m == operation.self || due == 0) continue;
    const Peer& peer = *peer_of(operation.members[m]);
    if (peer.lost || peer.link->closed()) return operation.members[m];
    if (peer.given_up == operation.session[m] || due <= most) continue;
    awaited = operation.members[m];
    most = due;
  }
  return awaited;
}

void ReplicaGroup::drop_abandoned() {
  std::vector<Pointer> dropped;
  std::uint64_t step = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!abandoned_) return;
    step = *abandoned_;
    const auto of_step = [&](const Pointer& operation) { return operation->tag.step == step; };
    std::ranges::copy_if(posted_, std::back_inserter(dropped), of_step);
    std::erase_if(posted_, of_step);
  }
  // Both sides count the session, even if none of its operations has begun.
  for (const Pointer& operation : dropped) {
    for (Peer& peer : peers_) {
      if (operation->has(peer.link->replica())) peer.sessions.begin(operation->tag);
    }
  }
  int awaited = -1;
  std::erase_if(active_, [&](const Pointer& operation) {
    if (operation->tag.step != step) return false;
    if (awaited < 0) awaited = awaited_by(*operation);
    dropped.push_back(operation);
    return true;
  });
  for (Peer& peer : peers_) {
    peer.link->drop(step);
    peer.link->retry();
    const auto session = peer.sessions.drop(step);
    if (!session || peer.lost || peer.link->closed()) continue;
    peer.link->push(
        {.phase = ReplicaGroupPhase::kGivenUp, .session = *session, .tag = {.step = step}}, {},
        [] {});
  }
  {
    const std::lock_guard lock(mutex_);
    calls_ -= dropped.size();
    abandoned_.reset();
    missing_.reset();
    awaited_ = awaited;
  }
  changed_.notify_all();
}

}  // namespace weir::transport::tcp
