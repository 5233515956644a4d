// SPDX-License-Identifier: Apache-2.0
#include "operator/app/health.h"

#include <utility>

#include "worker/http/text.h"

namespace weir::operator_app {
namespace {

constexpr std::chrono::seconds kStuck{60};
constexpr std::chrono::minutes kStale{2};
constexpr std::size_t kConnections = 32;

http::Response answer(const std::string& problem) {
  return problem.empty() ? http::plain_text(200, "ok") : http::plain_text(503, problem);
}

}  // namespace

std::string health_problem(const RunState& state) {
  if (!state.reconciling) return "";
  if (state.clock.now() - state.controller->last_alive() > kStuck) {
    return "no reconcile has ended for 60 s while jobs wait";
  }
  return "";
}

std::string readiness_problem(const RunState& state) {
  if (!state.ready) return "starting or stopping";
  if (!state.cache->synced()) return "caches are not synced";
  if (state.cache->stale(kStale)) return "a watch has been broken for 2 min";
  return "";
}

Result<std::unique_ptr<http::Server>> serve_health(RunState& state) {
  http::ServerOptions options;
  options.port = state.options.health_port;
  options.threads = 1;
  options.max_connections = kConnections;
  options.name = "health";
  return http::make_server(
      options, [&state](const http::IncomingRequest& incoming, const http::Responder& respond) {
        const std::string path = http::path_of(incoming.request.path);
        if (path == "/healthz") return respond(answer(health_problem(state)));
        if (path == "/readyz") return respond(answer(readiness_problem(state)));
        respond(http::plain_text(404, "not found"));
      });
}

}  // namespace weir::operator_app
