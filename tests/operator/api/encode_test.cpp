// SPDX-License-Identifier: Apache-2.0
#include "operator/api/encode.h"

#include <fstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "operator/api/decode.h"
#include "worker/base/worker_index.h"

namespace weir::api {
namespace encode_test {

using nlohmann::json;

PipelineJob job_with(const std::string& spec_json) {
  auto job = decode_job(R"({"metadata": {"name": "gpt", "namespace": "team-a", "uid": "u-1",
    "resourceVersion": "41", "generation": 3}, "spec": )" +
                        spec_json + "}");
  EXPECT_TRUE(job.ok()) << job.error().message;
  return *job;
}
PipelineJob plain() {
  return job_with(R"({"worker": {"image": "weir-worker:1", "args": ["--model=mlp"],
      "env": [{"name": "A", "value": "1"}]},
    "workerGroups": [{"name": "gpu", "count": 4, "resources": {"limits": {"nvidia.com/gpu": 1}},
      "nodeSelector": {"zone": "z1"}}], "batch": {"globalBatchSize": 64}})");
}
PodInput first_pod() {
  return {.group = "gpu",
          .workers = 4,
          .coordinator = "gpt-gpu-0.gpt:7070",
          .control_url = "https://op.weir.svc:8443"};
}
json pod_of(const PipelineJob& job, const PodInput& input) {
  const auto manifest = encode_pod(job, input);
  EXPECT_TRUE(manifest.ok()) << manifest.error().message;
  return json::parse(manifest->json);
}
json by_name(const json& list, const std::string& name) {
  for (const json& item : list) {
    if (item["name"] == name) return item;
  }
  return nullptr;
}

TEST(EncodePod, EqualsTheGoldenManifest) {
  std::ifstream file(WEIR_SOURCE_DIR "/tests/operator/api/pod.golden.json");
  const json golden = json::parse(file);

  EXPECT_EQ(pod_of(plain(), first_pod()), golden)
      << json::diff(golden, pod_of(plain(), first_pod())).dump(1);
}

TEST(EncodePod, LetsTheTemplateSayThatAPodMayBeMoved) {
  const PipelineJob job = job_with(R"({"worker": {"image": "w:1"}, "workerGroups": [{"name": "gpu",
      "count": 1, "template": {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "false"}}}}],
    "batch": {"globalBatchSize": 8}})");

  const json annotations = pod_of(job, first_pod())["metadata"]["annotations"];

  EXPECT_EQ(annotations["karpenter.sh/do-not-disrupt"], "false");
  EXPECT_EQ(annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"], "false");
}

json security_of(const std::string& claim, const std::string& template_spec) {
  const PipelineJob job = job_with(
      R"({"worker": {"image": "w:1"}, "checkpoint": {"path": "/ckpt")" +
      (claim.empty() ? "" : R"(, "persistentVolumeClaim": {"claimName": ")" + claim + "\"}") +
      R"(}, "workerGroups": [{"name": "gpu", "count": 1,
      "template": {"spec": )" +
      template_spec + R"(}}], "batch": {"globalBatchSize": 8}})");
  return pod_of(job, first_pod())["spec"].value("securityContext", json());
}

TEST(EncodePod, GivesAClaimsVolumeToTheGroupOfTheImage) {
  const json ours = {{"fsGroup", 65532}, {"fsGroupChangePolicy", "OnRootMismatch"}};
  EXPECT_EQ(security_of("", "{}"), json());
  EXPECT_EQ(security_of("store", "{}"), ours);

  json restricted = ours;
  restricted["runAsNonRoot"] = true;
  EXPECT_EQ(security_of("store", R"({"securityContext": {"runAsNonRoot": true}})"), restricted);
  EXPECT_EQ(security_of("store",
                        R"({"securityContext": {"fsGroup": 7, "fsGroupChangePolicy": "Always"}})"),
            json({{"fsGroup", 7}, {"fsGroupChangePolicy", "Always"}}));
  EXPECT_EQ(security_of("store", R"({"securityContext": {"fsGroup": null}})"), json())
      << "whoever admits the pod chooses";
}

