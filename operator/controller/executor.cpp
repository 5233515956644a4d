// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/executor.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "operator/api/decode.h"
#include "operator/api/encode.h"
#include "operator/api/names.h"
#include "operator/controller/execution.h"
#include "operator/controller/pass_log.h"
#include "operator/controller/reconcile/pass/refusals.h"
#include "operator/kube/status_error.h"
#include "worker/base/log.h"
#include "worker/base/parallel.h"
#include "worker/base/text.h"
#include "worker/protocol/codec.h"

namespace weir::controller {
namespace {

using kube::ApiError;

constexpr std::size_t kLargestBatch = 64;  // of CreatePods
constexpr int kParallel = 8;
constexpr std::size_t kMostPlan = 1'048'576;  // bytes; limit of a ConfigMap's data

// True if the object of this name has another uid than the body, so ours does not exist any more.
bool is_another_of_that_name(const ApiError& error) {
  return std::ranges::any_of(
      error.causes, [](const std::string& cause) { return cause.starts_with("metadata.uid"); });
}

// True if the server has understood and refused the request, so that an immediate repetition would
// fail, too. Conflicts, missing objects, and a server that is slow, busy or absent do not count.
bool is_refusal(const reconcile::Request& request, const ApiError& error) {
  switch (error.code) {
    case Code::kForbidden:
    case Code::kInvalid:
      return true;
    case Code::kNotFound:  // an object to be changed may be deleted, which the cache will show
      return std::holds_alternative<reconcile::CreatePods>(request) ||
             std::holds_alternative<reconcile::CreateService>(request) ||
             std::holds_alternative<reconcile::CreatePlan>(request) ||
             std::holds_alternative<reconcile::ApplyControlConfigMap>(request);
    case Code::kInternal:
      return error.http_status != 0 && error.message.find("webhook") != std::string::npos;
    default:
      return false;
  }
}

}  // namespace

Executed Executor::run(const cache::JobView& view, JobMemory& memory,
                       const reconcile::Outcome& outcome) {
  const api::PipelineJob& job = *view.job;
  Execution execution{view, job, cache::job_key(job.meta.namespace_name, job.meta.name), memory, {},
                      {},   {}};
  using reconcile::Answer;
  const auto ask = [&](const reconcile::Request& request) -> Answer {
    auto error = std::visit([&](const auto& each) { return carry_out(execution, each); }, request);
    if (!error) return {};
    if (kube::is_namespace_terminating(*error)) {
      execution.result.hopeless = true;
      return {Answer::Kind::kEnds, ""};
    }
    if (is_another_of_that_name(*error)) {
      error->http_status = 409;
      error->code = Code::kConflict;
    }
    const std::string subject = reconcile::subject_of(request);
    if (is_refusal(request, *error)) {
      log_warn("controller", "request refused",
               {{"job", execution.key},
                {"subject", subject},
                {"status", error->http_status},
                {"error", error->message}});
      return {Answer::Kind::kRefused, error->message};
    }
    execution.result.failed = subject;
    execution.result.error = std::move(error);
    return {Answer::Kind::kEnds, ""};
  };
  const reconcile::Hands hands = {
      .ask = ask,
      .emit = [&](const api::Event& event) { parts_.events.emit(view.job, event); },
      .keep = [&](const reconcile::AdaptationState& state) { memory.adaptation = state; }};
  const auto carried =
      reconcile::carry_out(outcome, job, parts_.clock.system_now(), memory.refused, hands);
  Executed& result = execution.result;
  result.refused = carried.refused;
  if (!carried.ended) {
    result.again = result.again || carried.news;
    if (outcome.requeue)
      result.requeue = std::min(result.requeue.value_or(*outcome.requeue), *outcome.requeue);
  }
  if (carried.refused) {
    result.requeue = std::min<std::chrono::milliseconds>(
        result.requeue.value_or(reconcile::kAskedAgain), reconcile::kAskedAgain);
  }
  return std::move(result);
}

void Executor::remember(Execution& execution, const char* kind, const std::string& answer) {
  if (const auto meta = api::decode_object_meta(answer)) {
    parts_.cache.expect(execution.key, kind, meta->name, meta->resource_version);
  }
}

Executor::Error Executor::carry_out(Execution& execution, const reconcile::PatchStatus& request) {
  const auto answer = parts_.client.apply(
      kube::pipeline_jobs(), execution.job.meta.namespace_name, execution.job.meta.name, "status",
      kOwner, api::encode_status(execution.job, request.status, request.guarded));
  if (!answer) return answer.error();
  remember(execution, "PipelineJob", *answer);
  execution.memory.status_written = parts_.clock.system_now();
  log_conditions(execution.job, request.status);
  return std::nullopt;
}

Executor::Error Executor::carry_out(Execution& execution, const reconcile::PatchReport& request) {
  const auto answer = parts_.client.apply(kube::pipeline_jobs(), execution.job.meta.namespace_name,
                                          execution.job.meta.name, "status", api::kReportOwner,
                                          api::encode_report_status(execution.job, request.status));
  if (!answer) return answer.error();
  remember(execution, "PipelineJob", *answer);
  return std::nullopt;
}

Executor::Error Executor::accept_if_ours(Execution& execution, const kube::Resource& resource,
                                         const std::string& name, std::string& foreign_owner) {
  const auto answer = parts_.client.get(resource, execution.job.meta.namespace_name, name);
  if (!answer) return answer.error();
  const auto meta = api::decode_object_meta(*answer);
  if (!meta) return kube::transport_error(meta.error());
  if (meta->owner_uid == execution.job.meta.uid) return std::nullopt;
  const auto of = meta->labels.find(api::kJobName);
  if (!meta->owner_uid.empty() && of != meta->labels.end() &&
      of->second == execution.job.meta.name) {
    return ApiError{
        409, Code::kConflict, "AlreadyExists", name + " is left of an earlier job of this name", {},
        {}};
  }
  foreign_owner = meta->owner_uid.empty() ? "nobody" : meta->owner_uid;
  return std::nullopt;
}

Executor::Error Executor::carry_out(Execution& execution, const reconcile::CreateService&) {
  const auto answer = parts_.client.create(kube::services(), execution.job.meta.namespace_name,
                                           api::encode_service(execution.job));
  if (answer) {
    remember(execution, "Service", *answer);
    return std::nullopt;
  }
  if (answer.error().reason != "AlreadyExists") return answer.error();
  std::string foreign;
  auto error = accept_if_ours(execution, kube::services(), execution.job.meta.name, foreign);
  if (error || foreign.empty()) return error;
  execution.memory.foreign_service_owner = foreign;
  execution.memory.foreign_seen = parts_.clock.now();
  execution.result.again = true;
  return std::nullopt;
}

Executor::Error Executor::carry_out(Execution& execution, const reconcile::ApplyControlConfigMap&) {
  const std::string& ns = execution.job.meta.namespace_name;
  const std::string name = api::control_config_map(execution.job.meta.name);
  const std::string body =
      api::encode_control_config_map(execution.job, parts_.control_url(), parts_.ca_bundle());
  const bool known = std::ranges::any_of(execution.view.config_maps, [&](const auto& map) {
    return map->meta.name == name && map->meta.owner_uid == execution.job.meta.uid;
  });
  auto answer = known ? parts_.client.apply(kube::config_maps(), ns, name, "", kOwner, body)
                      : parts_.client.create(kube::config_maps(), ns, body);
  if (!answer && answer.error().reason == "AlreadyExists") {
    std::string foreign;
    if (auto error = accept_if_ours(execution, kube::config_maps(), name, foreign)) return error;
    if (!foreign.empty()) {
      execution.memory.template_check = reconcile::TemplateCheck{
          api::template_hash(execution.job), false, "NameConflict",
          "ConfigMap " + name +
              " exists and does not belong to this job; delete it or rename the job"};
      execution.memory.template_checked = parts_.clock.now();
      execution.result.again = true;
      return std::nullopt;
    }
    answer = parts_.client.apply(kube::config_maps(), ns, name, "", kOwner, body);
  }
  if (!answer) return answer.error();
  remember(execution, "ConfigMap", *answer);
  return std::nullopt;
}

Executor::Error Executor::create_pod(Execution& execution, const api::PodInput& input) {
  if (!parts_.may_write()) return kube::transport_error({Code::kCancelled, "lease too old"});
  const auto pod = api::encode_pod(execution.job, input);
  if (!pod) return kube::transport_error(pod.error());
  if (!pod->env_conflicts.empty()) {
    const std::lock_guard lock(execution.mutex);
    execution.conflicts = pod->env_conflicts;
  }
  const auto answer =
      parts_.client.create(kube::pods(), execution.job.meta.namespace_name, pod->json);
  if (answer) {
    remember(execution, "Pod", *answer);
    return std::nullopt;
  }
  if (answer.error().reason != "AlreadyExists") return answer.error();
  std::string foreign;
  if (auto error = accept_if_ours(execution, kube::pods(), pod->name, foreign)) return error;
  if (foreign.empty()) return std::nullopt;
  const std::lock_guard lock(execution.mutex);
  execution.memory.taken_pod_names.insert(pod->name);  // the next pass uses another name
  execution.result.again = true;
  return std::nullopt;
}

// Pods are made in batches of 1, 2, 4, ... so that a refusal costs one request, not thousands.
Executor::Error Executor::carry_out(Execution& execution, const reconcile::CreatePods& request) {
  std::size_t batch = 1;
  for (std::size_t done = 0; done < request.pods.size();
       batch = std::min(2 * batch, kLargestBatch)) {
    const std::size_t count = std::min(batch, request.pods.size() - done);
    std::vector<Error> errors(count);
    for_each_index(count, kParallel, [&](std::size_t i) {
      errors[i] = create_pod(execution, request.pods[done + i]);
    });
    for (Error& error : errors) {
      if (error) return std::move(error);
    }
    done += count;
  }
  log_new_pods(execution.job, request.pods.size());
  std::string names;
  for (const std::string& name : execution.conflicts) names += (names.empty() ? "" : ", ") + name;
  if (!names.empty() && names != execution.memory.env_conflicts_reported) {
    execution.memory.env_conflicts_reported = names;
    parts_.events.emit(execution.view.job,
                       {"Warning", "EnvConflict",
                        "the job sets variables that the operator sets, too; the job's values are "
                        "used: " +
                            names,
                        "CreatePods"});
  }
  return std::nullopt;
}

Executor::Error Executor::carry_out(Execution& execution, const reconcile::DeletePod& request) {
  if (!parts_.may_write()) return kube::transport_error({Code::kCancelled, "lease too old"});
  log_deletion(execution.job, request.name, request.why);
  const auto answer = parts_.client.remove(kube::pods(), execution.job.meta.namespace_name,
                                           request.name, request.uid);
  // 409: the name belongs to another uid now, so our pod does not exist any more.
  if (answer || answer.error().http_status == 409) return std::nullopt;
  return answer.error();
}

Executor::Error Executor::carry_out(Execution& execution, const reconcile::CreatePlan& request) {
  const std::string text = protocol::encode_plan(request.plan);
  if (text.size() > kMostPlan) {
    return kube::transport_error(
        {Code::kInvalid, "it has " + std::to_string(text.size()) + " bytes for " +
                             std::to_string(request.plan.ranks.size()) +
                             " ranks, and a ConfigMap takes " + std::to_string(kMostPlan) +
                             "; use fewer workers or shorter names"});
  }
  const auto answer =
      parts_.client.create(kube::config_maps(), execution.job.meta.namespace_name,
                           api::encode_plan_config_map(execution.job, request.plan.revision, text));
  if (!answer) return answer.error();  // 409: the cache is behind; the existing plan is not adopted
  remember(execution, "ConfigMap", *answer);
  log_new_plan(execution.job, request.plan);
  return std::nullopt;
}

Executor::Error Executor::carry_out(Execution& execution, const reconcile::DeletePlan& request) {
  const std::string name = api::plan_config_map(execution.job.meta.name, request.revision);
  const auto& maps = execution.view.config_maps;
  const auto map =
      std::ranges::find_if(maps, [&](const auto& each) { return each->meta.name == name; });
  if (map == maps.end()) return std::nullopt;
  const auto answer = parts_.client.remove(kube::config_maps(), execution.job.meta.namespace_name,
                                           name, (*map)->meta.uid);
  if (answer || answer.error().http_status == 409) return std::nullopt;
  return answer.error();
}

Executor::Error Executor::carry_out(Execution& execution, const reconcile::DeleteJob&) {
  const auto answer = parts_.client.remove(kube::pipeline_jobs(), execution.job.meta.namespace_name,
                                           execution.job.meta.name, execution.job.meta.uid);
  if (answer || answer.error().http_status == 409) return std::nullopt;
  return answer.error();
}

}  // namespace weir::controller
