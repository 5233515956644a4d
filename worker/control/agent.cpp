// SPDX-License-Identifier: Apache-2.0
#include "worker/control/agent.h"

#include <atomic>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/base/bounded_queue.h"
#include "worker/base/digest.h"
#include "worker/base/host_port.h"
#include "worker/base/log.h"
#include "worker/base/random.h"
#include "worker/control/frame_socket.h"
#include "worker/control/link.h"
#include "worker/protocol/codec.h"
#include "worker/wire/dialer.h"

namespace weir::control {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Short, because the coordinator's pod starts at the same time.
constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{5000};
constexpr milliseconds kLongestPauseOfRefused{1000};  // after a connection that brought nothing
// A rank that has never found the coordinator, or none for a long time, asks less often.
constexpr std::chrono::seconds kSoonFound{60};
constexpr int kSlower = 10;
constexpr std::size_t kMaxTasks = 64;  // MEASURE and PROBE requests waiting for the callback thread
constexpr milliseconds kTick{100};

class ControlAgent final : public Agent {
 public:
  ControlAgent(AgentOptions options, AgentCallbacks callbacks)
      : options_(std::move(options)),
        callbacks_(std::move(callbacks)),
        coordinator_(options_.coordinator) {
    worker_ = std::jthread([this](std::stop_token stop) { run_tasks(stop); });
    asio::post(io_, [this] { connect(); });
    arm_tick();
    thread_ = std::jthread([this] { io_.run(); });
  }

  ~ControlAgent() override {
    io_.stop();
    tasks_.close();
    if (callbacks_.stopping) callbacks_.stopping();
    worker_.request_stop();
    if (thread_.joinable()) thread_.join();
    if (worker_.joinable()) worker_.join();
    if (dialer_) dialer_->cancel();
    if (socket_) socket_->close();
  }

  void send(const protocol::Message& message) override {
    asio::post(io_, [this, message] { transmit(message); });
  }

  bool connected() const override { return connected_; }
  std::string trouble() const override {
    if (connected_) return "";
    const std::lock_guard lock(trouble_mutex_);
    return trouble_;
  }

  void flush(steady_clock::time_point deadline) override {
    auto done = std::make_shared<std::promise<void>>();
    const auto future = done->get_future();
    asio::post(io_, [this, done] {
      if (!socket_) return done->set_value();
      socket_->when_flushed([done] { done->set_value(); });
    });
    static_cast<void>(future.wait_until(deadline));
  }

 private:
  void transmit(const protocol::Message& message) {
    if (connected_ && socket_) socket_->send(protocol::encode(message));
  }

  // ---- connecting ----
  void connect() {
    ++attempt_;
    // The key may need a request to the operator, which must not block this thread.
    run_task([this, attempt = attempt_] {
      std::string key = callbacks_.job_key();
      asio::post(io_, [this, attempt, key = std::move(key)]() mutable {
        if (attempt == attempt_) dial(std::move(key));
      });
    });
  }

  void dial(std::string key) {
    const auto to = parse_host_port(coordinator_);
    if (!to) return retry(to.error().message);
    const PeerId self{options_.member.worker_index, options_.member.pod_uid};
    if (const auto fits = decode_peer(encode_peer(self)); !fits) return retry(fits.error().message);
    dialer_ = std::make_shared<wire::Dialer>(
        io_,
        wire::Dialer::Target{.host = to->host,
                             .port = to->port,
                             .hello = {.job_uid = options_.job_uid,
                                       .purpose = wire::Purpose::kControl,
                                       .body = encode_peer(self),
                                       .nonce = {}},
                             .key = std::move(key),
                             .socket = {.dead_after = options_.dead_after},
                             .again = false},
        [this, attempt = attempt_](Result<tcp::socket> socket) {
          if (attempt != attempt_) return;
          if (!socket) return retry(socket.error().message);
          use(*std::move(socket));
        });
    dialer_->start();
  }

  void use(tcp::socket socket) {
    socket_ = std::make_shared<FrameSocket>(std::move(socket));
    socket_->start(kMaxFrame, {.on_frame = [this](const std::string& body) { on_message(body); },
                               .on_closed = [this](const std::string& why) { retry(why); }});
    connected_ = true;
    protocol::Hello hello = callbacks_.hello(options_.member);
    hello.settings = options_.settings;
    hello.features = options_.features;
    transmit(std::move(hello));
    log_info(kComponent, "connected to the coordinator", {{"address", coordinator_}});
    if (callbacks_.on_connection) callbacks_.on_connection(true, "");
  }

  // Closes what is open and tries again after a pause. A retry is logged as debug, every tenth as a
  // warning.
  void retry(const std::string& why) {
    ++attempt_;
    const bool was_connected = connected_.exchange(false);
    if (dialer_) std::exchange(dialer_, nullptr)->cancel();
    if (socket_) std::exchange(socket_, nullptr)->close();
    if (was_connected) {
      lost_at_ = steady_clock::now();
      callbacks_.session_lost();
    }
    ++failures_;
    {
      const std::lock_guard lock(trouble_mutex_);
      trouble_ = "coordinator " + coordinator_ + ": " + why;
    }
    log(was_connected || failures_ % 10 == 0 ? LogLevel::kWarn : LogLevel::kDebug, kComponent,
        "not connected to the coordinator",
        {{"address", coordinator_}, {"reason", why}, {"failures", failures_}});
    if (callbacks_.on_connection) callbacks_.on_connection(false, why);
    if (refused_) return;
    const auto jittered = milliseconds(static_cast<std::int64_t>(
        static_cast<double>(pause_.count()) * (0.5 + random_.uniform() / 2)));
    pause_ = std::min(pause_ * 2, was_connected ? kLongestPauseOfRefused : kLongestPause);
    retry_timer_.expires_after(jittered);
    retry_timer_.async_wait([this](const error_code& error) {
      if (!error) connect();
    });
  }