TEST(EncodePod, HasTheLogOfAFailedInitContainerTold) {
  const PipelineJob job = job_with(R"({"worker": {"image": "w:1"}, "workerGroups": [{"name": "gpu",
      "count": 1, "template": {"spec": {"initContainers": [{"name": "a", "image": "i"},
        {"name": "b", "image": "i", "terminationMessagePolicy": "File"}]}}}],
    "batch": {"globalBatchSize": 8}})");

  const json init = pod_of(job, first_pod())["spec"]["initContainers"];

  EXPECT_EQ(init[0]["terminationMessagePolicy"], "FallbackToLogsOnError");
  EXPECT_EQ(init[1]["terminationMessagePolicy"], "File");
}

TEST(EncodePod, NamesLaterAttemptsButKeepsTheHostname) {
  PodInput input = first_pod();
  input.index_in_group = 2;
  input.worker_index = 2;
  input.attempt = 3;

  const json pod = pod_of(plain(), input);

  EXPECT_EQ(pod["metadata"]["name"], "gpt-gpu-2-3");
  EXPECT_EQ(pod["spec"]["hostname"], "gpt-gpu-2");
  EXPECT_EQ(pod["metadata"]["labels"]["app.kubernetes.io/component"], "worker");
}

TEST(EncodePod, LetsTheKubeletStartTheTrainerAgain) {
  PodInput input = first_pod();
  input.final_exit_codes = {0, 2, 143};
  const json trainer = pod_of(plain(), input)["spec"]["containers"][0];

  EXPECT_EQ(trainer["restartPolicy"], "Never");
  EXPECT_EQ(trainer["restartPolicyRules"], json::parse(R"([{"action": "Restart", "exitCodes":
                             {"operator": "NotIn", "values": [0, 2, 143]}}])"));

  PipelineJob job = plain();  // who writes a policy decides
  job.spec.worker_groups[0].template_json = R"({"spec": {"containers": [
      {"name": "trainer", "image": "i:1", "restartPolicy": "Never"}]}})";
  EXPECT_FALSE(pod_of(job, input)["spec"]["containers"][0].contains("restartPolicyRules"));
}

TEST(EncodePod, TellsTheCoordinatorWhenASilentWorkerIsLost) {
  const auto seconds = [](const PipelineJob& job) {
    const json pod = pod_of(job, first_pod());
    return by_name(pod["spec"]["containers"][0]["env"], "WEIR_LOST_AFTER")["value"];
  };
  EXPECT_EQ(seconds(plain()), "5");
  const PipelineJob job = job_with(R"({"worker": {"image": "w:1"}, "workerGroups": [
      {"name": "gpu", "count": 1}], "recovery": {"lostAfterSeconds": 45}})");
  EXPECT_EQ(seconds(job), "45");
  PipelineJob without = job;
  without.spec.lost_after_seconds.reset();
  EXPECT_NE(template_hash(job), template_hash(without));
}

TEST(EncodePod, HasMemoryForCopiesOfNeighborsWhereTheyAreWanted) {
  PodInput input = first_pod();
  input.workers = 2;
  PipelineJob job = plain();
  const std::string hash = template_hash(job);
  job.spec.neighbor_copies = NeighborCopies::kOn;
  EXPECT_NE(template_hash(job), hash);
  json trainer = pod_of(job, input)["spec"]["containers"][0];
  EXPECT_EQ(by_name(trainer["env"], "WEIR_RECOVERY_EVERY")["value"], "4");
  EXPECT_EQ(by_name(trainer["env"], "WEIR_RECOVERY_COPIES")["value"], "On");
  job.spec.restart_scope = RestartScope::kJob;
  EXPECT_EQ(pod_of(job, input).dump().find("recovery"), std::string::npos) << "no pod stays";
  job = plain();
  job.spec.neighbor_copies = NeighborCopies::kOff;
  EXPECT_EQ(pod_of(job, input).dump().find("recovery"), std::string::npos);
  input.final_exit_codes = {0};
  trainer = pod_of(job, input)["spec"]["containers"][0];
  EXPECT_EQ(by_name(trainer["env"], "WEIR_RECOVERY_COPIES")["value"], "Off");
}

