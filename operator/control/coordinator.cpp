// SPDX-License-Identifier: Apache-2.0
#include "operator/control/coordinator.h"

#include <cstdlib>

#include "operator/api/names.h"
#include "worker/http/text.h"

namespace weir::control_server {
namespace {

constexpr const char* kFirstIndex = "0";

// The pod of its newest attempt; null: it is not there.
const api::Pod* first_worker(const cache::JobView& view) {
  const api::Pod* newest = nullptr;
  int highest = -1;
  for (const auto& pod : view.pods) {
    if (label(*pod, api::kJobUid) != view.job->meta.uid ||
        label(*pod, api::kWorkerIndex) != kFirstIndex)
      continue;
    const int attempt = std::atoi(label(*pod, api::kAttempt).c_str());
    if (attempt <= highest) continue;
    highest = attempt;
    newest = pod.get();
  }
  return newest;
}

const api::Pod* pod_of(const cache::JobView& view, const std::string& uid) {
  for (const auto& pod : view.pods) {
    if (pod->meta.uid == uid) return pod.get();
  }
  return nullptr;
}

std::string address_of(const api::Pod& pod) {
  if (pod.ips.empty()) return "";
  const std::string& ip = pod.ips.front();
  const std::string host = ip.find(':') == ip.npos ? ip : "[" + ip + "]";
  return host + ":" + std::to_string(protocol::kControlPort);
}

}  // namespace

std::string label(const api::Pod& pod, const char* name) {
  const auto found = pod.meta.labels.find(name);
  return found == pod.meta.labels.end() ? "" : found->second;
}

std::int64_t term_of(const api::PipelineJob& job) {
  return job.status.coordinator ? job.status.coordinator->term : protocol::kFirstTerm;
}

std::optional<protocol::CoordinatorPlace> coordinator_of(const cache::JobView& view) {
  if (!view.job) return std::nullopt;
  const auto& named = view.job->status.coordinator;
  const api::Pod* pod = named ? pod_of(view, named->pod_uid) : first_worker(view);
  if (pod == nullptr) return std::nullopt;
  return protocol::CoordinatorPlace{.pod = pod->meta.name,
                                    .pod_uid = pod->meta.uid,
                                    .address = address_of(*pod),
                                    .term = term_of(*view.job),
                                    .lost_pod_uid = named ? named->lost_pod_uid : ""};
}

bool coordinates(const api::PipelineJob& job, const api::Pod& pod) {
  const auto& named = job.status.coordinator;
  return named ? named->pod_uid == pod.meta.uid : label(pod, api::kWorkerIndex) == kFirstIndex;
}

http::Response misdirected(const api::PipelineJob& job,
                           const std::optional<protocol::CoordinatorPlace>& coordinator) {
  const std::string term = std::to_string(term_of(job));
  http::Response response = http::plain_text(
      421, coordinator ? "pod " + coordinator->pod + " coordinates in term " + term
                       : "the coordinator is being chosen; the last term is " + term);
  response.headers.emplace_back(protocol::kTermHeader, term);
  return response;
}

}  // namespace weir::control_server
