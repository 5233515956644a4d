// SPDX-License-Identifier: Apache-2.0
#include "worker/control/link.h"

#include <map>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/base/log.h"
#include "worker/base/strangers.h"
#include "worker/control/frame_socket.h"
#include "worker/protocol/codec.h"

namespace weir::control {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::steady_clock;

// Limits of connections that have not proven the key yet. 4096 ranks may connect within a second;
// each connection holds little memory. One address has few ranks unless the job was started by
// hand.
constexpr std::size_t kMaxStrangers = 4096;
constexpr std::size_t kMaxStrangersOfOneAddress = 256;
constexpr std::chrono::milliseconds kAcceptPause{100};  // after "too many open files"

struct Session {
  std::shared_ptr<FrameSocket> socket;
  std::string address, nonce;
  PeerId peer;
  bool proven = false;
  steady_clock::time_point accepted_at;
};

class LinkServer final : public RankServer {
 public:
  LinkServer(RankServerOptions options, RankServerEvents events)
      : options_(std::move(options)), events_(std::move(events)) {}

  ~LinkServer() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
    for (auto& [id, session] : sessions_) session.socket->close();
  }

  Status listen() {
    error_code error;
    auto address = asio::ip::address(asio::ip::address_v6::any());
    if (!options_.listen_ip.empty()) {
      address = asio::ip::make_address(options_.listen_ip, error);
      if (error) return Error{Code::kInvalid, "listen address " + options_.listen_ip + ": no IP"};
    }
    if (!bind_to(address, error) && options_.listen_ip.empty()) {  // for a host without IPv6
      bind_to(asio::ip::address_v4::any(), error);
    }
    if (error) {
      return Error{
          Code::kUnavailable,
          "control port " + std::to_string(options_.port) + ": " +
              (error == asio::error::address_in_use ? "address already in use" : error.message())};
    }
    port_ = acceptor_.local_endpoint(error).port();
    return Unit{};
  }

  void start() override {
    accept();
    arm_tick();
    thread_ = std::jthread([this] { io_.run(); });
  }

  int port() const override { return port_; }
  void post(std::function<void()> work) override { asio::post(io_, std::move(work)); }

  void send(SessionId id, const protocol::Message& message) override {
    const auto found = sessions_.find(id);
    if (found != sessions_.end()) found->second.socket->send(protocol::encode(message));
  }

  void close(SessionId id, const std::string& reason) override {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    log_info(kComponent, "session closed", {{"peer", found->second.address}, {"reason", reason}});
    found->second.socket->close_after_flush();
    sessions_.erase(found);
  }

  void wake_at(steady_clock::time_point time) override {
    wake_timer_.expires_at(time);
    wake_timer_.async_wait([this](const error_code& error) {
      if (!error && events_.on_tick) events_.on_tick();
    });
  }

 private:
  bool bind_to(const asio::ip::address& address, error_code& error) {
    const tcp::endpoint endpoint(address, static_cast<unsigned short>(options_.port));
    error_code ignored;
    acceptor_.close(ignored);
    acceptor_.open(endpoint.protocol(), error);
    if (error) return false;
    acceptor_.set_option(tcp::acceptor::reuse_address(true), ignored);
    if (address.is_v6()) acceptor_.set_option(asio::ip::v6_only(false), ignored);
    acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    return !error;
  }