TEST(EncodePod, TellsTheTrainerHowManyConnectionsALinkHas) {
  PipelineJob job = plain();
  const std::string hash = template_hash(job);
  EXPECT_EQ(pod_of(job, first_pod()).dump().find("WEIR_CONNECTIONS"), std::string::npos);
  job.spec.connections_per_link = 0;
  EXPECT_NE(template_hash(job), hash);
  const json trainer = pod_of(job, first_pod())["spec"]["containers"][0];
  EXPECT_EQ(by_name(trainer["env"], "WEIR_CONNECTIONS")["value"], "0");
}

TEST(EncodePod, TellsTheTrainerHowItsDataIsMarked) {
  PipelineJob job = plain();
  std::string hash = template_hash(job);
  const std::string without = pod_of(job, first_pod()).dump();
  EXPECT_EQ(without.find("WEIR_DSCP"), std::string::npos);
  EXPECT_EQ(without.find("WEIR_CONGESTION_CONTROL"), std::string::npos);
  const auto changes_pods = [&] { return std::exchange(hash, template_hash(job)) != hash; };
  job.spec.congestion_control = "bbr";
  EXPECT_TRUE(changes_pods());
  job.spec.boundary_dscp = 18;
  EXPECT_TRUE(changes_pods());
  job.spec.bulk_dscp = 0;
  EXPECT_TRUE(changes_pods());
  const json trainer = pod_of(job, first_pod())["spec"]["containers"][0];
  EXPECT_EQ(by_name(trainer["env"], "WEIR_CONGESTION_CONTROL")["value"], "bbr");
  EXPECT_EQ(by_name(trainer["env"], "WEIR_DSCP_BOUNDARY")["value"], "18");
  EXPECT_EQ(by_name(trainer["env"], "WEIR_DSCP_BULK")["value"], "0");
}

// Snapshots outlive the process, not the pod.
TEST(EncodePod, HasMemoryForSnapshotsWhereTheTrainerIsStartedAgain) {
  PodInput input = first_pod();
  EXPECT_EQ(pod_of(plain(), input).dump().find("recovery"), std::string::npos);
  input.final_exit_codes = {0};
  json pod = pod_of(plain(), input);
  json trainer = pod["spec"]["containers"][0];
  EXPECT_EQ(by_name(pod["spec"]["volumes"], "weir-recovery")["emptyDir"]["medium"], "Memory");
  EXPECT_EQ(by_name(trainer["env"], "WEIR_RECOVERY_PATH")["value"],
            by_name(trainer["volumeMounts"], "weir-recovery")["mountPath"]);
  EXPECT_EQ(by_name(trainer["env"], "WEIR_RECOVERY_EVERY")["value"], "4");

  PipelineJob job = plain();
  const std::string hash = template_hash(job);
  job.spec.max_lost_steps = 21;
  EXPECT_NE(template_hash(job), hash);
  trainer = pod_of(job, input)["spec"]["containers"][0];
  EXPECT_EQ(by_name(trainer["env"], "WEIR_RECOVERY_EVERY")["value"], "11");
  job.spec.max_lost_steps = 0;
  EXPECT_EQ(pod_of(job, input).dump().find("recovery"), std::string::npos);
}

