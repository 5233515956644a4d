// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/listener.h"

#include <cctype>
#include <utility>

#include <boost/asio/ip/v6_only.hpp>

#include "worker/base/log.h"

namespace weir::transport::tcp {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::size_t kMaxGreeting = 64;
constexpr int kBacklog = 64;
constexpr std::chrono::milliseconds kAcceptRetry{100};  // when out of descriptors

Error cannot(int port, const ErrorCode& error) {
  // Asio and the system write "Address already in use".
  std::string reason = error.message();
  if (!reason.empty()) reason[0] = static_cast<char>(std::tolower(reason[0]));
  return {Code::kUnavailable, "data port " + std::to_string(port) + ": " + reason};
}

}  // namespace

Listener::Listener(asio::io_context& context, std::shared_ptr<StateServer> state,
                   std::shared_ptr<ProbeServer> probes)
    : acceptor_(context), retry_(context), state_(std::move(state)), probes_(std::move(probes)) {}

Status Listener::open(const std::string& ip, int port) {
  ErrorCode error;
  tcp::endpoint endpoint(tcp::v6(), static_cast<std::uint16_t>(port));
  if (!ip.empty()) {
    const auto address = asio::ip::make_address(ip, error);
    if (error) return Error{Code::kInvalid, "listen address " + ip + ": not an IP address"};
    endpoint = {address, static_cast<std::uint16_t>(port)};
  }
  acceptor_.open(endpoint.protocol(), error);
  if (error && ip.empty()) {  // a machine without IPv6
    endpoint = {tcp::v4(), static_cast<std::uint16_t>(port)};
    acceptor_.open(endpoint.protocol(), error);
  }
  if (error) return cannot(port, error);
  ErrorCode ignored;
  acceptor_.set_option(asio::socket_base::reuse_address(true), ignored);
  if (endpoint.protocol() == tcp::v6() && ip.empty()) {
    acceptor_.set_option(asio::ip::v6_only(false), ignored);
  }
  acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(kBacklog, error);
  if (error) return cannot(port, error);
  port_ = acceptor_.local_endpoint(ignored).port();
  accept();
  return Unit{};
}

void Listener::accept() {
  acceptor_.async_accept([this, keep = shared_from_this()](ErrorCode error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (!error) {
      accepted(std::move(socket));
      return accept();
    }
    retry_.expires_after(kAcceptRetry);
    retry_.async_wait([this, keep](ErrorCode) {
      if (acceptor_.is_open()) accept();
    });
  });
}

void Listener::accepted(tcp::socket socket) {
  if (greeting_ >= kMaxGreeting) return;  // closes it; a true peer tries again
  ++greeting_;
  const auto greeter = std::make_shared<Greeter>(std::move(socket));
  greeter->start([this, keep = shared_from_this(), greeter](bool said_hello) {
    --greeting_;
    if (!acceptor_.is_open()) return greeter->close();
    if (said_hello) return route(greeter);
    log_debug("transport", "connection without a hello", {{"from", greeter->from()}});
    greeter->close();
  });
}

void Listener::route(const std::shared_ptr<Greeter>& greeter) {
  const Hello& hello = greeter->hello();
  if (hello.purpose == Purpose::kState) return state_->greet(greeter);
  if (hello.purpose == Purpose::kProbe) return probes_->greet(greeter);
  if (!newest_) return parked_.add(greeter);
  if (hello.job_uid != job_uid_) {
    return greeter->refuse({Code::kForbidden, "this worker belongs to another job"});
  }
  if (hello.generation < *newest_) {
    return greeter->refuse({Code::kConflict, "generation " + hello.generation.text() +
                                                 " is older than " + newest_->text()});
  }
  // Ranks meet their neighbours first, then the other replicas of their stage.
  const bool later = !rendezvous_ || (hello.purpose == Purpose::kGroup) != rendezvous_->is_group();
  if (hello.generation > *newest_ || later) return parked_.add(greeter);
  const Generation& mine = rendezvous_->generation();
  if (static_cast<int>(hello.replica) != mine.replica ||
      static_cast<int>(hello.to_stage) != mine.stage || !rendezvous_->expects(hello)) {
    return greeter->refuse({Code::kUnavailable, "this worker is stage " +
                                                    std::to_string(mine.stage) + " of replica " +
                                                    std::to_string(mine.replica)});
  }
  rendezvous_->greet(greeter);
}

Status Listener::begin(std::shared_ptr<Rendezvous> rendezvous) {
  const GenerationId id = rendezvous->id();
  if (newest_ && id < *newest_) {
    return Error{Code::kConflict, "generation " + id.text() + " is older than " + newest_->text() +
                                      ", which this worker has opened"};
  }
  newest_ = id;
  job_uid_ = rendezvous->generation().job_uid;
  rendezvous_ = std::move(rendezvous);
  for (const auto& greeter : parked_.take()) route(greeter);
  return Unit{};
}

void Listener::end() {
  rendezvous_.reset();
}

void Listener::close() {
  ErrorCode ignored;
  acceptor_.close(ignored);
  retry_.cancel();
  parked_.close();
  probes_->close();
}

}  // namespace weir::transport::tcp
