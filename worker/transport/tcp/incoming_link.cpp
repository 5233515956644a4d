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
    : connection_(std::move(joined), link_context, std::nullopt) {}

void IncomingLink::start(Callbacks callbacks) {
  const std::lock_guard lock(connection_.mutex());
  callbacks_ = std::move(callbacks);
  connection_.start(
      weak_from_this(),
      {.begin = [this](const FrameHeader& header) { return begin(header); },
       .complete = [this](const FrameHeader& header,
                          const BusyMeter::Message& message) { return complete(header, message); },
       .read =
           [this] {
             grant();
             connection_.writer().flush();
           },
       .drained = [] {},
       .failed = [this](const std::string& reason) { callbacks_.failed(reason); }});
}

void IncomingLink::receive(device::Buffer buffer, std::size_t bytes) {
  const std::lock_guard lock(inbox_mutex_);
  inbox_.push_back({std::move(buffer), bytes});
}

void IncomingLink::flush() {
  const std::lock_guard lock(connection_.mutex());
  grant();
  connection_.writer().flush();
}

bool IncomingLink::serve(bool readable, bool writable) {
  const std::lock_guard lock(connection_.mutex());
  if (writable) connection_.unblocked();
  if (readable) connection_.pump();
  return !connection_.ended();
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
  if (!connection_.peer_left()) {
    connection_.writer().push(connection_.header(FrameType::kCredit, posted_));
  }
}

Result<std::span<std::byte>> IncomingLink::begin(const FrameHeader& header) {
  if (header.type == FrameType::kPing) return std::span<std::byte>();
  if (header.type != FrameType::kData) {
    return sender_error("a sender sent a frame that only receivers send");
  }
  if (header.sequence != received_ || received_ == posted_) {
    return sender_error("message " + std::to_string(header.sequence) + " where " +
                        std::to_string(received_) + " is due and " + std::to_string(posted_) +
                        " are granted");
  }
  const Slot& slot = slots_.front();
  if (header.length != slot.bytes) {
    return sender_error("message " + std::to_string(header.sequence) + " has " +
                        std::to_string(header.length) + " bytes, the receiver expects " +
                        std::to_string(slot.bytes));
  }
  return std::span(slot.buffer.data(), slot.bytes);
}

Status IncomingLink::complete(const FrameHeader& header, const BusyMeter::Message& message) {
  if (header.type == FrameType::kPing) {
    connection_.writer().push(connection_.header(FrameType::kPong, header.sequence));
  }
  if (header.type != FrameType::kData) return Unit{};
  slots_.pop_front();
  ++received_;
  const Arrival arrival = meter_.add(message);
  const auto took = std::max<std::chrono::nanoseconds>(arrival.busy, message.last - message.first);
  callbacks_.received(header.sequence, {.begin = message.last - took, .end = message.last});
  connection_.writer().push(
      connection_.header(FrameType::kAcknowledgement, header.sequence, kAcknowledgementBytes),
      encode_acknowledgement(arrival));
  return Unit{};
}

// The sender may be in the middle of a long message and send no ping, so this end sends something
// to show that it is alive.
void IncomingLink::heartbeat(Time now, bool own_pause) {
  const std::lock_guard lock(connection_.mutex());
  if (own_pause) connection_.forgive_silence(now);
  connection_.check_alive(now);
  if (!connection_.writer().empty() || connection_.peer_left()) return;
  connection_.writer().push(connection_.header(FrameType::kPong, 0));
  connection_.writer().flush();
}

}  // namespace weir::transport::tcp
