// SPDX-License-Identifier: Apache-2.0
// Requests of the executor for the gang provider's object and for the gate of pinned pods.
#include "operator/api/decode.h"
#include "operator/api/encode.h"
#include "operator/controller/execution.h"
#include "operator/gang/provider.h"
#include "operator/kube/status_error.h"

namespace weir::controller {

// Finds the PodGroup of the job's name. uid: that of the PodGroup if it is ours; "" = there is
// none. foreign: it belongs to somebody else, so it must not be changed.
Executor::Error Executor::find_gang(Execution& execution, std::string& uid, bool& foreign) {
  const auto answer = parts_.client.get(kube::volcano_pod_groups(),
                                        execution.job.meta.namespace_name, execution.job.meta.name);
  if (!answer && answer.error().http_status == 404) return std::nullopt;
  if (!answer) return answer.error();
  const auto meta = api::decode_object_meta(*answer);
  if (!meta) return kube::transport_error(meta.error());
  foreign = meta->owner_uid != execution.job.meta.uid;
  if (!foreign) uid = meta->uid;
  return std::nullopt;
}

Executor::Error Executor::carry_out(Execution& execution,
                                    const reconcile::ApplyGangObject& request) {
  if (!parts_.may_write()) return kube::transport_error({Code::kCancelled, "lease too old"});
  const auto refuse = [&](const char* reason, const std::string& message) {
    execution.memory.template_check =
        reconcile::TemplateCheck{api::template_hash(execution.job), false, reason,
                                 "PodGroup of scheduling.volcano.sh: " + message};
    execution.memory.template_checked = parts_.clock.now();
    execution.result.again = true;
    return std::nullopt;
  };
  std::string uid;
  bool foreign = false;
  auto error = find_gang(execution, uid, foreign);
  if (!error && foreign)
    return refuse("NameConflict",
                  execution.job.meta.name +
                      " exists and does not belong to this job; delete it or rename the job");
  if (!error) {
    const auto answer =
        parts_.client.apply(kube::volcano_pod_groups(), execution.job.meta.namespace_name,
                            execution.job.meta.name, "", kOwner, request.object);
    if (answer) {
      remember(execution, "PodGroup", *answer);
    } else {
      error = answer.error();
    }
  }
  if (error && (error->http_status == 404 || error->http_status == 403) &&
      !kube::is_namespace_terminating(*error))
    return refuse("GangProviderUnavailable", error->message);
  if (error) return error;
  execution.memory.gang = {true, request.object};
  return std::nullopt;
}

Executor::Error Executor::carry_out(Execution& execution, const reconcile::DeleteGangObject&) {
  if (!parts_.may_write()) return kube::transport_error({Code::kCancelled, "lease too old"});
  std::string uid;
  bool foreign = false;
  auto error = find_gang(execution, uid, foreign);
  if (!error && !uid.empty()) {
    const auto answer =
        parts_.client.remove(kube::volcano_pod_groups(), execution.job.meta.namespace_name,
                             execution.job.meta.name, uid);
    if (!answer && answer.error().http_status != 409) error = answer.error();
  }
  // 403: the provider is not enabled, so we have made no object.
  if (error && error->http_status != 403) return error;
  execution.memory.gang = {true, ""};
  return std::nullopt;
}

Executed Executor::let_go(const cache::JobView& view) {
  const api::Pod* pod = gang::pod_to_close(view.pods);
  if (pod == nullptr) return {};
  Executed executed;
  if (!parts_.may_write()) {
    executed.requeue = std::chrono::seconds(1);
    return executed;
  }
  const auto answer = parts_.client.merge_patch(kube::pods(), pod->meta.namespace_name,
                                                pod->meta.name, gang::encode_close());
  if (!answer && answer.error().http_status != 404) {
    executed.failed = "ClosePodGroup";
    executed.error = answer.error();
  }
  return executed;
}

Executor::Error Executor::carry_out(Execution& execution, const reconcile::ClosePodGroup& request) {
  if (!parts_.may_write()) return kube::transport_error({Code::kCancelled, "lease too old"});
  const auto answer = parts_.client.merge_patch(kube::pods(), execution.job.meta.namespace_name,
                                                request.pod, request.patch);
  if (!answer && answer.error().http_status == 404) return std::nullopt;  // next time another pod
  if (!answer) return answer.error();
  remember(execution, "Pod", *answer);
  return std::nullopt;
}

Executor::Error Executor::carry_out(Execution& execution, const reconcile::OpenGate& request) {
  if (!parts_.may_write()) return kube::transport_error({Code::kCancelled, "lease too old"});
  const auto answer = parts_.client.merge_patch(
      kube::pods(), execution.job.meta.namespace_name, request.pod,
      api::encode_open_gate(request.resource_version, request.hostname, request.gates_left));
  if (!answer) return answer.error();
  remember(execution, "Pod", *answer);
  return std::nullopt;
}

}  // namespace weir::controller