TEST(EncodePod, LetsTheTemplateWinAndMergesByName) {
  const PipelineJob job = job_with(R"({"worker": {"image": "w:1", "args": ["--a"],
      "env": [{"name": "X", "value": "worker"}, {"name": "Y", "value": "worker"}],
      "volumes": [{"name": "data", "emptyDir": {}}],
      "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    "workerGroups": [{"name": "gpu", "count": 1, "nodeSelector": {"a": "group", "b": "group"},
      "template": {"metadata": {"annotations": {"x": "y"}, "labels": {"weir.dev/attempt": "9"}},
        "spec": {"nodeSelector": {"a": "template"}, "restartPolicy": "Always",
          "volumes": [{"name": "data", "hostPath": {"path": "/d"}}],
          "containers": [{"name": "side", "image": "s:1"},
            {"name": "trainer", "args": ["--b"], "env": [{"name": "X", "value": "template"}],
             "volumeMounts": [{"name": "own", "mountPath": "/dev/shm"}]}]}}}],
    "batch": {"globalBatchSize": 8}})");

  const json pod = pod_of(job, first_pod());

  const json trainer = by_name(pod["spec"]["containers"], "trainer");
  EXPECT_EQ(trainer["image"], "w:1");
  EXPECT_EQ(trainer["args"], json({"--b"}));
  EXPECT_EQ(by_name(trainer["env"], "X")["value"], "template");
  EXPECT_EQ(by_name(trainer["env"], "Y")["value"], "worker");
  EXPECT_EQ(pod["spec"]["nodeSelector"], json({{"a", "template"}, {"b", "group"}}));
  EXPECT_TRUE(by_name(pod["spec"]["volumes"], "data").contains("hostPath"));
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
  EXPECT_EQ(pod["metadata"]["labels"]["weir.dev/attempt"], "0");
  EXPECT_EQ(pod["metadata"]["annotations"]["x"], "y");
  for (const json& mount : trainer["volumeMounts"]) {
    if (mount["mountPath"] == "/dev/shm") {
      EXPECT_EQ(mount["name"], "own");
    }
  }
}

TEST(EncodePod, ReportsEnvironmentThatTheUserSetInstead) {
  const PipelineJob job = job_with(R"({"worker": {"image": "w:1",
      "env": [{"name": "WEIR_TRANSPORT", "value": "TCP"}]},
    "workerGroups": [{"name": "gpu", "count": 1}], "batch": {"globalBatchSize": 8}})");

  const auto manifest = encode_pod(job, first_pod());

  ASSERT_TRUE(manifest.ok());
  EXPECT_EQ(manifest->env_conflicts, std::vector<std::string>{"WEIR_TRANSPORT"});
  const json pod = json::parse(manifest->json);
  EXPECT_EQ(by_name(pod["spec"]["containers"][0]["env"], "WEIR_TRANSPORT")["value"], "TCP");
}

std::string threads_of(const std::string& resources, const std::string& env = "[]") {
  const PipelineJob job =
      job_with(R"({"worker": {"image": "w:1", "env": )" + env +
               R"(}, "workerGroups": [{"name": "gpu", "count": 1, "resources": )" + resources +
               R"(}], "batch": {"globalBatchSize": 8}})");
  const json variable =
      by_name(pod_of(job, first_pod())["spec"]["containers"][0]["env"], "WEIR_THREADS");
  return variable.is_null() ? "" : variable["value"].get<std::string>();
}

TEST(EncodePod, TellsTheRequestedCpusOfAContainerWithoutALimit) {
  EXPECT_EQ(threads_of(R"({"requests": {"cpu": 3}})"), "3");
  EXPECT_EQ(threads_of(R"({"requests": {"cpu": "2500m"}})"), "3");
  EXPECT_EQ(threads_of(R"({"requests": {"cpu": "100m"}})"), "1");
  EXPECT_EQ(
      threads_of(R"({"requests": {"cpu": "3"}})", R"([{"name": "WEIR_THREADS", "value": "2"}])"),
      "2")
      << "the user's own";
  for (const char* quota :
       {R"({"requests": {"cpu": "3"}, "limits": {"cpu": "4"}})", R"({"limits": {"cpu": "4"}})",
        R"({"requests": {"memory": "1Gi"}})", R"({"requests": {"cpu": "many"}})", "{}"}) {
    EXPECT_EQ(threads_of(quota), "") << quota;
  }
}

TEST(EncodePod, KeepsAwayFromAvoidedNodes) {
  PodInput input = first_pod();
  input.avoided_nodes = {"gpu-c"};

  const json pod = pod_of(plain(), input);

  EXPECT_EQ(pod["spec"]["affinity"]["nodeAffinity"]
               ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"],
            json::parse(R"([{"matchFields": [{"key": "metadata.name", "operator": "NotIn",
                                              "values": ["gpu-c"]}]}])"));
}

