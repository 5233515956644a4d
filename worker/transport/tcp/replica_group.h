// SPDX-License-Identifier: Apache-2.0
// Collective over TCP, one connection to each other replica. An all-reduce is cut into one segment
// per member: member i collects segment i from all, combines them in the order of the members and
// sends the result to all; as many bytes as a ring, but additions have one order.
// Operations begin in the order of the calls, a few at a time; a frame of one that has not begun
// here waits in its socket. Who abandons a step tells the other members on the same connections,
// finishes the frame that is half written and forgets those that still come.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker/transport/collective.h"
#include "worker/transport/tcp/group_peer.h"
#include "worker/transport/tcp/group_sessions.h"

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
  Result<int> abandon(std::uint64_t step) override;
  void abort(const std::string& reason) noexcept override;
  CollectiveCounters counters() const override;
  std::optional<Error> trouble() const override;
  std::optional<Absence> absent(std::span<const int> members, std::uint64_t step) const override;

 private:
  struct Operation;
  using Pointer = std::shared_ptr<Operation>;
  struct Peer {
    std::unique_ptr<GroupPeer> link;
    GroupSessions sessions;
    std::optional<std::uint32_t> given_up;  // by the peer: the last session
    std::optional<Error> lost;              // its connection has failed
    short events = 0;                       // of the last poll
  };

  void post(Pointer operation);
  void run(const std::stop_token& stop);
  bool take_posted();  // false: aborted
  void begin(const Pointer& operation);
  void begin_reduce(const Pointer& operation);
  void begin_gather(const Pointer& operation);
  void send(const Pointer& operation, std::size_t member, GroupPhase phase,
            std::span<const std::byte> bytes);
  // Of a frame from that peer.
  Result<std::optional<GroupPeer::Place>> place_of(Peer& peer, const GroupFrame& frame);
  void arrived(const Peer& peer, const GroupFrame& frame, const Arrival& arrival);
  void combine(const Pointer& operation);
  bool finish_complete();  // true: there is room for others now
  void await_events();
  Status serve();
  void look_for_missing();  // a replica has gone, or given up, that is still needed
  std::optional<Error> missing_for(const Operation& operation);
  void drop_abandoned();
  int awaited_by(const Operation& operation);  // a replica; -1: none in particular
  void note_gone(int replica, const Error& error);
  void fail(const Error& error);
  void wake() noexcept;
  Peer* peer_of(int replica);
  Pointer active_with(int replica, const GroupFrame& frame) const;

  const int replica_;
  const int event_;  // wakes the thread
  std::vector<Peer> peers_;
  std::deque<Pointer> active_;
  Time last_end_{};

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable_any changed_;
  std::deque<Pointer> posted_;
  std::uint64_t calls_ = 0, complete_ = 0;  // without those that were abandoned
  std::optional<Error> error_;              // the end of this object
  std::optional<Error> missing_;            // what is active can never be complete
  std::optional<Error> gone_;               // the first replica that has left or was lost
  std::map<int, Error> gone_ones_;          // all of them
  std::map<int, std::uint64_t> given_up_;   // by replica: the last step that it has given up
  std::optional<std::uint64_t> abandoned_;  // a step, until the thread has dropped it
  int awaited_ = -1;                        // its answer
  CollectiveCounters counters_;

  std::jthread thread_;  // last: it uses all above
};

}  // namespace weir::transport::tcp