  // ---- connected ----
  void on_message(const std::string& body) {
    auto message = protocol::decode_message(body);
    if (!message) return retry("bad message: " + message.error().message);
    // Only now is it known that the coordinator has accepted the HELLO.
    pause_ = kFirstPause;
    failures_ = 0;
    if (std::holds_alternative<protocol::Heartbeat>(*message)) return;
    if (const auto* probe = std::get_if<protocol::Probe>(&*message)) {
      answer_later([this, request = *probe]() -> protocol::Message {
        return callbacks_.probe ? callbacks_.probe(request) : protocol::Probed{};
      });
    } else if (const auto* refused = std::get_if<protocol::Refused>(&*message)) {
      refused_ = true;
      if (callbacks_.on_refused) callbacks_.on_refused(refused->reason);
    } else if (const char* const type = protocol::type_name(*message);
               !callbacks_.put(*std::move(message))) {
      retry(std::string("unexpected ") + type);
    }
  }

  void answer_later(std::function<protocol::Message()> work) {
    run_task([this, attempt = attempt_, work = std::move(work)] {
      auto message = work();
      asio::post(io_, [this, attempt, message = std::move(message)] {
        if (attempt == attempt_) transmit(message);
      });
    });
  }

  bool run_task(std::function<void()> task) {
    if (tasks_.try_push(std::move(task))) return true;
    log_warn(kComponent, "request dropped: too many are waiting");
    return false;
  }

  void run_tasks(const std::stop_token& stop) {
    constexpr std::chrono::hours kLong{1};
    while (!stop.stop_requested()) {
      if (const auto task = tasks_.pop(steady_clock::now() + kLong, stop)) (*task)();
    }
  }

  void arm_tick() {
    tick_timer_.expires_after(kTick);
    tick_timer_.async_wait([this](const error_code& error) {
      if (error) return;
      tick();
      arm_tick();
    });
  }

  void tick() {
    const auto now = steady_clock::now();
    if (now - last_tick_ > kTick + options_.silent_after / 4) awake_since_ = now;
    last_tick_ = now;
    if (doubts(now)) ask(now);
    if (!connected_) return;
    if (now - socket_->last_heard() > options_.dead_after) {
      return retry("the coordinator is silent");
    }
    if (now < next_heartbeat_) return;
    next_heartbeat_ = now + options_.heartbeat;
    socket_->send(heartbeat_);
  }

  // ---- another coordinator ----
  bool doubts(steady_clock::time_point now) const {
    if (!callbacks_.find_coordinator || asking_ || refused_ || now < next_question_) return false;
    if (callbacks_.doubts && callbacks_.doubts()) return true;
    if (!connected_) return now - lost_at_.value_or(started_) >= options_.unconnected_after;
    return now - std::max(socket_->last_heard(), awake_since_) >= options_.silent_after;
  }

  void ask(steady_clock::time_point now) {
    const bool soon = connected_ || (lost_at_ && now - *lost_at_ < kSoonFound);
    const auto pause = options_.ask_every * (soon ? 1 : kSlower);
    next_question_ =
        now + milliseconds(static_cast<std::int64_t>(static_cast<double>(pause.count()) *
                                                     (0.75 + random_.uniform() / 2)));
    asking_ = run_task([this] {
      std::string address = callbacks_.find_coordinator();
      asio::post(io_, [this, address = std::move(address)] {
        asking_ = false;
        if (!address.empty() && address != coordinator_) follow(address);
      });
    });
  }

  void follow(const std::string& address) {
    log_info(kComponent, "another worker coordinates", {{"address", address}});
    coordinator_ = address;
    pause_ = kFirstPause;
    retry("another worker coordinates");
  }

  const AgentOptions options_;
  const AgentCallbacks callbacks_;
  const std::string heartbeat_ = protocol::encode(protocol::Message(protocol::Heartbeat{}));
  asio::io_context io_{1};
  asio::steady_timer tick_timer_{io_}, retry_timer_{io_};
  std::shared_ptr<wire::Dialer> dialer_;
  std::shared_ptr<FrameSocket> socket_;
  std::string coordinator_;  // its address
  // Number of the connection attempt; results of earlier attempts are ignored.
  std::uint64_t attempt_ = 0;
  steady_clock::time_point next_heartbeat_{}, last_tick_{}, awake_since_{}, next_question_{};
  const steady_clock::time_point started_ = steady_clock::now();
  std::optional<steady_clock::time_point> lost_at_;  // the newest session
  bool asking_ = false;
  milliseconds pause_ = kFirstPause;
  std::int64_t failures_ = 0;
  mutable std::mutex trouble_mutex_;  // guards trouble_
  std::string trouble_;
  Random random_{mix_seed(0, random_bytes(8))};  // jitter only
  std::atomic<bool> connected_ = false;
  bool refused_ = false;
  BoundedQueue<std::function<void()>> tasks_{kMaxTasks};
  std::jthread worker_, thread_;
};

}  // namespace

std::unique_ptr<Agent> start_agent(const AgentOptions& options, AgentCallbacks callbacks) {
  return std::make_unique<ControlAgent>(options, std::move(callbacks));
}

}  // namespace weir::control
