// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/replica_group_peer.h"

#include <algorithm>
#include <chrono>
#include <sys/uio.h>

#include "worker/base/digest.h"
#include "worker/transport/tcp/frame.h"
#include "worker/wire/little_endian.h"
#include "worker/wire/other_version.h"

namespace weir::transport::tcp {
namespace {

constexpr std::uint32_t kReplicaGroupMagic = 0x47524557;  // "WERG"
constexpr std::uint8_t kReplicaGroupVersion = 1;
constexpr std::size_t kChecked = kReplicaGroupHeaderBytes - sizeof(std::uint32_t);
// Bytes per turn; then other connections are served.
constexpr std::size_t kBudget = std::size_t{4} << 20U;
constexpr std::size_t kSink = std::size_t{64} << 10U;  // bytes of one read of a dropped payload

}  // namespace

std::array<std::byte, kReplicaGroupHeaderBytes> encode_replica_group_frame(
    const ReplicaGroupFrame& frame) {
  std::array<std::byte, kReplicaGroupHeaderBytes> out{};
  wire::store<std::uint32_t>(out, 0, kReplicaGroupMagic);
  wire::store<std::uint8_t>(out, 4, kReplicaGroupVersion);
  wire::store<std::uint8_t>(out, 5, static_cast<std::uint8_t>(frame.phase));
  wire::store<std::uint32_t>(out, 8, frame.session);
  wire::store<std::uint32_t>(out, 12, frame.tag.part);
  wire::store<std::uint64_t>(out, 16, frame.tag.step);
  wire::store<std::uint64_t>(out, 24, frame.length);
  wire::store<std::uint32_t>(out, kChecked, crc32c(std::span(out).first(kChecked)));
  return out;
}

Result<ReplicaGroupFrame> decode_replica_group_frame(std::span<const std::byte> bytes) {
  const auto invalid = [](const std::string& reason) {
    return Error{Code::kInvalid, "collective frame: " + reason};
  };
  if (bytes.size() < kReplicaGroupHeaderBytes) return invalid("too short");
  if (wire::load<std::uint32_t>(bytes, 0) != kReplicaGroupMagic) return invalid("wrong magic");
  if (const auto theirs = wire::load<std::uint8_t>(bytes, 4); theirs != kReplicaGroupVersion) {
    return invalid(wire::other_version(theirs, kReplicaGroupVersion));
  }
  if (wire::load<std::uint32_t>(bytes, kChecked) != crc32c(bytes.first(kChecked))) {
    return invalid("wrong checksum");
  }
  const auto phase = wire::load<std::uint8_t>(bytes, 5);
  if (phase > static_cast<std::uint8_t>(ReplicaGroupPhase::kPackedContribution))
    return invalid("unknown phase");
  ReplicaGroupFrame frame{
      .phase = static_cast<ReplicaGroupPhase>(phase),
      .session = wire::load<std::uint32_t>(bytes, 8),
      .tag = {wire::load<std::uint64_t>(bytes, 16), wire::load<std::uint32_t>(bytes, 12)},
      .length = wire::load<std::uint64_t>(bytes, 24)};
  if (frame.length > kMaxMessageBytes) return invalid("impossible length");
  return frame;
}

void ReplicaGroupPeer::push(const ReplicaGroupFrame& frame, std::span<const std::byte> payload,
                            std::function<void()> written) {
  outgoing_.push_back({.header = encode_replica_group_frame(frame),
                       .payload = payload,
                       .step = frame.tag.step,
                       .written = std::move(written),
                       .own = {}});
}

void ReplicaGroupPeer::drop(std::uint64_t step) {
  std::erase_if(outgoing_, [&](const Outgoing& one) { return one.step == step && one.sent == 0; });
  if (!outgoing_.empty() && outgoing_.front().step == step) {
    Outgoing& begun = outgoing_.front();
    begun.own.assign(begun.payload.begin(), begun.payload.end());
    begun.payload = begun.own;
    begun.written = [] {};
  }
  if (frame_ && frame_->tag.step == step) target_ = {.to = {}, .nowhere = true};
}

Result<std::size_t> ReplicaGroupPeer::write(std::size_t most) {
  most = std::min(most, kBudget);
  std::size_t moved = 0;
  while (moved < most && !outgoing_.empty()) {
    Outgoing& one = outgoing_.front();
    std::array<iovec, 2> parts{};
    std::size_t count = 0;
    if (one.sent < kReplicaGroupHeaderBytes) {
      parts[count++] = {one.header.data() + one.sent, kReplicaGroupHeaderBytes - one.sent};
    }
    const std::size_t done = one.sent - std::min(one.sent, kReplicaGroupHeaderBytes);
    if (done < one.payload.size()) {
      auto* const from = const_cast<std::byte*>(one.payload.data() + done);  // required by iovec
      parts[count++] = {from, std::min(one.payload.size() - done, most - moved)};
    }
    WEIR_TRY(const std::size_t wrote, socket_.write(std::span(parts).first(count)));
    if (wrote == 0) break;
    one.sent += wrote;
    moved += wrote;
    if (one.sent < kReplicaGroupHeaderBytes + one.payload.size()) continue;
    const std::function<void()> written = std::move(one.written);
    outgoing_.pop_front();
    written();
  }
  return moved;
}

// Returns true if the payload can be read.
Result<bool> ReplicaGroupPeer::begin_frame(const Callbacks& callbacks) {
  WEIR_TRY(const ReplicaGroupFrame frame, decode_replica_group_frame(header_));
  WEIR_TRY(const std::optional<Place> target, callbacks.begin(frame));
  if (!target) {
    stalled_ = true;
    return false;
  }
  if (!target->nowhere && target->to.size() != frame.length) {
    return Error{Code::kConflict, "sends " + std::to_string(frame.length) + " bytes where " +
                                      std::to_string(target->to.size()) + " are due"};
  }
  frame_ = frame;
  target_ = *target;
  filled_ = 0;
  timed_ = {.bytes = static_cast<std::int64_t>(frame.length)};
  header_filled_ = 0;
  return true;
}

// Notes the times of the first and the last read of a payload.
void ReplicaGroupPeer::note_time(std::size_t read) {
  const bool first = filled_ == read;
  if (!first && filled_ < frame_->length) return;
  timed_.last = std::chrono::steady_clock::now();
  if (!first) return;
  timed_.first = timed_.last;
  timed_.first_bytes = static_cast<std::int64_t>(read);
}

Result<std::size_t> ReplicaGroupPeer::read(const Callbacks& callbacks, std::size_t most) {
  most = std::min(most, kBudget);
  std::vector<std::byte> sink;
  for (std::size_t moved = 0;;) {
    if (!frame_ && header_filled_ == kReplicaGroupHeaderBytes) {
      WEIR_TRY(const bool begun, begin_frame(callbacks));
      if (!begun) return moved;
    }
    if (frame_ && filled_ == frame_->length) {
      const ReplicaGroupFrame frame = *frame_;
      frame_.reset();
      const bool follows =
          before_ && before_->tag.step == frame.tag.step && before_->phase == frame.phase;
      before_ = frame;
      const Arrival arrival = meter_.add(timed_, follows);
      if (!target_.nowhere) WEIR_OK(callbacks.complete(frame, arrival));
      continue;
    }
    if (moved >= most) return moved;
    auto to = std::span(header_).subspan(header_filled_);
    if (frame_ && target_.nowhere) {
      sink.resize(std::min<std::size_t>(kSink, frame_->length - filled_));
      to = sink;
    } else if (frame_) {
      to = target_.to.subspan(filled_);
    }
    to = to.first(std::min(to.size(), most - moved));
    const Result<std::size_t> count = socket_.read(to);
    if (!count) {
      if (frame_ || header_filled_ > 0) return count.error();
      closed_ = true;  // the owner decides whether that is a failure
      return moved;
    }
    if (*count == 0) return moved;
    (frame_ ? filled_ : header_filled_) += *count;
    if (frame_) note_time(*count);
    moved += *count;
  }
}

}  // namespace weir::transport::tcp
