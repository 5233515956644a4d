// SPDX-License-Identifier: Apache-2.0
#include "tests/multiproc/played_operator.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "worker/base/check.h"
#include "worker/http/text.h"
#include "worker/protocol/codec.h"

namespace weir::test {

PlayedOperator::PlayedOperator(schedule::Plan plan) : plan_(std::move(plan)) {
  serve("127.0.0.1");
}

PlayedOperator::PlayedOperator(const std::string& address) : waits_(true) {
  serve(address);
}

void PlayedOperator::serve(const std::string& address) {
  address_ = address;
  auto server = http::make_server({.address = address},
                                  [this](http::IncomingRequest incoming, http::Responder respond) {
                                    std::unique_lock lock(mutex_);
                                    const http::Response response = answer(incoming.request);
                                    if (response.status == 304)
                                      return polls_.push_back(std::move(respond));
                                    lock.unlock();
                                    respond(response);
                                  });
  WEIR_CHECK(server.ok(), "a free port");
  server_ = *std::move(server);
}

std::string PlayedOperator::url() const {
  return "http://" + address_ + ":" + std::to_string(server_->port());
}

void PlayedOperator::want_trace(const protocol::TraceWanted& wanted, std::int64_t from_step) {
  const std::lock_guard lock(mutex_);
  wanted_ = wanted;
  from_step_ = from_step;
}

std::optional<std::string> PlayedOperator::trace(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  if (id_ != id || octets_.size() < parts_) return std::nullopt;
  std::string whole;
  for (const std::string& part : octets_) whole += part;
  return whole;
}

protocol::Register PlayedOperator::registered() const {
  const std::lock_guard lock(mutex_);
  return registered_;
}

std::optional<protocol::Report> PlayedOperator::report(std::int64_t sequence) const {
  const std::lock_guard lock(mutex_);
  if (!report_ || report_->sequence < sequence) return std::nullopt;
  return report_;
}

void PlayedOperator::use(const schedule::Plan& plan) {
  const std::lock_guard lock(mutex_);
  plan_ = plan;
  planned_ = true;
  for (auto& respond : std::exchange(polls_, {})) respond(plan_answer());
}

void PlayedOperator::name(const protocol::CoordinatorPlace& place) {
  const std::lock_guard lock(mutex_);
  named_ = place;
  for (auto& respond : std::exchange(polls_, {})) respond(misdirected());  // of the one before
}

http::Response PlayedOperator::plan_answer() const {
  return {
      200, {{"ETag", "\"" + std::to_string(plan_.revision) + "\""}}, protocol::encode_plan(plan_)};
}

http::Response PlayedOperator::misdirected() const {
  return {421,
          {{protocol::kTermHeader, std::to_string(named_->term)}},
          "pod " + named_->pod + " coordinates"};
}

std::size_t PlayedOperator::claims(std::int64_t term) const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::ranges::count(claims_, term, [](const auto& claim) { return claim.first; }));
}

http::Response PlayedOperator::join(const std::string& body) {
  const protocol::Join asks = *protocol::decode_join(body);
  if (asks.lost_term) claims_.emplace(*asks.lost_term, asks.pod_uid);
  return {200,
          {},
          protocol::encode(
              protocol::JoinAnswer{.job_key = "the key of the job", .coordinator = named_})};
}

std::optional<protocol::FlightDump> PlayedOperator::flight() const {
  const std::lock_guard lock(mutex_);
  return flight_;
}

void PlayedOperator::make_plan(const std::vector<protocol::Member>& members) {
  const auto ranks = static_cast<std::size_t>(plan_.stage_count() * plan_.replica_count());
  if (planned_ || waits_ || members.size() < ranks) return;
  planned_ = true;
  plan_.ranks.clear();
  for (const protocol::Member& member : members) {
    plan_.ranks.push_back({.pod = member.pod,
                           .pod_uid = member.pod_uid,
                           .ip = member.ips.at(0),
                           .node = member.node,
                           .replica = member.worker_index / plan_.stage_count(),
                           .stage = member.worker_index % plan_.stage_count(),
                           .data_port = member.data_port});
  }
}

http::Response PlayedOperator::answer(const http::Request& request) {
  const std::string path = http::path_of(request.path);
  const std::string call = path.substr(path.rfind('/') + 1);
  if (call == "join") return join(request.body);
  if (named_ &&
      http::header_value(request.headers, "Authorization") != "Bearer " + named_->pod_uid) {
    return misdirected();
  }
  if (call == "register") {
    registered_ = *protocol::decode_register(request.body);
    make_plan(registered_.members);
    return http::plain_text(202, "accepted");
  }
  if (call == "plan") {
    const bool has = http::query_value(request.path, "have") == std::to_string(plan_.revision);
    if (!planned_) return http::plain_text(503, "no plan yet");
    if (has) return {304, {}, ""};
    return plan_answer();
  }
  if (call == "report") {
    report_ = *protocol::decode_report(request.body);
    const bool now = report_->step >= from_step_;
    return {202, {}, protocol::encode(protocol::ReportAnswer{now ? wanted_ : std::nullopt})};
  }
  if (call != "trace") return http::plain_text(404, "no such path");
  const std::string id = http::query_value(request.path, "id");
  if (http::query_value(request.path, "kind") == "flight") {
    flight_ = {.id = id, .why = http::query_value(request.path, "why"), .octets = request.body};
    return http::plain_text(202, "accepted");
  }
  if (id != std::exchange(id_, id)) octets_.clear();
  parts_ = std::stoul(http::query_value(request.path, "parts"));
  octets_.push_back(request.body);
  return http::plain_text(202, "accepted");
}

}  // namespace weir::test
