// SPDX-License-Identifier: Apache-2.0
#include "operator/api/decode.h"

#include <gtest/gtest.h>

#include "worker/base/time_text.h"

namespace weir::api {
namespace decode_test {

constexpr auto kMinimal = R"({"metadata": {"name": "gpt", "namespace": "a", "uid": "u1",
  "resourceVersion": "7", "generation": 2, "creationTimestamp": "2026-01-02T03:04:05Z",
  "managedFields": [{"manager": 5}]},
  "spec": {"worker": {"image": "i:1", "args": ["--model=mlp"]},
           "workerGroups": [{"name": "b", "count": 2}, {"name": "a", "count": 1}],
           "batch": {"globalBatchSize": 64}}})";

TEST(DecodeJob, AppliesTheDefaultsOfTheCrd) {
  const auto job = decode_job(kMinimal);

  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->meta.generation, 2);
  EXPECT_EQ(to_rfc3339(job->meta.created), "2026-01-02T03:04:05Z");
  EXPECT_EQ(job->spec.schedule.type, "KFKB");
  EXPECT_EQ(job->spec.adaptation.retune.cooldown_seconds, 60);
  EXPECT_EQ(job->spec.adaptation.regroup.min_gain_percent, 10);
  EXPECT_FALSE(job->spec.adaptation.replace.enabled);
  EXPECT_EQ(job->spec.shared_memory, "1Gi");
  EXPECT_FALSE(job->spec.micro_batch_size.has_value());
}

TEST(DecodeJob, SortsGroupsByName) {
  const auto job = decode_job(kMinimal);

  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->spec.worker_groups[0].name, "a");
  EXPECT_EQ(job->spec.worker_groups[1].count, 2);
}

TEST(DecodeJob, NamesTheFieldOfAWrongType) {
  const struct {
    const char *json, *message;
  } cases[] = {
      {R"({"spec": {"batch": {"globalBatchSize": "x"}}})",
       "PipelineJob: spec.batch.globalBatchSize: not a 64-bit integer"},
      {R"({"spec": {"batch": {"globalBatchSize": 4294967296}}})",
       "PipelineJob: spec.batch.globalBatchSize: not a 32-bit integer"},
      {R"({"spec": {"workerGroups": [{"count": 1}, {"name": 3}]}})",
       "PipelineJob: spec.workerGroups[1].name: not a string"},
      {R"({"spec": {"workerGroups": {}}})", "PipelineJob: spec.workerGroups: not a list"},
      {R"({"spec": 4})", "PipelineJob: spec: not an object"},
      {R"({"metadata": {"creationTimestamp": "yesterday"}})",
       "PipelineJob: metadata.creationTimestamp: not a time (RFC 3339)"},
      {R"({"metadata": {"generation": 9223372036854775808}})",
       "PipelineJob: metadata.generation: not a 64-bit integer"},
      {R"({"metadata": {"labels": ["a"]}})", "PipelineJob: metadata.labels: not an object"},
      {R"({"metadata": {"labels": {"a": 1}}})", "PipelineJob: metadata.labels.a: not a string"},
      {R"({"spec": {"suspend": "true"}})", "PipelineJob: spec.suspend: not true or false"},
      {R"({"spec": {"worker": {"args": [1]}}})", "PipelineJob: spec.worker.args[0]: not a string"},
      {R"({"spec": {"schedule": {"inFlightCaps": [4, "x"]}}})",
       "PipelineJob: spec.schedule.inFlightCaps[1]: not a 64-bit integer"},
      {"{", "PipelineJob: not JSON"},
      {"[]", "PipelineJob: not a JSON object"},
  };
  for (const auto& c : cases) {
    const auto job = decode_job(c.json);
    ASSERT_FALSE(job.ok()) << c.json;
    EXPECT_EQ(job.error().code, Code::kInvalid);
    EXPECT_EQ(job.error().message, c.message);
  }
}

