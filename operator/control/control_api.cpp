// SPDX-License-Identifier: Apache-2.0
#include "operator/control/control_api.h"

#include <pthread.h>
#include <thread>
#include <vector>

#include "operator/control/routes.h"
#include "worker/base/bounded_queue.h"

namespace weir::control_server {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxWaiting = 1024;  // requests for the auth threads; others are answered 503
constexpr auto kTick = 200ms;              // precision of the end of a long poll
// Connections beyond two for each job. If there are too many, those without a job's token are
// closed first.
constexpr std::size_t kSpareConnections = 100;
constexpr std::size_t kMaxStrangersOfOneAddress = 64;

struct Task {
  http::IncomingRequest incoming;
  http::Responder respond;
};

class Server final : public ControlApi {
 public:
  Server(const ControlOptions& options, ControlParts parts)
      : cache_(parts.cache),
        hub_(parts.hub),
        clock_(parts.clock),
        observe_(std::move(parts.observe)),
        authenticator_(parts.reviewer, parts.clock, std::move(parts.observe_review)),
        routes_({parts.cache, parts.hub, authenticator_, std::move(parts.seed),
                 std::move(parts.leading), std::move(parts.leader), options.leader_port,
                 std::move(parts.observe_dropped), std::move(parts.keep_trace)}) {}
  ~Server() override { stop(); }

  Status start(const ControlOptions& options) {
    http::ServerOptions http_options{.address = options.address,
                                     .port = options.port,
                                     .tls = options.tls,
                                     .max_connections = kSpareConnections,
                                     .max_strangers_of_one_address = kMaxStrangersOfOneAddress,
                                     .max_body_bytes = kMaxRegisterBody,
                                     .name = "control"};
    WEIR_TRY(http_, http::make_server(http_options, [this](http::IncomingRequest incoming,
                                                           http::Responder respond) {
               accept(std::move(incoming), std::move(respond));
             }));
    for (int i = 0; i < options.auth_threads; ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) { answer(stop); });
      pthread_setname_np(threads_.back().native_handle(), "auth");
    }
    threads_.emplace_back([this](const std::stop_token& stop) { tick(stop); });
    pthread_setname_np(threads_.back().native_handle(), "control-clock");
    return Unit{};
  }

  int port() const override { return http_->port(); }
  void set_tls(const http::TlsIdentity& tls) override { http_->set_tls(tls); }

  void stop() override {
    if (!http_) return;
    hub_.release_polls();
    http_->stop();
    tasks_.close();
    for (auto& thread : threads_) thread.request_stop();
    threads_.clear();  // joins; a TokenReview in progress has its own time limit
    hub_.release_polls();
  }

 private:
  // Runs on an HTTP thread and never blocks.
  void accept(http::IncomingRequest incoming, http::Responder respond) {
    const auto route = route_of(incoming.request.path);
    respond = [this, endpoint = route ? name(route->call) : "other",
               respond = std::move(respond)](http::Response response) {
      if (observe_) observe_(endpoint, response.status);
      respond(std::move(response));
    };
    if (auto refused = routes_.refuse_early(incoming.request)) return respond(*std::move(refused));
    if (!tasks_.try_push({std::move(incoming), respond})) {
      respond({503, {{"Retry-After", "1"}}, "too many requests wait\n"});
    }
  }

  void answer(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const auto task = tasks_.pop(std::chrono::steady_clock::now() + 1h, stop);
      if (task) routes_.handle(task->incoming, task->respond);
    }
  }

  void tick(const std::stop_token& stop) {
    while (clock_.sleep_until(clock_.now() + kTick, stop)) {
      hub_.expire_polls();
      http_->set_max_connections(2 * cache_.job_count() + kSpareConnections);
    }
  }

  cache::Cache& cache_;
  Hub& hub_;
  Clock& clock_;
  const std::function<void(const char*, int)> observe_;
  Authenticator authenticator_;
  Routes routes_;
  BoundedQueue<Task> tasks_{kMaxWaiting};
  std::unique_ptr<http::Server> http_;
  std::vector<std::jthread> threads_;
};

}  // namespace

Result<std::unique_ptr<ControlApi>> start_control_api(const ControlOptions& options,
                                                      ControlParts parts) {
  auto server = std::make_unique<Server>(options, std::move(parts));
  WEIR_OK(server->start(options));
  return std::unique_ptr<ControlApi>(std::move(server));
}

}  // namespace weir::control_server
