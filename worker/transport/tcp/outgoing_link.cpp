// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/outgoing_link.h"

#include <utility>

namespace weir::transport::tcp {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// The calling thread writes at most this much if the socket takes it at once: about 10 us, less
// than it takes to wake the io thread.
constexpr std::size_t kWrittenAtOnce = 65'536 + 1024;
// If the peer has this much queued work, a further message need not be written on its own: this
// many small messages, or this many bytes.
constexpr std::size_t kManyInFlight = 8;
constexpr std::size_t kSmall = 1024;
constexpr std::size_t kMuchInFlight = 128 * 1024;
constexpr int kQuickPings = 4;  // so that a round trip time is known before the first step ends
// A peer that grants more credits than this is broken.
constexpr std::uint64_t kMostCreditsAhead = 1U << 20U;

Error receiver_error(const std::string& reason) {
  return {Code::kInvalid, reason};
}

}  // namespace

OutgoingLink::OutgoingLink(Joined joined, const LinkContext& link_context,
                           std::optional<Pacer> pacer)
    : connection_(std::move(joined), link_context, std::move(pacer)) {}

void OutgoingLink::start(Callbacks callbacks) {
  const std::lock_guard lock(connection_.mutex());
  callbacks_ = std::move(callbacks);
  connection_.start(weak_from_this(),
                    {.begin = [this](const FrameHeader& header) { return begin(header); },
                     .complete = [this](const FrameHeader& header,
                                        const BusyMeter::Message&) { return complete(header); },
                     .read = [this] { connection_.writer().flush(); },
                     .drained = [this] { note_waiting(); },
                     .failed = [this](const std::string& reason) { callbacks_.failed(reason); }});
  ping(true);
  connection_.writer().flush();
}

OutgoingLink::Sent OutgoingLink::send(device::Buffer buffer, std::size_t bytes) {
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back({.buffer = std::move(buffer), .bytes = bytes});
  }
  const std::unique_lock lock(connection_.mutex(), std::try_to_lock);
  if (!lock) return Sent::kMuch;
  take_inbox();
  const std::size_t ready = connection_.writer().ready_bytes();
  const bool many = bytes <= kSmall && in_flight_.size() >= kManyInFlight;
  if (ready > 0 && (many || bytes_in_flight_ >= ready + kMuchInFlight)) return Sent::kSoon;
  if (ready > kWrittenAtOnce) return Sent::kMuch;
  connection_.writer().flush();
  note_waiting();
  return Sent::kWritten;
}

void OutgoingLink::flush(FrameWriter::Patience patience) {
  const std::lock_guard lock(connection_.mutex());
  take_inbox();
  connection_.writer().flush(patience);
  note_waiting();
}

bool OutgoingLink::flush_small() {
  const std::lock_guard lock(connection_.mutex());
  if (connection_.writer().ready_bytes() > kWrittenAtOnce) return false;
  connection_.writer().flush();
  return true;
}

bool OutgoingLink::serve(bool readable, bool writable) {
  const std::lock_guard lock(connection_.mutex());
  if (writable) connection_.unblocked();
  if (readable) {
    connection_.pump();
    connection_.writer().flush();  // credits that arrived start messages at once
  }
  return !connection_.ended();
}

void OutgoingLink::take_inbox() {
  std::vector<Message> messages;
  {
    const std::lock_guard lock(inbox_mutex_);
    messages.swap(inbox_);
  }
  if (!messages.empty() && connection_.peer_left()) {
    return connection_.fail("left, but a message is due");
  }
  for (Message& message : messages) queue_.push_back(std::move(message));
  start_messages();
}

void OutgoingLink::start_messages() {
  if (queue_.empty() || started_ >= granted_) return;
  const auto now = steady_clock::now();
  while (!queue_.empty() && started_ < granted_) {
    Message& message = queue_.front();
    connection_.writer().push(connection_.header(FrameType::kData, started_, message.bytes),
                              message.buffer, message.bytes);
    bytes_in_flight_ += message.bytes;
    message.started = now;
    in_flight_.push_back(std::move(message));
    queue_.pop_front();
    ++started_;
  }
}

