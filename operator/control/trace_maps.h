// SPDX-License-Identifier: Apache-2.0
// Traces on their way from coordinators to users: parts of records become ConfigMaps of the job,
// which a user with role view may read, for ten minutes; the newest dump of the flight recorders
// becomes one that stays with the job. The octets are not read here. A new leader does not know the
// ConfigMaps of the one before: they go with the job, or when its next trace replaces them.
// Thread-safe; blocks on the API server.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "operator/api/encode.h"
#include "operator/api/pipeline_job.h"
#include "operator/kube/client.h"
#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/http/transport.h"
#include "worker/protocol/messages.h"

namespace weir::control_server {

// The wish that the coordinator of this job is told; nothing: no annotation, or a wrong one.
protocol::ReportAnswer answer_to_report(const api::PipelineJob& job);
// The query of POST /trace. kInvalid names the parameter.
Result<api::TracePart> parse_trace_part(const std::string& path);

class TraceMaps {
 public:
  using Tell = std::function<void(const api::PipelineJob&, const api::Event&)>;
  // tell: an event of a dump that was kept; may be empty.
  TraceMaps(kube::Client& client, Clock& clock, std::function<bool()> may_write, Tell tell = {})
      : client_(client), clock_(clock), may_write_(std::move(may_write)), tell_(std::move(tell)) {}

  // The answer to POST /trace: 202; 409: a ConfigMap of that name is not the job's; 429: too many
  // traces are kept; 503: the API server, or this replica leads no more.
  http::Response keep(const api::PipelineJob& job, const api::TracePart& part);
  // Deletes what is old. Call it each minute.
  void sweep();

  static constexpr std::size_t kMostBytes = std::size_t{16} << 20U;  // of all jobs
  // Dumps of all jobs, of which the oldest go, so that etcd, 2 GiB by default, keeps its room.
  static constexpr std::size_t kMostFlightBytes = std::size_t{64} << 20U;
  static constexpr std::chrono::minutes kLife{10};
  void limit_flights_for_test(std::size_t bytes) { most_flight_bytes_ = bytes; }

 private:
  struct Kept {
    std::string namespace_name, name, uid;
    std::size_t bytes = 0;
    SteadyTime since{};
    bool flight = false;
  };
  // 0, or the status of the answer, with the reason.
  std::optional<http::Response> refusal(const api::PipelineJob& job, const std::string& name);
  void remember(const Kept& one);
  void remove(const std::vector<Kept>& old);

  kube::Client& client_;
  Clock& clock_;
  const std::function<bool()> may_write_;
  const Tell tell_;
  std::size_t most_flight_bytes_ = kMostFlightBytes;
  std::mutex kept_mutex_;  // guards kept_
  std::vector<Kept> kept_;
};

}  // namespace weir::control_server
