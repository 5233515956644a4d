// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/tcp_communicator.h"

#include <algorithm>

#include "worker/base/check.h"

namespace weir::transport::tcp {
namespace {

using std::chrono::steady_clock;

// Each posted op gives one completion; an engine that leaves so many unread has lost count.
constexpr std::size_t kMostCompletions = 1U << 20U;
constexpr std::chrono::nanoseconds kBeat = std::chrono::seconds(1);
constexpr int kBeatsToDeath = 4;  // at least, when dead_after is short

std::size_t index_of(Channel channel) {
  return static_cast<std::size_t>(channel);
}

}  // namespace

Links::Links(boost::asio::io_context& context, Generation generation, const TcpOptions& options,
             Time transport_start)
    : context_(context),
      generation_(std::move(generation)),
      options_(options),
      transport_start_(transport_start),
      beat_interval_(std::min(kBeat, std::chrono::nanoseconds(options.dead_after) / kBeatsToDeath)),
      beat_timer_(context),
      completions_(kMostCompletions) {}

int Links::boundary_of(const Port& port) const {
  return std::min(port.peer_stage, generation_.stage);
}

std::optional<Pacer> Links::pacer_of(const Port& port) const {
  for (const Pacing& pacing : options_.pacing) {
    if (pacing.boundary >= 0 && pacing.boundary != boundary_of(port)) continue;
    if (pacing.channel >= 0 && pacing.channel != static_cast<int>(port.channel)) continue;
    if (pacing.bytes_per_second <= 0) return std::nullopt;
    return Pacer(pacing, transport_start_);
  }
  return std::nullopt;
}

void Links::add(Joined joined) {
  const Port port = joined.port;
  const GenerationId id{generation_.revision, generation_.incarnation};
  if (port.sending) {
    outgoing_[index_of(port.channel)] =
        std::make_shared<OutgoingLink>(std::move(joined), id, options_.dead_after, pacer_of(port));
  } else {
    incoming_[index_of(port.channel)] =
        std::make_shared<IncomingLink>(std::move(joined), id, options_.dead_after);
  }
}

void Links::start(std::vector<Joined> joined) {
  for (Joined& one : joined) add(std::move(one));
  const auto keep = weak_from_this();
  const auto report = [this, keep](const Port& port, Completion::Kind kind,
                                   std::uint64_t sequence) {
    if (const auto alive = keep.lock()) {
      completions_.try_push({kind, port, static_cast<std::int64_t>(sequence), {}});
    }
  };
  const auto broken = [this, keep](const Port& port, const std::string& reason) {
    if (const auto alive = keep.lock()) fail(port, reason);
  };
  for (const auto& link : outgoing_) {
    if (!link) continue;
    const Port port = link->port();
    link->start({.sent = [=](std::uint64_t n) { report(port, Completion::Kind::kSent, n); },
                 .failed = [=](const std::string& reason) { broken(port, reason); }});
  }
  for (const auto& link : incoming_) {
    if (!link) continue;
    const Port port = link->port();
    link->start({.received = [=](std::uint64_t n) { report(port, Completion::Kind::kReceived, n); },
                 .failed = [=](const std::string& reason) { broken(port, reason); }});
  }
  last_beat_ = steady_clock::now();
  beat();
}

void Links::beat() {
  beat_timer_.expires_at(last_beat_ + beat_interval_);
  beat_timer_.async_wait([this, keep = shared_from_this()](boost::system::error_code error) {
    if (error || failed()) return;
    const auto now = steady_clock::now();
    // A process that was stopped, or a machine that slept, must not bury its peers.
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

void Links::close(bool goodbye) {
  beat_timer_.cancel();
  for (const auto& link : outgoing_) {
    if (link) link->close(goodbye);
  }
  for (const auto& link : incoming_) {
    if (link) link->close(goodbye);
  }
}

bool Links::has(const Port& port) const {
  const std::size_t channel = index_of(port.channel);
  if (port.sending) return outgoing_[channel] && outgoing_[channel]->port() == port;
  return incoming_[channel] && incoming_[channel]->port() == port;
}

void Links::post(const Port& port, device::Buffer buffer, std::size_t bytes) {
  WEIR_CHECK(has(port), "a port of this stage");
  WEIR_CHECK(bytes <= buffer.size() && bytes <= kMaxMessageBytes, "the buffer holds the message");
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back({port, std::move(buffer), bytes});
    if (std::exchange(inbox_posted_, true)) return;
  }
  boost::asio::post(context_, [this, keep = shared_from_this()] { empty_inbox(); });
}

void Links::empty_inbox() {
  std::vector<Command> commands;
  {
    const std::lock_guard lock(inbox_mutex_);
    commands.swap(inbox_);
    inbox_posted_ = false;
  }
  if (failed()) return;
  // Credits first: they are small, and the peer may be waiting for them.
  for (Command& command : commands) {
    if (command.port.sending) continue;
    incoming_[index_of(command.port.channel)]->receive(std::move(command.buffer), command.bytes);
  }
  for (const auto& link : incoming_) {
    if (link) link->flush();
  }
  for (Command& command : commands) {
    if (!command.port.sending) continue;
    outgoing_[index_of(command.port.channel)]->send(std::move(command.buffer), command.bytes);
  }
}

std::optional<Completion> Links::wait(Time deadline, std::stop_token stop) {
  if (auto completion = completions_.pop(deadline, std::move(stop))) return completion;
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

void Links::fail(const Port& port, const std::string& reason) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;
    failure_ = Completion{Completion::Kind::kFailed, port, 0, reason};
  }
  completions_.close();
  boost::asio::post(context_, [this, keep = shared_from_this()] { close(false); });
}

bool Links::failed() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_.has_value();
}

std::vector<LinkReport> Links::reports() const {
  std::vector<LinkReport> result;
  for (const auto& link : outgoing_) {
    if (!link) continue;
    result.push_back({.replica = generation_.replica,
                      .boundary = boundary_of(link->port()),
                      .channel = link->port().channel,
                      .from_node = generation_.node,
                      .to_node = link->peer().node,
                      .counters = link->counters()});
  }
  return result;
}

TcpCommunicator::TcpCommunicator(std::shared_ptr<IoThread> io, std::shared_ptr<Links> links)
    : io_(std::move(io)), links_(std::move(links)) {}

TcpCommunicator::~TcpCommunicator() {
  io_->call([this] {
    links_->close(!links_->failed());
    return true;
  });
}

void TcpCommunicator::send(const Port& port, device::Buffer buffer, std::size_t bytes) {
  WEIR_CHECK(port.sending, "a sending port");
  links_->post(port, std::move(buffer), bytes);
}

void TcpCommunicator::receive(const Port& port, device::Buffer buffer, std::size_t bytes) {
  WEIR_CHECK(!port.sending, "a receiving port");
  links_->post(port, std::move(buffer), bytes);
}

std::optional<Completion> TcpCommunicator::wait(std::chrono::steady_clock::time_point deadline,
                                                std::stop_token stop) {
  return links_->wait(deadline, std::move(stop));
}

std::vector<LinkReport> TcpCommunicator::reports() const {
  return links_->reports();
}

void TcpCommunicator::abort(const std::string& reason) noexcept {
  links_->fail({}, reason);
}

}  // namespace weir::transport::tcp
