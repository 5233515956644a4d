// SPDX-License-Identifier: Apache-2.0
// The bytes of what the operator writes into the API server: a pod with all that a job can ask for,
// status, events, objects. The pod of a plain job: tests/operator/api/pod.golden.json.
#include <string>

#include <gtest/gtest.h>

#include "operator/api/decode.h"
#include "operator/api/encode.h"
#include "operator/gang/provider.h"
#include "tests/recorded/recording.h"

namespace weir::recorded {
namespace objects_test {

using namespace std::chrono_literals;  // NOLINT: tests

constexpr auto kJob = R"({"metadata": {"name": "gpt", "namespace": "team-a", "uid": "u-1",
    "resourceVersion": "41", "generation": 3, "labels": {"kueue.x-k8s.io/queue-name": "q"}},
  "spec": {"parallelism": {"dataParallel": 2}, "worker": {"image": "weir-worker:1",
      "imagePullPolicy": "Always", "command": ["/train"], "args": ["--model=mlp"],
      "serviceAccountName": "sa", "priorityClassName": "high",
      "imagePullSecrets": [{"name": "pull"}],
      "env": [{"name": "A", "value": "1"}, {"name": "WEIR_TRANSPORT", "value": "TCP"}],
      "volumes": [{"name": "data", "emptyDir": {}}],
      "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    "workerGroups": [{"name": "gpu", "count": 4, "ranksPerWorker": 2,
      "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "500m"}},
      "nodeSelector": {"zone": "z1"}, "tolerations": [{"operator": "Exists"}],
      "template": {"metadata": {"annotations": {"x": "y"}},
        "spec": {"initContainers": [{"name": "fetch", "image": "i"}],
          "containers": [{"name": "side", "image": "s:1"},
            {"name": "trainer", "env": [{"name": "B", "value": "2"}]}]}}}],
    "batch": {"globalBatchSize": 64}, "scheduling": {"schedulerName": "mine", "gang": {"queue": "research"}},
    "placement": {"topologyKeys": ["zone", "rack"]}, "network": {"hostNetwork": true},
    "checkpoint": {"path": "/ckpt", "persistentVolumeClaim": {"claimName": "store"},
      "intervalSteps": 50, "graceSeconds": 90}}})";

api::PipelineJob job() {
  const auto decoded = api::decode_job(kJob);
  EXPECT_TRUE(decoded.ok()) << decoded.error().message;
  return *decoded;
}

