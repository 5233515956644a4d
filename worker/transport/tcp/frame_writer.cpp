// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/frame_writer.h"

#include <algorithm>

namespace weir::transport::tcp {
namespace {

namespace asio = boost::asio;
constexpr std::size_t kMaxParts = 64;  // 32 messages in one sendmsg
// Bytes per write before the mutex is released; about 100 us.
constexpr std::size_t kWriteBudget = 512 * 1024;
// Other links of the io thread wait at most this long; at 1 GB/s this is a third of the send
// buffer.
constexpr std::chrono::microseconds kShortWait{100};

}  // namespace

FrameWriter::FrameWriter(DataSocket& socket, asio::io_context& context, std::mutex& mutex,
                         std::optional<Pacer> pacer)
    : socket_(socket), mutex_(mutex), pacer_(std::move(pacer)), timer_(context) {
  parts_.reserve(kMaxParts);
}

void FrameWriter::start(std::weak_ptr<void> owner, Callbacks callbacks) {
  owner_ = std::move(owner);
  callbacks_ = std::move(callbacks);
}

void FrameWriter::push(const FrameHeader& header, std::span<const std::byte> small) {
  if (stopped_) return;
  Entry& entry = entries_.emplace_back();
  std::ranges::copy(encode_frame(header), entry.head.begin());
  std::ranges::copy(small, entry.head.begin() + kFrameHeaderBytes);
  entry.head_bytes = kFrameHeaderBytes + small.size();
  pending_bytes_ += entry.head_bytes;
}

void FrameWriter::push(const FrameHeader& header, device::Buffer buffer, std::size_t from,
                       std::size_t bytes) {
  if (stopped_) return;
  push(header);
  entries_.back().buffer = std::move(buffer);
  entries_.back().payload_from = from;
  entries_.back().payload_bytes = bytes;
  pending_bytes_ += bytes;
}

void FrameWriter::flush(Patience patience) {
  if (waiting_ || writing_ || stopped_ || entries_.empty()) return;
  std::size_t budget = kWriteBudget;
  while (!entries_.empty()) {
    if (budget == 0) {  // other connections are to be served
      waiting_ = true;
      return callbacks_.blocked();
    }
    const std::size_t asked = gather(budget);
    if (asked == 0) return;  // paced: the timer calls again
    const auto written = write_parts(asked, patience);
    if (stopped_) return entries_.clear();  // during the write
    if (!written) {
      stopped_ = true;
      return callbacks_.failed(written.error().message);
    }
    consume(*written);
    budget -= std::min(budget, *written);
    if (*written < asked && !has_room_) {
      waiting_ = true;
      return callbacks_.blocked();
    }
    if (entries_.empty()) callbacks_.drained();
  }
}

// The memory behind parts_ stays valid, because only the writing thread removes entries.
Result<std::size_t> FrameWriter::write_parts(std::size_t asked, Patience patience) {
  writing_ = true;
  mutex_.unlock();
  auto written = socket_.write(parts_);
  // On a fast link there is room again at once. Waiting for it costs less than an event.
  const bool waits = patience == Patience::kShort && !pacer_ && written && *written < asked;
  const bool room = waits && socket_.await_room(kShortWait);
  mutex_.lock();
  writing_ = false;
  has_room_ = room;
  return written;
}

// Fills parts_ with everything that may be written now. Returns its size.
std::size_t FrameWriter::gather(std::size_t most) {
  parts_.clear();
  std::size_t total = 0;
  for (Entry& entry : entries_) {
    if (parts_.size() + 2 > kMaxParts || total == most) break;
    std::size_t limit = std::min(entry.total(), entry.sent + (most - total));
    if (pacer_ && entry.payload_bytes > 0) {
      if (!parts_.empty()) break;  // it is paced only once it is first in the queue
      limit = std::min(limit, paced_limit(entry));
    }
    add_parts(entry, limit);
    total += limit - entry.sent;
    if (limit < entry.total()) break;
  }
  return total;
}

void FrameWriter::add_parts(Entry& entry, std::size_t limit) {
  const std::size_t head_end = std::min(limit, entry.head_bytes);
  if (entry.sent < head_end) {
    parts_.push_back({entry.head.data() + entry.sent, head_end - entry.sent});
  }
  const std::size_t from = std::max(entry.sent, entry.head_bytes);
  if (from < limit) {
    std::byte* const payload = entry.buffer.data() + entry.payload_from;
    parts_.push_back({payload + (from - entry.head_bytes), limit - from});
  }
}

// Returns the number of bytes of the frame that may be written now. Sets the timer if all of them
// have been written.
std::size_t FrameWriter::paced_limit(Entry& entry) {
  const auto now = std::chrono::steady_clock::now();
  if (!entry.paced) {
    entry.paced = true;
    pacer_->begin(now, entry.payload_bytes);
    chunk_ = pacer_->next();
  }
  while (entry.allowed < entry.payload_bytes && chunk_.at <= now) {
    entry.allowed += chunk_.bytes;
    if (entry.allowed < entry.payload_bytes) chunk_ = pacer_->next();
  }
  const std::size_t limit = entry.allowed == 0 ? 0 : entry.head_bytes + entry.allowed;
  if (limit <= entry.sent) {
    await_time(chunk_.at);
    return entry.sent;
  }
  return limit;
}

void FrameWriter::consume(std::size_t bytes) {
  pending_bytes_ -= bytes;
  while (bytes > 0) {
    Entry& entry = entries_.front();
    const std::size_t part = std::min(bytes, entry.total() - entry.sent);
    entry.sent += part;
    bytes -= part;
    if (entry.sent == entry.total()) entries_.pop_front();
  }
}

void FrameWriter::unblocked(Patience patience) {
  waiting_ = false;
  flush(patience);
}

void FrameWriter::await_time(Pacer::Time time) {
  waiting_ = true;
  timer_.expires_at(time);
  timer_.async_wait([this, keep = owner_.lock()](boost::system::error_code error) {
    const std::lock_guard lock(mutex_);
    waiting_ = false;
    if (!error) flush();
  });
}

void FrameWriter::stop() {
  stopped_ = true;
  if (!writing_) entries_.clear();
  pending_bytes_ = 0;
  timer_.cancel();
}

}  // namespace weir::transport::tcp
