// SPDX-License-Identifier: Apache-2.0
#include "worker/control/link.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/base/log.h"
#include "worker/control/frame_socket.h"
#include "worker/protocol/codec.h"
#include "worker/wire/door.h"
#include "worker/wire/socket_options.h"

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
// A rank of the version before this one waits for a challenge.
constexpr char kToSilentPeers[] =
    "weir-control/2: no hello came; a rank that speaks weir-control/1 cannot join";

struct Session {
  std::shared_ptr<FrameSocket> socket;
  std::string address;
  PeerId peer;
};

class LinkServer final : public RankServer {
 public:
  LinkServer(RankServerOptions options, RankServerEvents events)
      : options_(std::move(options)), events_(std::move(events)) {}

  ~LinkServer() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
    door_->close();
    for (auto& [id, session] : sessions_) session.socket->close();
  }

  Status listen() { return door_->open(options_.listen_ip, options_.port); }

  void start() override {
    door_->start();
    arm_tick();
    thread_ = std::jthread([this] { io_.run(); });
  }

  int port() const override { return door_->port(); }
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
  wire::DoorOptions door_options() const {
    return {.name = "control port",
            .job_uid = options_.job_uid,
            .job_key = options_.job_key,
            .most_strangers = kMaxStrangers,
            .most_of_one_address = kMaxStrangersOfOneAddress,
            .answer_time = options_.handshake_time / 2,
            .to_silent_peers = kToSilentPeers};
  }

  // A connection that has proven the key.
  void admit(const std::shared_ptr<wire::Acceptor>& acceptor) {
    auto peer = decode_peer(acceptor->hello().body);
    if (!peer) return acceptor->refuse(peer.error());
    acceptor->challenge(
        options_.job_key, [this, acceptor, peer = *std::move(peer)](Result<tcp::socket> socket) {
          if (!socket) return;
          wire::set_socket_options(socket->native_handle(), {.dead_after = options_.dead_after});
          const SessionId id = ++last_id_;
          Session session{.socket = std::make_shared<FrameSocket>(*std::move(socket)),
                          .address = acceptor->from(),
                          .peer = peer};
          const auto kept = sessions_.emplace(id, std::move(session)).first->second.socket;
          kept->start(kMaxFrame,
                      {.on_frame = [this, id](const std::string& body) { on_frame(id, body); },
                       .on_closed = [this, id](const std::string& why) { on_gone(id, why); }});
        });
  }

  void on_frame(SessionId id, const std::string& body) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    auto message = protocol::decode_message(body);
    if (!message) return drop(id, "bad message: " + message.error().message);
    if (std::holds_alternative<protocol::Heartbeat>(*message)) return;
    events_.on_message(id, found->second.peer, *std::move(message));
  }

  // Closes a session that failed or is silent, and tells the owner.
  void drop(SessionId id, const std::string& reason) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    found->second.socket->close();
    on_gone(id, reason);
  }

  steady_clock::time_point heard(const Session& session) const {
    return std::max(session.socket->last_heard(), awake_since_);
  }

  void on_gone(SessionId id, const std::string& reason) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    log_debug(kComponent, "session gone", {{"peer", found->second.address}, {"reason", reason}});
    const std::chrono::nanoseconds unheard = steady_clock::now() - heard(found->second);
    sessions_.erase(found);
    events_.on_closed(id, reason, unheard);
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
    // After a pause of this process (a stopped container, a machine without a free core) the peers'
    // heartbeats may lie unread in the sockets.
    if (now - last_tick_ > options_.dead_after / 4) awake_since_ = now;
    last_tick_ = now;
    std::vector<std::pair<SessionId, std::string>> dead;
    for (auto& [id, session] : sessions_) {
      if (now - heard(session) > options_.dead_after) {
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
  const std::shared_ptr<wire::Door> door_ = std::make_shared<wire::Door>(
      io_, door_options(),
      [this](const std::shared_ptr<wire::Acceptor>& acceptor) { admit(acceptor); });
  asio::steady_timer tick_timer_{io_}, wake_timer_{io_};
  std::map<SessionId, Session> sessions_;
  SessionId last_id_ = 0;
  steady_clock::time_point next_heartbeat_{}, last_tick_{}, awake_since_{};
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
