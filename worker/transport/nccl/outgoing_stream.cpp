// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/outgoing_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weir::transport::nccl {

void OutgoingStream::post(device::Buffer buffer, std::size_t bytes,
                          std::unique_ptr<Mark> computed) {
  const bool by_nccl = computed != nullptr;
  queue_.push_back({{std::move(buffer), bytes, std::move(computed), by_nccl}});
}

Status OutgoingStream::handle(const Record& record) {
  if (record.type == RecordType::kCredit) {
    if (record.sequence < granted_) return link_.wrong("credits were taken back");
    granted_ = record.sequence;
    return Unit{};
  }
  if (record.sequence != taken_ || taken_ == started_) {
    return link_.wrong("message " + std::to_string(record.sequence) + " is taken where " +
                       std::to_string(taken_) + " is due");
  }
  Sent& message = in_flight_[static_cast<std::size_t>(taken_ - completed_)];
  if (record.bytes != 0 && record.bytes != message.bytes) {
    return link_.wrong("the receiver counts other bytes than were sent");
  }
  message.taken = true;
  ++taken_;
  const std::lock_guard lock(counters_mutex_);
  count_transfer(counters_, static_cast<std::int64_t>(record.bytes),
                 std::chrono::nanoseconds(record.busy));
  return Unit{};
}

Result<bool> OutgoingStream::progress(Time now, std::vector<Completion>& done) {
  WEIR_TRY(const bool computing, start_messages(now));
  WEIR_TRY(const bool launching, link_.launch(in_flight_, [&](const Sent& next) {
    return link_.comm->send(next.buffer.data(), next.bytes);
  }));
  WEIR_OK(link_.take_finished(in_flight_, [](const Sent&, const Timing&) {}));
  while (!in_flight_.empty() && in_flight_.front().taken && in_flight_.front().finished) {
    in_flight_.pop_front();
    done.push_back({.kind = Completion::Kind::kSent,
                    .end = link_.end,
                    .sequence = static_cast<std::int64_t>(completed_++),
                    .reason = {}});
    if (in_flight_.empty()) {
      link_.end_message();
    } else {
      link_.begin_message(now, in_flight_.front().bytes, limits_);
    }
  }
  const bool running = std::ranges::any_of(in_flight_, [](const Sent& m) { return !m.finished; });
  return computing || launching || running;
}

// Returns true if a tensor is still being computed.
Result<bool> OutgoingStream::start_messages(Time now) {
  while (!queue_.empty()) {
    Sent& next = queue_.front();
    if (next.ready) {
      const Result<bool> computed = next.ready->done();
      if (!computed) return link_.broken(computed.error());
      if (!*computed) {
        note_waiting(now, false);
        return true;
      }
      next.ready.reset();
    }
    if (started_ == granted_) break;
    start(std::move(next), now);
    queue_.pop_front();
  }
  note_waiting(now, !queue_.empty() && in_flight_.empty());
  return false;
}

void OutgoingStream::start(Sent message, Time now) {
  if (in_flight_.empty()) link_.begin_message(now, message.bytes, limits_);
  if (message.by_nccl) {
    side_.send(link_.end, {.type = RecordType::kAnnounce,
                           .channel = link_.end.channel,
                           .sequence = started_,
                           .bytes = message.bytes});
  } else {
    send_parts(message);
    message.launched = message.finished = true;  // the side channel keeps a copy
  }
  ++started_;
  in_flight_.push_back(std::move(message));
}

void OutgoingStream::send_parts(const Sent& message) {
  std::size_t at = 0;
  do {  // an empty message has one empty part
    const std::size_t part = std::min(kRecordData, message.bytes - at);
    Record record{.type = RecordType::kHost,
                  .channel = link_.end.channel,
                  .part = static_cast<std::uint16_t>(part),
                  .sequence = started_,
                  .bytes = message.bytes};
    if (part > 0) std::memcpy(record.data.data(), message.buffer.data() + at, part);
    side_.send(link_.end, record);
    at += part;
  } while (at < message.bytes);
}

// Notes whether a message waits for a credit: a tensor is computed, nothing is under way, and no
// slot is granted.
void OutgoingStream::note_waiting(Time now, bool waits) {
  if (waits == waiting_since_.has_value()) return;  // no other thread changes it
  const std::lock_guard lock(counters_mutex_);
  if (waiting_since_) counters_.credit_wait += now - *waiting_since_;
  waiting_since_ = waits ? std::optional(now) : std::nullopt;
}

LinkCounters OutgoingStream::counters() const {
  const std::lock_guard lock(counters_mutex_);
  LinkCounters result = counters_;
  if (waiting_since_) result.credit_wait += std::chrono::steady_clock::now() - *waiting_since_;
  return result;
}

}  // namespace weir::transport::nccl
