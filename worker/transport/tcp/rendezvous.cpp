// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/rendezvous.h"

#include <algorithm>

#include "worker/wire/socket_options.h"

namespace weir::transport::tcp {

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
  slots_.push_back(
      {.end = {.peer_stage = peer->stage, .channel = channel, .sending = sending}, .peer = *peer});
}

void Rendezvous::start() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].end.sending) dial(i);
  }
  if (complete()) outcome_.try_push(Unit{});  // for a pipeline of one stage
}

void Rendezvous::dial(std::size_t index) {
  Slot& slot = slots_[index];
  const Place place{.generation = id(),
                    .replica = static_cast<std::uint32_t>(generation_.replica),
                    .from_stage = static_cast<std::uint32_t>(generation_.stage),
                    .to_stage = static_cast<std::uint32_t>(slot.peer.stage)};
  wire::Dialer::Target target{.host = slot.peer.ip,
                              .port = slot.peer.data_port,
                              .hello = {.job_uid = generation_.job_uid,
                                        .purpose = is_group() ? wire::Purpose::kReplicaGroup
                                                              : purpose_of_link(slot.end.channel),
                                        .body = encode_place(place),
                                        .nonce = {}},
                              .key = generation_.job_key,
                              .send_buffer_bytes = options_.send_buffer_bytes,
                              .dead_after = options_.dead_after};
  slot.dialer = std::make_shared<wire::Dialer>(
      context_, std::move(target),
      [this, index, keep = weak_from_this()](Result<wire::Dialer::Socket> socket) {
        const auto alive = keep.lock();
        if (!alive || finished_) return;
        if (socket) return joined(index, *std::move(socket));
        outcome_.try_push(socket.error().with(text_of(slots_[index].peer)));
      });
  slot.dialer->start();
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
  acceptor->challenge(generation_.job_key, [this, index, keep = shared_from_this(),
                                            acceptor](Result<wire::Acceptor::Socket> socket) {
    if (finished_) return;
    if (socket) return joined(index, *std::move(socket));
    slots_[index].problem = socket.error().message;
  });
  return true;
}

// A later connection for the same link end replaces the first one, whose connector has started
// again.
void Rendezvous::joined(std::size_t index, boost::asio::ip::tcp::socket socket) {
  wire::set_socket_options(socket, options_.send_buffer_bytes, options_.dead_after);
  slots_[index].socket.emplace(std::move(socket));
  if (complete()) outcome_.try_push(Unit{});
}

bool Rendezvous::complete() const {
  return std::ranges::all_of(slots_, [](const Slot& slot) { return slot.socket.has_value(); });
}

std::vector<Joined> Rendezvous::finish() {
  finished_ = true;
  for (Slot& slot : slots_) {
    if (slot.dialer) slot.dialer->cancel();
  }
  std::vector<Joined> result;
  if (complete()) {
    for (Slot& slot : slots_) {
      result.push_back({slot.end, slot.peer, std::move(*slot.socket)});
    }
  }
  return result;
}

std::string Rendezvous::missing() const {
  std::string text;
  for (const Slot& slot : slots_) {
    if (slot.socket) continue;
    if (!text.empty()) text += "; ";
    if (slot.end.sending) {
      text += text_of(slot.peer) + ": " + slot.dialer->last_problem();
    } else {
      text += "no connection from " + text_of(slot.peer);
      if (!slot.problem.empty()) text += " (" + slot.problem + ")";
    }
  }
  return text;
}

}  // namespace weir::transport::tcp
