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

// All ranks of a large job may come at once to fetch state; each has an address of its own.
constexpr std::size_t kMaxStrangers = 512;
constexpr std::size_t kMaxStrangersOfOneAddress = 64;
constexpr int kBacklog = 512;
constexpr std::chrono::milliseconds kAcceptRetry{100};  // if no descriptors are left

Error cannot(int port, const ErrorCode& error) {
  // Asio and the system write "Address already in use" with a capital letter.
  std::string reason = error.message();
  if (!reason.empty()) reason[0] = static_cast<char>(std::tolower(reason[0]));
  return {Code::kUnavailable, "data port " + std::to_string(port) + ": " + reason};
}

}  // namespace

Listener::Listener(asio::io_context& context, std::shared_ptr<StateServer> state,
                   std::shared_ptr<ProbeServer> probes, std::string job_uid, std::string job_key)
    : tcp_acceptor_(context),
      retry_(context),
      state_(std::move(state)),
      probes_(std::move(probes)),
      own_job_uid_(std::move(job_uid)),
      job_key_(std::move(job_key)),
      strangers_(kMaxStrangers, kMaxStrangersOfOneAddress) {}

Status Listener::open(const std::string& ip, int port) {
  ErrorCode error;
  tcp::endpoint endpoint(tcp::v6(), static_cast<std::uint16_t>(port));
  if (!ip.empty()) {
    const auto address = asio::ip::make_address(ip, error);
    if (error) return Error{Code::kInvalid, "listen address " + ip + ": not an IP address"};
    endpoint = {address, static_cast<std::uint16_t>(port)};
  }
  tcp_acceptor_.open(endpoint.protocol(), error);
  if (error && ip.empty()) {  // for a machine without IPv6
    endpoint = {tcp::v4(), static_cast<std::uint16_t>(port)};
    tcp_acceptor_.open(endpoint.protocol(), error);
  }
  if (error) return cannot(port, error);
  ErrorCode ignored;
  tcp_acceptor_.set_option(asio::socket_base::reuse_address(true), ignored);
  if (endpoint.protocol() == tcp::v6() && ip.empty()) {
    tcp_acceptor_.set_option(asio::ip::v6_only(false), ignored);
  }
  tcp_acceptor_.bind(endpoint, error);
  if (!error) tcp_acceptor_.listen(kBacklog, error);
  if (error) return cannot(port, error);
  port_ = tcp_acceptor_.local_endpoint(ignored).port();
  accept();
  return Unit{};
}

void Listener::accept() {
  tcp_acceptor_.async_accept(
      [this, keep = shared_from_this()](ErrorCode error, tcp::socket socket) {
        if (!tcp_acceptor_.is_open()) return;
        if (!error) {
          accepted(std::move(socket));
          return accept();
        }
        drop(strangers_.take_oldest());
        retry_.expires_after(kAcceptRetry);
        retry_.async_wait([this, keep](ErrorCode) {
          if (tcp_acceptor_.is_open()) accept();
        });
      });
}

void Listener::accepted(tcp::socket socket) {
  const auto acceptor = std::make_shared<Acceptor>(std::move(socket));
  const Strangers::Id id = ++last_id_;
  acceptors_[id] = acceptor;
  drop(strangers_.add(id, acceptor->from()));
  acceptor->start([this, keep = shared_from_this(), acceptor, id](bool said_hello) {
    if (tcp_acceptor_.is_open() && said_hello) return meet(acceptor, id);
    strangers_.remove(id);
    acceptors_.erase(id);
    if (tcp_acceptor_.is_open()) {
      log_debug("transport", "connection without a hello", {{"from", acceptor->from()}});
    }
    acceptor->close();
  });
}

// The HELLO is known. The connection remains a stranger until it has proven the key.
void Listener::meet(const std::shared_ptr<Acceptor>& acceptor, Strangers::Id id) {
  const auto known = [this, id] {
    strangers_.remove(id);
    acceptors_.erase(id);
  };
  if (job_key_.empty()) {
    known();
    return route(acceptor);
  }
  if (acceptor->hello().job_uid != own_job_uid_) {
    known();
    return acceptor->refuse({Code::kForbidden, "this worker belongs to another job"});
  }
  acceptor->prove(job_key_,
                  [this, keep = shared_from_this(), acceptor, known](const Status& proven) {
                    known();
                    if (!proven) return;
                    tcp_acceptor_.is_open() ? route(acceptor) : acceptor->close();
                  });
}

void Listener::drop(std::optional<Strangers::Id> stranger) {
  if (!stranger) return;
  const auto found = acceptors_.find(*stranger);
  const auto acceptor = found->second.lock();
  acceptors_.erase(found);
  if (acceptor) acceptor->close();
}

void Listener::route(const std::shared_ptr<Acceptor>& acceptor) {
  const Hello& hello = acceptor->hello();
  if (hello.purpose == Purpose::kState) return state_->admit(acceptor);
  if (hello.purpose == Purpose::kProbe) return probes_->admit(acceptor);
  if (!newest_) return pending_.add(acceptor);
  if (hello.job_uid != job_uid_) {
    return acceptor->refuse({Code::kForbidden, "this worker belongs to another job"});
  }
  if (hello.generation < *newest_) {
    return acceptor->refuse({Code::kConflict, "generation " + hello.generation.text() +
                                                  " is older than " + newest_->text()});
  }
  // Ranks first connect to their neighbours, then to the other replicas of their stage.
  const bool later =
      !rendezvous_ || (hello.purpose == Purpose::kReplicaGroup) != rendezvous_->is_group();
  if (hello.generation > *newest_ || later) return pending_.add(acceptor);
  const Generation& mine = rendezvous_->generation();
  if (static_cast<int>(hello.replica) != mine.replica ||
      static_cast<int>(hello.to_stage) != mine.stage || !rendezvous_->expects(hello)) {
    return acceptor->refuse({Code::kUnavailable, "this worker is stage " +
                                                     std::to_string(mine.stage) + " of replica " +
                                                     std::to_string(mine.replica)});
  }
  rendezvous_->admit(acceptor);
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
  for (const auto& acceptor : pending_.take()) route(acceptor);
  return Unit{};
}

void Listener::end() {
  rendezvous_.reset();
}

void Listener::close() {
  ErrorCode ignored;
  tcp_acceptor_.close(ignored);
  retry_.cancel();
  pending_.close();
  probes_->close();
}

}  // namespace weir::transport::tcp
