// SPDX-License-Identifier: Apache-2.0
// The connection of a replica with one other replica in a collective. Frames are written from
// memory that is not copied, and read into memory that the owner names. Never blocks. Used by the
// thread of the collective only.
//
// A frame is a header of 36 bytes, little-endian, then the payload: u32 magic, u8 version, u8
// phase, u16 zero, u32 session, u32 part, u64 step, u64 length, u32 crc32c of the first 32 bytes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/transport/busy_meter.h"
#include "worker/transport/collective.h"
#include "worker/transport/tcp/data_socket.h"
#include "worker/transport/train_meter.h"

namespace weir::transport::tcp {

constexpr std::size_t kReplicaGroupHeaderBytes = 36;

enum class ReplicaGroupPhase : std::uint8_t {
  kContribution,        // to be combined, or a block for all members
  kResult,              // of the segment that the sender combines
  kGivenUp,             // no payload: the sender has abandoned the session
  kPackedContribution,  // to be combined; the payload is as packed_sums.h says
};

struct ReplicaGroupFrame {
  ReplicaGroupPhase phase = ReplicaGroupPhase::kContribution;
  std::uint32_t session = 0;  // replica_group_sessions.h
  CollectiveTag tag;
  std::uint64_t length = 0;
  bool operator==(const ReplicaGroupFrame&) const = default;
};

std::array<std::byte, kReplicaGroupHeaderBytes> encode_replica_group_frame(
    const ReplicaGroupFrame& frame);
Result<ReplicaGroupFrame> decode_replica_group_frame(std::span<const std::byte> bytes);

class ReplicaGroupPeer {
 public:
  // Destination of a payload.
  struct Place {
    std::span<std::byte> to;
    bool nowhere = false;  // the payload is read and dropped
  };
  struct Callbacks {
    // Returns nothing if the payload is not expected yet: it is asked again after retry(). An error
    // is final.
    std::function<Result<std::optional<Place>>(const ReplicaGroupFrame&)> begin;
    // A payload that was not dropped is complete; the Arrival tells about the rate. An error is
    // final.
    std::function<Status(const ReplicaGroupFrame&, const Arrival&)> complete;
  };

  ReplicaGroupPeer(int replica, std::string name, int descriptor)
      : replica_(replica), name_(std::move(name)), socket_(descriptor) {}

  int replica() const { return replica_; }
  const std::string& name() const { return name_; }  // "replica 1 at 10.0.0.7:7071"
  int descriptor() const { return socket_.descriptor(); }

  // `written` is called when the last byte has been written to the socket.
  void push(const ReplicaGroupFrame& frame, std::span<const std::byte> payload,
            std::function<void()> written);
  bool wants_to_write() const { return !outgoing_.empty(); }
  bool wants_to_read() const { return !closed_ && !stalled_; }
  // A header is there that was not expected before: call read() without waiting for the socket.
  bool has_news() const {
    return wants_to_read() && !frame_ && header_filled_ == kReplicaGroupHeaderBytes;
  }
  bool closed() const { return closed_; }  // by the peer, between two frames
  void retry() { stalled_ = false; }
  // Frames of that step no longer use the owner's memory: frames that have not begun are not sent,
  // and incoming payloads are dropped.
  void drop(std::uint64_t step);

  // At most so many bytes, and a little more; returns how many it moved.
  Result<std::size_t> write(std::size_t most);
  Result<std::size_t> read(const Callbacks& callbacks, std::size_t most);
  DataSocket& socket() { return socket_; }
  void shut() { socket_.shut(); }

 private:
  struct Outgoing {
    std::array<std::byte, kReplicaGroupHeaderBytes> header{};
    std::span<const std::byte> payload;
    std::uint64_t step = 0;
    std::size_t sent = 0;
    std::function<void()> written;
    std::vector<std::byte> own;  // the payload, if its owner has dropped the operation
  };

  Result<bool> begin_frame(const Callbacks& callbacks);
  void note_time(std::size_t read);

  const int replica_;
  const std::string name_;
  DataSocket socket_;
  std::deque<Outgoing> outgoing_;
  std::array<std::byte, kReplicaGroupHeaderBytes> header_{};
  std::size_t header_filled_ = 0;
  std::optional<ReplicaGroupFrame> frame_;  // the frame whose payload is being read
  Place target_;
  std::size_t filled_ = 0;
  TrainMeter meter_;
  BusyMeter::Message timed_;                 // times of frame_
  std::optional<ReplicaGroupFrame> before_;  // the frame that was timed before
  bool stalled_ = false;  // a header is there, but its payload is not expected yet
  bool closed_ = false;
};

}  // namespace weir::transport::tcp
