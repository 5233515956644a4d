// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/connection.h"

#include <boost/asio/post.hpp>

namespace weir::transport::tcp {
namespace {

std::string seconds_text(std::chrono::nanoseconds time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

}  // namespace

std::string name_of(const PeerAddress& peer) {
  const bool v6 = peer.ip.find(':') != std::string::npos;
  return "stage " + std::to_string(peer.stage) + " at " + (v6 ? "[" + peer.ip + "]" : peer.ip) +
         ":" + std::to_string(peer.data_port);
}

Connection::Connection(Joined joined, GenerationId generation, std::chrono::nanoseconds dead_after,
                       std::optional<Pacer> pacer)
    : port_(joined.port),
      peer_(std::move(joined.peer)),
      generation_(generation),
      dead_after_(dead_after),
      socket_(std::move(joined.socket)),
      writer_(socket_, std::move(pacer)),
      reader_(socket_) {}

void Connection::start(std::weak_ptr<void> owner, Hooks hooks) {
  owner_ = owner;
  hooks_ = std::move(hooks);
  boost::system::error_code error;
  socket_.non_blocking(true, error);
  if (error) return fail(error.message());
  writer_.start(owner, {.drained = hooks_.drained,
                        .failed = [this](const std::string& reason) { write_failed(reason); }});
  reader_.start(std::move(owner),
                {.begin = [this](const FrameHeader& frame) { return begin(frame); },
                 .complete = hooks_.complete,
                 .batch_done = hooks_.batch_done,
                 .failed = [this](const Error& reason) { lost(reason); }});
}

FrameHeader Connection::header(FrameType type, std::uint64_t sequence, std::uint64_t length) const {
  return {.type = type,
          .channel = port_.channel,
          .incarnation = generation_.incarnation,
          .revision = generation_.revision,
          .sequence = sequence,
          .length = length};
}

Result<std::span<std::byte>> Connection::begin(const FrameHeader& frame) {
  const GenerationId theirs{frame.revision, frame.incarnation};
  if (theirs != generation_) {
    return Error{Code::kInvalid, "frame of generation " + theirs.text() + " in a connection of " +
                                     generation_.text()};
  }
  if (frame.channel != port_.channel) return Error{Code::kInvalid, "frame of another channel"};
  if (peer_left_) return Error{Code::kInvalid, "frame after goodbye"};
  if (frame.type == FrameType::kGoodbye) {
    peer_left_ = true;
    return std::span<std::byte>();
  }
  return hooks_.begin(frame);
}

void Connection::lost(const Error& error) {
  // After a goodbye the end is expected. What this rank still waits for then fails by silence.
  if (peer_left_ && error.code == Code::kUnavailable) {
    reader_.stop();
    writer_.stop();
    return;
  }
  const bool cut = error.code == Code::kUnavailable && reader_.in_mid_frame();
  fail(cut ? error.message + " in mid-message" : error.message);
}

// The peer's goodbye may still lie unread in the socket: read to the end before judging.
void Connection::write_failed(const std::string& reason) {
  boost::asio::post(socket_.get_executor(), [this, keep = owner_.lock(), reason] {
    if (closed_) return;
    reader_.drain();
    lost({Code::kUnavailable, reason});
  });
}

void Connection::check_alive(Time now) {
  if (closed_ || now - reader_.last_heard() < dead_after_) return;
  fail(peer_left_ ? "left, and did not come back" : "no byte for " + seconds_text(dead_after_));
}

void Connection::fail(const std::string& reason) {
  if (closed_) return;
  close(false);
  hooks_.failed(name_of(peer_) + ": " + reason);
}

void Connection::close(bool goodbye) {
  if (closed_) return;
  closed_ = true;
  if (goodbye && !writer_.in_mid_frame() && !peer_left_) {
    writer_.push(header(FrameType::kGoodbye, 0));
    writer_.flush();
  }
  writer_.stop();
  reader_.stop();
  boost::system::error_code ignored;
  socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  socket_.close(ignored);
}

}  // namespace weir::transport::tcp
