// SPDX-License-Identifier: Apache-2.0
#include "worker/wire/dialer.h"

#include <algorithm>

#include "worker/base/digest.h"

namespace weir::wire {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

constexpr std::chrono::milliseconds kFirstDelay{20};
constexpr std::chrono::milliseconds kLongestDelay{500};
// Intervals of checks whether the name is resolved.
constexpr std::chrono::milliseconds kFirstLook{1}, kLongestLook{100};
// Limit for one whole attempt. A peer that has not reached this generation keeps the connection
// waiting; a new attempt replaces it there.
constexpr std::chrono::seconds kAttemptLimit{10};

}  // namespace

Dialer::Dialer(asio::io_context& context, Target target, Done done)
    : context_(context),
      target_(std::move(target)),
      done_(std::move(done)),
      timer_(context),
      lookup_timer_(context),
      delay_(kFirstDelay) {}

void Dialer::start() {
  const std::uint64_t attempt = ++attempt_;
  // Several within the silence that is told: the first one may begin just before the peer goes.
  constexpr int kAttempts = 3;
  std::chrono::nanoseconds limit = kAttemptLimit;
  if (target_.silent)
    limit = std::min(limit, std::chrono::nanoseconds(target_.silent_after) / kAttempts);
  timer_.expires_after(limit);
  timer_.async_wait([this, attempt, keep = shared_from_this()](ErrorCode error) {
    if (!error && !stale(attempt)) retry("no answer in time");
  });
  ErrorCode error;
  const auto address = asio::ip::make_address(target_.host, error);
  if (error) {
    lookup_.emplace(target_.host);
    return look_up(kFirstLook);
  }
  connect({{address, static_cast<std::uint16_t>(target_.port)}}, 0);
}

void Dialer::look_up(std::chrono::milliseconds pause) {
  lookup_timer_.expires_after(pause);
  lookup_timer_.async_wait(
      [this, pause, attempt = attempt_, keep = shared_from_this()](ErrorCode stopped) {
        if (stopped || stale(attempt)) return;
        const auto ips = lookup_->poll();
        if (!ips) return look_up(std::min(2 * pause, kLongestLook));
        lookup_.reset();
        const std::string problem = "cannot resolve " + target_.host;
        if (!*ips) return retry(problem + ": " + ips->error().message);
        Endpoints endpoints;
        for (const std::string& ip : **ips) {
          ErrorCode error;
          const auto address = asio::ip::make_address(ip, error);
          if (!error) endpoints.emplace_back(address, static_cast<std::uint16_t>(target_.port));
        }
        if (endpoints.empty()) return retry(problem);
        connect(std::move(endpoints), 0);
      });
}

void Dialer::connect(Endpoints endpoints, std::size_t index) {
  connecting_ = std::make_unique<Socket>(context_);
  ErrorCode error;
  const auto endpoint = endpoints[index];
  connecting_->open(endpoint.protocol(), error);
  if (error) return retry(error.message());
  set_socket_options(connecting_->native_handle(), target_.socket);
  connecting_->async_connect(endpoint, [this, attempt = attempt_, endpoints = std::move(endpoints),
                                        index, keep = shared_from_this()](ErrorCode failure) {
    if (stale(attempt)) return;
    if (!failure || failure == asio::error::connection_refused) heard();
    if (!failure) return send_hello(std::move(*connecting_));
    if (index + 1 < endpoints.size()) return connect(endpoints, index + 1);
    retry(failure.message());
  });
}

void Dialer::send_hello(Socket socket) {
  stream_ = std::make_shared<RecordStream>(std::move(socket));
  target_.hello.nonce = random_bytes(kNonceBytes);
  hello_text_ = encode_hello(target_.hello);
  const auto keep = shared_from_this();
  stream_->write(stream_, {RecordType::kHello, hello_text_},
                 [this, attempt = attempt_, keep](const Status& written) {
                   if (stale(attempt)) return;
                   if (!written) return retry(written.error().message);
                   last_problem_ = "it has not opened this generation yet";
                   stream_->read(stream_, [this, attempt, keep](Result<Record> record) {
                     if (!stale(attempt)) answered(std::move(record));
                   });
                 });
}

void Dialer::answered(Result<Record> record) {
  if (!record) return retry(record.error().message);
  if (record->type == RecordType::kRefused) return refused(*record);
  if (record->type != RecordType::kChallenge) return retry("unexpected record in the handshake");
  challenged(*record);
}

void Dialer::challenged(const Record& record) {
  const auto challenge = decode_challenge(record.body);
  if (!challenge) return retry(challenge.error().message);
  if (!equal_in_constant_time(challenge->proof,
                              acceptor_proof(target_.key, hello_text_, challenge->nonce))) {
    return finish(Error{Code::kForbidden, "it does not hold the key of this job"});
  }
  const auto keep = shared_from_this();
  stream_->write(stream_,
                 {RecordType::kProof, connector_proof(target_.key, hello_text_, challenge->nonce)},
                 [this, attempt = attempt_, keep](const Status& written) {
                   if (stale(attempt)) return;
                   if (!written) return retry(written.error().message);
                   stream_->read(stream_, [this, attempt, keep](Result<Record> answer) {
                     if (!stale(attempt)) judged(std::move(answer));
                   });
                 });
}

void Dialer::judged(Result<Record> record) {
  if (!record) return retry(record.error().message);
  if (record->type == RecordType::kRefused) return refused(*record);
  if (record->type != RecordType::kAccepted) return retry("unexpected record in the handshake");
  finish(stream_->take_socket());
}

void Dialer::refused(const Record& record) {
  const Error error = decode_refusal(record.body);
  if (error.code == Code::kUnavailable) return retry("refused: " + error.message);
  finish(error);
}

void Dialer::retry(const std::string& problem) {
  last_problem_ = problem;
  if (!target_.again) return finish(Error{Code::kUnavailable, problem});
  lookup_.reset();
  connecting_.reset();
  if (stream_) stream_->close();
  if (target_.silent && std::chrono::steady_clock::now() - heard_ >= target_.silent_after) {
    heard();
    target_.silent();
  }
  const std::uint64_t attempt = ++attempt_;
  timer_.expires_after(delay_);
  delay_ = std::min(delay_ * 2, kLongestDelay);
  timer_.async_wait([this, attempt, keep = shared_from_this()](ErrorCode error) {
    if (!error && !stale(attempt)) start();
  });
}

void Dialer::finish(Result<Socket> result) {
  const auto keep = shared_from_this();  // the owner may let go of it in `done_`
  cancel();
  done_(std::move(result));
}

void Dialer::cancel() {
  finished_ = true;
  timer_.cancel();
  lookup_timer_.cancel();
  lookup_.reset();
  connecting_.reset();
  if (stream_) stream_->close();
}

}  // namespace weir::wire
