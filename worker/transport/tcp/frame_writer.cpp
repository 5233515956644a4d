// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/frame_writer.h"

#include <algorithm>

namespace weir::transport::tcp {
namespace {

namespace asio = boost::asio;
constexpr std::size_t kMaxBuffers = 64;  // what Asio hands to one sendmsg

}  // namespace

FrameWriter::FrameWriter(asio::ip::tcp::socket& socket, std::optional<Pacer> pacer)
    : socket_(socket), pacer_(std::move(pacer)), timer_(socket.get_executor()) {
  buffers_.reserve(kMaxBuffers);
}

void FrameWriter::start(std::weak_ptr<void> owner, Hooks hooks) {
  owner_ = std::move(owner);
  hooks_ = std::move(hooks);
}

void FrameWriter::push(const FrameHeader& header, std::span<const std::byte> small) {
  if (stopped_) return;
  Entry& entry = entries_.emplace_back();
  std::ranges::copy(encode_frame(header), entry.head.begin());
  std::ranges::copy(small, entry.head.begin() + kFrameHeaderBytes);
  entry.head_bytes = kFrameHeaderBytes + small.size();
}

void FrameWriter::push(const FrameHeader& header, device::Buffer payload, std::size_t bytes) {
  if (stopped_) return;
  push(header);
  entries_.back().payload = std::move(payload);
  entries_.back().payload_bytes = bytes;
}

void FrameWriter::flush() {
  if (waiting_ || stopped_ || entries_.empty()) return;
  while (!entries_.empty()) {
    const std::size_t asked = gather();
    if (asked == 0) return;  // paced: the timer comes back
    boost::system::error_code error;
    const std::size_t written = socket_.write_some(buffers_, error);
    if (error == asio::error::would_block || error == asio::error::try_again) {
      return await_writable();
    }
    if (error == asio::error::interrupted) continue;
    if (error) {
      stopped_ = true;
      return hooks_.failed(error.message());
    }
    consume(written);
    if (written < asked) return await_writable();  // the socket is full
  }
  hooks_.drained();
}

// Fills buffers_ with what may be written now; returns its size.
std::size_t FrameWriter::gather() {
  buffers_.clear();
  for (Entry& entry : entries_) {
    if (buffers_.size() + 2 > kMaxBuffers) break;
    std::size_t limit = entry.total();
    if (pacer_ && entry.payload_bytes > 0) {
      if (!buffers_.empty()) break;  // its turn, and its time, comes when it is first
      limit = paced_limit(entry);
    }
    add_buffers(entry, limit);
    if (limit < entry.total()) break;
  }
  return asio::buffer_size(buffers_);
}

void FrameWriter::add_buffers(const Entry& entry, std::size_t limit) {
  const std::size_t head_end = std::min(limit, entry.head_bytes);
  if (entry.sent < head_end) {
    buffers_.emplace_back(entry.head.data() + entry.sent, head_end - entry.sent);
  }
  const std::size_t from = std::max(entry.sent, entry.head_bytes);
  if (from < limit) {
    buffers_.emplace_back(entry.payload.data() + (from - entry.head_bytes), limit - from);
  }
}

// How many bytes of the frame may be written now; arms the timer when all of them are.
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
  while (bytes > 0) {
    Entry& entry = entries_.front();
    const std::size_t part = std::min(bytes, entry.total() - entry.sent);
    entry.sent += part;
    bytes -= part;
    if (entry.sent == entry.total()) entries_.pop_front();
  }
}

void FrameWriter::await_writable() {
  waiting_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_write,
                     [this, keep = owner_.lock()](boost::system::error_code error) {
                       waiting_ = false;
                       if (!error) flush();
                     });
}

void FrameWriter::await_time(Pacer::Time time) {
  timer_.expires_at(time);
  timer_.async_wait([this, keep = owner_.lock()](boost::system::error_code error) {
    if (!error) flush();
  });
}

void FrameWriter::stop() {
  stopped_ = true;
  entries_.clear();
  timer_.cancel();
}

}  // namespace weir::transport::tcp
