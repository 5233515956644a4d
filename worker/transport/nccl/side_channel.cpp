// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/side_channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/base/check.h"

namespace weir::transport::nccl {
namespace {

// Records under way to this rank before their writer must wait: far more than the messages that the
// engine has in flight.
constexpr int kSlots = 64;

device::Buffer memory_of_a_record() {
  return {
      std::shared_ptr<std::byte>(new std::byte[kRecordBytes], std::default_delete<std::byte[]>()),
      kRecordBytes};
}

}  // namespace

void SideChannel::post(Slots& slots, device::Buffer buffer) {
  slots.posted.push_back(buffer);
  tcp_->receive(slots.end, std::move(buffer), kRecordBytes);
}

void SideChannel::listen(const LinkEnd& end) {
  Slots& slots = slots_.emplace_back(Slots{.end = end, .posted = {}});
  for (int i = 0; i < kSlots; ++i) post(slots, memory_of_a_record());
}

void SideChannel::send(const LinkEnd& end, const Record& record) {
  device::Buffer buffer = memory_of_a_record();
  const RecordText text = encode_record(record);
  std::memcpy(buffer.data(), text.data(), text.size());
  ++undelivered_;
  tcp_->send(end, std::move(buffer), kRecordBytes);
}

Result<std::optional<SideChannel::Arrived>> SideChannel::wait(
    std::chrono::steady_clock::time_point deadline, std::stop_token stop) {
  for (;;) {
    const std::optional<Completion> completion = tcp_->wait(deadline, stop);
    if (!completion) return std::optional<Arrived>();
    if (completion->kind == Completion::Kind::kFailed) {
      return Error{Code::kUnavailable, completion->reason};
    }
    if (completion->kind == Completion::Kind::kSent) {
      --undelivered_;
      continue;
    }
    const auto slots = std::ranges::find(slots_, completion->end, &Slots::end);
    WEIR_CHECK(slots != slots_.end() && !slots->posted.empty(), "a record fills a posted slot");
    device::Buffer buffer = std::move(slots->posted.front());
    slots->posted.pop_front();
    Result<Record> record =
        decode_record(std::span<const std::byte, kRecordBytes>(buffer.data(), kRecordBytes));
    post(*slots, std::move(buffer));
    if (!record) {
      return record.error().with("stage " + std::to_string(completion->end.peer_stage));
    }
    return std::optional<Arrived>({completion->end, *std::move(record)});
  }
}

}  // namespace weir::transport::nccl