TEST(EncodePod, ASpareHasANameOfItsOwnAndKeepsAwayFromTheOthersNodes) {
  const PipelineJob job = job_with(R"({"worker": {"image": "w:1"},
    "placement": {"topologyKeys": ["rack", "kubernetes.io/hostname"]},
    "workerGroups": [{"name": "gpu", "count": 1, "spares": 3}]})");
  PodInput input = first_pod();
  input.index_in_group = kFirstSpare + 2;
  input.worker_index = kFirstSpare + 18;

  const json pod = pod_of(job, input);

  EXPECT_EQ(pod["metadata"]["name"], "gpt-gpu-s2");
  EXPECT_EQ(pod["spec"]["hostname"], "gpt-gpu-s2");
  EXPECT_EQ(pod["metadata"]["labels"]["weir.dev/worker-index"], "8210");
  const json& affinity = pod["spec"]["affinity"];
  const char* preferred = "preferredDuringSchedulingIgnoredDuringExecution";
  ASSERT_EQ(affinity["podAffinity"][preferred].size(), 1U) << "near, but not on the same node";
  EXPECT_EQ(affinity["podAffinity"][preferred][0]["podAffinityTerm"]["topologyKey"], "rack");
  ASSERT_EQ(affinity["podAntiAffinity"][preferred].size(), 1U);
  EXPECT_EQ(affinity["podAntiAffinity"][preferred][0]["podAffinityTerm"]["topologyKey"],
            "kubernetes.io/hostname");
  EXPECT_EQ(pod_name("gpt", "gpu", kFirstSpare, 1), "gpt-gpu-s0-1");
}

TEST(EncodePod, MountsTheCheckpointAndGivesItsGrace) {
  const PipelineJob job = job_with(R"({"worker": {"image": "w:1"},
    "workerGroups": [{"name": "gpu", "count": 1}], "batch": {"globalBatchSize": 8},
    "checkpoint": {"path": "/ckpt", "persistentVolumeClaim": {"claimName": "store"},
      "intervalSteps": 50, "graceSeconds": 90}})");

  const json pod = pod_of(job, first_pod());

  const json trainer = pod["spec"]["containers"][0];
  EXPECT_EQ(by_name(trainer["env"], "WEIR_CHECKPOINT_PATH")["value"], "/ckpt/gpt")
      << "jobs share claims";
  EXPECT_EQ(by_name(trainer["env"], "WEIR_CHECKPOINT_INTERVAL")["value"], "50");
  EXPECT_EQ(by_name(trainer["env"], "WEIR_GRACE_SECONDS")["value"], "90");
  EXPECT_EQ(by_name(trainer["volumeMounts"], "weir-checkpoint")["mountPath"], "/ckpt");
  EXPECT_EQ(by_name(pod["spec"]["volumes"], "weir-checkpoint")["persistentVolumeClaim"],
            (json{{"claimName", "store"}}));
  EXPECT_EQ(pod["spec"]["terminationGracePeriodSeconds"], 90);
}