TEST(DecodeJob, ReadsWhatTheUserSetInsteadOfDefaults) {
  const auto job = decode_job(R"({"spec": {
    "workerGroups": [{"name": "a", "stageRange": {"first": 1, "last": 2},
                      "nodeSelector": {"zone": "z"}, "tolerations": [{"operator": "Exists"}]}],
    "placement": {"mode": "Pinned", "topologyKeys": ["zone", "rack"]},
    "network": {"sharedMemory": 1048576},
    "failurePolicy": {"maxRestarts": 2, "rules": [
      {"name": "r", "action": "Restart", "onExitCodes": [1, 42],
       "onPodConditions": ["DisruptionTarget"]}]},
    "activeDeadlineSeconds": 86400}})");

  ASSERT_TRUE(job.ok()) << job.error().message;
  const WorkerGroup& group = job->spec.worker_groups[0];
  ASSERT_TRUE(group.stage_range.has_value());
  EXPECT_EQ(group.stage_range->first, 1);
  EXPECT_EQ(group.stage_range->last, 2);
  EXPECT_EQ(group.node_selector.at("zone"), "z");
  EXPECT_EQ(group.tolerations, R"([{"operator":"Exists"}])");
  EXPECT_EQ(job->spec.topology_keys, (std::vector<std::string>{"zone", "rack"}));
  EXPECT_EQ(job->spec.shared_memory, "1048576") << "a quantity may be a number";
  ASSERT_EQ(job->spec.failure_rules.size(), 1U);
  EXPECT_EQ(job->spec.failure_rules[0].exit_codes, (std::vector<int>{1, 42}));
  EXPECT_EQ(job->spec.failure_rules[0].pod_conditions[0], "DisruptionTarget");
  EXPECT_EQ(job->spec.active_deadline_seconds, 86400);
}

TEST(DecodeJob, RefusesDeepNesting) {
  const std::string deep = R"({"spec": )" + std::string(500, '[') + std::string(500, ']') + "}";

  const auto job = decode_job(deep);

  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.error().message, "PipelineJob: nested deeper than 64");
}

TEST(DecodeJob, LeavesConditionsOfOthersAlone) {
  const auto job = decode_job(R"({"status": {"conditions": [
    {"type": "Ready", "status": "True", "reason": "Running", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    {"type": "example.com/Billed", "status": "True"}]}})");

  ASSERT_TRUE(job.ok());
  ASSERT_EQ(job->status.conditions.size(), 1U);
  EXPECT_EQ(job->status.conditions[0].type, "Ready");
}

TEST(DecodePod, ReadsTheTrainerOnly) {
  const auto pod = decode_pod(R"({"metadata": {"name": "p", "ownerReferences":
      [{"uid": "other"}, {"uid": "u1", "controller": true}]},
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Failed", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
      "conditions": [{"type": "Ready", "status": "False"}],
      "containerStatuses": [
        {"name": "sidecar", "state": {"terminated": {"exitCode": 9}}},
        {"name": "trainer", "state": {"terminated": {"exitCode": 81, "reason": "OOMKilled",
         "message": "no memory", "finishedAt": "2026-01-01T00:00:00Z"}}}]}})");

  ASSERT_TRUE(pod.ok());
  EXPECT_EQ(pod->meta.owner_uid, "u1");
  EXPECT_EQ(pod->exit_code, 81);
  EXPECT_EQ(pod->termination_reason, "OOMKilled");
  EXPECT_EQ(pod->ips.size(), 2U);
  EXPECT_FALSE(pod->ready);
  EXPECT_TRUE(pod->started);
}

TEST(DecodePod, ReadsHowOftenTheKubeletHasStartedTheTrainerAgain) {
  const auto pod = decode_pod(R"({"spec": {"containers": [
      {"name": "sidecar", "restartPolicyRules": [
        {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [5]}}]},
      {"name": "trainer", "restartPolicy": "Never", "restartPolicyRules": [
        {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0, 2, 143]}}]}]},
    "status": {"phase": "Running", "containerStatuses": [
      {"name": "sidecar", "restartCount": 9},
      {"name": "trainer", "restartCount": 2, "state": {"running": {}}, "lastState": {"terminated":
        {"exitCode": 137, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}}}]}})");

  ASSERT_TRUE(pod.ok()) << pod.error().message;
  EXPECT_EQ(pod->final_exit_codes, (std::vector<int>{0, 2, 143}));
  EXPECT_EQ(pod->container_restarts, 2);
  EXPECT_FALSE(pod->exit_code);
  ASSERT_TRUE(pod->last_end);
  EXPECT_EQ(pod->last_end->exit_code, 137);
  EXPECT_EQ(to_rfc3339(pod->last_end->time.value()), "2026-01-01T00:00:00Z");
}

TEST(DecodePod, KeepsOnePlainLineOfWhatTheTrainerLeft) {
  const auto pod = decode_pod(R"({"status": {"containerStatuses": [{"name": "trainer",
    "state": {"terminated": {"exitCode": 83, "message":
      "{\"level\":\"error\",\"msg\":\"cannot be read\",\"reason\":\"damaged\"}\n"}}}]}})");

  ASSERT_TRUE(pod.ok());
  EXPECT_EQ(pod->termination_message, "cannot be read: damaged");
}

