// SPDX-License-Identifier: Apache-2.0
// Collective over TCP, with one connection to each other replica. An all-reduce is cut into one
// segment per member: member i collects segment i from all members, combines them in the order of
// the members and sends the result to all. This takes as many bytes as a ring, but fixes the order
// of additions. Operations begin in the order of the calls, a few at a time. A frame of an
// operation that has not begun here waits in its socket. A replica that abandons a step tells the
// other members on the same connections, finishes the frame that is half written, and drops frames
// that still arrive.
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
#include "worker/transport/tcp/packed_sums.h"
#include "worker/transport/tcp/replica_group_peer.h"
#include "worker/transport/tcp/replica_group_sessions.h"
#include "worker/transport/tcp/replica_group_traffic.h"

namespace weir::transport::tcp {

class ReplicaGroup final : public Collective {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Connected {
    int replica = 0;
    std::string name;
    int descriptor = -1;  // of a socket after its handshake; this object takes it over
    std::function<void(int descriptor)> ends;  // called before it is closed; may be null
  };

  // With an order it yields to the links of the process. send_buffer_bytes: of each socket; less
  // where there is something to yield to and the port is slow.
  ReplicaGroup(int replica, std::vector<Connected> others,
               SumEncoding encoding = SumEncoding::kAuto, int send_buffer_bytes = 0,
               std::shared_ptr<TrafficOrder> order = nullptr);
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
    std::unique_ptr<ReplicaGroupPeer> link;
    std::function<void(int descriptor)> ends;  // null when it was called, or the peer has closed
    ReplicaGroupSessions sessions;
    std::optional<std::uint32_t> given_up;  // the last session that the peer has abandoned
    std::optional<Error> lost;              // its connection has failed
    short events = 0;                       // of the last poll
  };

  void post(Pointer operation);
  void run(const std::stop_token& stop);
  bool take_posted();  // returns false if aborted
  void begin(const Pointer& operation);
  void begin_reduce(const Pointer& operation);
  std::vector<std::byte> take_room(std::size_t bytes);
  void begin_gather(const Pointer& operation);
  void send(const Pointer& operation, std::size_t member, ReplicaGroupPhase phase,
            std::span<const std::byte> bytes);
  // Destination of a frame from that peer.
  Result<std::optional<ReplicaGroupPeer::Place>> place_of(Peer& peer,
                                                          const ReplicaGroupFrame& frame);
  Status arrived(const Peer& peer, const ReplicaGroupFrame& frame, const Arrival& arrival);
  void combine(const Pointer& operation);
  bool finish_complete();  // returns true if further operations can begin
  void await_events();
  Status serve();
  Status serve(Peer& peer);
  void tell_traffic(Time now);
  std::vector<DataSocket*> sockets();
  void look_for_missing();  // finds replicas that are needed but have gone or abandoned the step
  std::optional<Error> missing_for(const Operation& operation);
  void drop_abandoned();
  int awaited_by(const Operation& operation);  // a replica; -1: no particular one
  static void tell_end(Peer& peer);
  void note_gone(int replica, const Error& error);
  void fail(const Error& error);
  void wake() noexcept;
  Peer* peer_of(int replica);
  Pointer active_with(int replica, const ReplicaGroupFrame& frame) const;

  const int replica_;
  const int event_;  // wakes the thread
  std::vector<Peer> peers_;
  std::deque<Pointer> active_;
  PackingRule packing_;
  std::vector<std::vector<std::byte>> rooms_;  // for packed sums, not in use now
  Time last_end_{};
  ReplicaGroupTraffic traffic_;

  mutable std::mutex mutex_;  // guards the fields below
  std::condition_variable_any changed_;
  std::deque<Pointer> posted_;
  std::uint64_t calls_ = 0, complete_ = 0;  // without abandoned operations
  std::optional<Error> error_;              // final error of this object
  std::optional<Error> missing_;            // why the active operations can never be complete
  std::optional<Error> gone_;               // of the first replica that has left or was lost
  std::map<int, Error> gone_ones_;          // of all such replicas
  std::map<int, std::uint64_t> given_up_;   // by replica: the last step that it has abandoned
  std::optional<std::uint64_t> abandoned_;  // a step, until the thread has dropped it
  int awaited_ = -1;                        // result of abandon()
  CollectiveCounters counters_;

  std::jthread thread_;  // last member: uses all above
};

}  // namespace weir::transport::tcp
