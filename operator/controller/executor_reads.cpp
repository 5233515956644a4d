// SPDX-License-Identifier: Apache-2.0
// Requests of the executor that fetch an answer for the next pass, which follows at once.
#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "operator/api/decode.h"
#include "operator/api/encode.h"
#include "operator/controller/execution.h"
#include "operator/kube/status_error.h"
#include "worker/base/log.h"

namespace weir::controller {
namespace {

using kube::ApiError;

constexpr int kDryRunAttempt = 9999;  // makes a name that no pod has

}  // namespace

Executor::Error Executor::dry_run_group(Execution& execution, const api::PodInput& input,
                                        reconcile::TemplateCheck& check) {
  const auto pod = api::encode_pod(execution.job, input);
  if (!pod) {
    check.accepted = false;
    check.reason =
        pod.error().code == Code::kNotFound ? "TrainerContainerMissing" : "InvalidTemplate";
    check.message = pod.error().message;
    return std::nullopt;
  }
  if (!pod->checkpoint_on_volume) {
    check.accepted = false;
    check.reason = "InvalidSpec";
    check.message = "checkpoint.path: " + execution.job.spec.checkpoint_path +
                    " is on no volume in group " + input.group +
                    "; name a claim in checkpoint.persistentVolumeClaim, or mount a volume there";
    return std::nullopt;
  }
  const auto answer =
      parts_.client.create(kube::pods(), execution.job.meta.namespace_name, pod->json, true);
  if (answer) return std::nullopt;
  const ApiError& error = answer.error();
  const bool verdict =
      error.http_status == 400 || error.http_status == 403 || error.http_status == 422;
  // A full quota is no error of the template. It shows when the pods are made.
  const bool quota = error.message.find("exceeded quota") != std::string::npos;
  if (!verdict || kube::is_namespace_terminating(error)) return error;
  if (quota) return std::nullopt;
  check.accepted = false;
  check.reason = "InvalidTemplate";
  check.message = "workerGroups[" + input.group + "]: " + error.message;
  return std::nullopt;
}

Executor::Error Executor::carry_out(Execution& execution, const reconcile::DryRunPods& request) {
  reconcile::TemplateCheck check{request.hash, true, "", ""};
  int worker_index = 0;
  for (const api::WorkerGroup& group : execution.job.spec.worker_groups) {
    api::PodInput input;
    input.group = group.name;
    input.worker_index = worker_index;
    input.attempt = kDryRunAttempt;
    input.control_url = parts_.control_url();
    if (auto error = dry_run_group(execution, input, check)) return error;
    if (!check.accepted) break;
    worker_index += group.count * execution.job.spec.data_parallel;
  }
  execution.memory.template_check = std::move(check);
  execution.memory.template_checked = parts_.clock.now();
  execution.result.again = true;
  return std::nullopt;
}

Executor::Error Executor::carry_out(Execution& execution, const reconcile::ReadProfile&) {
  const api::ProfileSpec& profile = execution.job.spec.profile;
  reconcile::ProfileView view;
  const std::string where = "ConfigMap " + profile.config_map;
  const auto answer =
      parts_.client.get(kube::config_maps(), execution.job.meta.namespace_name, profile.config_map);
  if (!answer && answer.error().http_status != 404) return answer.error();
  if (!answer) {
    view.error = "model.profile.configMap: " + where + " does not exist";
  } else if (const auto map = api::decode_config_map(*answer); !map) {
    view.error = "model.profile.configMap: " + where + ": " + map.error().message;
  } else if (const auto text = map->data.find(profile.key); text == map->data.end()) {
    view.error = "model.profile.configMap: " + where + " has no key " + profile.key;
  } else {
    view.text = text->second;
  }
  execution.memory.profile = std::move(view);
  execution.memory.profile_read = parts_.clock.now();
  execution.result.again = true;
  return std::nullopt;
}

// The answer is only shown in status, so a failed request does not matter.
Executor::Error Executor::carry_out(Execution& execution,
                                    const reconcile::ReadPodWarning& request) {
  const auto answer =
      parts_.client.list(kube::events(), execution.job.meta.namespace_name,
                         "?fieldSelector=regarding.kind%3DPod,regarding.uid%3D" + request.uid);
  auto& warning = execution.memory.pod_warnings[request.uid];
  warning.asked = parts_.clock.system_now();
  warning.text.clear();
  if (answer) {
    if (auto text = api::newest_warning(*answer)) warning.text = *std::move(text);
  } else {
    log_debug("controller", "events of a pod cannot be read",
              {{"pod", request.pod}, {"error", answer.error().message}});
  }
  execution.result.again = true;
  return std::nullopt;
}

// The next pass begins when the cache has seen all pods that are listed here.
Executor::Error Executor::carry_out(Execution& execution, const reconcile::ConfirmPods&) {
  constexpr std::chrono::seconds kLookAgain{1};
  const SystemTime asked = parts_.clock.system_now();
  const auto answer =
      parts_.client.list(kube::pods(), execution.job.meta.namespace_name,
                         "?labelSelector=weir.dev%2Fjob-name%3D" + execution.job.meta.name);
  if (!answer) return answer.error();
  const auto page = api::decode_list(*answer);
  if (!page) return kube::transport_error(page.error());
  std::set<std::string> listed;  // uids
  for (const std::string& item : page->items) {
    const auto meta = api::decode_object_meta(item);
    if (!meta) return kube::transport_error(meta.error());
    parts_.cache.expect(execution.key, "Pod", meta->name, meta->resource_version);
    listed.insert(meta->uid);
  }
  const bool all_there = std::ranges::all_of(
      execution.view.pods, [&](const auto& pod) { return listed.contains(pod->meta.uid); });
  if (all_there) {
    execution.memory.pods_confirmed = asked;
    execution.result.again = true;
  } else {
    execution.result.requeue = kLookAgain;  // the cache has not yet seen that some were deleted
  }
  return std::nullopt;
}

}  // namespace weir::controller