TEST(DecodePod, TellsOfInitContainers) {
  const auto failed = decode_pod(R"({"status": {"phase": "Failed",
    "initContainerStatuses": [
      {"name": "first", "state": {"terminated": {"exitCode": 0}}},
      {"name": "fetch", "state": {"terminated": {"exitCode": 3, "reason": "Error",
        "message": "no such bucket\n", "finishedAt": "2026-01-01T00:00:00Z"}}},
      {"name": "proxy", "state": {"terminated": {"exitCode": 143}}}],
    "containerStatuses": [{"name": "trainer",
      "state": {"waiting": {"reason": "PodInitializing"}}}]}})");
  ASSERT_TRUE(failed.ok());
  ASSERT_TRUE(failed->failed_init.has_value());
  EXPECT_EQ(failed->failed_init->container, "fetch");
  EXPECT_EQ(failed->failed_init->exit_code, 3);
  EXPECT_EQ(failed->failed_init->message, "no such bucket");
  EXPECT_TRUE(failed->failed_init->time.has_value());
  EXPECT_TRUE(failed->containers_seen);
  EXPECT_FALSE(failed->exit_code.has_value());

  const auto waits = decode_pod(R"({"status": {"initContainerStatuses": [
      {"name": "fetch", "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}],
    "containerStatuses": [{"name": "trainer",
      "state": {"waiting": {"reason": "PodInitializing"}}}]}})");
  ASSERT_TRUE(waits.ok());
  EXPECT_EQ(waits->waiting_reason, "ErrImagePull");
  EXPECT_EQ(waits->waiting_message, "init container fetch: not found");
}

TEST(DecodePod, TakesAPodWithoutStatusForPending) {
  const auto pod = decode_pod(R"({"metadata": {"name": "p"}})");

  ASSERT_TRUE(pod.ok());
  EXPECT_EQ(pod->phase, "Pending");
  EXPECT_FALSE(pod->exit_code.has_value());
}

