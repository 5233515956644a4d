// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/state_fetch.h"

#include <utility>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "worker/base/digest.h"

namespace weir::transport::tcp {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

std::string name_of(const StateRequest& request) {
  return request.from.ip + ":" + std::to_string(request.from.data_port);
}

}  // namespace

StateFetch::StateFetch(asio::io_context& context, StateRequest request, const StateKey& key,
                       const TcpOptions& options, std::shared_ptr<TrafficOrder> order,
                       std::shared_ptr<RoundTrips> round_trips, Done done)
    : PeerCall(context,
               [name = name_of(request), done = std::move(done)](Result<std::int64_t> result) {
                 done(result ? std::move(result) : Result<std::int64_t>(result.error().with(name)));
               }),
      request_(std::move(request)),
      step_(key.step),
      copy_(key.copy),
      dead_after_(options.dead_after),
      buffer_bytes_(options.send_buffer_bytes),
      order_(std::move(order)),
      round_trips_(std::move(round_trips)) {}

StateFetch::~StateFetch() {
  if (stream_) stream_->close();
}

std::string StateFetch::problem() const {
  return name_of(request_) + ": " + waits_for("its layers have not all come");
}

void StateFetch::await_bytes() {
  timer_.expires_after(dead_after_);  // limit of silence
  timer_.async_wait([weak = weak_from_this(), this](ErrorCode error) {
    const auto self = weak.lock();
    if (error || !self || finished_) return;
    finish(Error{Code::kTimeout,
                 "no byte of its state for " + std::to_string(dead_after_.count()) + " s"});
  });
}

void StateFetch::connected() {
  stream_ = StateStream::make(*socket_, order_, TrafficDirection::kIn, buffer_bytes_,
                              round_trips_->of(*socket_));
  wish_ =
      encode_state_wish({.step = step_,
                         .first_layer = static_cast<std::uint32_t>(request_.layers.front().layer),
                         .last_layer = static_cast<std::uint32_t>(request_.layers.back().layer),
                         .piece_bytes = copy_ ? static_cast<std::uint32_t>(kCopyPiece) : 0});
  asked_ = std::chrono::steady_clock::now();
  await_bytes();
  asio::async_write(*socket_, asio::buffer(wish_),
                    [this, keep = shared_from_this()](ErrorCode error, std::size_t) {
                      if (finished_) return;
                      if (error) return finish(Error{Code::kUnavailable, error.message()});
                      read_header();
                    });
}

void StateFetch::read_header() {
  while (layer_ < request_.layers.size() &&
         offset_ == static_cast<std::uint64_t>(request_.layers[layer_].bytes())) {
    ++layer_;
    offset_ = 0;
  }
  if (layer_ == request_.layers.size()) return finish(bytes_);
  asio::async_read(*socket_, asio::buffer(header_),
                   [this, keep = shared_from_this()](ErrorCode error, std::size_t) {
                     if (finished_) return;
                     if (error) {
                       return finish(Error{Code::kUnavailable,
                                           "it broke off while state moved: " + error.message()});
                     }
                     const auto header = decode_chunk_header(header_);
                     if (!header) return finish(header.error());
                     if (header->layer == kRefusedLayer) return read_refusal(*header);
                     read_chunk(*header);
                   });
}

// Returns the destination of a chunk. Chunks come in order, and none crosses a tensor.
Result<std::span<std::byte>> StateFetch::room_for(const ChunkHeader& header) const {
  const LayerMemory& wanted = request_.layers[layer_];
  std::uint64_t before = 0;
  if (header.layer == static_cast<std::uint32_t>(wanted.layer) && header.offset == offset_) {
    for (const std::span<std::byte> part : wanted.parts) {
      const std::uint64_t at = header.offset - before;
      if (at < part.size() && header.bytes <= part.size() - at) {
        return part.subspan(at, header.bytes);
      }
      if (at < part.size()) break;
      before += part.size();
    }
  }
  return invalid("layer " + std::to_string(header.layer) + " at byte " +
                 std::to_string(header.offset) + " came, wanted is layer " +
                 std::to_string(wanted.layer) + " at byte " + std::to_string(offset_) +
                 "; is it the same model?");
}

void StateFetch::read_chunk(const ChunkHeader& header) {
  const auto room = room_for(header);
  if (!room) return finish(room.error());
  stream_->read(
      *room, [this] { await_bytes(); },
      [this, keep = shared_from_this(), room = *room, digest = header.sha256](ErrorCode error) {
        if (finished_) return;
        if (error) {
          return finish(
              Error{Code::kUnavailable, "it broke off while state moved: " + error.message()});
        }
        if (sha256_hex({reinterpret_cast<const char*>(room.data()), room.size()}) != digest) {
          return finish(invalid("state was damaged on the way: wrong digest"));
        }
        offset_ += room.size();
        bytes_ += static_cast<std::int64_t>(room.size());
        if (copy_) return pause();
        await_bytes();
        read_header();
      });
}

// The sender waits, too, so no buffer of the system fills up meanwhile.
void StateFetch::pause() {
  const LayerMemory& last = request_.layers.back();
  const bool whole =
      &request_.layers[layer_] == &last && offset_ == static_cast<std::uint64_t>(last.bytes());
  if (whole) return finish(bytes_);
  timer_.expires_after(kCopyPauses * (std::chrono::steady_clock::now() - asked_));
  timer_.async_wait([weak = weak_from_this(), this](ErrorCode error) {
    const auto self = weak.lock();
    if (!error && self && !finished_) ask_for_next();
  });
}

void StateFetch::ask_for_next() {
  asked_ = std::chrono::steady_clock::now();
  await_bytes();
  asio::async_write(*socket_, asio::buffer(&kNextPiece, 1),
                    [this, keep = shared_from_this()](ErrorCode error, std::size_t) {
                      if (finished_) return;
                      if (error) return finish(Error{Code::kUnavailable, error.message()});
                      read_header();
                    });
}

void StateFetch::read_refusal(const ChunkHeader& header) {
  refusal_.resize(header.bytes);
  asio::async_read(*socket_, asio::buffer(refusal_),
                   [this, keep = shared_from_this()](ErrorCode error, std::size_t) {
                     if (finished_) return;
                     if (error) return finish(Error{Code::kUnavailable, error.message()});
                     for (char& c : refusal_) {
                       if (c < ' ' || c > '~') c = '?';  // the text goes into logs and conditions
                     }
                     finish(Error{Code::kConflict, refusal_});
                   });
}

}  // namespace weir::transport::tcp
