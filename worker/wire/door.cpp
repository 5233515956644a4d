// SPDX-License-Identifier: Apache-2.0
#include "worker/wire/door.h"

#include <cctype>
#include <utility>

#include <boost/asio/ip/v6_only.hpp>

#include "worker/base/log.h"

namespace weir::wire {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptRetry{100};  // if no descriptors are left

}  // namespace

Door::Door(asio::io_context& context, DoorOptions options, Known known)
    : options_(std::move(options)),
      known_(std::move(known)),
      tcp_acceptor_(context),
      retry_(context),
      strangers_(options_.most_strangers, options_.most_of_one_address) {}

Status Door::open(const std::string& ip, int port) {
  ErrorCode error;
  const auto number = static_cast<std::uint16_t>(port);
  const auto address = ip.empty() ? asio::ip::address(asio::ip::address_v6::any())
                                  : asio::ip::make_address(ip, error);
  if (error) return Error{Code::kInvalid, "listen address " + ip + ": not an IP address"};
  if (!bind({address, number}, error) && ip.empty()) {  // for a machine without IPv6
    bind({tcp::v4(), number}, error);
  }
  if (error) {
    // Asio and the system write "Address already in use" with a capital letter.
    std::string reason = error.message();
    if (!reason.empty()) reason[0] = static_cast<char>(std::tolower(reason[0]));
    return Error{Code::kUnavailable, options_.name + " " + std::to_string(port) + ": " + reason};
  }
  port_ = tcp_acceptor_.local_endpoint(error).port();
  return Unit{};
}

bool Door::bind(const tcp::endpoint& endpoint, ErrorCode& error) {
  ErrorCode ignored;
  tcp_acceptor_.close(ignored);
  tcp_acceptor_.open(endpoint.protocol(), error);
  if (error) return false;
  tcp_acceptor_.set_option(asio::socket_base::reuse_address(true), ignored);
  if (endpoint.protocol() == tcp::v6()) {
    tcp_acceptor_.set_option(asio::ip::v6_only(false), ignored);
  }
  tcp_acceptor_.bind(endpoint, error);
  if (!error) tcp_acceptor_.listen(asio::socket_base::max_listen_connections, error);
  return !error;
}

void Door::accept() {
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

void Door::accepted(tcp::socket socket) {
  const auto acceptor = std::make_shared<Acceptor>(std::move(socket), options_.answer_time);
  const Strangers::Id id = ++last_id_;
  acceptors_[id] = acceptor;
  drop(strangers_.add(id, acceptor->from()));
  acceptor->start([this, keep = shared_from_this(), acceptor, id](const Status& said_hello) {
    if (tcp_acceptor_.is_open() && said_hello) return meet(acceptor, id);
    forget(id);
    if (!tcp_acceptor_.is_open()) return acceptor->close();
    const Error& error = said_hello.error();
    const bool told = error.code == Code::kTimeout && !options_.to_silent_peers.empty();
    log(told || error.code == Code::kConflict ? LogLevel::kWarn : LogLevel::kDebug, "wire",
        "connection without a hello",
        {{"from", acceptor->from()}, {"reason", told ? options_.to_silent_peers : error.message}});
    told ? acceptor->tell(options_.to_silent_peers) : acceptor->close();
  });
}

// The connection remains a stranger until it has proven the key.
void Door::meet(const std::shared_ptr<Acceptor>& acceptor, Strangers::Id id) {
  if (options_.job_key.empty()) {
    forget(id);
    return known_(acceptor);
  }
  if (acceptor->hello().job_uid != options_.job_uid) {
    forget(id);
    return acceptor->refuse({Code::kForbidden, "this worker belongs to another job"});
  }
  acceptor->prove(options_.job_key,
                  [this, keep = shared_from_this(), acceptor, id](const Status& proven) {
                    forget(id);
                    if (!proven) return;
                    tcp_acceptor_.is_open() ? known_(acceptor) : acceptor->close();
                  });
}

void Door::forget(Strangers::Id id) {
  strangers_.remove(id);
  acceptors_.erase(id);
}

void Door::drop(std::optional<Strangers::Id> stranger) {
  if (!stranger) return;
  const auto found = acceptors_.find(*stranger);
  const auto acceptor = found->second.lock();
  acceptors_.erase(found);
  if (acceptor) acceptor->close();
}

void Door::close() {
  ErrorCode ignored;
  tcp_acceptor_.close(ignored);
  retry_.cancel();
}

}  // namespace weir::wire
