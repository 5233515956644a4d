// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/outgoing_link.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "worker/base/log.h"
#include "worker/base/units.h"
#include "worker/transport/tcp/send_buffer.h"

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
constexpr int kSameBuffer = 4;  // a fourth more or less is not worth a change
constexpr int kQuickPings = 4;  // so that a round trip time is known before the first step ends
// A peer that grants more credits than this is broken.
constexpr std::uint64_t kMostCreditsAhead = 1U << 20U;

Error receiver_error(const std::string& reason) {
  return {Code::kInvalid, reason};
}

}  // namespace

OutgoingLink::OutgoingLink(Joined joined, const LinkContext& link_context,
                           const std::optional<Pacer>& pacer, bool automatic_connections)
    : end_(joined.end),
      peer_(joined.peer),
      connections_(make_connections(mutex_, std::move(joined), link_context, pacer)),
      connection_count_(static_cast<int>(connections_.size()), automatic_connections),
      traffic_(pacer ? nullptr : link_context.order, TrafficDirection::kOut),
      least_buffer_(link_context.send_buffer_bytes),
      buffer_(automatic_connections
                  ? least_buffer_
                  : share_of_buffer(least_buffer_, static_cast<int>(connections_.size()))) {
  counters_.connections = connection_count_.in_use();
}

void OutgoingLink::start(Callbacks callbacks) {
  const std::lock_guard lock(mutex_);
  callbacks_ = std::move(callbacks);
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    Connection& one = *connections_[i];
    one.start(
        weak_from_this(),
        {.begin = [this, &one](const FrameHeader& header) { return begin(one, header); },
         .complete = [this, &one](const FrameHeader& header,
                                  const BusyMeter::Message&) { return complete(one, header); },
         .read = [this] { flush_all(FrameWriter::Patience::kNone); },
         .drained =
             [this, i] {
               draw(i);
               note_waiting();
             },
         .failed = [this](const std::string& reason) { callbacks_.failed(reason); }});
  }
  // The kernel's, of the handshake: a link that is always busy has none without data.
  if (const auto first = round_trip_of(connections_.back()->socket().descriptor())) {
    connection_count_.idle_round_trip(*first);
    first_round_trip_ = to_seconds(*first);
  }
  ping(true);
  main().writer().flush();
}

OutgoingLink::Sent OutgoingLink::send(device::Buffer buffer, std::size_t bytes) {
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back({.buffer = std::move(buffer), .bytes = bytes});
  }
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return Sent::kMuch;
  take_inbox();
  const std::size_t ready = ready_bytes();
  const bool many = bytes <= kSmall && in_flight_.size() >= kManyInFlight;
  if (ready > 0 && (many || bytes_in_flight_ >= ready + kMuchInFlight)) return Sent::kSoon;
  if (ready > kWrittenAtOnce) return Sent::kMuch;
  flush_all(FrameWriter::Patience::kNone);
  note_waiting();
  return Sent::kWritten;
}

void OutgoingLink::flush(FrameWriter::Patience patience) {
  const std::lock_guard lock(mutex_);
  take_inbox();
  flush_all(patience);
  note_waiting();
}

bool OutgoingLink::flush_small() {
  const std::lock_guard lock(mutex_);
  if (ready_bytes() > kWrittenAtOnce) return false;
  flush_all(FrameWriter::Patience::kNone);
  return true;
}

bool OutgoingLink::serve(Connection& connection, bool readable, bool writable) {
  const std::lock_guard lock(mutex_);
  if (writable) connection.unblocked();
  if (readable) {
    connection.pump();
    flush_all(FrameWriter::Patience::kNone);  // credits that arrived start messages at once
  }
  return !connection.ended();
}

bool OutgoingLink::idle() const {
  return striped_.empty() && std::ranges::all_of(connections_, [](const auto& connection) {
           return connection->writer().empty();
         });
}

std::size_t OutgoingLink::ready_bytes() const {
  std::size_t bytes = 0;
  for (const auto& connection : connections_) bytes += connection->writer().ready_bytes();
  return bytes;
}

void OutgoingLink::flush_all(FrameWriter::Patience patience) {
  for (const auto& connection : connections_) connection->writer().flush(patience);
}

