// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/rendezvous.h"

#include <algorithm>

#include "worker/transport/tcp/send_buffer.h"

namespace weir::transport::tcp {
namespace {

constexpr int kAutomaticConnections = 9;  // one of them carries only pings

}  // namespace

Rendezvous::Rendezvous(boost::asio::io_context& context, Generation generation,
                       const TcpOptions& options, std::vector<PeerAddress> group)
    : context_(context),
      generation_(std::move(generation)),
      group_(std::move(group)),
      options_(options) {
  for (const PeerAddress& peer : group_) {
    add(peer, Channel::kForward, peer.stage > generation_.stage);
  }
  add(generation_.next, Channel::kForward, true);
  add(generation_.previous, Channel::kBackward, true);
  add(generation_.previous, Channel::kForward, false);
  add(generation_.next, Channel::kBackward, false);
}

void Rendezvous::add(const std::optional<PeerAddress>& peer, Channel channel, bool sending) {
  if (!peer) return;
  const LinkEnd end{.peer_stage = peer->stage, .channel = channel, .sending = sending};
  const auto connections = static_cast<std::size_t>(sending ? connections_of(end) : 1);
  Slot slot{.end = end, .peer = *peer};
  slot.dialers.resize(sending ? connections : 0);
  slot.sockets.resize(connections);
  slots_.push_back(std::move(slot));
}

int Rendezvous::connections_of(const LinkEnd& end) const {
  const int boundary = std::min(end.peer_stage, generation_.stage);
  if (is_group() || pacing_of(options_.pacing, boundary, end.channel)) return 1;
  return options_.connections == 0 ? kAutomaticConnections : options_.connections;
}

// The connections of a link share its buffer, so that no more than before waits in the kernel.
// Where the number is chosen by measuring, one has to carry all at first.
wire::SocketOptions Rendezvous::options_of(const Slot& slot) const {
  wire::SocketOptions result = socket_options_of(options_, !is_group());
  int& bytes = result.send_buffer_bytes;
  if (bytes > 0 && options_.connections > 0) {
    bytes = share_of_buffer(bytes, static_cast<int>(slot.sockets.size()));
  }
  return result;
}

bool Rendezvous::Slot::complete() const {
  return std::ranges::all_of(sockets, [](const auto& socket) { return socket.has_value(); });
}

void Rendezvous::start() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    for (std::size_t lane = 0; lane < slots_[i].dialers.size(); ++lane) {
      dial(i, static_cast<int>(lane));
    }
  }
  if (complete()) outcome_.try_push(Unit{});  // for a pipeline of one stage
}

void Rendezvous::dial(std::size_t index, int lane) {
  Slot& slot = slots_[index];
  const Place place{.generation = id(),
                    .replica = static_cast<std::uint32_t>(generation_.replica),
                    .from_stage = static_cast<std::uint32_t>(generation_.stage),
                    .to_stage = static_cast<std::uint32_t>(slot.peer.stage),
                    .lane = lane,
                    .lanes = static_cast<int>(slot.dialers.size())};
  wire::Dialer::Target target{.host = slot.peer.ip,
                              .port = slot.peer.data_port,
                              .hello = {.job_uid = generation_.job_uid,
                                        .purpose = is_group() ? wire::Purpose::kReplicaGroup
                                                              : purpose_of_link(slot.end.channel),
                                        .body = encode_place(place),
                                        .nonce = {}},
                              .key = generation_.job_key,
                              .socket = options_of(slot)};
  if (lane == 0) tell_silence(target, slot.peer, options_);  // all of them find the same
  auto dialer = std::make_shared<wire::Dialer>(
      context_, std::move(target),
      [this, index, lane, keep = weak_from_this()](Result<wire::Dialer::Socket> socket) {
        const auto alive = keep.lock();
        if (!alive || finished_) return;
        if (socket) return joined(index, lane, *std::move(socket));
        outcome_.try_push(socket.error().with(text_of(slots_[index].peer)));
      });
  slot.dialers[static_cast<std::size_t>(lane)] = dialer;
  dialer->start();
}

std::string Rendezvous::text_of(const PeerAddress& peer) const {
  const std::string name = name_of(peer);
  return is_group() ? "replica" + name.substr(name.find(' ')) : name;
}

bool Rendezvous::admit(const std::shared_ptr<wire::Acceptor>& acceptor, const Place& place) {
  const bool backward = acceptor->hello().purpose == wire::Purpose::kBackwardLink;
  const auto slot = std::ranges::find_if(slots_, [&](const Slot& s) {
    return !s.end.sending && (s.end.channel == Channel::kBackward) == backward &&
           s.end.peer_stage == static_cast<int>(place.from_stage);
  });
  if (slot == slots_.end()) return false;
  const auto index = static_cast<std::size_t>(slot - slots_.begin());
  acceptor->challenge(generation_.job_key, [this, index, place, keep = shared_from_this(),
                                            acceptor](Result<wire::Acceptor::Socket> socket) {
    if (finished_) return;
    Slot& one = slots_[index];
    if (!socket) return static_cast<void>(one.problem = socket.error().message);
    const auto lanes = static_cast<std::size_t>(place.lanes);
    if (one.sockets.size() != lanes) {
      one.sockets.clear();
      one.sockets.resize(lanes);
    }
    joined(index, place.lane, *std::move(socket));
  });
  return true;
}

// A later connection for the same link end replaces the first one, whose connector has started
// again.
void Rendezvous::joined(std::size_t index, int lane, boost::asio::ip::tcp::socket socket) {
  wire::set_socket_options(socket.native_handle(), options_of(slots_[index]));
  slots_[index].sockets[static_cast<std::size_t>(lane)].emplace(std::move(socket));
  if (complete()) outcome_.try_push(Unit{});
}

bool Rendezvous::complete() const {
  return std::ranges::all_of(slots_, &Slot::complete);
}

std::vector<Joined> Rendezvous::finish() {
  finished_ = true;
  for (Slot& slot : slots_) {
    for (const auto& dialer : slot.dialers) {
      if (dialer) dialer->cancel();
    }
  }
  std::vector<Joined> result;
  if (complete()) {
    for (Slot& slot : slots_) {
      Joined& joined = result.emplace_back(Joined{slot.end, slot.peer, {}});
      for (auto& socket : slot.sockets) joined.sockets.push_back(*std::move(socket));
    }
  }
  return result;
}

std::string Rendezvous::missing() const {
  std::string text;
  for (const Slot& slot : slots_) {
    if (slot.complete()) continue;
    if (!text.empty()) text += "; ";
    if (slot.end.sending) {
      const auto open = std::ranges::find_if(slot.sockets, [](const auto& s) { return !s; });
      const auto lane = static_cast<std::size_t>(open - slot.sockets.begin());
      text += text_of(slot.peer) + ": " + slot.dialers[lane]->last_problem();
    } else {
      text += "no connection from " + text_of(slot.peer);
      if (!slot.problem.empty()) text += " (" + slot.problem + ")";
    }
  }
  return text;
}

}  // namespace weir::transport::tcp
