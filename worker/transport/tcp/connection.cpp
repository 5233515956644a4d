// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/connection.h"

#include <boost/asio/post.hpp>

namespace weir::transport::tcp {
namespace {

std::string seconds_text(std::chrono::nanoseconds time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

// Takes the socket away from Asio, whose reactor would wake its thread for every packet.
int released(boost::asio::ip::tcp::socket& socket) {
  boost::system::error_code error;
  const int descriptor = socket.release(error);
  return error ? -1 : descriptor;  // -1: the first read fails
}

}  // namespace

Connection::Connection(std::mutex& mutex, const LinkEnd& link_end, std::string name,
                       boost::asio::ip::tcp::socket socket, const LinkContext& link_context,
                       std::optional<Pacer> pacer)
    : link_end_(link_end),
      name_(std::move(name)),
      link_context_(link_context),
      mutex_(mutex),
      socket_(released(socket)),
      descriptor_(socket_.descriptor()),
      writer_(socket_, link_context.context, mutex_, std::move(pacer)),
      reader_(socket_) {}

std::vector<std::unique_ptr<Connection>> make_connections(std::mutex& mutex, Joined joined,
                                                          const LinkContext& link_context,
                                                          const std::optional<Pacer>& pacer) {
  std::vector<std::unique_ptr<Connection>> result;
  const std::size_t count = joined.sockets.size();
  for (auto& socket : joined.sockets) {
    std::string name = name_of(joined.peer) + ", " + name_of(joined.end);
    if (count > 1) {
      name += ", connection " + std::to_string(result.size() + 1) + " of " + std::to_string(count);
    }
    result.push_back(std::make_unique<Connection>(mutex, joined.end, std::move(name),
                                                  std::move(socket), link_context,
                                                  result.empty() ? pacer : std::nullopt));
  }
  return result;
}

void Connection::start(std::weak_ptr<void> owner, Callbacks callbacks) {
  owner_ = owner;
  callbacks_ = std::move(callbacks);
  writer_.start(owner, {.drained = callbacks_.drained,
                        .blocked = [this] { block(); },
                        .failed = [this](const std::string& reason) { write_failed(reason); }});
  reader_.start({.begin = [this](const FrameHeader& frame) { return begin(frame); },
                 .complete = callbacks_.complete,
                 .failed = [this](const Error& reason) { lost(reason); }});
  watch_id_ = link_context_.watch.add(
      descriptor_, [this, owner = std::move(owner)](bool readable, bool writable) {
        const auto keep = owner.lock();
        if (keep) ready(readable, writable);
      });
  ask();
}

void Connection::ask() {
  if (closed_) return;
  // The engine calls arm() when it stops driving.
  if (link_context_.engine_drives) return link_context_.wake_engine();
  asked_readable_ = true;
  asked_writable_ = blocked_;
  link_context_.watch.ask(watch_id_, true, asked_writable_);
}

void Connection::block() {
  blocked_ = true;
  ask();
}

void Connection::unblocked() {
  if (!blocked_.exchange(false)) return;
  writer_.unblocked(FrameWriter::Patience::kNone);
}

// Runs on the io thread.
void Connection::ready(bool readable, bool writable) {
  const std::lock_guard lock(mutex_);
  asked_readable_ = asked_writable_ = false;
  if (closed_ || link_context_.engine_drives) return;
  if (writable && blocked_.exchange(false)) writer_.unblocked(FrameWriter::Patience::kShort);
  if (readable && !closed_) {
    pump();
    if (!closed_) callbacks_.read();
  }
  ask();
}

void Connection::arm() {
  const std::lock_guard lock(mutex_);
  if (!asked_readable_ || (blocked_ && !asked_writable_)) ask();
}

void Connection::end(bool goodbye) {
  const std::lock_guard lock(mutex_);
  close(goodbye);
}

FrameHeader Connection::header(FrameType type, std::uint64_t sequence, std::uint64_t length) const {
  return {.type = type,
          .channel = link_end_.channel,
          .incarnation = link_context_.generation.incarnation,
          .revision = link_context_.generation.revision,
          .sequence = sequence,
          .length = length};
}

Result<std::span<std::byte>> Connection::begin(const FrameHeader& frame) {
  const GenerationId theirs{frame.revision, frame.incarnation};
  if (theirs != link_context_.generation) {
    return invalid("frame of generation " + theirs.text() + " in a connection of " +
                   link_context_.generation.text());
  }
  if (frame.channel != link_end_.channel) return invalid("frame of another channel");
  if (peer_left_) return invalid("frame after goodbye");
  if (frame.type == FrameType::kGoodbye) {
    peer_left_ = true;
    return std::span<std::byte>();
  }
  return callbacks_.begin(frame);
}

void Connection::lost(const Error& error) {
  // After a goodbye the end of the connection is expected. If this rank still waits for a message,
  // it fails by silence.
  if (peer_left_ && error.code == Code::kUnavailable) {
    lost_ = true;
    reader_.stop();
    writer_.stop();
    link_context_.watch.remove(watch_id_);
    return;
  }
  const bool cut = error.code == Code::kUnavailable && reader_.in_mid_frame();
  fail(cut ? error.message + " in mid-message" : error.message);
}

// The peer's goodbye may still be unread in the socket, so the socket is read to its end first.
// This is posted, because the caller may be inside the reader.
void Connection::write_failed(const std::string& reason) {
  boost::asio::post(link_context_.context, [this, keep = owner_.lock(), reason] {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    pump();
    if (!closed_) lost({Code::kUnavailable, reason});
  });
}

void Connection::check_alive(Time now) {
  if (closed_ || now - reader_.last_heard() < link_context_.dead_after) return;
  fail(peer_left_ ? "left, and did not come back"
                  : "no byte for " + seconds_text(link_context_.dead_after));
}

void Connection::fail(const std::string& reason) {
  if (closed_) return;
  close(false);
  callbacks_.failed(name_ + ": " + reason);
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
  link_context_.watch.remove(watch_id_);
  socket_.shut();
}

}  // namespace weir::transport::tcp