// Gives a connection that has written everything the next part, so that faster ones take more.
void OutgoingLink::draw(std::size_t index) {
  Connection& connection = *connections_[index];
  if (striped_.empty() || !connection.writer().empty()) return;
  Striped& oldest = striped_.front();
  if (index >= oldest.connections) return;
  const std::size_t from = oldest.next_part * kPartBytes;
  const std::size_t bytes = std::min(kPartBytes, oldest.message.bytes - from);
  FrameHeader header = connection.header(FrameType::kPart, oldest.sequence, bytes);
  header.part = oldest.next_part++;
  connection.writer().push(header, oldest.message.buffer, from, bytes);
  if (from + bytes == oldest.message.bytes) striped_.pop_front();
}

void OutgoingLink::take_inbox() {
  std::vector<Message> messages;
  {
    const std::lock_guard lock(inbox_mutex_);
    messages.swap(inbox_);
  }
  if (!messages.empty() && main().peer_left()) {
    return main().fail("left, but a message is due");
  }
  for (Message& message : messages) queue_.push_back(std::move(message));
  start_messages();
}

void OutgoingLink::start_messages() {
  if (queue_.empty() || started_ >= granted_) return;
  const auto now = steady_clock::now();
  while (!queue_.empty() && started_ < granted_) {
    Message& message = queue_.front();
    const auto connections = connection_count_.of_next(message.bytes, now);
    if (!connections) break;
    if (*connections > 1 && message.bytes > kPartBytes) {
      striped_.push_back({.sequence = started_,
                          .message = message,
                          .connections = static_cast<std::size_t>(*connections)});
    } else {
      main().writer().push(main().header(FrameType::kData, started_, message.bytes), message.buffer,
                           0, message.bytes);
    }
    bytes_in_flight_ += message.bytes;
    traffic_.begin(message.bytes, now);
    message.started = now;
    in_flight_.push_back(std::move(message));
    queue_.pop_front();
    ++started_;
    if (connection_count_.on_trial()) ping_spare();
  }
  for (std::size_t i = 0; i < connections_.size(); ++i) draw(i);
}

// Times a small message on a connection that carries nothing else.
void OutgoingLink::ping_spare() {
  Connection& spare = *connections_.back();
  if (spare_ping_ || !spare.writer().empty() || spare.peer_left()) return;
  spare_ping_ = steady_clock::now();
  spare_beside_data_ = !in_flight_.empty();
  spare.writer().push(spare.header(FrameType::kPing, 1));
}

void OutgoingLink::spare_ponged() {
  if (!spare_ping_) return;
  const auto took = steady_clock::now() - *std::exchange(spare_ping_, std::nullopt);
  // One during which the link became busy or idle tells neither.
  if (spare_beside_data_ != in_flight_.empty()) {
    if (spare_beside_data_) {
      connection_count_.round_trip_beside(took,
                                          present_round_trip_of(main().socket().descriptor()));
    } else {
      connection_count_.idle_round_trip(took);
    }
  }
}

void OutgoingLink::count(const Arrival& arrival, Time now) {
  connection_count_.arrived(arrival, now);
  {
    const std::lock_guard lock(counters_mutex_);
    count_transfer(counters_, arrival.counted_bytes, arrival.busy);
    counters_.connections = connection_count_.in_use();
    counters_.connection_probes = connection_count_.probes();
  }
  const auto change = connection_count_.take_change();
  if (!change) return;
  log_info("transport", "another number of connections carries a link",
           {{"peer", name_of(peer_)},
            {"connections_before", change->before},
            {"connections", change->now},
            {"mbit_before", to_megabits({change->rate_before})},
            {"mbit", to_megabits({change->rate_now})}});
}

// Notes whether a message waits for a credit: it is queued, nothing else is being written, and no
// slot is granted.
void OutgoingLink::note_waiting() {
  const bool waits = !queue_.empty() && started_ == granted_ && idle();
  if (waits == waiting_since_.has_value()) return;  // no other thread changes it
  const auto now = steady_clock::now();
  const std::lock_guard lock(counters_mutex_);
  if (waiting_since_) counters_.credit_wait += now - *waiting_since_;
  waiting_since_ = waits ? std::optional(now) : std::nullopt;
}

