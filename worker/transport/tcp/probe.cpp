// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/probe.h"

#include <algorithm>
#include <utility>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "worker/wire/little_endian.h"

namespace weir::transport::tcp {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr int kPings = 3;
constexpr std::chrono::milliseconds kLongest{500};  // of the timed bytes
constexpr std::chrono::seconds kAnswerLimit{3};     // limit of the whole probe at the acceptor
// Not timed, because a shaper lets a burst pass at once.
constexpr std::chrono::milliseconds kBurst{2};
constexpr std::uint64_t kMostBytes = 64 * 1024 * 1024;
constexpr std::size_t kPieceBytes = 256 * 1024;
constexpr std::size_t kMostAnswers = 8;  // at a time; the coordinator allows one

}  // namespace

ProbeCall::ProbeCall(asio::io_context& context, std::int64_t bytes, std::optional<Pacer> pacer,
                     Done done)
    : PeerCall(context, std::move(done)),
      left_(static_cast<std::size_t>(
          std::clamp<std::int64_t>(bytes, 1, static_cast<std::int64_t>(kMostBytes)))),
      pacer_(std::move(pacer)),
      payload_(kPieceBytes) {}

void ProbeCall::ping() {
  ping_sent_ = Clock::now();
  asio::async_write(*socket_, asio::buffer(header_, 1),
                    [this, keep = shared_from_this()](ErrorCode error, std::size_t) {
                      if (!finished_ && error) finish(Error{Code::kUnavailable, error.message()});
                    });
  asio::async_read(*socket_, asio::buffer(answer_, 1),
                   [this, keep = shared_from_this()](ErrorCode error, std::size_t) {
                     if (finished_) return;
                     if (error) return finish(Error{Code::kUnavailable, error.message()});
                     rtt_ = std::min<std::chrono::nanoseconds>(rtt_, Clock::now() - ping_sent_);
                     if (++pings_ < kPings) return ping();
                     read_answer();
                     send();
                   });
}

void ProbeCall::send() {
  wire::store<std::uint64_t>(header_, 0, left_);
  if (pacer_) pacer_->begin(Clock::now(), left_);
  asio::async_write(*socket_, asio::buffer(header_),
                    [this, keep = shared_from_this()](ErrorCode error, std::size_t) {
                      if (finished_) return;
                      if (error) return finish(Error{Code::kUnavailable, error.message()});
                      send_chunk();
                    });
}

void ProbeCall::send_chunk() {
  if (left_ == 0) return;  // the answer ends the call
  Pacer::Chunk chunk{.bytes = left_, .at = {}};
  if (pacer_) chunk = pacer_->next();
  left_ -= chunk.bytes;
  std::vector<asio::const_buffer> pieces;
  for (std::size_t rest = chunk.bytes; rest > 0;) {
    pieces.push_back(asio::buffer(payload_.data(), std::min(rest, payload_.size())));
    rest -= pieces.back().size();
  }
  timer_.expires_at(chunk.at);
  timer_.async_wait([this, keep = shared_from_this(), pieces = std::move(pieces)](ErrorCode late) {
    if (late || finished_) return;
    asio::async_write(*socket_, pieces, [this, keep](ErrorCode error, std::size_t) {
      if (finished_) return;
      if (error) return finish(Error{Code::kUnavailable, error.message()});
      send_chunk();
    });
  });
}

void ProbeCall::read_answer() {
  asio::async_read(*socket_, asio::buffer(answer_),
                   [this, keep = shared_from_this()](ErrorCode error, std::size_t) {
                     if (finished_) return;
                     if (error) return finish(Error{Code::kUnavailable, error.message()});
                     const auto bytes = static_cast<double>(wire::load<std::uint64_t>(answer_, 0));
                     const auto seconds =
                         static_cast<double>(wire::load<std::uint64_t>(answer_, 8)) * 1e-9;
                     // Less than the burst is not timed.
                     const bool timed = bytes > 0 && seconds > 0;
                     finish(ProbedRate{.bytes_per_second = timed ? bytes / seconds : 0,
                                       .rtt_seconds = std::chrono::duration<double>(rtt_).count()});
                   });
}