TEST(DecodePod, SaysWhyTheTrainerWaitsAndWhichGatesHoldIt) {
  const auto pod = decode_pod(R"({"spec": {"schedulingGates": [{"name": "weir.dev/plan"}]},
    "status": {"containerStatuses": [{"name": "trainer",
      "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]}})");

  ASSERT_TRUE(pod.ok());
  EXPECT_EQ(pod->waiting_reason, "ErrImagePull");
  EXPECT_EQ(pod->waiting_message, "no such image");
  EXPECT_FALSE(pod->started);
  EXPECT_EQ(pod->gates, std::vector<std::string>{"weir.dev/plan"});
}

std::string event_at(const char* time, const char* type, const char* note) {
  return std::string(R"({"type": ")") + type + R"(", "reason": "R", "note": ")" + note +
         R"(", "deprecatedLastTimestamp": ")" + time + "\"}";
}

std::string warning_of(const std::string& events) {
  const auto warning = newest_warning(R"({"metadata": {}, "items": [)" + events + "]}");
  EXPECT_TRUE(warning.ok()) << warning.error().message;
  return warning.ok() ? *warning : "";
}

TEST(NewestWarning, IsTheNewestEventIfThatWarns) {
  const std::string failed = event_at("2026-01-01T00:00:05Z", "Warning", "no such map");
  const std::string scheduled =
      R"({"type": "Normal", "reason": "Scheduled", "eventTime": "2026-01-01T00:00:05.900000Z"})";
  const std::string pulling = event_at("2026-01-01T00:00:06Z", "Normal", "Pulling image");

  EXPECT_EQ(warning_of(""), "");
  EXPECT_EQ(warning_of(failed), "R: no such map");
  EXPECT_EQ(warning_of(failed + "," + scheduled), "R: no such map") << "of the same second";
  EXPECT_EQ(warning_of(pulling + "," + failed), "") << "it is over";
}

TEST(DecodeNode, ReadsTaintsAndSinceWhenItIsNotReady) {
  const auto node = decode_node(R"({"metadata": {"name": "n1"},
    "spec": {"unschedulable": true, "taints": [{"key": "gpu", "value": "a", "effect": "NoSchedule"}]},
    "status": {"nodeInfo": {"kubeletVersion": "v1.35.4-eks-1"},
      "allocatable": {"cpu": "7800m"}, "conditions": [
      {"type": "DiskPressure", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"},
      {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-02T00:00:00Z"}]}})");

  ASSERT_TRUE(node.ok()) << node.error().message;
  EXPECT_FALSE(node->schedulable);
  ASSERT_EQ(node->taints.size(), 1U);
  EXPECT_EQ(node->taints[0].effect, "NoSchedule");
  EXPECT_EQ(node->allocatable.at("cpu"), "7800m");
  EXPECT_EQ(node->kubelet_minor, 35);
  EXPECT_EQ(decode_node(R"({"status": {"nodeInfo": {"kubeletVersion": "fake"}}})")->kubelet_minor,
            0);
  EXPECT_FALSE(node->ready);
  ASSERT_TRUE(node->not_ready_since.has_value());
  EXPECT_EQ(to_rfc3339(*node->not_ready_since), "2026-01-02T00:00:00Z");
}

TEST(DecodeConfigMap, GivesItsDataAndRefusesOtherTypesInIt) {
  const auto map = decode_config_map(R"({"metadata": {"name": "m"}, "data": {"url": "u"}})");
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->data.at("url"), "u");
  EXPECT_EQ(decode_config_map(R"({"data": {"url": 1}})").error().message,
            "ConfigMap: data.url: not a string");
}

TEST(DecodeMeta, IsTheSameForServicesAndAnyOtherObject) {
  constexpr auto kText = R"({"metadata": {"name": "s", "deletionTimestamp": "2026-01-01T00:00:00Z",
    "ownerReferences": [{"uid": "u1", "controller": true}]}})";
  const auto service = decode_service(kText);
  const auto any = decode_object_meta(kText);

  ASSERT_TRUE(service.ok() && any.ok());
  EXPECT_EQ(service->meta.owner_uid, "u1");
  EXPECT_EQ(any->owner_uid, "u1");
  EXPECT_TRUE(any->deleting.has_value());
  EXPECT_EQ(decode_object_meta("7").error().message, "object: not a JSON object");
}

TEST(DecodeList, GivesItemsAsTextWithoutManagedFields) {
  const auto page = decode_list(R"({"metadata": {"resourceVersion": "12", "continue": "c"},
    "items": [{"metadata": {"name": "x", "managedFields": [1, 2]}}]})");

  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->resource_version, "12");
  EXPECT_EQ(page->continue_token, "c");
  ASSERT_EQ(page->items.size(), 1U);
  EXPECT_EQ(page->items[0], R"({"metadata": {"name": "x", "managedFields": null}})");
}

TEST(DecodeWatchEvent, RefusesAnIncompleteLine) {
  const std::string line =
      R"({"type":"ADDED","object":{"metadata":{"name":"p","resourceVersion":"7"}}})";
  ASSERT_TRUE(decode_watch_event(line).ok());
  EXPECT_EQ(decode_watch_event(line)->object, R"({"metadata":{"name":"p","resourceVersion":"7"}})");
  for (std::size_t size = 0; size < line.size(); ++size)
    EXPECT_FALSE(decode_watch_event(line.substr(0, size)).ok()) << size;
  EXPECT_FALSE(decode_watch_event(line + "}").ok());
}

// Nobody may take half of a pod for a whole one.
TEST(DecodePod, RefusesAnIncompleteObject) {
  const std::string text =
      R"({"metadata":{"name":"p"},"spec":{"nodeName":"n","x":[1]},"status":{}})";
  ASSERT_TRUE(decode_pod(text).ok());
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(decode_pod(text.substr(0, size)).ok()) << size;
}

TEST(DecodeWatchEvent, CarriesTheVersionOfBookmarksAndTheCodeOfErrors) {
  const auto bookmark = decode_watch_event(
      R"({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}})");
  const auto error = decode_watch_event(
      R"({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}})");

  ASSERT_TRUE(bookmark.ok() && error.ok());
  EXPECT_EQ(bookmark->resource_version, "99");
  EXPECT_EQ(bookmark->object, "");
  EXPECT_EQ(error->error_code, 410);
  EXPECT_EQ(error->error_reason, "Expired");
  EXPECT_EQ(error->error_message, "too old");
}

TEST(DecodeWatchEvent, CarriesTheObjectOfAChange) {
  const auto added = decode_watch_event(
      R"({"type": "ADDED", "object": {"metadata": {"name": "p", "resourceVersion": "3"}}})");

  ASSERT_TRUE(added.ok());
  EXPECT_EQ(added->type, "ADDED");
  EXPECT_EQ(added->resource_version, "3");
  EXPECT_EQ(added->object, R"({"metadata": {"name": "p", "resourceVersion": "3"}})")
      << "as it came";
}

}  // namespace decode_test
}  // namespace weir::api
