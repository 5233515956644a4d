// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/links.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "worker/base/check.h"

namespace weir::transport::tcp {
namespace {

using std::chrono::steady_clock;

// Each posted op gives one completion. If this many are unread, the engine is broken.
constexpr std::size_t kMostCompletions = 1U << 20U;
constexpr std::chrono::nanoseconds kBeat = std::chrono::seconds(1);
constexpr int kBeatsToDeath = 4;  // at least this many beats, if dead_after is short
// If the engine has not waited for this long, it computes, and the io thread takes over the
// sockets. Mostly the engine returns at once, and another thread that wakes up for each packet
// costs a third of the rate.
constexpr std::chrono::microseconds kIdleInterval{200};
// The next interval, if the engine did return.
constexpr std::chrono::microseconds kLongIdleInterval{1000};

std::size_t index_of(Channel channel) {
  return static_cast<std::size_t>(channel);
}

}  // namespace

Links::Links(boost::asio::io_context& context, Generation generation, const TcpOptions& options,
             Time transport_start, std::shared_ptr<TrafficOrder> order)
    : context_(context),
      generation_(std::move(generation)),
      options_(options),
      transport_start_(transport_start),
      order_(std::move(order)),
      beat_interval_(std::min(kBeat, std::chrono::nanoseconds(options.dead_after) / kBeatsToDeath)),
      beat_timer_(context),
      watch_(std::make_shared<SocketWatch>(context)),
      idle_timer_(context),
      completions_(kMostCompletions) {}

int Links::boundary_of(const LinkEnd& end) const {
  return std::min(end.peer_stage, generation_.stage);
}

std::optional<Pacer> Links::pacer_of(const LinkEnd& end) const {
  const Pacing* pacing = pacing_of(options_.pacing, boundary_of(end), end.channel);
  return pacing ? std::optional(Pacer(*pacing, transport_start_)) : std::nullopt;
}

void Links::add(Joined joined) {
  const LinkEnd end = joined.end;
  const std::size_t channel = index_of(end.channel);
  const LinkContext link_context{.generation = {generation_.revision, generation_.incarnation},
                                 .dead_after = options_.dead_after,
                                 .send_buffer_bytes = options_.send_buffer_bytes,
                                 .order = order_,
                                 .context = context_,
                                 .watch = *watch_,
                                 .engine_drives = engine_drives_,
                                 .wake_engine = [this] { wake_engine(); }};
  if (end.sending) {
    outgoing_[channel] = std::make_shared<OutgoingLink>(std::move(joined), link_context,
                                                        pacer_of(end), options_.connections == 0);
  } else {
    incoming_[channel] = std::make_shared<IncomingLink>(std::move(joined), link_context);
  }
}

void Links::start(std::vector<Joined> joined) {
  for (Joined& one : joined) add(std::move(one));
  const auto collect = [this](const auto& link) {
    if (!link) return;
    for (const auto& connection : link->connections()) connections_.push_back(connection.get());
  };
  for (const auto& link : outgoing_) collect(link);
  for (const auto& link : incoming_) collect(link);
  for (const Connection* connection : connections_) engine_poll_.add(connection->descriptor());
  watch_->start();
  start_links();
  last_beat_ = steady_clock::now();
  beat();
}

void Links::start_links() {
  const auto weak = weak_from_this();
  const auto sends = [weak](const LinkEnd& end) {
    return [weak, end](std::uint64_t sequence, const Transfer& transfer) {
      if (const auto alive = weak.lock()) {
        alive->complete({.kind = Completion::Kind::kSent,
                         .end = end,
                         .sequence = static_cast<std::int64_t>(sequence),
                         .reason = "",
                         .transfer = transfer});
      }
    };
  };
  const auto receives = [weak](const LinkEnd& end) {
    return [weak, end](std::uint64_t sequence, const Transfer& transfer) {
      if (const auto alive = weak.lock()) {
        alive->complete({.kind = Completion::Kind::kReceived,
                         .end = end,
                         .sequence = static_cast<std::int64_t>(sequence),
                         .reason = "",
                         .transfer = transfer});
      }
    };
  };
  const auto breaks = [weak](const LinkEnd& end) {
    return [weak, end](const std::string& reason) {
      if (const auto alive = weak.lock()) alive->fail(end, reason);
    };
  };
  for (const auto& link : outgoing_) {
    if (!link) continue;
    const LinkEnd& end = link->end();
    link->start({.sent = sends(end), .failed = breaks(end)});
  }
  for (const auto& link : incoming_) {
    if (!link) continue;
    const LinkEnd& end = link->end();
    link->start({.received = receives(end), .failed = breaks(end)});
  }
}

void Links::complete(Completion completion) {
  const bool room = completions_.try_push(std::move(completion));
  WEIR_CHECK(room || failed_, "the engine reads its completions");
  wake_engine();
}

void Links::beat() {
  beat_timer_.expires_at(last_beat_ + beat_interval_);
  beat_timer_.async_wait([this, keep = shared_from_this()](boost::system::error_code error) {
    if (error || failed()) return;
    const auto now = steady_clock::now();
    // A process that was stopped, or a machine that slept, must not declare its peers dead.
    const bool own_pause = now - last_beat_ > 2 * beat_interval_;
    last_beat_ = now;
    for (const auto& link : outgoing_) {
      if (link) link->heartbeat(now, own_pause);
    }
    for (const auto& link : incoming_) {
      if (link) link->heartbeat(now, own_pause);
    }
    beat();
  });
}

void Links::tell_dead_peers() const {
  const auto tell = [&](const auto& link) {
    if (!link || peer_left(link->end())) return;
    const bool before = link->end().peer_stage < generation_.stage;
    tell_if_dead(link->connections().front()->socket().descriptor(),
                 before ? *generation_.previous : *generation_.next, options_);
  };
  std::ranges::for_each(outgoing_, tell);
  std::ranges::for_each(incoming_, tell);
}

void Links::close(bool goodbye) {
  if (!std::exchange(closed_, true)) tell_dead_peers();
  beat_timer_.cancel();
  const auto end = [goodbye](const auto& link) {
    if (link) link->close(goodbye);
  };
  std::ranges::for_each(outgoing_, end);
  std::ranges::for_each(incoming_, end);
  watch_->stop();
  const std::lock_guard lock(idle_mutex_);
  idle_timer_.cancel();
}

void Links::send(const LinkEnd& end, device::Buffer buffer, std::size_t bytes) {
  const auto& link = outgoing_[index_of(end.channel)];
  WEIR_CHECK(end.sending && link && link->end() == end, "a link end of this stage");
  WEIR_CHECK(bytes <= buffer.size() && bytes <= kMaxMessageBytes, "the buffer holds the message");
  if (failed()) return;
  switch (link->send(std::move(buffer), bytes)) {
    case OutgoingLink::Sent::kWritten:
      return;
    case OutgoingLink::Sent::kMuch:
      return flush_by_io(link);
    case OutgoingLink::Sent::kSoon:
      return schedule_idle_service();
  }
}

void Links::receive(const LinkEnd& end, device::Buffer buffer, std::size_t bytes) {
  const auto& link = incoming_[index_of(end.channel)];
  WEIR_CHECK(!end.sending && link && link->end() == end, "a link end of this stage");
  WEIR_CHECK(bytes <= buffer.size() && bytes <= kMaxMessageBytes, "the buffer holds the message");
  if (failed()) return;
  link->receive(std::move(buffer), bytes);
  schedule_idle_service();
}

// Returns available completions in their order, then the failure forever.
std::optional<Completion> Links::done() {
  if (auto completion = completions_.try_pop()) return completion;
  if (!failed()) return std::nullopt;
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

std::optional<Completion> Links::wait(Time deadline, const std::stop_token& stop) {
  const Time now = steady_clock::now();
  if (auto completion = done()) {
    left_ = now;
    return completion;
  }
  if (now >= deadline || stop.stop_requested()) return std::nullopt;

  engine_drives_ = true;
  auto completion = drive_until(deadline, stop);
  left_ = steady_clock::now();  // set first, so that the io thread does not use an older time
  engine_drives_ = false;
  schedule_idle_service();
  return completion;
}

std::optional<Completion> Links::drive_until(Time deadline, const std::stop_token& stop) {
  for (;;) {
    if (auto completion = done()) return completion;
    if (stop.stop_requested() || steady_clock::now() >= deadline) return std::nullopt;

    flush_links(Flush::kAll);
    engine_sleeps_ = true;  // from here on others wake this thread; earlier events are found below
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      engine_poll_.ask_writable(i, connections_[i]->blocked());
    }
    auto completion = done();
    if (!completion) engine_poll_.wait(deadline, stop);
    engine_sleeps_ = false;
    if (completion) return completion;
    serve_ready();
  }
}

void Links::wake_engine() {
  if (engine_sleeps_) engine_poll_.wake();
}

void Links::flush_by_io(const std::shared_ptr<OutgoingLink>& link) {
  boost::asio::post(context_, [link] { link->flush(FrameWriter::Patience::kShort); });
}

// Writes data owed to the peers. kAll: the engine is about to sleep, so it writes all that the
// sockets take. kSmall: the engine may be about to compute. kPatient: on the io thread.
void Links::flush_links(Flush how) {
  for (const auto& link : outgoing_) {
    if (!link) continue;
    if (how == Flush::kSmall) {
      if (!link->flush_small()) flush_by_io(link);
    } else {
      link->flush(how == Flush::kPatient ? FrameWriter::Patience::kShort
                                         : FrameWriter::Patience::kNone);
    }
  }
  for (const auto& link : incoming_) {
    if (link) link->flush();
  }
}

// The connections are in the order of connections_.
void Links::serve_ready() {
  std::size_t index = 0;
  const auto serve = [&](const auto& link) {
    if (!link) return;
    for (const auto& connection : link->connections()) {
      const bool readable = engine_poll_.readable(index);
      const bool writable = engine_poll_.writable(index);
      if ((readable || writable) && !link->serve(*connection, readable, writable)) {
        engine_poll_.drop(index);
      }
      ++index;
    }
  };
  for (const auto& link : outgoing_) serve(link);
  for (const auto& link : incoming_) serve(link);
}

// Called on the engine thread after it has stopped waiting or posted an op. Data owed to the peers
// is written at once if the last flush is long ago. Otherwise it is written later, because an
// engine that waits often does so itself at a lower cost.
void Links::schedule_idle_service() {
  const Time now = steady_clock::now();
  if (now - flushed_ >= kIdleInterval) {
    flushed_ = now;
    flush_links(Flush::kSmall);
  }
  if (idle_service_due_.exchange(true)) return;
  left_at_timer_ = left_;
  start_idle_timer(now + kIdleInterval);
}

void Links::start_idle_timer(Time time) {
  const std::lock_guard lock(idle_mutex_);
  idle_timer_.expires_at(time);
  idle_timer_.async_wait([this, keep = shared_from_this()](boost::system::error_code error) {
    if (!error && !failed()) idle_timer_fired();
  });
}

void Links::idle_timer_fired() {
  const Time left = left_;
  if (left != std::exchange(left_at_timer_, left)) {
    return start_idle_timer(steady_clock::now() + kLongIdleInterval);
  }
  // Cleared before the service, so that work that is left from now on sets it again.
  idle_service_due_ = false;
  run_idle_service();
}

// On the io thread: sends acknowledgements and credits, and takes over the sockets.
void Links::run_idle_service() {
  // The engine does all this, and calls schedule_idle_service() when it stops.
  if (engine_drives_) return;
  flush_links(Flush::kPatient);
  for (Connection* connection : connections_) connection->arm();
}

void Links::fail(const LinkEnd& end, const std::string& reason) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;
    failure_ = Completion{Completion::Kind::kFailed, end, 0, reason};
  }
  failed_ = true;
  engine_poll_.wake();
  boost::asio::post(context_, [this, keep = shared_from_this()] { close(false); });
}

bool Links::peer_left(const LinkEnd& end) const {
  const std::size_t channel = index_of(end.channel);
  const auto left = [](const auto& link) {
    return link && link->connections().front()->peer_left();
  };
  return end.sending ? left(outgoing_[channel]) : left(incoming_[channel]);
}

std::vector<LinkReport> Links::reports() const {
  std::vector<LinkReport> result;
  for (const auto& link : outgoing_) {
    if (!link) continue;
    result.push_back({.replica = generation_.replica,
                      .boundary = boundary_of(link->end()),
                      .channel = link->end().channel,
                      .from_node = generation_.node,
                      .to_node = link->peer().node,
                      .counters = link->counters()});
  }
  return result;
}

}  // namespace weir::transport::tcp
