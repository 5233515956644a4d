// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/state_server.h"

#include <algorithm>
#include <array>
#include <utility>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "worker/base/digest.h"
#include "worker/transport/tcp/state_stream.h"
#include "worker/transport/tcp/state_wire.h"

namespace weir::transport::tcp {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

}  // namespace

// One connection: reads the request, then sends one chunk after the other.
class StateSender : public std::enable_shared_from_this<StateSender> {
 public:
  StateSender(wire::Acceptor::Socket socket, std::int64_t step, std::vector<LayerMemory> layers,
              std::shared_ptr<TrafficOrder> order, int send_buffer_bytes,
              std::chrono::nanoseconds round_trip)
      : socket_(std::move(socket)),
        stream_(StateStream::make(socket_, std::move(order), TrafficDirection::kOut,
                                  send_buffer_bytes, round_trip)),
        step_(step),
        layers_(std::move(layers)) {}
  ~StateSender() { stream_->close(); }
  StateSender(const StateSender&) = delete;
  StateSender& operator=(const StateSender&) = delete;

  void start() {
    asio::async_read(socket_, asio::buffer(request_),
                     [this, keep = shared_from_this()](ErrorCode error, std::size_t) {
                       if (!error && socket_.is_open()) serve();
                     });
  }
  void close() {
    stream_->close();
    ErrorCode ignored;
    socket_.close(ignored);
  }

 private:
  void serve() {
    const auto wish = decode_state_wish(std::as_bytes(std::span(request_)));
    if (!wish) return close();
    if (wish->step != step_) {
      return refuse("it holds step " + std::to_string(step_) + ", wanted is " +
                    std::to_string(wish->step));
    }
    for (std::uint32_t layer = wish->first_layer; layer <= wish->last_layer; ++layer) {
      const auto held = std::ranges::find(layers_, static_cast<int>(layer), &LayerMemory::layer);
      if (held == layers_.end()) {
        return refuse("it does not hold layer " + std::to_string(layer));
      }
      wanted_.push_back(&*held);
    }
    piece_ = wish->piece_bytes;
    send_next();
  }

  void refuse(const std::string& reason) {
    header_ = encode_chunk_header({.layer = kRefusedLayer,
                                   .bytes = static_cast<std::uint32_t>(reason.size()),
                                   .sha256 = sha256_hex(reason)}) +
              reason;
    asio::async_write(socket_, asio::buffer(header_),
                      [this, keep = shared_from_this()](ErrorCode, std::size_t) { close(); });
  }

  void send_next() {
    while (at_ < wanted_.size() && part_ == wanted_[at_]->parts.size()) {
      ++at_;
      part_ = 0;
      offset_ = 0;
    }
    if (at_ == wanted_.size()) return close();  // after all queued data has been sent
    const std::span<const std::byte> part = wanted_[at_]->parts[part_];
    const std::size_t most = piece_ > 0 ? piece_ : kMaxChunk;
    const auto chunk = part.subspan(in_part_, std::min(most, part.size() - in_part_));
    if (chunk.empty()) {  // an empty tensor
      ++part_;
      in_part_ = 0;
      return send_next();
    }
    const std::string_view text(reinterpret_cast<const char*>(chunk.data()), chunk.size());
    header_ = encode_chunk_header({.layer = static_cast<std::uint32_t>(wanted_[at_]->layer),
                                   .bytes = static_cast<std::uint32_t>(chunk.size()),
                                   .offset = offset_,
                                   .sha256 = sha256_hex(text)});
    in_part_ += chunk.size();
    offset_ += chunk.size();
    if (in_part_ == part.size()) {
      ++part_;
      in_part_ = 0;
    }
    asio::async_write(socket_, asio::buffer(header_),
                      [this, keep = shared_from_this(), chunk](ErrorCode error, std::size_t) {
                        if (error || !socket_.is_open()) return close();
                        send(chunk);
                      });
  }

  void send(std::span<const std::byte> chunk) {
    stream_->write(chunk, [this, keep = shared_from_this()](ErrorCode error) {
      if (error || !socket_.is_open()) return close();
      piece_ > 0 ? await_demand() : send_next();
    });
  }

  void await_demand() {
    asio::async_read(socket_, asio::buffer(request_.data(), 1),
                     [this, keep = shared_from_this()](ErrorCode error, std::size_t) {
                       if (error || !socket_.is_open()) return close();
                       send_next();
                     });
  }

  wire::Acceptor::Socket socket_;
  const std::shared_ptr<StateStream> stream_;
  const std::int64_t step_;
  const std::vector<LayerMemory> layers_;
  std::array<char, kStateRequestBytes> request_{};
  std::vector<const LayerMemory*> wanted_;
  std::size_t at_ = 0, part_ = 0, in_part_ = 0;  // position of the next chunk
  std::uint64_t offset_ = 0;                     // of the next chunk in its layer
  std::size_t piece_ = 0;                        // StateWish::piece_bytes
  std::string header_;
};

void StateServer::offer(StateKey key, std::vector<LayerMemory> layers) {
  withdraw();
  offer_ = std::make_shared<const Offer>(Offer{std::move(key), std::move(layers)});
  for (const auto& acceptor : pending_.take()) {
    admit(acceptor, *decode_place(acceptor->hello().body));
  }
}

void StateServer::withdraw() {
  for (const auto& weak : std::exchange(senders_, {})) {
    if (const auto sender = weak.lock()) sender->close();
  }
  offer_.reset();
}

void StateServer::close() {
  withdraw();
  pending_.close();
}

void StateServer::admit(const std::shared_ptr<wire::Acceptor>& acceptor, const Place& place) {
  if (!offer_) return pending_.add(acceptor);
  if (acceptor->hello().job_uid != offer_->key.job_uid) {
    return acceptor->refuse({Code::kForbidden, "this worker belongs to another job"});
  }
  const GenerationId mine{offer_->key.revision, offer_->key.incarnation};
  if (place.generation > mine) return pending_.add(acceptor);
  if (place.generation < mine) {
    return acceptor->refuse({Code::kConflict, "the move of generation " + place.generation.text() +
                                                  " is older than that of " + mine.text()});
  }
  let_in(acceptor);
}

void StateServer::let_in(const std::shared_ptr<wire::Acceptor>& acceptor) {
  const auto offer = offer_;
  acceptor->challenge(offer->key.job_key, [this, keep = weak_from_this(), acceptor,
                                           offer](Result<wire::Acceptor::Socket> socket) {
    const auto alive = keep.lock();
    // The offer was withdrawn meanwhile; the socket closes.
    if (!alive || !socket || offer_ != offer) return;
    wire::set_socket_options(socket->native_handle(), options_);
    const auto round_trip = round_trips_.of(*socket);
    const auto sender =
        std::make_shared<StateSender>(*std::move(socket), offer->key.step, offer->layers, order_,
                                      options_.send_buffer_bytes, round_trip);
    std::erase_if(senders_, [](const auto& weak) { return weak.expired(); });
    senders_.push_back(sender);
    sender->start();
  });
}

}  // namespace weir::transport::tcp
