// SPDX-License-Identifier: Apache-2.0
#include "operator/control/trace_maps.h"

#include <algorithm>
#include <optional>

#include "operator/api/decode.h"
#include "operator/api/names.h"
#include "worker/base/log.h"
#include "worker/base/numbers.h"
#include "worker/base/utf8.h"
#include "worker/http/server.h"
#include "worker/http/text.h"
#include "worker/protocol/trace_request.h"

namespace weir::control_server {
namespace {

http::Response later(int status, const std::string& why) {
  http::Response response = http::plain_text(status, why);
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace

protocol::ReportAnswer answer_to_report(const api::PipelineJob& job) {
  const auto found = job.meta.annotations.find(api::kTrace);
  if (found == job.meta.annotations.end()) return {};
  const auto wanted = protocol::read_trace_request(found->second);
  return {.trace = wanted ? std::optional(*wanted) : std::nullopt};
}

Result<api::TracePart> parse_trace_part(const std::string& path) {
  api::TracePart part{.id = http::query_value(path, "id"), .octets = ""};
  if (!protocol::is_trace_id(part.id)) return invalid("id: not of a-z, 0-9 and -");
  const auto parts = parse_whole(http::query_value(path, "parts"), 1, protocol::kMaxTraceParts);
  if (!parts) return parts.error().with("parts");
  const auto index = parse_whole(http::query_value(path, "part"), 0, *parts - 1);
  if (!index) return index.error().with("part");
  part.parts = static_cast<int>(*parts);
  part.part = static_cast<int>(*index);
  const std::string kind = http::query_value(path, "kind");
  if (kind.empty()) return part;
  if (kind != "flight") return invalid("kind: neither flight nor missing");
  if (part.parts != 1) return invalid("parts: a dump has one");
  part.flight = api::FlightNote{
      .why = one_line(http::query_value(path, "why"), protocol::kMostWhyBytes), .time = {}};
  return part;
}

std::optional<http::Response> TraceMaps::refusal(const api::PipelineJob& job,
                                                 const std::string& name) {
  const auto there = client_.get(kube::config_maps(), job.meta.namespace_name, name);
  if (!there) {
    if (there.error().http_status == 404) return std::nullopt;
    return later(503, there.error().message);
  }
  const auto meta = api::decode_object_meta(*there);
  if (meta && meta->owner_uid == job.meta.uid) return std::nullopt;
  return http::plain_text(409, "ConfigMap " + name + " exists and is not this job's");
}

http::Response TraceMaps::keep(const api::PipelineJob& job, const api::TracePart& part) {
  const std::string name = part.config_map(job.meta.name);
  const std::string& where = job.meta.namespace_name;
  if (!part.flight) {
    const std::lock_guard lock(kept_mutex_);
    std::size_t bytes = part.octets.size();
    for (const Kept& other : kept_) {
      const bool replaced = other.name == name && other.namespace_name == where;
      if (!other.flight && !replaced) bytes += other.bytes;
    }
    if (bytes > kMostBytes) return later(429, "too many traces are kept");
  }
  if (!may_write_()) return later(503, "not the leader any more");
  if (auto refused = refusal(job, name)) return *std::move(refused);
  api::TracePart shown = part;
  if (shown.flight) shown.flight->time = clock_.system_now();
  const auto written = client_.apply(kube::config_maps(), where, name, "", api::kReportOwner,
                                     api::encode_trace_config_map(job, shown));
  if (!written) return later(503, written.error().message);
  const auto meta = api::decode_object_meta(*written);
  remember({.namespace_name = where,
            .name = name,
            .uid = meta ? meta->uid : "",
            .bytes = part.octets.size(),
            .since = clock_.now(),
            .flight = part.flight.has_value()});
  if (part.flight && tell_) {
    tell_(job, {.type = "Normal",
                .reason = "FlightRecorded",
                .note = part.flight->why + " (kubectl weir trace " + job.meta.name + " --flight)",
                .action = "Report"});
  }
  return http::plain_text(202, "accepted");
}

void TraceMaps::remember(const Kept& one) {
  std::vector<Kept> old;
  {
    const std::lock_guard lock(kept_mutex_);
    std::erase_if(kept_, [&](const Kept& other) {
      return other.name == one.name && other.namespace_name == one.namespace_name;
    });
    kept_.push_back(one);
    std::size_t bytes = 0;
    for (const Kept& other : kept_) bytes += other.flight ? other.bytes : 0;
    std::erase_if(kept_, [&](Kept& other) {  // the oldest come first
      if (!other.flight || bytes <= most_flight_bytes_) return false;
      bytes -= other.bytes;
      old.push_back(std::move(other));
      return true;
    });
  }
  remove(old);
}

void TraceMaps::sweep() {
  std::vector<Kept> old;
  {
    const std::lock_guard lock(kept_mutex_);
    std::erase_if(kept_, [&](Kept& one) {
      if (one.flight || clock_.now() - one.since < kLife) return false;
      old.push_back(std::move(one));
      return true;
    });
  }
  remove(old);
}

void TraceMaps::remove(const std::vector<Kept>& old) {
  for (const Kept& one : old) {
    if (!may_write_()) return;
    const auto gone = client_.remove(kube::config_maps(), one.namespace_name, one.name, one.uid);
    if (gone || gone.error().http_status == 409) continue;
    log_warn(
        "control", "a trace stays until its job ends",
        {{"config_map", one.namespace_name + "/" + one.name}, {"reason", gone.error().message}});
  }
}

}  // namespace weir::control_server
