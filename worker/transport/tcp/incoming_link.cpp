// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/incoming_link.h"

#include <algorithm>

namespace weir::transport::tcp {
namespace {

Error sender_error(const std::string& reason) {
  return {Code::kInvalid, reason};
}

}  // namespace

IncomingLink::IncomingLink(Joined joined, const LinkContext& link_context)
    : end_(joined.end),
      connections_(make_connections(mutex_, std::move(joined), link_context, std::nullopt)),
      traffic_(link_context.order, TrafficDirection::kIn) {}

void IncomingLink::start(Callbacks callbacks) {
  const std::lock_guard lock(mutex_);
  callbacks_ = std::move(callbacks);
  for (const auto& connection : connections_) {
    Connection& one = *connection;
    one.start(weak_from_this(),
              {.begin = [this, &one](const FrameHeader& header) { return begin(one, header); },
               .complete =
                   [this, &one](const FrameHeader& header, const BusyMeter::Message& message) {
                     return complete(one, header, message);
                   },
               .read =
                   [this] {
                     grant();
                     flush_all();
                   },
               .drained = [] {},
               .failed = [this](const std::string& reason) { callbacks_.failed(reason); }});
  }
}

void IncomingLink::receive(device::Buffer buffer, std::size_t bytes) {
  const std::lock_guard lock(inbox_mutex_);
  inbox_.push_back({std::move(buffer), bytes});
}

void IncomingLink::flush() {
  const std::lock_guard lock(mutex_);
  grant();
  flush_all();
}

void IncomingLink::flush_all() {
  for (const auto& connection : connections_) connection->writer().flush();
}

bool IncomingLink::serve(Connection& connection, bool readable, bool writable) {
  const std::lock_guard lock(mutex_);
  if (writable) connection.unblocked();
  if (readable) connection.pump();
  return !connection.ended();
}

// Sends one credit frame for all receives posted since the last one.
void IncomingLink::grant() {
  std::vector<Slot> slots;
  {
    const std::lock_guard lock(inbox_mutex_);
    slots.swap(inbox_);
  }
  if (slots.empty()) return;
  posted_ += slots.size();
  for (Slot& slot : slots) slots_.push_back(std::move(slot));
  if (!main().peer_left()) {
    main().writer().push(main().header(FrameType::kCredit, posted_));
  }
}

Result<std::span<std::byte>> IncomingLink::begin(const Connection& connection,
                                                 const FrameHeader& header) {
  if (header.type == FrameType::kPing) return std::span<std::byte>();
  const bool part = header.type == FrameType::kPart;
  if (!part && header.type != FrameType::kData) {
    return sender_error("a sender sent a frame that only receivers send");
  }
  if (!part && &connection != &main()) {
    return sender_error("a whole message came on another connection than the first");
  }
  // Parts of several messages may be on their way; a whole message passes only parts.
  const std::uint64_t ahead = header.sequence - received_;
  if (header.sequence < received_ || header.sequence >= posted_ ||
      (!part && connections_.size() == 1 && ahead != 0)) {
    return sender_error("message " + std::to_string(header.sequence) + " where " +
                        std::to_string(received_) + " is due and " + std::to_string(posted_) +
                        " are granted");
  }
  Slot& slot = slots_[ahead];
  if (part) return begin_part(connection, slot, header);
  if (slot.begun) {
    return sender_error("message " + std::to_string(header.sequence) + " came twice");
  }
  if (header.length != slot.bytes) {
    return sender_error("message " + std::to_string(header.sequence) + " has " +
                        std::to_string(header.length) + " bytes, the receiver expects " +
                        std::to_string(slot.bytes) + " (generation " +
                        connection.generation().text() + ")");
  }
  begin_message(slot);
  return std::span(slot.buffer.data(), slot.bytes);
}

void IncomingLink::begin_message(Slot& slot) {
  slot.begun = true;
  traffic_.begin(slot.bytes, std::chrono::steady_clock::now());
}

Result<std::span<std::byte>> IncomingLink::begin_part(const Connection& connection, Slot& slot,
                                                      const FrameHeader& header) {
  const auto error = [&](const std::string& reason) {
    return sender_error("message " + std::to_string(header.sequence) + ", part " +
                        std::to_string(header.part) + ": " + reason);
  };
  const std::size_t parts = parts_of(slot.bytes);
  if (connections_.size() == 1) return error("the link has one connection");
  if (slot.begun && slot.parts.empty()) return error("the message has come whole");
  if (header.part >= parts) return error("the receiver expects " + std::to_string(parts));
  const std::size_t from = header.part * kPartBytes;
  const std::size_t bytes = std::min(kPartBytes, slot.bytes - from);
  if (header.length != bytes) {
    return error("has " + std::to_string(header.length) + " bytes, the receiver expects " +
                 std::to_string(bytes));
  }
  if (!slot.begun) {
    begin_message(slot);
    slot.parts.resize(parts);
    for (const auto& other : connections_) {
      if (other.get() != &connection)
        slot.elsewhere += static_cast<std::int64_t>(other->socket().unread());
    }
  }
  if (slot.parts[header.part]) return error("came twice");
  slot.parts[header.part] = true;
  return std::span(slot.buffer.data() + from, bytes);
}

Status IncomingLink::complete(Connection& connection, const FrameHeader& header,
                              const BusyMeter::Message& message) {
  if (header.type == FrameType::kPing) {
    connection.writer().push(connection.header(FrameType::kPong, header.sequence));
  }
  if (header.type != FrameType::kData && header.type != FrameType::kPart) return Unit{};
  Slot& slot = slots_[header.sequence - received_];
  if (slot.received == 0) {
    slot.message = message;
  } else if (message.first < slot.message.first) {
    slot.message.first = message.first;
    slot.message.first_bytes = message.first_bytes;
  }
  slot.message.last = std::max(slot.message.last, message.last);
  slot.received += header.length;
  deliver();
  return Unit{};
}

// Reports the messages that are complete, in their order.
void IncomingLink::deliver() {
  while (!slots_.empty() && slots_.front().begun &&
         slots_.front().received == slots_.front().bytes) {
    Slot slot = std::move(slots_.front());
    slots_.pop_front();
    BusyMeter::Message& message = slot.message;
    message.bytes = static_cast<std::int64_t>(slot.bytes);
    message.first_bytes = std::min(message.bytes, message.first_bytes + slot.elsewhere);
    // A later message may have been complete first; the link was busy with both.
    last_ = message.last = std::max(message.last, last_);
    const Arrival arrival = meter_.add(message);
    traffic_.carried(arrival, message.last);
    traffic_.end(slot.bytes);
    const auto took =
        std::max<std::chrono::nanoseconds>(arrival.busy, message.last - message.first);
    const std::uint64_t sequence = received_++;
    callbacks_.received(sequence, {.begin = message.last - took, .end = message.last});
    main().writer().push(
        main().header(FrameType::kAcknowledgement, sequence, kAcknowledgementBytes),
        encode_acknowledgement(arrival));
  }
}

// The sender may be in the middle of a long message and send no ping, so this end sends something
// to show that it is alive.
void IncomingLink::heartbeat(Time now, bool own_pause) {
  const std::lock_guard lock(mutex_);
  for (const auto& connection : connections_) {
    if (own_pause) connection->forgive_silence(now);
    connection->check_alive(now);
    if (!connection->writer().empty() || connection->peer_left()) continue;
    connection->writer().push(connection->header(FrameType::kPong, 0));
    connection->writer().flush();
  }
}

void IncomingLink::close(bool goodbye) {
  for (const auto& connection : connections_) connection->end(goodbye);
  const std::lock_guard lock(mutex_);
  traffic_.stop();
}

}  // namespace weir::transport::tcp