Result<std::span<std::byte>> OutgoingLink::begin(const Connection& connection,
                                                 const FrameHeader& header) {
  if (header.type == FrameType::kPong) return std::span<std::byte>();
  if (&connection != &main()) {
    return receiver_error("a frame of the first connection of a link came on another one");
  }
  switch (header.type) {
    case FrameType::kAcknowledgement:
      return std::span<std::byte>(acknowledgement_);
    case FrameType::kCredit:
    case FrameType::kPong:
      return std::span<std::byte>();
    case FrameType::kData:
    case FrameType::kPart:
    case FrameType::kPing:
    case FrameType::kGoodbye:
      break;
  }
  return receiver_error("a receiver sent a frame that only senders send");
}

Status OutgoingLink::complete(const Connection& connection, const FrameHeader& header) {
  if (header.type == FrameType::kCredit) return credited(header.sequence);
  if (header.type == FrameType::kAcknowledgement) return acknowledged(header.sequence);
  if (header.type == FrameType::kPong) {
    if (&connection == &main()) ponged(header.sequence);
    if (&connection == connections_.back().get() && header.sequence != 0) spare_ponged();
  }
  // The last acknowledgements came before the goodbye of the first connection.
  if (header.type == FrameType::kGoodbye && &connection == &main() &&
      !(queue_.empty() && in_flight_.empty())) {
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
  const Time now = steady_clock::now();
  count(*arrival, now);
  traffic_.carried(*arrival, now);
  traffic_.end(in_flight_.front().bytes);
  bytes_in_flight_ -= in_flight_.front().bytes;
  const Time started = in_flight_.front().started;
  in_flight_.pop_front();
  ++acknowledged_;
  start_messages();  // one may have waited for this
  callbacks_.sent(sequence, {.begin = started, .end = now});
  return Unit{};
}

void OutgoingLink::ping(bool measured) {
  ++pings_;
  if (measured) {
    ping_sequence_ = pings_;
    ping_sent_ = steady_clock::now();
  }
  main().writer().push(main().header(FrameType::kPing, pings_));
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

// Gives the connections in use what the path needs.
void OutgoingLink::size_buffers() {
  if (least_buffer_ <= 0) return;
  const std::int64_t bytes = counters_.bytes - sized_bytes_;
  const double busy = to_seconds(counters_.busy - sized_busy_);
  if (busy <= 0) return;
  sized_bytes_ = counters_.bytes;
  sized_busy_ = counters_.busy;
  const double idle = round_trips_.smallest_seconds();
  const double round_trip = idle > 0 ? std::min(idle, first_round_trip_) : first_round_trip_;
  const int in_use = connection_count_.in_use();
  const int wanted = share_of_buffer(
      send_buffer_bytes(static_cast<double>(bytes) / busy, round_trip, least_buffer_), in_use);
  if (std::abs(wanted - buffer_) <= buffer_ / kSameBuffer) return;
  buffer_ = wanted;
  for (int i = 0; i < in_use; ++i) {
    set_send_buffer(connections_[static_cast<std::size_t>(i)]->socket().descriptor(), wanted);
  }
}

void OutgoingLink::heartbeat(Time now, bool own_pause) {
  const std::lock_guard lock(mutex_);
  for (const auto& connection : connections_) {
    if (own_pause) connection->forgive_silence(now);
    connection->check_alive(now);
    if (!connection->writer().empty() || connection->peer_left()) continue;
    if (connection == connections_.front()) {
      ping(in_flight_.empty());
    } else if (connection == connections_.back()) {
      ping_spare();
    } else {  // it also keeps firewalls from forgetting the connection
      connection->writer().push(connection->header(FrameType::kPing, 0));
    }
    connection->writer().flush();
  }
  size_buffers();
}

void OutgoingLink::close(bool goodbye) {
  for (const auto& connection : connections_) connection->end(goodbye);
  const std::lock_guard lock(mutex_);
  traffic_.stop();
}

LinkCounters OutgoingLink::counters() const {
  const std::lock_guard lock(counters_mutex_);
  LinkCounters result = counters_;
  if (waiting_since_) result.credit_wait += steady_clock::now() - *waiting_since_;
  return result;
}

}  // namespace weir::transport::tcp