api::Time at(int seconds) {
  return api::Time{1'700'000'000s + std::chrono::seconds(seconds) + 250ms};
}

api::JobStatus status() {
  api::JobStatus status;
  status.observed_generation = 3;
  status.conditions = {{"Ready", "True", "Running", "step 4 of 100", 3, at(1)},
                       {"Degraded", "False", "AsExpected", "", 2, at(2)}};
  status.start_time = at(3);
  status.completion_time = at(4);
  status.last_restart_time = at(5);
  status.data_parallel = 2;
  status.selector = "weir.dev/job-name=gpt";
  status.workers_summary = "3/4";
  status.template_hash = "0123456789abcdef";
  status.gang_provider = "Volcano";
  status.suspended_seconds = 30;
  status.restarts = 2;
  status.restart_budget_used = 1;
  status.restart_streak = 1;
  status.pod_generation = 3;
  status.resumed_generation = 2;
  status.last_restart_reason = "OutOfMemory";
  status.last_restart_scope = "Worker";
  status.restart_reasons = {{"Crashed", 1}, {"OutOfMemory", 1}};
  status.avoided_nodes = {{"n3", "exit code 82", at(6)}};
  status.memory_limits = {{"gpu", 1, 3, true}};
  status.recovery = {.lost_steps = 45,
                     .last = api::Recovery{.source = "Checkpoint",
                                           .reason = "no worker holds layers 4..7",
                                           .pause_seconds = "1.25",
                                           .step = 1800,
                                           .lost_steps = 41,
                                           .time = at(8)},
                     .incarnation = 3,
                     .container_restarts = {{"u-7", 2}},
                     .losses = {{"gpt-gpu-3", 1840}},
                     .recoverable_until = at(8),
                     .last_container_end = at(9)};
  status.scheduling_timeouts = 2;
  status.scheduling_retry = at(7);
  status.worker_groups = {{"gpu", "no node is free", 4, 3, 2, 1}};
  status.plan = {.revision = 2,
                 .applied_revision = 1,
                 .applied_step = 17,
                 .trigger = "Retune",
                 .config_map = "gpt-plan-2",
                 .k = 4,
                 .micro_batch_size = 4,
                 .micro_batches = 16,
                 .stage_count = 2,
                 .predicted_step_seconds = "1.42",
                 .predicted_gain_percent = "11.2",
                 .measured_gain_percent = "9.8",
                 .predicted_gain_interval = "+8..+15",
                 .measured_gain_error = "0.7",
                 .split = "held 8 postponed 0,2",
                 .bound_percent_simulated = 3,
                 .bound_percent_measured = 5,
                 .time = at(8),
                 .stages = {{0, 2, 0, 3, 4, "gpu", "n1"}, {1, 2, 4, 8, 2, "gpu", "n2"}}};
  status.retune_last_change = at(9);
  status.retune_cooldown_seconds = 60;
  status.regroup_last_change = at(10);
  status.regroup_cooldown_seconds = 600;
  status.replace_last_change = at(11);
  status.replace_cooldown_seconds = 1800;
  status.last_replan_request = "2026-01-01";
  return status;
}

api::ReportStatus report() {
  api::ReportStatus status;
  status.step = 12;
  status.total_steps = 100;
  status.percentage = 12;
  status.samples_per_second = "361";
  status.loss = "2.5";
  status.bubble_percent = "12.5";
  status.estimated_remaining_seconds = 67;
  status.last_step_time = at(1);
  status.last_report_time = at(2);
  status.last_checkpoint_step = 10;
  status.has_progress = true;
  status.network_state = "Contended";
  status.last_sample_time = at(3);
  status.worst_links = {{"n1", "n2", "2.3Gbit/s", "9.1Gbit/s", "0.4", 1, 2, at(4)}};
  status.sync_mode = "Partial";
  status.sync_group_size_max = 2;
  status.sync_mean_group_size = "2.0";
  status.sync_max_staleness = "0.5";
  status.micro_batch_shares = {10, 6};
  status.performance = {
      "1511.0",
      32,
      2,
      "n3",
      {{"Compute", "1400.5"}, {"NotExplained", "110.5"}},
      1,
      {{0, 60, 20, 5, 4, 3, 2}, {1, 80, 10, 4, 3, 2, 1, 27}},
      "SlowLink",
      "link n1 -> n2 (stages 0, 1): 38.0Mbit/s, usually 3.4Gbit/s",
      "0.3210",
      {{"SlowDevice", "rank 3 (stage 3) on n4 computes 12 % slower", "0.0000"}},
      "link n1 -> n2 at its usual rate",
      "1.1900",
      {{"link n1 -> n2 at its usual rate", "1.1900", "0.3210", "needs the other tenant"}}};
  return status;
}

api::PodInput pod() {
  return {.group = "gpu",
          .index_in_group = 2,
          .worker_index = 2,
          .attempt = 3,
          .workers = 4,
          .coordinator = "gpt-gpu-0.gpt:7070",
          .control_url = "https://op.weir.svc:8443",
          .avoided_nodes = {"n3", "n4"},
          .generation = 5,
          .labels = {{"kueue.x-k8s.io/pod-group-name", "gpt"}},
          .annotations = {{"kueue.x-k8s.io/pod-group-total-count", "4"}},
          .scheduler_name = "volcano",
          .gates = {"weir.dev/plan"}};
}

TEST(RecordedObjects, HaveTheSameBytes) {
  const api::PipelineJob one = job();
  std::string text;
  const auto add = [&text](const std::string& name, const std::string& json) {
    text += "\n" + name + "\n" + spread(json) + "\n";
  };
  add("status of a new job", api::encode_status(one, {}));
  add("status", api::encode_status(one, status(), true));
  add("status of a new job, reported", api::encode_report_status(one, {}));
  add("status, reported", api::encode_report_status(one, report()));
  add("event", api::encode_event(one, {"Normal", "PlanRetuned", "k 1 -> 4", "Retune"}, "gpt.17ab",
                                 "op-1", at(1)));
  add("event without an action",
      api::encode_event(one, {"Warning", "Restarting", "exit code 1", ""}, "gpt.17ac", "op-1",
                        at(2)));
  const auto manifest = api::encode_pod(one, pod());
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  for (const std::string& name : manifest->env_conflicts) text += "\nset by the user: " + name;
  add("pod " + manifest->name, manifest->json);
  add("patch of a gated pod", api::encode_open_gate("7", "n1", {}));
  add("patch of a pod with other gates", api::encode_open_gate("7", "n1", {"theirs"}));
  add("patch of a pod that ends Kueue's group", gang::encode_close());
  add("service", api::encode_service(one));
  add("<job>-control", api::encode_control_config_map(one, "https://op:8443", "PEM\n"));
  add("plan", api::encode_plan_config_map(one, 7, R"({"revision":7})"));
  add("Volcano's PodGroup", gang::encode_object(gang::Provider::kVolcano, one, 2).value_or("none"));
  compare_text("objects.txt", "What the operator writes into the API server.", text);
}

}  // namespace objects_test
}  // namespace weir::recorded