// A connection of one asking peer.
class ProbeAnswer : public std::enable_shared_from_this<ProbeAnswer> {
 public:
  explicit ProbeAnswer(wire::Acceptor::Socket socket)
      : socket_(std::move(socket)),
        limit_(socket_.get_executor()),
        longest_(socket_.get_executor()),
        buffer_(kPieceBytes) {}

  void start() {
    limit_.expires_after(kAnswerLimit);
    limit_.async_wait([this, keep = shared_from_this()](ErrorCode error) {
      if (!error) close();
    });
    pong(kPings);
  }
  void close() {
    ErrorCode ignored;
    limit_.cancel();
    longest_.cancel();
    socket_.close(ignored);
  }

 private:
  void pong(int left) {
    if (left == 0) return read_size();
    asio::async_read(socket_, asio::buffer(header_, 1),
                     [this, keep = shared_from_this(), left](ErrorCode error, std::size_t) {
                       if (error) return close();
                       asio::async_write(socket_, asio::buffer(header_, 1),
                                         [this, keep, left](ErrorCode failure, std::size_t) {
                                           if (failure) return close();
                                           pong(left - 1);
                                         });
                     });
  }

  void read_size() {
    asio::async_read(socket_, asio::buffer(header_),
                     [this, keep = shared_from_this()](ErrorCode error, std::size_t) {
                       if (error) return close();
                       wanted_ = wire::load<std::uint64_t>(header_, 0);
                       if (wanted_ == 0 || wanted_ > kMostBytes) return close();
                       read();
                     });
  }

  void read() {
    socket_.async_read_some(asio::buffer(buffer_),
                            [this, keep = shared_from_this()](ErrorCode error, std::size_t bytes) {
                              if (error) return close();
                              if (!answered_) came(bytes);
                              // Reads after the answer until the peer closes: closing with unread
                              // bytes would reset the connection.
                              read();
                            });
  }

  void came(std::size_t bytes) {
    const auto now = Clock::now();
    came_ += bytes;
    if (came_ == bytes) {
      begin_ = first_ = now;
      longest_.expires_after(kLongest);
      longest_.async_wait([this, keep = shared_from_this()](ErrorCode error) {
        if (!error && socket_.is_open()) answer();
      });
    } else if (now - begin_ < kBurst && came_ <= wanted_ / 4) {
      first_ = now;
    } else {
      timed_ += bytes;
      last_ = now;
    }
    if (came_ >= wanted_) answer();
  }

  void answer() {
    if (std::exchange(answered_, true)) return;
    longest_.cancel();
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(last_ - first_);
    wire::store<std::uint64_t>(result_, 0, timed_);
    wire::store<std::uint64_t>(result_, 8,
                               timed_ == 0 ? 0 : static_cast<std::uint64_t>(time.count()));
    asio::async_write(socket_, asio::buffer(result_),
                      [keep = shared_from_this()](ErrorCode, std::size_t) {});
  }

  wire::Acceptor::Socket socket_;
  asio::steady_timer limit_, longest_;
  std::vector<std::byte> buffer_;
  std::array<std::byte, 8> header_{};
  std::array<std::byte, 16> result_{};
  std::uint64_t wanted_ = 0, came_ = 0, timed_ = 0;
  Clock::time_point begin_{}, first_{}, last_{};  // of all bytes; of the timed bytes
  bool answered_ = false;
};

void ProbeServer::admit(const std::shared_ptr<wire::Acceptor>& acceptor) {
  if (job_key_.empty() || acceptor->hello().job_uid != job_uid_) {
    return acceptor->refuse({Code::kForbidden, "this worker belongs to another job"});
  }
  std::erase_if(answers_, [](const auto& weak) { return weak.expired(); });
  if (answers_.size() >= kMostAnswers) return acceptor->close();
  acceptor->challenge(job_key_,
                      [weak = weak_from_this(), acceptor](Result<wire::Acceptor::Socket> socket) {
                        const auto self = weak.lock();
                        if (!self || !socket) return;
                        const auto answer = std::make_shared<ProbeAnswer>(*std::move(socket));
                        self->answers_.push_back(answer);
                        answer->start();
                      });
}

void ProbeServer::close() {
  for (const auto& weak : std::exchange(answers_, {})) {
    if (const auto answer = weak.lock()) answer->close();
  }
}

}  // namespace weir::transport::tcp
