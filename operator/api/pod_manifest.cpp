// SPDX-License-Identifier: Apache-2.0
// The worker pod: what the user wrote (template > group > worker), then what the operator always
// sets.
#include <algorithm>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "operator/api/encode.h"
#include "operator/api/encode_parts.h"
#include "operator/api/json_write.h"
#include "operator/api/names.h"
#include "operator/api/resources.h"
#include "worker/base/digest.h"

namespace weir::api {
namespace {

using nlohmann::json;

constexpr auto kControlDir = "/var/run/weir";  // WEIR_CONTROL_DIR: token, ca.crt, url
constexpr auto kCheckpointVolume = "weir-checkpoint";
constexpr auto kRecoveryVolume = "weir-recovery";
constexpr auto kRecoveryDir = "/var/run/weir-recovery";   // WEIR_RECOVERY_PATH
constexpr int kMostLostSteps = 8, kLostAfterSeconds = 5;  // if the spec does not say
constexpr int kGraceWithoutCheckpoint = 30;               // seconds
constexpr int kGraceWithCheckpoint = 120;
constexpr int kTokenSeconds = 3600;      // worker/protocol/README.md "Control API"
constexpr std::size_t kHashLength = 16;  // CRD: status.templateHash maxLength 16

json parsed_or(const std::string& text, json otherwise) {
  if (text.empty()) return otherwise;
  json value = json::parse(text, nullptr, false);
  return value.is_discarded() ? otherwise : value;
}

// Merges two lists of objects by one key. An item of the second list replaces the item of the first
// with the same key, at its place.
void merge_by(json& into, const json& list, const char* key) {
  for (const json& item : list) {
    const auto same = std::find_if(into.begin(), into.end(), [&](const json& old) {
      return item.contains(key) && old.contains(key) && old[key] == item[key];
    });
    if (same == into.end()) {
      into.push_back(item);
    } else {
      *same = item;
    }
  }
}

void set_if_absent(json& object, const char* key, json value) {
  if (!object.contains(key)) object[key] = std::move(value);
}

int grace_seconds(const JobSpec& spec) {
  if (spec.checkpoint_path.empty()) return kGraceWithoutCheckpoint;
  return spec.checkpoint_grace_seconds.value_or(kGraceWithCheckpoint);
}

// How long a worker waits for the others: they may need that long to find nodes, to start, and to
// be replaced after several failures. The operator acts earlier; if it is gone, the worker ends by
// itself. "0" = no limit, if the job may wait without limit for nodes or in a queue.
std::string waiting_seconds(const PipelineJob& job, const PodInput& input) {
  constexpr std::int64_t kMostBackOff = 600;  // between restarts
  const JobSpec& spec = job.spec;
  if (spec.scheduling_timeout_seconds == 0 || spec.startup_timeout_seconds == 0 || input.queued)
    return "0";
  return std::to_string(std::int64_t{spec.scheduling_timeout_seconds} +
                        spec.startup_timeout_seconds + kMostBackOff);
}

// Steps between snapshots: the newest that all workers have lies less than twice as far back. 0 =
// none are taken, for example because no process would be started again beside them, and no
// neighbor would keep copies.
int snapshot_steps(const JobSpec& spec, const PodInput& input) {
  const bool copied = spec.neighbor_copies == NeighborCopies::kOn &&
                      spec.restart_scope == RestartScope::kWorker && input.workers > 1;
  if (input.final_exit_codes.empty() && !copied) return 0;
  return (spec.max_lost_steps.value_or(kMostLostSteps) + 1) / 2;
}

json our_env(const PipelineJob& job, const PodInput& input, const WorkerGroup& group) {
  const auto field = [](const char* path) { return json{{"fieldRef", {{"fieldPath", path}}}}; };
  json env = json::array();
  const auto text = [&env](const char* name, const std::string& value) {
    env.push_back({{"name", name}, {"value", value}});
  };
  text("WEIR_JOB_NAME", job.meta.name);
  text("WEIR_JOB_NAMESPACE", job.meta.namespace_name);
  text("WEIR_JOB_UID", job.meta.uid);
  text("WEIR_WORKER_GROUP", input.group);
  text("WEIR_WORKER_INDEX", std::to_string(input.worker_index));
  text("WEIR_WORKERS", std::to_string(input.workers));
  text("WEIR_RANKS", std::to_string(group.ranks_per_worker));
  text("WEIR_ATTEMPT", std::to_string(input.attempt));
  text("WEIR_COORDINATOR", input.coordinator);
  text("WEIR_CONTROL_URL", input.control_url);
  text("WEIR_CONTROL_DIR", kControlDir);
  text("WEIR_GRACE_SECONDS", std::to_string(grace_seconds(job.spec)));
  text("WEIR_STARTUP_TIMEOUT", waiting_seconds(job, input));
  text("WEIR_REJOIN_TIMEOUT", waiting_seconds(job, input));
  text("WEIR_PROGRESS_DEADLINE", std::to_string(job.spec.progress_deadline_seconds));
  const std::string& checkpoints = job.spec.checkpoint_path;
  if (!checkpoints.empty()) {
    // Several jobs may share a claim, so each has its own folder in it.
    const std::string own = job.spec.checkpoint_claim.empty() ? "" : "/" + job.meta.name;
    text("WEIR_CHECKPOINT_PATH", checkpoints + own);
  }
  if (const auto& steps = job.spec.checkpoint_interval_steps; steps) {
    text("WEIR_CHECKPOINT_INTERVAL", std::to_string(*steps));
  }
  text("WEIR_LOST_AFTER", std::to_string(job.spec.lost_after_seconds.value_or(kLostAfterSeconds)));
  if (const int steps = snapshot_steps(job.spec, input); steps > 0) {
    text("WEIR_RECOVERY_PATH", kRecoveryDir);
    text("WEIR_RECOVERY_EVERY", std::to_string(steps));
    const Choice<NeighborCopies>& copies = job.spec.neighbor_copies;
    if (copies != NeighborCopies::kAuto) text("WEIR_RECOVERY_COPIES", copies.text());
  }
  text("WEIR_TRANSPORT", job.spec.transport);
  if (const auto& connections = job.spec.connections_per_link) {
    text("WEIR_CONNECTIONS", std::to_string(*connections));
  }
  if (!job.spec.congestion_control.empty()) {
    text("WEIR_CONGESTION_CONTROL", job.spec.congestion_control);
  }
  if (job.spec.boundary_dscp) text("WEIR_DSCP_BOUNDARY", std::to_string(*job.spec.boundary_dscp));
  if (job.spec.bulk_dscp) text("WEIR_DSCP_BULK", std::to_string(*job.spec.bulk_dscp));
  text("WEIR_PROFILE_SOURCE", job.spec.profile.source.text());
  text("WEIR_PROFILE_ROUNDS", std::to_string(job.spec.profile.warmup_steps));
  for (const auto& [name, path] : std::initializer_list<std::pair<const char*, const char*>>{
           {"WEIR_NODE_NAME", "spec.nodeName"},
           {"WEIR_POD_NAME", "metadata.name"},
           {"WEIR_POD_UID", "metadata.uid"},
           {"WEIR_POD_IPS", "status.podIPs"}}) {
    env.push_back({{"name", name}, {"valueFrom", field(path)}});
  }
  return env;
}

// The kubelet restarts the trainer in its pod (KEP-5307). The pod's own policy stays Never, so the
// other ends end the pod and keep its log.
void add_restart_rule(const PodInput& input, json& trainer) {
  if (input.final_exit_codes.empty() || trainer.contains("restartPolicy")) return;
  trainer["restartPolicy"] = "Never";
  trainer["restartPolicyRules"] =
      json::array({{{"action", "Restart"},
                    {"exitCodes", {{"operator", "NotIn"}, {"values", input.final_exit_codes}}}}});
}

// Container trainer. Priority: template > group > worker > operator. Variables merge by name,
// mounts by path.
json trainer_of(const PipelineJob& job, const PodInput& input, const WorkerGroup& group,
                json trainer, std::vector<std::string>& conflicts) {
  const WorkerSpec& worker = job.spec.worker;
  trainer["name"] = "trainer";
  if (!worker.image.empty()) set_if_absent(trainer, "image", worker.image);
  if (!worker.image_pull_policy.empty()) {
    set_if_absent(trainer, "imagePullPolicy", worker.image_pull_policy);
  }
  if (!worker.command.empty()) set_if_absent(trainer, "command", worker.command);
  if (!worker.args.empty()) set_if_absent(trainer, "args", worker.args);
  if (!group.resources.empty()) {
    set_if_absent(trainer, "resources", parsed_or(group.resources, json::object()));
  }

  json env = our_env(job, input, group);
  json users = parsed_or(worker.env, json::array());
  merge_by(users, trainer.value("env", json::array()), "name");
  for (const json& mine : env) {
    for (const json& item : users) {
      if (item.is_object() && item.value("name", json()) == mine["name"]) {
        conflicts.push_back(mine["name"].get<std::string>());
      }
    }
  }
  if (const auto cpus = cpus_without_limit(group)) {
    merge_by(env, {{{"name", "WEIR_THREADS"}, {"value", std::to_string(*cpus)}}}, "name");
  }
  merge_by(env, users, "name");
  trainer["env"] = std::move(env);

  json mounts = json::array({{{"name", "weir-shm"}, {"mountPath", "/dev/shm"}}});
  if (!job.spec.checkpoint_claim.empty()) {
    mounts.push_back({{"name", kCheckpointVolume}, {"mountPath", job.spec.checkpoint_path}});
  }
  merge_by(mounts, parsed_or(worker.volume_mounts, json::array()), "mountPath");
  merge_by(mounts, trainer.value("volumeMounts", json::array()), "mountPath");
  merge_by(mounts, {{{"name", "weir-control"}, {"mountPath", kControlDir}, {"readOnly", true}}},
           "mountPath");
  if (snapshot_steps(job.spec, input) > 0) {
    merge_by(mounts, {{{"name", kRecoveryVolume}, {"mountPath", kRecoveryDir}}}, "mountPath");
  }
  trainer["volumeMounts"] = std::move(mounts);

  json ports = trainer.value("ports", json::array());
  for (const auto& [name, port] : kWorkerPorts) {
    merge_by(ports, {{{"name", name}, {"containerPort", port}, {"protocol", "TCP"}}}, "name");
  }
  trainer["ports"] = std::move(ports);
  set_if_absent(trainer, "readinessProbe",
                {{"httpGet", {{"path", "/metrics"}, {"port", 9400}}}, {"periodSeconds", 10}});
  trainer["terminationMessagePolicy"] = "FallbackToLogsOnError";
  add_restart_rule(input, trainer);
  return trainer;
}

// Whether the path is on a mounted volume other than the operator's control volume. Otherwise the
// checkpoint would lie in the container's own layer and be lost with the pod.
bool on_volume(const std::string& path, const json& mounts) {
  return std::ranges::any_of(mounts, [&](const json& mount) {
    std::string at = mount.is_object() ? mount.value("mountPath", "") : "";
    while (!at.empty() && at.back() == '/') at.pop_back();
    return !at.empty() && at != kControlDir && (path == at || path.starts_with(at + "/"));
  });
}

json our_volumes(const PipelineJob& job, const PodInput& input) {
  json volumes = {
      {{"name", "weir-shm"},
       {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", job.spec.shared_memory}}}},
      {{"name", "weir-control"},
       {"projected",
        {{"sources",
          {{{"serviceAccountToken",
             {{"audience", kAudience}, {"expirationSeconds", kTokenSeconds}, {"path", "token"}}}},
           {{"configMap",
             {{"name", control_config_map(job.meta.name)},
              {"items",
               {{{"key", "ca.crt"}, {"path", "ca.crt"}},
                {{"key", "url"}, {"path", "url"}}}}}}}}}}}}};
  if (!job.spec.checkpoint_claim.empty()) {
    volumes.push_back({{"name", kCheckpointVolume},
                       {"persistentVolumeClaim", {{"claimName", job.spec.checkpoint_claim}}}});
  }
  if (snapshot_steps(job.spec, input) > 0) {
    volumes.push_back({{"name", kRecoveryVolume}, {"emptyDir", {{"medium", "Memory"}}}});
  }
  return volumes;
}

// A new volume belongs to root, so fsGroup becomes the group of the image's user. A group in the
// template wins. With null in the template, fsGroup stays unset and admission may choose it.
void add_volume_group(const PipelineJob& job, json& spec) {
  constexpr int kImageUser = 65532;  // worker/Dockerfile
  if (job.spec.checkpoint_claim.empty()) return;
  json& context = spec["securityContext"];
  if (!context.is_object()) context = json::object();
  set_if_absent(context, "fsGroup", kImageUser);
  if (context["fsGroup"].is_null()) {
    context.erase("fsGroup");
  } else {
    set_if_absent(context, "fsGroupChangePolicy", "OnRootMismatch");
  }
  if (context.empty()) spec.erase("securityContext");
}

void add_group_and_worker(const PipelineJob& job, const PodInput& input, const WorkerGroup& group,
                          json& spec) {
  const WorkerSpec& worker = job.spec.worker;
  json selector = group.node_selector;
  selector.update(spec.value("nodeSelector", json::object()));
  if (!selector.empty()) spec["nodeSelector"] = std::move(selector);
  if (!group.tolerations.empty()) {
    set_if_absent(spec, "tolerations", parsed_or(group.tolerations, json::array()));
  }
  if (!worker.image_pull_secrets.empty()) {
    set_if_absent(spec, "imagePullSecrets", parsed_or(worker.image_pull_secrets, json::array()));
  }
  if (!worker.service_account.empty()) {
    set_if_absent(spec, "serviceAccountName", worker.service_account);
  }
  if (!worker.priority_class.empty()) {
    set_if_absent(spec, "priorityClassName", worker.priority_class);
  }
  if (!job.spec.scheduler_name.empty()) {
    set_if_absent(spec, "schedulerName", job.spec.scheduler_name);
  }
  if (job.spec.host_network) {
    set_if_absent(spec, "hostNetwork", true);
    set_if_absent(spec, "dnsPolicy", "ClusterFirstWithHostNet");
  }
  set_if_absent(spec, "terminationGracePeriodSeconds", grace_seconds(job.spec));
  json volumes = parsed_or(worker.volumes, json::array());
  merge_by(volumes, spec.value("volumes", json::array()), "name");
  merge_by(volumes, our_volumes(job, input), "name");
  spec["volumes"] = std::move(volumes);
}

json pod_metadata(const PipelineJob& job, const PodInput& input, const std::string& name,
                  const json& from_template) {
  json metadata = owned_metadata(job, name);
  json labels = from_template.value("labels", json::object());
  labels.update(metadata["labels"]);
  labels["app.kubernetes.io/component"] = input.worker_index == 0 ? "coordinator" : "worker";
  labels[kWorkerGroup] = input.group;
  labels[kWorkerIndex] = std::to_string(input.worker_index);
  labels[kAttempt] = std::to_string(input.attempt);
  for (const auto& [key, value] : input.labels) labels[key] = value;
  metadata["labels"] = std::move(labels);
  // An autoscaler that moves a worker to free a node would restart the whole pipeline.
  json annotations = {{"prometheus.io/scrape", "true"},
                      {"prometheus.io/port", "9400"},
                      {"cluster-autoscaler.kubernetes.io/safe-to-evict", "false"},
                      {"karpenter.sh/do-not-disrupt", "true"}};
  annotations.update(from_template.value("annotations", json::object()));
  annotations[kPodGeneration] = std::to_string(input.generation);
  annotations[kTemplateHash] = template_hash(job);
  for (const auto& [key, value] : input.annotations) annotations[key] = value;
  metadata["annotations"] = std::move(annotations);
  return metadata;
}

}  // namespace

Result<PodManifest> encode_pod(const PipelineJob& job, const PodInput& input) {
  const auto group = std::ranges::find(job.spec.worker_groups, input.group, &WorkerGroup::name);
  if (group == job.spec.worker_groups.end()) {
    return invalid("workerGroups: no group " + input.group);
  }
  WEIR_TRY(const json whole, checked_template(*group));

  PodManifest manifest;
  manifest.name = pod_name(job.meta.name, input.group, input.index_in_group, input.attempt);
  json spec = whole.value("spec", json::object());
  json containers = spec.value("containers", json::array());
  const auto trainer = std::find_if(containers.begin(), containers.end(), [](const json& item) {
    return item.value("name", json()) == "trainer";
  });
  if (trainer != containers.end()) {
    *trainer = trainer_of(job, input, *group, *trainer, manifest.env_conflicts);
  } else if (containers.empty()) {
    containers.push_back(trainer_of(job, input, *group, json::object(), manifest.env_conflicts));
  } else {
    return Error{Code::kNotFound, "workerGroups[" + group->name +
                                      "].template.spec.containers: none is named trainer"};
  }
  if (containers.size() == 1 && !containers[0].contains("image")) {
    return invalid("worker.image: missing, and the template of group " + group->name +
                   " sets none");
  }
  if (const std::string& path = job.spec.checkpoint_path; !path.empty()) {
    for (const json& each : containers) {
      if (each["name"] == "trainer")
        manifest.checkpoint_on_volume = on_volume(path, each["volumeMounts"]);
    }
  }
  spec["containers"] = std::move(containers);
  if (spec.contains("initContainers")) {
    // The job's status shows why an init container failed.
    for (json& container : spec["initContainers"])
      set_if_absent(container, "terminationMessagePolicy", "FallbackToLogsOnError");
  }
  add_group_and_worker(job, input, *group, spec);
  add_volume_group(job, spec);
  add_affinity(job, input, spec);
  if (!input.scheduler_name.empty()) spec["schedulerName"] = input.scheduler_name;
  for (const std::string& gate : input.gates) spec["schedulingGates"].push_back({{"name", gate}});
  spec["restartPolicy"] = "Never";
  spec["hostname"] = pod_name(job.meta.name, input.group, input.index_in_group, 0);
  spec["subdomain"] = job.meta.name;
  spec["automountServiceAccountToken"] = false;
  spec["enableServiceLinks"] = false;

  const json pod = {{"apiVersion", "v1"},
                    {"kind", "Pod"},
                    {"metadata", pod_metadata(job, input, manifest.name,
                                              whole.value("metadata", json::object()))},
                    {"spec", std::move(spec)}};
  manifest.json = dump_json(pod);
  return manifest;
}

std::string template_hash(const PipelineJob& job) {
  const JobSpec& spec = job.spec;
  const WorkerSpec& worker = spec.worker;
  json groups = json::array();
  for (const WorkerGroup& group : spec.worker_groups) {
    groups.push_back({group.name, group.ranks_per_worker, group.resources, group.template_json,
                      group.tolerations, group.node_selector});
  }
  json written = {worker.image,
                  worker.image_pull_policy,
                  worker.service_account,
                  worker.priority_class,
                  worker.command,
                  worker.args,
                  worker.image_pull_secrets,
                  worker.env,
                  worker.volumes,
                  worker.volume_mounts,
                  std::move(groups),
                  spec.scheduler_name,
                  spec.network_interface,
                  spec.host_network,
                  spec.transport,
                  spec.shared_memory,
                  spec.checkpoint_path,
                  spec.checkpoint_grace_seconds.value_or(0),
                  spec.checkpoint_claim,
                  spec.checkpoint_interval_steps.value_or(0),
                  spec.topology_keys};
  if (spec.max_lost_steps) written.push_back(*spec.max_lost_steps);
  if (spec.lost_after_seconds) {
    written.push_back("lost after " + std::to_string(*spec.lost_after_seconds));
  }
  if (spec.connections_per_link) {
    written.push_back("connections " + std::to_string(*spec.connections_per_link));
  }
  if (!spec.congestion_control.empty()) {
    written.push_back("congestion control " + spec.congestion_control);
  }
  if (spec.boundary_dscp) {
    written.push_back("dscp of boundaries " + std::to_string(*spec.boundary_dscp));
  }
  if (spec.bulk_dscp) written.push_back("dscp of bulk " + std::to_string(*spec.bulk_dscp));
  if (spec.neighbor_copies != NeighborCopies::kAuto) written.push_back(spec.neighbor_copies.text());
  return sha256_hex(dump_json(written)).substr(0, kHashLength);
}

}  // namespace weir::api
