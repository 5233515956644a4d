// SPDX-License-Identifier: Apache-2.0
#include "worker/wire/acceptor.h"

#include <boost/asio/write.hpp>

#include "worker/base/digest.h"
#include "worker/base/log.h"

namespace weir::wire {
namespace {

using ErrorCode = boost::system::error_code;

constexpr std::chrono::seconds kPendingLimit{60};  // connectors try again after 10 s

std::string address_of(const Acceptor::Socket& socket) {
  ErrorCode error;
  const auto endpoint = socket.remote_endpoint(error);
  return error ? "unknown" : endpoint.address().to_string(error);
}

}  // namespace

Acceptor::Acceptor(Socket socket, std::chrono::milliseconds answer_limit)
    : answer_limit_(answer_limit),
      stream_(std::move(socket)),
      timer_(stream_.socket().get_executor()),
      from_(address_of(stream_.socket())) {}

void Acceptor::limit(std::chrono::milliseconds time) {
  timer_.expires_after(time);
  timer_.async_wait([this, keep = shared_from_this()](ErrorCode error) {
    if (!error) stream_.close();  // pending operations then end
  });
}

void Acceptor::start(std::function<void(const Status&)> done) {
  const auto keep = shared_from_this();
  timer_.expires_after(answer_limit_);
  timer_.async_wait([this, keep](ErrorCode error) {
    if (error) return;
    silent_ = true;
    ErrorCode ignored;
    stream_.socket().cancel(ignored);
  });
  stream_.read(keep, [this, done = std::move(done)](Result<Record> record) {
    timer_.cancel();
    if (silent_) return done(Error{Code::kTimeout, "no hello in time"});
    if (!record) return done(record.error());
    if (record->type != RecordType::kHello) return done(Error{Code::kInvalid, "no hello"});
    hello_text_ = std::move(record->body);
    auto hello = decode_hello(hello_text_);
    if (!hello) return done(hello.error());
    hello_ = *std::move(hello);
    done(Unit{});
  });
}

void Acceptor::keep_waiting(std::function<void()> gone) {
  limit(kPendingLimit);
  // A connector sends nothing before the challenge, so any event means that it has gone.
  stream_.socket().async_wait(Socket::wait_read,
                              [this, keep = shared_from_this(), gone = std::move(gone)](ErrorCode) {
                                if (!answered_) gone();
                              });
}

void Acceptor::prove(const std::string& key, std::function<void(const Status&)> done) {
  limit(answer_limit_);
  const std::string nonce = random_bytes(kNonceBytes);
  const Challenge challenge{nonce, acceptor_proof(key, hello_text_, nonce)};
  const auto keep = shared_from_this();
  stream_.write(keep, {RecordType::kChallenge, encode_challenge(challenge)},
                [this, keep, expected = connector_proof(key, hello_text_, nonce),
                 done = std::move(done)](const Status& written) {
                  if (!written) return done(written);
                  stream_.read(keep, [this, expected, done](const Result<Record>& record) {
                    timer_.cancel();
                    if (!record) return done(record.error());
                    proven_ = record->type == RecordType::kProof &&
                              equal_in_constant_time(record->body, expected);
                    if (proven_) return done(Unit{});
                    const Error error{Code::kForbidden, "wrong key"};
                    refuse(error);
                    done(error);
                  });
                });
}

void Acceptor::challenge(const std::string& key, std::function<void(Result<Socket>)> done) {
  answered_ = true;
  ErrorCode ignored;
  stream_.socket().cancel(ignored);  // ends the wait of keep_waiting()
  if (proven_) return accept(std::move(done));
  prove(key, [this, keep = shared_from_this(), done = std::move(done)](const Status& proven) {
    if (!proven) return done(proven.error());
    accept(done);
  });
}

void Acceptor::accept(std::function<void(Result<Socket>)> done) {
  limit(answer_limit_);
  stream_.write(shared_from_this(), {RecordType::kAccepted, {}},
                [this, done = std::move(done)](const Status& written) {
                  timer_.cancel();
                  if (!written) return done(written.error());
                  done(stream_.take_socket());
                });
}

void Acceptor::refuse(const Error& error) {
  answered_ = true;
  log_warn("wire", "refused a connection", {{"from", from_}, {"reason", error.message}});
  limit(answer_limit_);
  stream_.write(shared_from_this(), {RecordType::kRefused, encode_refusal(error)},
                [this](const Status&) { close(); });
}

void Acceptor::tell(const std::string& line) {
  limit(answer_limit_);
  const std::string length = {0, 0, 0, static_cast<char>(line.size())};
  const auto kept = std::make_shared<const std::string>(length + line);
  boost::asio::async_write(
      stream_.socket(), boost::asio::buffer(*kept),
      [this, keep = shared_from_this(), kept](ErrorCode, std::size_t) { close(); });
}

void Acceptor::close() {
  answered_ = true;
  timer_.cancel();
  stream_.close();
}

}  // namespace weir::wire
