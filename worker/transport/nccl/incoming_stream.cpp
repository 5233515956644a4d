// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/incoming_stream.h"

#include <cstring>
#include <ranges>
#include <utility>

namespace weir::transport::nccl {

void IncomingStream::post(device::Buffer buffer, std::size_t bytes, std::unique_ptr<Mark> free) {
  const bool by_nccl = free != nullptr;
  slots_.push_back({{std::move(buffer), bytes, std::move(free), by_nccl}, {}});
}

// Records to the sender go over the connection of the other channel.
LinkEnd IncomingStream::answer_end() const {
  const bool forward = link_.end.channel == Channel::kForward;
  return {.peer_stage = link_.end.peer_stage,
          .channel = forward ? Channel::kBackward : Channel::kForward,
          .sending = true};
}

Status IncomingStream::handle(const Record& record) {
  const std::string message = "message " + std::to_string(record.sequence);
  if (record.sequence != announced_ || announced_ >= granted_) {
    return link_.wrong(message + " where " + std::to_string(announced_) + " is due and " +
                       std::to_string(granted_) + " are granted");
  }
  Slot& filled = slot(announced_);
  if (record.bytes != filled.bytes) {
    return link_.wrong(message + " has " + std::to_string(record.bytes) +
                       " bytes, the receiver expects " + std::to_string(filled.bytes));
  }
  if (filled.by_nccl != (record.type == RecordType::kAnnounce)) {
    return link_.wrong(message + (filled.by_nccl ? " comes from host memory" : " comes by NCCL") +
                       ", the receiver expects the other");
  }
  if (record.type == RecordType::kHost) return take_part(filled, record);
  const auto now = std::chrono::steady_clock::now();
  if (announced_ == completed_) link_.begin_message(now, record.bytes, limits_);
  ++announced_;
  return Unit{};
}

Status IncomingStream::take_part(Slot& filled, const Record& record) {
  if (record.part > filled.bytes - part_) return link_.wrong("a part goes beyond its message");
  if (record.part > 0) {
    std::memcpy(filled.buffer.data() + part_, record.data.data(), record.part);
  }
  part_ += record.part;
  if (part_ < filled.bytes) {
    return record.part > 0 ? Status(Unit{}) : link_.wrong("an empty part");
  }
  part_ = 0;
  ++announced_;
  filled.launched = filled.finished = true;
  return Unit{};
}

Result<bool> IncomingStream::progress(Time now, std::vector<Completion>& done) {
  WEIR_TRY(const bool used, grant());
  const auto announced =
      std::views::take(slots_, static_cast<std::ptrdiff_t>(announced_ - completed_));
  WEIR_TRY(const bool launching, link_.launch(announced, [&](Slot& next) {
    return link_.comm->receive(next.buffer.data(), next.bytes);
  }));
  WEIR_OK(link_.take_finished(
      announced, [&](Slot& slot, const Timing& timing) { note_arrival(slot, timing); }));
  while (completed_ < announced_ && slots_.front().finished) {
    const Arrival& arrival = slots_.front().arrival;
    side_.send(answer_end(), {.type = RecordType::kTaken,
                              .channel = link_.end.channel,
                              .sequence = completed_,
                              .bytes = static_cast<std::uint64_t>(arrival.counted_bytes),
                              .busy = static_cast<std::uint64_t>(arrival.busy.count())});
    slots_.pop_front();
    done.push_back({.kind = Completion::Kind::kReceived,
                    .end = link_.end,
                    .sequence = static_cast<std::int64_t>(completed_++),
                    .reason = {}});
    if (completed_ == announced_) {
      link_.end_message();
    } else {
      link_.begin_message(now, slots_.front().bytes, limits_);
    }
  }
  return used || launching || completed_ < announced_;
}

// Sends one record for all slots that have become free. Returns true if the next one is still used
// by an op.
Result<bool> IncomingStream::grant() {
  const std::uint64_t before = granted_;
  bool used = false;
  while (!used && granted_ < completed_ + slots_.size()) {
    Slot& next = slot(granted_);
    if (next.ready) {
      const Result<bool> free = next.ready->done();
      if (!free) return link_.broken(free.error());
      used = !*free;
    }
    if (used) break;
    next.ready.reset();
    ++granted_;
  }
  if (granted_ > before && !side_.peer_left(link_.end)) {
    side_.send(answer_end(),
               {.type = RecordType::kCredit, .channel = link_.end.channel, .sequence = granted_});
  }
  return used;
}

void IncomingStream::note_arrival(Slot& slot, const Timing& timing) {
  const Time first = link_time_ + timing.gap;
  link_time_ = first + timing.duration;
  slot.arrival = meter_.add({.bytes = static_cast<std::int64_t>(slot.bytes),
                             .first_bytes = 0,
                             .first = first,
                             .last = link_time_});
}

}  // namespace weir::transport::nccl