// Notes whether a message waits for a credit: it is queued, nothing else is being written, and no
// slot is granted.
void OutgoingLink::note_waiting() {
  const bool waits = !queue_.empty() && started_ == granted_ && connection_.writer().empty();
  if (waits == waiting_since_.has_value()) return;  // no other thread changes it
  const auto now = steady_clock::now();
  const std::lock_guard lock(counters_mutex_);
  if (waiting_since_) counters_.credit_wait += now - *waiting_since_;
  waiting_since_ = waits ? std::optional(now) : std::nullopt;
}

Result<std::span<std::byte>> OutgoingLink::begin(const FrameHeader& header) {
  switch (header.type) {
    case FrameType::kAcknowledgement:
      return std::span<std::byte>(acknowledgement_);
    case FrameType::kCredit:
    case FrameType::kPong:
      return std::span<std::byte>();
    case FrameType::kData:
    case FrameType::kPing:
    case FrameType::kGoodbye:
      break;
  }
  return receiver_error("a receiver sent a frame that only senders send");
}

Status OutgoingLink::complete(const FrameHeader& header) {
  if (header.type == FrameType::kCredit) return credited(header.sequence);
  if (header.type == FrameType::kAcknowledgement) return acknowledged(header.sequence);
  if (header.type == FrameType::kPong) ponged(header.sequence);
  if (header.type == FrameType::kGoodbye && !(queue_.empty() && in_flight_.empty())) {
    return receiver_error("left, but messages are due");
  }
  return Unit{};
}

Status OutgoingLink::credited(std::uint64_t granted) {
  if (granted < granted_ || granted > acknowledged_ + kMostCreditsAhead) {
    return receiver_error("credits: " + std::to_string(granted) + " after " +
                          std::to_string(granted_));
  }
  granted_ = granted;
  start_messages();
  note_waiting();
  return Unit{};
}

Status OutgoingLink::acknowledged(std::uint64_t sequence) {
  if (in_flight_.empty() || sequence != acknowledged_) {
    return receiver_error("acknowledgement of message " + std::to_string(sequence) +
                          " where that of " + std::to_string(acknowledged_) + " is due");
  }
  const auto arrival = decode_acknowledgement(acknowledgement_);
  if (!arrival) return arrival.error();
  const auto bytes = static_cast<std::int64_t>(in_flight_.front().bytes);
  if (arrival->counted_bytes != 0 && arrival->counted_bytes != bytes) {
    return receiver_error("acknowledgement counts other bytes than were sent");
  }
  bytes_in_flight_ -= in_flight_.front().bytes;
  const Time started = in_flight_.front().started;
  in_flight_.pop_front();
  ++acknowledged_;
  {
    const std::lock_guard lock(counters_mutex_);
    count_transfer(counters_, arrival->counted_bytes, arrival->busy);
  }
  callbacks_.sent(sequence, {.begin = started, .end = steady_clock::now()});
  return Unit{};
}

void OutgoingLink::ping(bool measured) {
  ++pings_;
  if (measured) {
    ping_sequence_ = pings_;
    ping_sent_ = steady_clock::now();
  }
  connection_.writer().push(connection_.header(FrameType::kPing, pings_));
}

void OutgoingLink::ponged(std::uint64_t sequence) {
  if (sequence == 0 || sequence != ping_sequence_) return;  // a heartbeat
  ping_sequence_ = 0;
  if (!in_flight_.empty()) return;  // the ping may have waited behind data
  round_trips_.add(steady_clock::now() - ping_sent_);
  {
    const std::lock_guard lock(counters_mutex_);
    counters_.rtt_seconds = round_trips_.smallest_seconds();
  }
  if (++quick_pings_ < kQuickPings) ping(true);
}

void OutgoingLink::heartbeat(Time now, bool own_pause) {
  const std::lock_guard lock(connection_.mutex());
  if (own_pause) connection_.forgive_silence(now);
  connection_.check_alive(now);
  if (!connection_.writer().empty() || connection_.peer_left()) return;
  ping(in_flight_.empty());
  connection_.writer().flush();
}

LinkCounters OutgoingLink::counters() const {
  const std::lock_guard lock(counters_mutex_);
  LinkCounters result = counters_;
  if (waiting_since_) result.credit_wait += steady_clock::now() - *waiting_since_;
  return result;
}

}  // namespace weir::transport::tcp
