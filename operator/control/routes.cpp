// SPDX-License-Identifier: Apache-2.0
#include "operator/control/routes.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "operator/api/names.h"
#include "operator/control/coordinator.h"
#include "operator/control/impossible.h"
#include "operator/control/job_key.h"
#include "operator/control/trace_maps.h"
#include "worker/http/text.h"
#include "worker/protocol/codec.h"

namespace weir::control_server {
namespace {

constexpr Call kCalls[] = {Call::kJoin, Call::kRegister, Call::kPlan, Call::kReport, Call::kTrace};

http::Response retry_later(int status, const std::string& why) {
  http::Response response = http::plain_text(status, why);
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

std::size_t limit_of(Call call) {
  switch (call) {
    case Call::kJoin:
      return kMaxJoinBody;
    case Call::kRegister:
      return kMaxRegisterBody;
    case Call::kReport:
      return kMaxReportBody;
    case Call::kTrace:
      return kMaxTraceBody;
    case Call::kPlan:
      return 0;
  }
  return 0;
}

bool is_name(std::string_view text) {  // of a Kubernetes object
  return !text.empty() && text.size() <= 253 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  });
}

std::string bearer(const http::Request& request) {
  const std::string value = http::header_value(request.headers, "Authorization");
  return value.starts_with("Bearer ") ? value.substr(7) : "";
}

std::optional<std::int64_t> number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

const char* name(Call call) {
  switch (call) {
    case Call::kJoin:
      return "join";
    case Call::kRegister:
      return "register";
    case Call::kPlan:
      return "plan";
    case Call::kReport:
      return "report";
    case Call::kTrace:
      return "trace";
  }
  return "?";
}

std::optional<Route> route_of(const std::string& path) {
  constexpr std::string_view kNamespaces = "/v1/namespaces/", kJobs = "pipelinejobs";
  const std::string whole = http::path_of(path);
  std::string_view rest = whole;
  if (!rest.starts_with(kNamespaces)) return std::nullopt;
  rest.remove_prefix(kNamespaces.size());
  std::string_view parts[4];
  for (std::size_t i = 0; i < 4; ++i) {
    const auto slash = rest.find('/');
    if ((slash == rest.npos) != (i == 3)) return std::nullopt;
    parts[i] = rest.substr(0, slash);
    rest.remove_prefix(i == 3 ? rest.size() : slash + 1);
  }
  if (!is_name(parts[0]) || parts[1] != kJobs || !is_name(parts[2])) return std::nullopt;
  for (const Call call : kCalls) {
    if (parts[3] == name(call)) return Route{call, std::string(parts[0]), std::string(parts[2])};
  }
  return std::nullopt;
}

struct Routes::Caller {
  Route route;
  std::shared_ptr<const api::PipelineJob> job;
  std::shared_ptr<const api::Pod> pod;
  std::optional<protocol::CoordinatorPlace> coordinator;  // nothing: its pod is not there
  const std::string& uid() const { return job->meta.uid; }
  std::string index() const { return label(*pod, api::kWorkerIndex); }
};

std::optional<http::Response> Routes::refuse_early(const http::Request& request) const {
  const auto route = route_of(request.path);
  if (!route) return http::plain_text(404, "no such path");
  const auto wanted = route->call == Call::kPlan ? http::Method::kGet : http::Method::kPost;
  if (request.method != wanted) return http::plain_text(405, "wrong method");
  if (request.body.size() > limit_of(route->call)) {
    return http::plain_text(413, "body above " + std::to_string(limit_of(route->call)) + " bytes");
  }
  if (!parts_.cache.synced()) return retry_later(503, "the operator has not read the cluster yet");
  return std::nullopt;
}

Result<Routes::Caller, http::Response> Routes::authorize(const Route& route,
                                                         const http::Request& request) const {
  const std::string token = bearer(request);
  if (token.empty()) return http::plain_text(401, "no bearer token");
  const auto identity = parts_.authenticator.authenticate(token);
  if (!identity) {
    const Error& error = identity.error();
    if (error.code == Code::kUnauthorized) return http::plain_text(401, error.message);
    return retry_later(error.code == Code::kThrottled ? 429 : 503, error.message);
  }

  const auto pod = parts_.cache.pod_by_uid(identity->pod_uid);
  if (!pod || pod->meta.name != identity->pod_name ||
      pod->meta.namespace_name != route.namespace_name || label(*pod, api::kJobName) != route.job) {
    return http::plain_text(403,
                            "pod " + identity->pod_name + " is not part of job " + route.key());
  }
  const std::string pod_job = label(*pod, api::kJobUid);
  const cache::JobView view = parts_.cache.view(route.key());
  const auto& job = view.job;
  if (!job) {
    return parts_.hub.gone(route.key(), pod_job) ? http::plain_text(410, "the job is deleted")
                                                 : http::plain_text(404, "no such job (yet)");
  }
  if (job->meta.uid != pod_job)
    return http::plain_text(409, "this name belongs to another job now");
  if (job->meta.deleting) return http::plain_text(410, "the job is being deleted");
  Caller caller{route, job, pod, coordinator_of(view)};
  if (route.call != Call::kJoin && !coordinates(*job, *pod))
    return misdirected(*job, caller.coordinator);
  return caller;
}

void Routes::handle(const http::IncomingRequest& incoming, http::Responder respond) const {
  const http::Request& request = incoming.request;
  const auto route = route_of(request.path);
  if (!route) return respond(http::plain_text(404, "no such path"));
  const auto caller = authorize(*route, request);
  if (!caller) return respond(caller.error());
  if (incoming.proven) incoming.proven();
  const bool for_leader = route->call != Call::kJoin && route->call != Call::kPlan;
  if (for_leader && !parts_.leading()) return respond(to_leader(request.path));
  switch (route->call) {
    case Call::kJoin:
      return respond(join(*caller, request));
    case Call::kRegister:
      return respond(take_register(*caller, request.body));
    case Call::kReport:
      return respond(take_report(*caller, request.body));
    case Call::kTrace:
      return respond(take_trace(*caller, request));
    case Call::kPlan:
      return plan(*caller, request.path, std::move(respond));
  }
}

http::Response Routes::join(const Caller& caller, const http::Request& request) const {
  const auto body = protocol::decode_join(request.body);
  if (!body) return http::plain_text(400, body.error().message);
  if (body->job_uid != caller.uid())
    return http::plain_text(409, "jobUid: another job has this name");
  if (body->pod != caller.pod->meta.name || body->pod_uid != caller.pod->meta.uid ||
      std::to_string(body->worker_index) != caller.index()) {
    return http::plain_text(403, "pod, podUid or workerIndex is not that of the token's pod");
  }
  const int common = std::min(body->protocol_max, protocol::kProtocolMax);
  if (common < std::max(body->protocol_min, protocol::kProtocolMin)) {
    return http::plain_text(400, "protocol: " + std::to_string(body->protocol_min) + " to " +
                                     std::to_string(body->protocol_max) +
                                     " has no version that this operator knows");
  }
  // A worker whose process is new has heard no coordinator, so it knows no term. If that of the
  // present term is gone, its vote counts, too.
  const bool gone = !caller.coordinator && caller.job->status.coordinator;
  const auto lost_term = gone ? term_of(*caller.job) : body->lost_term;
  const bool votes = gone || caller.job->status.plan.revision > 0;  // without a plan nobody has one
  if (lost_term && votes) {
    if (!parts_.leading()) return to_leader(request.path);
    parts_.hub.take_claim(caller.route.key(), caller.uid(), body->pod_uid, *lost_term);
  }
  if (gone) return retry_later(503, "the coordinator is being chosen");
  const std::string answer = protocol::encode(
      protocol::JoinAnswer{key_of_job(parts_.seed, caller.uid()), caller.coordinator});
  return {200, {{"Content-Type", "application/json"}}, answer};
}

http::Response Routes::take_register(const Caller& caller, const std::string& text) const {
  auto body = protocol::decode_register(text);
  if (!body) return http::plain_text(400, body.error().message);
  if (body->job_uid != caller.uid())
    return http::plain_text(409, "jobUid: another job has this name");
  return http::plain_text(parts_.hub.take_register(caller.route.key(), *std::move(body)),
                          "accepted");
}

http::Response Routes::take_report(const Caller& caller, const std::string& text) const {
  auto body = protocol::decode_report(text);
  if (!body) return http::plain_text(400, body.error().message);
  if (body->job_uid != caller.uid())
    return http::plain_text(409, "jobUid: another job has this name");
  const int dropped = drop_impossible(*body);
  if (dropped > 0 && parts_.observe_dropped) parts_.observe_dropped(dropped);
  const int status = parts_.hub.take_report(caller.route.key(), *std::move(body));
  if (status == 409) return http::plain_text(status, "sequence: older than one that was seen");
  if (status == 428) return http::plain_text(status, "no members known here: register first");
  return {status,
          {{"Content-Type", "application/json"}},
          protocol::encode(answer_to_report(*caller.job))};
}

http::Response Routes::take_trace(const Caller& caller, const http::Request& request) const {
  auto part = parse_trace_part(request.path);
  if (!part) return http::plain_text(400, part.error().message);
  if (!parts_.keep_trace) return http::plain_text(404, "this operator keeps no traces");
  part->octets = request.body;
  return parts_.keep_trace(*caller.job, *part);
}

void Routes::plan(const Caller& caller, const std::string& path, http::Responder respond) const {
  const std::string have_text = http::query_value(path, "have");
  const std::string wait_text = http::query_value(path, "wait");
  const auto have = have_text.empty() ? 0 : number(have_text);
  const auto wait = wait_text.empty() ? 0 : number(wait_text);
  if (!have || *have > std::numeric_limits<std::uint32_t>::max()) {
    return respond(http::plain_text(400, "have: \"" + have_text + "\" is no revision"));
  }
  if (!wait)
    return respond(http::plain_text(400, "wait: \"" + wait_text + "\" is no number of seconds"));
  const std::string key = caller.route.key();
  publish_view(parts_.hub, key, parts_.cache.view(key));
  parts_.hub.wait_plan(key, caller.uid(), caller.pod->meta.uid, static_cast<std::uint32_t>(*have),
                       std::chrono::seconds(std::min<std::int64_t>(*wait, kMaxWait.count())),
                       std::move(respond));
}

// Lease identities are "<pod>_<ip>_<uuid>".
http::Response Routes::to_leader(const std::string& path) const {
  const std::string identity = parts_.leader();
  const auto first = identity.find('_');
  const auto last = identity.rfind('_');
  if (first == identity.npos || last <= first + 1) return retry_later(503, "no leader is known");
  std::string ip = identity.substr(first + 1, last - first - 1);
  if (ip.find(':') != ip.npos) ip = "[" + ip + "]";
  http::Response response = http::plain_text(307, "not the leader");
  response.headers.emplace_back("Location",
                                "https://" + ip + ":" + std::to_string(parts_.port) + path);
  return response;
}

}  // namespace weir::control_server
