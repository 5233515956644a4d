// SPDX-License-Identifier: Apache-2.0
// The Communicator of the NCCL transport. Messages in device memory use NCCL; messages in host
// memory (step headers, notes) are sent as records over TCP. Both are in one order per link end. A
// driver thread talks to the peers and launches, so that neither waits for the engine's compute. A
// watchdog thread aborts.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "worker/base/bounded_queue.h"
#include "worker/transport/nccl/incoming_stream.h"
#include "worker/transport/nccl/outgoing_stream.h"
#include "worker/transport/nccl/watchdog.h"

namespace weir::transport::nccl {

// Result of connect(): the side channel, the links, and records of the peers that came early.
struct LinksUp {
  std::unique_ptr<SideChannel> side;
  std::vector<std::unique_ptr<WatchedLink>> links;
  std::vector<SideChannel::Arrived> early;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclApi> api, LinksUp up, const Limits& limits);
  // Tells the peers that this rank leaves, unless the links have failed.
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  void send(const LinkEnd& end, device::Buffer buffer, std::size_t bytes) override;
  void receive(const LinkEnd& end, device::Buffer buffer, std::size_t bytes) override;
  std::optional<Completion> wait(std::chrono::steady_clock::time_point deadline,
                                 std::stop_token stop) override;
  bool carries_device_memory() const override { return true; }
  bool peer_left(const LinkEnd& end) const override;
  std::vector<LinkReport> reports() const override;
  void abort(const std::string& reason) noexcept override { fail({}, reason); }

 private:
  // Wakes the driver from its wait for records, by a stop request of that wait.
  class Waker {
   public:
    void wake();
    std::stop_token next_wait();  // for a wait that begins now; earlier postings are seen

   private:
    std::mutex mutex_;  // guards source_
    std::stop_source source_;
  };
  struct Posting {
    LinkEnd end;
    device::Buffer buffer;
    std::size_t bytes = 0;
    std::unique_ptr<Mark> mark;
  };

  void post(const LinkEnd& end, device::Buffer buffer, std::size_t bytes);
  void fail(const LinkEnd& end, const std::string& reason);
  void note_failure(const LinkEnd& end, const std::string& reason);
  void drive(const std::stop_token& stop);
  Result<bool> work();
  Result<bool> take_record(std::chrono::steady_clock::time_point until, std::stop_token stop);
  Status handle(const SideChannel::Arrived& arrived);
  Result<bool> progress();
  Status note_left(const std::vector<bool>& left);

  const std::shared_ptr<NcclApi> api_;
  const Limits limits_;
  std::vector<std::unique_ptr<WatchedLink>> links_;
  std::unique_ptr<SideChannel> side_;
  // By channel. Made before the threads start, then constant.
  std::array<std::unique_ptr<OutgoingStream>, 2> outgoing_;
  std::array<std::unique_ptr<IncomingStream>, 2> incoming_;
  std::array<std::atomic<bool>, 2> outgoing_left_{}, incoming_left_{};
  std::vector<SideChannel::Arrived> early_;  // driver thread
  std::vector<Completion> done_;             // driver thread

  Waker waker_;
  std::mutex inbox_mutex_;  // guards inbox_
  std::vector<Posting> inbox_;

  BoundedQueue<Completion> completions_;
  std::optional<Completion> failure_;  // engine thread
  std::atomic<bool> failed_ = false;
  std::atomic<bool> ending_ = false;
  BoundedQueue<Unit> flushed_{1};  // set when the peers have all records of this rank

  std::optional<Watchdog> watchdog_;
  std::jthread driver_;
};

}  // namespace weir::transport::nccl