  void accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (error) {  // mostly because no file descriptor is left
        if (const auto oldest = strangers_.take_oldest()) drop(*oldest, "no room");
        pause_timer_.expires_after(kAcceptPause);
        pause_timer_.async_wait([this](const error_code& stopped) {
          if (!stopped) accept();
        });
        return;
      }
      admit(std::move(socket));
      accept();
    });
  }

  void admit(tcp::socket socket) {
    error_code error;
    const auto remote = socket.remote_endpoint(error);
    if (error) return;
    const SessionId id = ++last_id_;
    Session session{.socket = std::make_shared<FrameSocket>(std::move(socket)),
                    .address = remote.address().to_string(),
                    .nonce = make_nonce(),
                    .peer = {},
                    .accepted_at = steady_clock::now()};
    const auto leaves = strangers_.add(id, session.address);
    auto& kept = sessions_.emplace(id, std::move(session)).first->second;
    kept.socket->start(kMaxHandshakeFrame, options_.dead_after,
                       {.on_frame = [this, id](std::string body) { on_frame(id, body); },
                        .on_closed = [this, id](const std::string& why) { on_gone(id, why); }});
    kept.socket->send(challenge_text(kept.nonce));
    if (leaves) drop(*leaves, "too many that have not proven the key");
  }

  void on_frame(SessionId id, const std::string& body) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    Session& session = found->second;
    if (!session.proven) return check(id, session, body);
    auto message = protocol::decode_message(body);
    if (!message) return drop(id, "bad message: " + message.error().message);
    if (std::holds_alternative<protocol::Heartbeat>(*message)) return;
    events_.on_message(id, session.peer, *std::move(message));
  }

  void check(SessionId id, Session& session, const std::string& body) {
    auto claim = check_claim(body, options_.job_uid, options_.job_key, session.nonce);
    if (!claim) {
      log_warn(kComponent, "handshake refused",
               {{"peer", session.address}, {"reason", claim.error().message}});
      session.socket->send(refusal_text(claim.error().message));
      session.socket->close_after_flush();
      strangers_.remove(id);
      sessions_.erase(id);
      return;
    }
    session.proven = true;
    strangers_.remove(id);
    session.peer = claim->peer;
    session.socket->set_max_frame(kMaxFrame);
    session.socket->send(acceptance_text(*claim, options_.job_key, session.nonce));
  }

  // Closes a session that failed or is silent, and tells the owner.
  void drop(SessionId id, const std::string& reason) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    found->second.socket->close();
    on_gone(id, reason);
  }

  void on_gone(SessionId id, const std::string& reason) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    const bool proven = found->second.proven;
    log_debug(kComponent, "session gone", {{"peer", found->second.address}, {"reason", reason}});
    sessions_.erase(found);
    if (proven) {
      events_.on_closed(id, reason);
    } else {
      strangers_.remove(id);
    }
  }

  void arm_tick() {
    tick_timer_.expires_after(options_.tick);
    tick_timer_.async_wait([this](const error_code& error) {
      if (error) return;
      tick();
      arm_tick();
    });
  }

  void tick() {
    const auto now = steady_clock::now();
    const bool beat = now >= next_heartbeat_;
    if (beat) next_heartbeat_ = now + options_.heartbeat;
    std::vector<std::pair<SessionId, std::string>> dead;
    for (auto& [id, session] : sessions_) {
      if (!session.proven) {
        if (now - session.accepted_at > options_.handshake_time) {
          dead.emplace_back(id, "no handshake in time");
        }
      } else if (now - session.socket->last_heard() > options_.dead_after) {
        dead.emplace_back(id, "silent for " + std::to_string(options_.dead_after.count()) + " ms");
      } else if (beat) {
        session.socket->send(heartbeat_);
      }
    }
    for (const auto& [id, why] : dead) drop(id, why);
    if (events_.on_tick) events_.on_tick();
  }

  const RankServerOptions options_;
  const RankServerEvents events_;
  const std::string heartbeat_ = protocol::encode(protocol::Message(protocol::Heartbeat{}));
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer tick_timer_{io_}, pause_timer_{io_}, wake_timer_{io_};
  std::map<SessionId, Session> sessions_;
  Strangers strangers_{kMaxStrangers, kMaxStrangersOfOneAddress};
  SessionId last_id_ = 0;
  steady_clock::time_point next_heartbeat_{};
  int port_ = 0;
  std::jthread thread_;
};

}  // namespace

Result<std::unique_ptr<RankServer>> make_rank_server(const RankServerOptions& options,
                                                     RankServerEvents events) {
  auto server = std::make_unique<LinkServer>(options, std::move(events));
  WEIR_TRY([[maybe_unused]] auto listening, server->listen());
  return Result<std::unique_ptr<RankServer>>(std::move(server));
}

}  // namespace weir::control