TEST(EncodePod, CarriesTheMarksOfTheGangProviderAndGates) {
  PodInput input = first_pod();
  input.generation = 4;
  input.labels["kueue.x-k8s.io/pod-group-name"] = "gpt";
  input.annotations["scheduling.k8s.io/group-name"] = "gpt";
  input.scheduler_name = "volcano";
  input.gates = {"weir.dev/plan"};

  const json pod = pod_of(plain(), input);

  EXPECT_EQ(pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"], "gpt");
  EXPECT_EQ(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "gpt");
  EXPECT_EQ(pod["metadata"]["annotations"][kPodGeneration], "4");
  EXPECT_EQ(pod["spec"]["schedulerName"], "volcano");
  EXPECT_EQ(pod["spec"]["schedulingGates"], json::parse(R"([{"name": "weir.dev/plan"}])"));
}

TEST(EncodeOpenGate, TakesOurGateAwayAndKeepsOthers) {
  EXPECT_EQ(json::parse(encode_open_gate("7", "n1", {})), json::parse(R"({
    "metadata": {"resourceVersion": "7"}, "spec": {
      "nodeSelector": {"kubernetes.io/hostname": "n1"}, "schedulingGates": null}})"));
  EXPECT_EQ(json::parse(encode_open_gate("7", "n1", {"x"}))["spec"]["schedulingGates"],
            json::parse(R"([{"name": "x"}])"));
}

TEST(EncodePod, NeedsAnImageAndAGroupThatExists) {
  const PipelineJob job = job_with(R"({"workerGroups": [{"name": "gpu", "count": 1}]})");
  const auto no_image = encode_pod(job, first_pod());
  ASSERT_FALSE(no_image.ok());
  EXPECT_EQ(no_image.error().message,
            "worker.image: missing, and the template of group gpu sets none");

  PodInput input = first_pod();
  input.group = "cpu";
  const auto no_group = encode_pod(plain(), input);
  ASSERT_FALSE(no_group.ok());
  EXPECT_EQ(no_group.error().message, "workerGroups: no group cpu");
}

TEST(EncodePod, CarriesAllThatWorkerAndGroupSayAndTheTemplateDoesNot) {
  const PipelineJob job = job_with(R"({"worker": {"image": "w:1", "imagePullPolicy": "Always",
      "command": ["/train"], "serviceAccountName": "sa", "priorityClassName": "high",
      "imagePullSecrets": [{"name": "pull"}]},
    "scheduling": {"schedulerName": "mine"}, "network": {"hostNetwork": true},
    "placement": {"topologyKeys": ["zone", "rack"]},
    "workerGroups": [{"name": "gpu", "count": 1, "tolerations": [{"operator": "Exists"}],
      "template": {"spec": {"priorityClassName": "low", "containers": [
        {"name": "trainer", "ports": [{"name": "data", "containerPort": 9}]}]}}}]})");

  const json spec = pod_of(job, first_pod())["spec"];

  const json trainer = spec["containers"][0];
  EXPECT_EQ(trainer["imagePullPolicy"], "Always");
  EXPECT_EQ(trainer["command"], json({"/train"}));
  EXPECT_EQ(by_name(trainer["ports"], "data")["containerPort"], 7071) << "ours, once";
  EXPECT_EQ(trainer["ports"].size(), 3U);
  EXPECT_EQ(spec["serviceAccountName"], "sa");
  EXPECT_EQ(spec["priorityClassName"], "low") << "the template's wins";
  EXPECT_EQ(spec["imagePullSecrets"], json::parse(R"([{"name": "pull"}])"));
  EXPECT_EQ(spec["schedulerName"], "mine");
  EXPECT_EQ(spec["hostNetwork"], true);
  EXPECT_EQ(spec["dnsPolicy"], "ClusterFirstWithHostNet");
  EXPECT_EQ(spec["tolerations"], json::parse(R"([{"operator": "Exists"}])"));
  const json wishes =
      spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
  ASSERT_EQ(wishes.size(), 2U);
  EXPECT_EQ(wishes[0]["weight"], 50);
  EXPECT_EQ(wishes[1]["weight"], 100) << "the narrowest weighs most";
  EXPECT_EQ(wishes[1]["podAffinityTerm"]["topologyKey"], "rack");
}

TEST(EncodePod, TakesALastResortOnlyWhereNoOtherNodeHasRoom) {
  PodInput input = first_pod();
  input.last_nodes = {"gpu-c"};
  const json affinity = pod_of(plain(), input)["spec"]["affinity"]["nodeAffinity"];
  EXPECT_EQ(affinity, json::parse(R"({"preferredDuringSchedulingIgnoredDuringExecution": [
      {"weight": 100, "preference": {"matchFields": [
          {"key": "metadata.name", "operator": "NotIn", "values": ["gpu-c"]}]}}]})"));
}

