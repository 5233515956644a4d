// SPDX-License-Identifier: Apache-2.0
// Collective over TCP, one connection to each other replica. An all-reduce is cut into one segment
// per member: member i collects segment i from all, combines them in the order of the members and
// sends the result to all; as many bytes as a ring, but sums have one order (libraries.md 8).
// Operations begin in the order of the calls, a few at a time; a frame of one that has not begun
// here waits in its socket.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker/transport/collective.h"
#include "worker/transport/tcp/group_peer.h"

namespace weir::transport::tcp {

class ReplicaGroup final : public Collective {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Connected {
    int replica = 0;
    std::string name;
    int descriptor = -1;  // of a socket after its handshake; taken over
  };

  ReplicaGroup(int replica, std::vector<Connected> others);
  ~ReplicaGroup() override;
  ReplicaGroup(const ReplicaGroup&) = delete;
  ReplicaGroup& operator=(const ReplicaGroup&) = delete;

  void all_reduce(AllReduce operation) override;
  void all_gather(AllGather operation) override;
  Result<bool> wait(Time deadline, std::stop_token stop) override;
  void abort(const std::string& reason) noexcept override;
  CollectiveCounters counters() const override;

 private:
  struct Operation;
  using Pointer = std::shared_ptr<Operation>;

  void post(Pointer operation);
  void run(const std::stop_token& stop);
  bool take_posted();  // false: aborted
  void begin(const Pointer& operation);
  void begin_reduce(const Pointer& operation);
  void begin_gather(const Pointer& operation);
  void send(const Pointer& operation, std::size_t member, GroupPhase phase,
            std::span<const std::byte> bytes);
  // Of a frame from that peer (index in peers_).
  Result<std::optional<std::span<std::byte>>> place_of(std::size_t peer, const GroupFrame& frame);
  void arrived(std::size_t peer, const GroupFrame& frame);
  void combine(const Pointer& operation);
  bool finish_complete();  // true: there is room for others now
  void await_events();
  Status serve();
  Status none_missing() const;  // kUnavailable: a replica has gone that is still needed
  void fail(const Error& error);
  void wake() noexcept;
  GroupPeer* peer_of(int replica);
  Pointer active_with(int replica, std::uint32_t sequence) const;

  const int replica_;
  const int event_;  // wakes the thread
  std::vector<std::unique_ptr<GroupPeer>> peers_;
  std::vector<std::uint32_t> begun_with_;  // by peer: operations begun so far
  std::vector<short> events_;              // by peer, of the last poll
  std::deque<Pointer> active_;
  Time last_end_{};

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable_any changed_;
  std::deque<Pointer> posted_;
  std::uint64_t calls_ = 0, complete_ = 0;
  std::optional<Error> error_;
  CollectiveCounters counters_;

  std::jthread thread_;  // last: it uses all above
};

}  // namespace weir::transport::tcp
