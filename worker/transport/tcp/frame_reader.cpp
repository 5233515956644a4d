// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/frame_reader.h"

#include <algorithm>
#include <cstring>

#include "worker/base/check.h"

namespace weir::transport::tcp {
namespace {

using std::chrono::steady_clock;
// Bytes per turn; then other connections are served.
constexpr std::size_t kReadBudget = std::size_t{1} << 20U;
// After this much payload only the next header is read along, so that its payload is read directly,
// too.
constexpr std::size_t kLarge = 16 * 1024;

}  // namespace

void FrameReader::start(Callbacks callbacks) {
  callbacks_ = std::move(callbacks);
  last_heard_ = steady_clock::now();
}

void FrameReader::pump() {
  if (stopped_) return;
  std::size_t budget = kReadBudget;
  bool drained = false;
  Status state = Unit{};
  while (!stopped_ && !drained && budget > 0 && state) {
    const bool direct = header_.has_value();
    const std::size_t missing = direct ? target_.size() - filled_ : 0;
    std::size_t asked = 0;
    const auto count = read_some(asked);
    if (!count) {
      state = count.error();
      break;
    }
    // A short read emptied the socket, so another read would be wasted.
    drained = *count < asked;
    budget -= std::min(budget, *count);
    const std::size_t payload = std::min(missing, *count);
    staged_ += *count - payload;
    if (direct) state = add_payload(payload);
    if (state) state = parse_staged(drained);
  }
  if (stopped_) return;
  if (budget < kReadBudget) last_heard_ = steady_clock::now();
  if (!state) {
    stopped_ = true;
    callbacks_.failed(state.error());
  }
}

Result<std::size_t> FrameReader::read_some(std::size_t& asked) {
  const auto staging = std::span(staging_).subspan(staged_);
  if (!header_) {
    asked = staging.size();
    return socket_.read(staging);
  }
  const auto payload = target_.subspan(filled_);
  const auto more = payload.size() < kLarge ? staging : staging.first(kFrameHeaderBytes);
  asked = payload.size() + more.size();
  return socket_.read(payload, more);
}

Status FrameReader::parse_staged(bool drained) {
  while (!header_ && staged_ >= kFrameHeaderBytes && !stopped_) {
    const Status begun = begin_frame(drained);
    if (!begun) return begun;
  }
  return Unit{};
}

// Takes the header and the available part of its payload out of the staging buffer.
Status FrameReader::begin_frame(bool drained) {
  WEIR_TRY(header_, decode_frame(std::span(staging_).first(staged_)));
  WEIR_TRY(target_, callbacks_.begin(*header_));
  WEIR_CHECK(target_.size() == header_->length, "room for exactly the payload");
  filled_ = std::min(target_.size(), staged_ - kFrameHeaderBytes);
  if (filled_ > 0) std::memcpy(target_.data(), staging_.data() + kFrameHeaderBytes, filled_);
  const std::size_t used = kFrameHeaderBytes + filled_;
  staged_ -= used;
  if (staged_ > 0) std::memmove(staging_.data(), staging_.data() + used, staged_);

  message_ = {.bytes = static_cast<std::int64_t>(target_.size())};
  first_known_ = false;
  if (drained || filled_ == target_.size()) return add_payload(0);
  return Unit{};  // one more read belongs to the first one
}

Status FrameReader::add_payload(std::size_t bytes) {
  filled_ += bytes;
  const bool complete = filled_ == target_.size();
  if (!first_known_ || complete) {
    const auto now = steady_clock::now();
    if (!first_known_) {
      first_known_ = true;
      message_.first = now;
      message_.first_bytes = static_cast<std::int64_t>(filled_);
    }
    message_.last = now;
  }
  return complete ? finish_frame() : Status(Unit{});
}

Status FrameReader::finish_frame() {
  const FrameHeader header = *header_;
  header_.reset();
  return callbacks_.complete(header, message_);
}

}  // namespace weir::transport::tcp