TEST(EncodePod, AddsAvoidedNodesToEveryTermOfTheTemplate) {
  const PipelineJob job = job_with(R"({"worker": {"image": "w:1"},
    "placement": {"topologyKeys": []},
    "workerGroups": [{"name": "gpu", "count": 1, "template": {"spec": {"affinity": {
      "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}]}}}}}}]})");
  PodInput input = first_pod();
  input.avoided_nodes = {"n1", "n2"};

  const json affinity = pod_of(job, input)["spec"]["affinity"];

  const json terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                             ["nodeSelectorTerms"];
  ASSERT_EQ(terms.size(), 2U) << "terms are alternatives";
  EXPECT_TRUE(terms[0].contains("matchExpressions"));
  for (const json& term : terms) {
    ASSERT_EQ(term["matchFields"].size(), 2U);
    EXPECT_EQ(term["matchFields"][1]["values"], json({"n2"}));
  }
  EXPECT_FALSE(affinity.contains("podAffinity")) << "no topology key, no wish";
}

TEST(TemplateHash, CoversWhatTheUserWroteOnly) {
  PipelineJob job = plain();
  const std::string before = template_hash(job);

  job.status.restarts = 3;
  job.spec.schedule.k_min = 2;
  EXPECT_EQ(template_hash(job), before);
  EXPECT_EQ(before.size(), 16U);

  job.spec.worker.args.push_back("--steps=9");
  EXPECT_NE(template_hash(job), before);
}

TEST(EncodeStatus, SendsAllFieldsAndReadsBackEqual) {
  PipelineJob job = plain();
  JobStatus status;
  status.observed_generation = 3;
  status.conditions = {{"Ready", "True", "Running", "step 4", 3, Time{std::chrono::seconds(9)}}};
  status.start_time = Time{std::chrono::seconds(5)};
  status.workers_summary = "4/4";
  status.restarts = 2;
  status.worker_groups = {{"gpu", "why", 4, 3, 2, 1}};
  status.model = {"gpt-mini", "C", 8, 3'000'000'000};
  status.plan = {.revision = 2,
                 .applied_revision = 1,
                 .trigger = "Retune",
                 .config_map = "gpt-plan-2",
                 .k = 4,
                 .micro_batch_size = 4,
                 .micro_batches = 16,
                 .stage_count = 1,
                 .stages = {{0, 1, 0, 3, 4, "gpu", "n1"}}};
  status.retune_last_change = Time{std::chrono::seconds(7)};
  status.retune_cooldown_seconds = 60;
  status.compress_last_change = Time{std::chrono::seconds(8)};
  status.compress_cooldown_seconds = 120;
  status.suspended_seconds = 30;
  status.restart_streak = 1;
  status.pod_generation = 3;
  status.resumed_generation = 2;
  status.last_restart_reason = "OutOfMemory";
  status.last_restart_scope = "Worker";
  status.restart_reasons = {{"Crashed", 1}, {"OutOfMemory", 1}};
  status.avoided_nodes = {{"n3", "exit code 82", Time{std::chrono::seconds(99)}}};
  status.memory_limits = {{"gpu", 0, 3, true}};
  status.recovery = {.spares = "1/2",
                     .lost_steps = 45,
                     .last = Recovery{.source = "Checkpoint",
                                      .reason = "no worker holds layers 4..7",
                                      .pause_seconds = "1.25",
                                      .step = 1800,
                                      .lost_steps = 41,
                                      .time = Time{std::chrono::seconds(97)}},
                     .incarnation = 3,
                     .container_restarts = {{"u-7", 2}},
                     .losses = {{"gpt-gpu-3", 1840}},
                     .recoverable_until = Time{std::chrono::seconds(95)},
                     .lost_replicas = {1},
                     .last_container_end = Time{std::chrono::seconds(96)}};
  status.coordinator = CoordinatorStatus{.pod = "gpt-gpu-1",
                                         .pod_uid = "u-1",
                                         .lost_pod_uid = "u-0",
                                         .term = 2,
                                         .time = Time{std::chrono::seconds(94)}};
  status.scheduling_timeouts = 2;
  status.scheduling_retry = Time{std::chrono::seconds(98)};

  const std::string body = encode_status(job, status, true);

  EXPECT_EQ(json::parse(body)["metadata"]["resourceVersion"], "41");
  EXPECT_FALSE(json::parse(encode_status(job, status))["metadata"].contains("resourceVersion"));
  const auto back = decode_job(body);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(back->status == status) << body;
}

// A worker waits as long as the job does.
TEST(EncodePod, PassesTheDeadlinesOfTheSpec) {
  const auto value = [](const PipelineJob& job, const char* name, bool queued = false) {
    PodInput input;
    input.group = job.spec.worker_groups[0].name;
    input.queued = queued;
    const json pod = json::parse(encode_pod(job, input)->json);
    return by_name(pod["spec"]["containers"][0]["env"], name)["value"].get<std::string>();
  };
  PipelineJob job = plain();
  job.spec.startup_timeout_seconds = 3600;
  job.spec.scheduling_timeout_seconds = 1200;
  job.spec.progress_deadline_seconds = 7200;

  EXPECT_EQ(value(job, "WEIR_STARTUP_TIMEOUT"), "5400") << "with 600 s of back-off";
  EXPECT_EQ(value(job, "WEIR_REJOIN_TIMEOUT"), "5400");
  EXPECT_EQ(value(job, "WEIR_PROGRESS_DEADLINE"), "7200");
  EXPECT_EQ(value(job, "WEIR_STARTUP_TIMEOUT", true), "0") << "a queue may take for ever";
  job.spec.scheduling_timeout_seconds = 0;
  EXPECT_EQ(value(job, "WEIR_STARTUP_TIMEOUT"), "0");
  EXPECT_EQ(value(job, "WEIR_REJOIN_TIMEOUT"), "0");
}

TEST(EncodeReportStatus, ReadsBackEqual) {
  ReportStatus status;
  status.has_progress = true;
  status.step = 12;
  status.total_steps = 100;
  status.percentage = 12;
  status.samples_per_second = "361";
  status.estimated_remaining_seconds = 67;
  status.last_checkpoint_step = 10;
  status.network_state = "Contended";
  status.worst_links = {{"gpu-a", "gpu-b", "2.3Gbit/s", "9.1Gbit/s", "0.4", 1, 2, Time{}}};
  status.sync_mode = "Exact";
  status.sync_group_size_max = 2;
  status.sync_mean_group_size = "2.0";
  status.sync_max_staleness = "0";
  status.micro_batch_shares = {10, 6};

  const auto back = decode_job(encode_report_status(plain(), status));

  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_TRUE(back->report == status);
}

TEST(EncodeEvent, CutsALongNoteAtACharacter) {
  std::string note(1023, 'x');
  note += "\xC3\xA9";

  const json event = json::parse(
      encode_event(plain(), {"Normal", "PlanCreated", note, ""}, "gpt.1", "op-1", Time{}));

  EXPECT_EQ(event["note"].get<std::string>().size(), 1023U);
  EXPECT_EQ(event["action"], "PlanCreated");
  EXPECT_EQ(event["regarding"]["uid"], "u-1");
}

TEST(EncodeService, NamesEveryWorkerBeforeItIsReady) {
  const json service = json::parse(encode_service(plain()));

  EXPECT_EQ(service["metadata"]["name"], "gpt");
  EXPECT_EQ(service["spec"]["clusterIP"], "None");
  EXPECT_EQ(service["spec"]["publishNotReadyAddresses"], true) << "they meet before they train";
  EXPECT_EQ(service["spec"]["selector"]["weir.dev/job-uid"], "u-1");
  EXPECT_EQ(by_name(service["spec"]["ports"], "data")["port"], 7071);
}

TEST(EncodeControlConfigMap, HoldsTheAddressAndTheAuthority) {
  const json map = json::parse(encode_control_config_map(plain(), "https://op:8443", "PEM"));

  EXPECT_EQ(map["metadata"]["name"], "gpt-control");
  EXPECT_EQ(map["metadata"]["ownerReferences"][0]["uid"], "u-1");
  EXPECT_EQ(map["data"], (json{{"url", "https://op:8443"}, {"ca.crt", "PEM"}}));
}

TEST(EncodePlanConfigMap, IsImmutableAndOwned) {
  const json map = json::parse(encode_plan_config_map(plain(), 7, "{}"));

  EXPECT_EQ(map["metadata"]["name"], "gpt-plan-7");
  EXPECT_EQ(map["immutable"], true);
  EXPECT_EQ(map["metadata"]["ownerReferences"][0]["controller"], true);
}

}  // namespace encode_test
}  // namespace weir::api
