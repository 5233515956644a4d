// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/executor.h"

#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/api/decode.h"
#include "operator/cache/object_cache.h"
#include "operator/kube/auth.h"
#include "tests/support/fake_transport.h"
#include "tests/support/jump_clock.h"

namespace weir::controller {
namespace executor_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kPods = "/api/v1/namespaces/a/pods/";
constexpr auto kJob = "/apis/weir.dev/v1alpha1/namespaces/a/pipelinejobs/j";

std::shared_ptr<api::PipelineJob> make_job() {
  auto job = api::decode_job(R"({"metadata": {"name": "j", "namespace": "a", "uid": "job-uid",
      "resourceVersion": "3"},
    "spec": {"worker": {"image": "w:1"}, "workerGroups": [{"name": "g", "count": 20}],
             "batch": {"globalBatchSize": 8}}})");
  return std::make_shared<api::PipelineJob>(*std::move(job));
}

struct World {
  World() { view.job = job; }
  Executed run(const reconcile::Outcome& outcome) { return executor.run(view, memory, outcome); }
  Executed run(std::vector<reconcile::Request> requests) {
    return run(reconcile::Outcome{.requests = std::move(requests)});
  }
  static reconcile::CreatePods pods(int count) {
    reconcile::CreatePods create;
    for (int i = 0; i < count; ++i) {
      create.pods.push_back({.group = "g", .index_in_group = i, .worker_index = i});
    }
    return create;
  }

  test::JumpClock clock;
  test::FakeTransport server;
  kube::TokenSource token{"", "", clock};
  std::unique_ptr<kube::Client> client = kube::make_client(server, token, clock, {});
  cache::ObjectCache cache{clock, {""}, false};
  kube::EventSender events{*client, clock, "op"};
  bool lease_fresh = true;
  std::atomic<int> writes_left{1000};  // until the lease gets old
  Executor executor{{*client, cache, events, clock,
                     [this] { return lease_fresh && writes_left.fetch_sub(1) > 0; },
                     [] { return std::string("https://op:8443"); },
                     [] { return std::string("CA"); }}};
  std::shared_ptr<api::PipelineJob> job = make_job();
  cache::JobView view;
  JobMemory memory;
};

TEST(Executor, MakesPodsAndWaitsForTheCacheToSeeThem) {
  World world;

  const Executed executed = world.run({World::pods(20)});

  EXPECT_FALSE(executed.error.has_value());
  EXPECT_EQ(world.server.paths().size(), 20U);
  EXPECT_FALSE(world.cache.caught_up("a/j"));
}

http::Response refusal(int status, const std::string& message) {
  return {status, {}, R"({"kind": "Status", "reason": "Refused", "message": ")" + message + "\"}"};
}

TEST(Executor, EndsASlowStartWithTheFirstRefusalAndGoesOn) {
  World world;
  world.server.put(kJob, "{}");
  world.server.fail({.match = "POST /api/v1/namespaces/a/pods",
                     .count = 100,
                     .response = refusal(403, "exceeded quota: q, used: pods=3")});
  reconcile::AdaptationState state;
  state.memory.announced.retune = "k=4";

  const Executed executed = world.run(reconcile::Outcome{.requests = {World::pods(20)},
                                                         .status = reconcile::PatchStatus{},
                                                         .report = reconcile::PatchReport{},
                                                         .memory = state,
                                                         .requeue = std::chrono::minutes(5)});

  EXPECT_FALSE(executed.error.has_value());
  EXPECT_TRUE(executed.refused && executed.again) << "the next pass shows it, at once";
  EXPECT_EQ(world.server.count("POST /api/v1/namespaces/a/pods"), 1);
  EXPECT_EQ(world.server.count("PATCH"), 2) << "status and report are written all the same";
  EXPECT_EQ(world.memory.adaptation.memory.announced.retune, "k=4");
  EXPECT_EQ(executed.requeue, std::chrono::seconds(30));
  ASSERT_EQ(world.memory.refused.size(), 1U);
  EXPECT_EQ(world.memory.refused[0].reason, "QuotaExceeded");
  EXPECT_EQ(world.memory.refused[0].message, "exceeded quota: q, used: pods=3");
  ASSERT_TRUE(world.events.send_one());
  EXPECT_THAT(world.server.last_body(), HasSubstr("QuotaExceeded"));

  EXPECT_FALSE(world.run({World::pods(1)}).again) << "the same is no news";
}

TEST(Executor, ForgetsARefusalWhenTheServerAccepts) {
  World world;
  world.server.fail({.match = "POST", .count = 1, .response = refusal(422, "no such name")});
  EXPECT_TRUE(world.run({reconcile::CreateService{}}).refused);

  const Executed executed = world.run({reconcile::CreateService{}});

  EXPECT_TRUE(executed.again && !executed.refused);
  EXPECT_THAT(world.memory.refused, IsEmpty());
}

TEST(Executor, MakesNoPodsWithoutWhatTheyNeed) {
  World world;
  world.server.fail({.match = "services", .count = 1, .response = refusal(422, "no such name")});

  EXPECT_TRUE(world.run({reconcile::CreateService{}, World::pods(2)}).refused);

  EXPECT_EQ(world.server.count("/pods"), 0);
}

TEST(Executor, WritesNoStatusWithAPlanThatIsNotThere) {
  World world;
  world.server.put(kJob, "{}");
  world.server.fail(
      {.match = "configmaps", .count = 1, .response = refusal(403, "exceeded quota")});

  const Executed executed = world.run(reconcile::Outcome{.requests = {reconcile::CreatePlan{}},
                                                         .status = reconcile::PatchStatus{},
                                                         .report = reconcile::PatchReport{}});

  EXPECT_TRUE(executed.refused && executed.again);
  EXPECT_EQ(world.server.count("PATCH"), 1) << "the report alone";
}

TEST(Executor, AWebhookThatCannotBeCalledRefusesToo) {
  World world;
  world.server.fail({.match = "pods",
                     .count = 1,
                     .response = refusal(500, "failed calling webhook x: connection refused")});
  EXPECT_TRUE(world.run({World::pods(1)}).refused);

  world.server.fail({.match = "pods", .count = 1, .response = refusal(500, "etcd is slow")});
  EXPECT_TRUE(world.run({World::pods(1)}).error.has_value()) << "passes by itself";
}

TEST(Executor, AStatusForAnotherJobOfTheNameIsAConflict) {
  World world;
  world.server.fail({.match = "PATCH",
                     .count = 1,
                     .response = http::Response{
                         422, {}, R"({"kind": "Status", "reason": "Invalid", "message": "x",
           "details": {"causes": [{"field": "metadata.uid", "message": "field is immutable"}]}})"}});

  const Executed executed = world.run(reconcile::Outcome{.status = reconcile::PatchStatus{}});

  ASSERT_TRUE(executed.error.has_value());
  EXPECT_EQ(executed.error->http_status, 409) << "the cache is behind: read again";
  EXPECT_THAT(world.memory.refused, IsEmpty());
}

TEST(Executor, TakesAnExistingPodOfThisJobForItsOwn) {
  World world;
  world.server.put(std::string(kPods) + "j-g-0", R"({"metadata": {"ownerReferences":
    [{"uid": "job-uid", "controller": true}]}})");

  EXPECT_FALSE(world.run({World::pods(2)}).error.has_value());

  EXPECT_EQ(world.server.paths().size(), 2U);
}

TEST(Executor, RemembersThatAnotherHasAPodsName) {
  World world;
  world.server.put(std::string(kPods) + "j-g-0", R"({"metadata": {"ownerReferences":
    [{"uid": "another", "controller": true}], "labels": {"weir.dev/job-name": "j-g"}}})");

  const Executed executed = world.run({World::pods(2)});

  EXPECT_TRUE(executed.again);
  EXPECT_FALSE(executed.error.has_value());
  EXPECT_EQ(world.memory.taken_pod_names, std::set<std::string>{"j-g-0"});
  EXPECT_FALSE(world.memory.template_check.has_value());
}

TEST(Executor, TriesAgainWhileAnEarlierJobsPodIsStillThere) {
  World world;
  world.server.put(std::string(kPods) + "j-g-0", R"({"metadata": {"ownerReferences":
    [{"uid": "earlier", "controller": true}], "labels": {"weir.dev/job-name": "j"}}})");

  const Executed executed = world.run({World::pods(1)});

  ASSERT_TRUE(executed.error.has_value());
  EXPECT_EQ(executed.error->http_status, 409);
  EXPECT_THAT(executed.error->message, HasSubstr("j-g-0 is left of an earlier job"));
  EXPECT_THAT(world.memory.taken_pod_names, IsEmpty());
}

constexpr auto kEvents = "/apis/events.k8s.io/v1/namespaces/a/events/";

TEST(Executor, ReadsWhyAPodDoesNotStart) {
  World world;
  world.server.put(std::string(kEvents) + "one", R"({"metadata": {"name": "one"}, "type": "Warning",
    "reason": "FailedMount", "note": "configmap \"tetx\" not found",
    "deprecatedLastTimestamp": "2026-01-01T00:00:01Z"})");

  const Executed executed = world.run({reconcile::ReadPodWarning{"j-g-0", "pod-uid"}});

  EXPECT_TRUE(executed.again);
  EXPECT_EQ(world.memory.pod_warnings["pod-uid"].text, "FailedMount: configmap \"tetx\" not found");
  EXPECT_EQ(world.server.count("fieldSelector=regarding.kind%3DPod,regarding.uid%3Dpod-uid"), 1);
}

constexpr auto kPodOfJ = R"({"metadata": {"name": "j-g-0", "uid": "pod-uid", "resourceVersion": "7",
    "labels": {"weir.dev/job-name": "j"}}})";

TEST(Executor, APassAboutSilenceWaitsForTheCacheToSeeWhatIsListed) {
  World world;
  world.server.put(std::string(kPods) + "j-g-0", kPodOfJ);
  world.view.pods.push_back(std::make_shared<const api::Pod>(*api::decode_pod(kPodOfJ)));

  const Executed executed = world.run({reconcile::ConfirmPods{}});

  EXPECT_TRUE(executed.again);
  EXPECT_EQ(world.memory.pods_confirmed, world.clock.system_now());
  EXPECT_FALSE(world.cache.caught_up("a/j")) << "version 7 has not come yet";
  EXPECT_EQ(world.server.count("pods?labelSelector=weir.dev%2Fjob-name%3Dj"), 1);
}

TEST(Executor, APodThatOnlyTheCacheKnowsConfirmsNothing) {
  World world;
  world.view.pods.push_back(std::make_shared<const api::Pod>(*api::decode_pod(kPodOfJ)));

  const Executed executed = world.run(reconcile::Outcome{.requests = {reconcile::ConfirmPods{}},
                                                         .requeue = std::chrono::minutes(5)});

  EXPECT_FALSE(executed.again);
  EXPECT_FALSE(world.memory.pods_confirmed.has_value());
  EXPECT_EQ(executed.requeue, std::chrono::seconds(1));
}

TEST(Executor, GoesOnWithoutEventsThatItMayNotRead) {
  World world;
  world.server.fail(
      {.match = "events?fieldSelector", .response = http::Response{403, {}, R"({"kind": "Status",
                       "reason": "Forbidden", "message": "not allowed"})"}});

  const Executed executed =
      world.run(reconcile::Outcome{.requests = {reconcile::ReadPodWarning{"j-g-0", "pod-uid"}},
                                   .requeue = std::chrono::milliseconds(0)});

  EXPECT_FALSE(executed.error.has_value());
  EXPECT_TRUE(executed.requeue.has_value());
  EXPECT_EQ(world.memory.pod_warnings["pod-uid"].text, "");
}

constexpr auto kGang = "/apis/scheduling.volcano.sh/v1beta1/namespaces/a/podgroups/j";
constexpr auto kGangJson = R"({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
  "metadata": {"name": "j", "namespace": "a", "ownerReferences":
    [{"uid": "job-uid", "controller": true}]}})";

TEST(Executor, WritesTheGangObjectAndDeletesOnlyItsOwn) {
  World world;
  world.run({reconcile::ApplyGangObject{kGangJson}});
  EXPECT_TRUE(world.memory.gang.known);
  EXPECT_EQ(world.memory.gang.object, kGangJson);
  EXPECT_EQ(world.server.count("PATCH"), 1);

  world.server.put(kGang, kGangJson);
  EXPECT_FALSE(world.run({reconcile::DeleteGangObject{}}).error.has_value());
  EXPECT_EQ(world.server.get(kGang), "");
  EXPECT_EQ(world.memory.gang.object, "");

  world.server.put(kGang, "{}");
  EXPECT_FALSE(world.run({reconcile::DeleteGangObject{}}).error.has_value());
  EXPECT_NE(world.server.get(kGang), "") << "of somebody else";
}

TEST(Executor, AGangProviderThatIsNotThereRefusesTheJob) {
  World world;
  world.server.fail(
      {.match = "podgroups", .count = 2, .response = http::Response{404, {}, R"({"kind": "Status",
                       "reason": "NotFound", "message": "no such resource"})"}});

  EXPECT_TRUE(world.run({reconcile::ApplyGangObject{kGangJson}}).again);

  ASSERT_TRUE(world.memory.template_check.has_value());
  EXPECT_EQ(world.memory.template_check->reason, "GangProviderUnavailable");
}

TEST(Executor, ClosesAPodGroupOfKueue) {
  World world;
  auto pod = std::make_shared<api::Pod>();
  pod->meta.name = "j-g-0";
  pod->meta.namespace_name = "a";
  pod->meta.labels["kueue.x-k8s.io/pod-group-name"] = "j";
  world.server.put(std::string(kPods) + "j-g-0", R"({"metadata": {"name": "j-g-0"}})");
  const reconcile::ClosePodGroup close{"j-g-0", R"({"metadata": {"annotations": {"x": "y"}}})"};
  EXPECT_FALSE(world.run({close}).error.has_value());
  EXPECT_THAT(world.server.get(std::string(kPods) + "j-g-0"), HasSubstr("annotations"));

  // The job is gone: nobody else would do it.
  cache::JobView gone;
  EXPECT_FALSE(world.executor.let_go(gone).error.has_value());
  EXPECT_EQ(world.server.count("PATCH"), 1);
  gone.pods = {pod};
  EXPECT_FALSE(world.executor.let_go(gone).error.has_value());
  EXPECT_THAT(world.server.get(std::string(kPods) + "j-g-0"), HasSubstr("retriable-in-group"));
  world.server.remove(std::string(kPods) + "j-g-0");
  EXPECT_FALSE(world.executor.let_go(gone).error.has_value()) << "gone meanwhile";
  world.lease_fresh = false;
  EXPECT_TRUE(world.executor.let_go(gone).requeue.has_value());
}

TEST(Executor, MakesNoPodsWithAnOldLease) {
  World world;
  world.lease_fresh = false;

  const Executed made = world.run({World::pods(1)});
  const Executed deleted = world.run({reconcile::DeletePod{"p", "u", "why"}});

  EXPECT_TRUE(made.error.has_value() && deleted.error.has_value());
  EXPECT_THAT(world.server.requests(), IsEmpty());
}

TEST(Executor, StopsMakingPodsWhenTheLeaseGetsOldInTheMiddle) {
  World world;
  world.writes_left = 3;

  const Executed executed = world.run({World::pods(20)});

  EXPECT_TRUE(executed.error.has_value());
  EXPECT_EQ(world.server.paths().size(), 3U) << "asked before each pod, not once a batch";
}

TEST(Executor, RemembersTheVerdictOfADryRun) {
  World world;
  EXPECT_TRUE(world.run({reconcile::DryRunPods{"hash"}}).again);
  ASSERT_TRUE(world.memory.template_check.has_value());
  EXPECT_TRUE(world.memory.template_check->accepted);
  EXPECT_EQ(world.memory.template_check->hash, "hash");
  EXPECT_THAT(world.server.paths(), IsEmpty());

  world.server.fail(
      {.match = "dryRun",
       .count = 1,
       .response = http::Response{400, {}, R"({"kind": "Status", "reason": "BadRequest",
                       "message": "unknown field \"spec.x\""})"}});
  world.run({reconcile::DryRunPods{"hash"}});
  EXPECT_EQ(world.memory.template_check->reason, "InvalidTemplate");
  EXPECT_THAT(world.memory.template_check->message, HasSubstr("spec.x"));
}

TEST(Executor, NamesTheFieldOfACheckpointThatIsOnNoVolume) {
  World world;
  world.job->spec.checkpoint_path = "/ck/run1";
  world.run({reconcile::DryRunPods{"hash"}});
  ASSERT_TRUE(world.memory.template_check.has_value());
  EXPECT_FALSE(world.memory.template_check->accepted);
  EXPECT_THAT(world.memory.template_check->message,
              HasSubstr("checkpoint.path: /ck/run1 is on no volume in group g"));

  world.job->spec.worker.volume_mounts = R"([{"name": "ck", "mountPath": "/ck/"}])";
  world.run({reconcile::DryRunPods{"hash"}});
  EXPECT_TRUE(world.memory.template_check->accepted);

  world.job->spec.worker.volume_mounts = "";
  world.job->spec.checkpoint_claim = "claim";
  world.run({reconcile::DryRunPods{"hash"}});
  EXPECT_TRUE(world.memory.template_check->accepted);
}

TEST(Executor, RefusesAPlanThatNoConfigMapTakes) {
  World world;
  reconcile::CreatePlan create;
  create.plan.ranks.resize(4096);
  for (auto& rank : create.plan.ranks) rank.node = std::string(250, 'n');

  EXPECT_TRUE(world.run({create}).refused);

  EXPECT_THAT(world.server.requests(), IsEmpty());
  EXPECT_THAT(world.memory.refused.at(0).message, HasSubstr("4096 ranks"));
}

TEST(Executor, TakesAFailedDryRunForNoVerdict) {
  World world;
  world.server.fail({.match = "dryRun", .count = 1, .error = Error{Code::kTimeout, "slow"}});

  EXPECT_TRUE(world.run({reconcile::DryRunPods{"hash"}}).error.has_value());

  EXPECT_FALSE(world.memory.template_check.has_value());
}

TEST(Executor, PatchesStatusGuardedByTheVersionItDecidedOn) {
  World world;
  world.server.put(kJob, "{}");  // has moved on to another version

  const Executed executed =
      world.run(reconcile::Outcome{.status = reconcile::PatchStatus{{}, true}});

  ASSERT_TRUE(executed.error.has_value());
  EXPECT_EQ(executed.error->http_status, 409);
  EXPECT_FALSE(
      world.run(reconcile::Outcome{.status = reconcile::PatchStatus{{}, false}}).error.has_value());
}

TEST(Executor, NeverAdoptsAPlanOfTheSameNumber) {
  World world;
  reconcile::CreatePlan create;
  create.plan.revision = 4;
  EXPECT_FALSE(world.run({create}).error.has_value());

  const Executed again = world.run({create});

  ASSERT_TRUE(again.error.has_value());
  EXPECT_EQ(again.error->reason, "AlreadyExists");
}

TEST(Executor, SaysWhatIsMissingOfAProfile) {
  World world;
  world.job->spec.profile.config_map = "prof";
  EXPECT_TRUE(world.run({reconcile::ReadProfile{}}).again);
  EXPECT_THAT(world.memory.profile->error, HasSubstr("ConfigMap prof does not exist"));

  world.server.put("/api/v1/namespaces/a/configmaps/prof", R"({"data": {"other": "x"}})");
  world.run({reconcile::ReadProfile{}});
  EXPECT_THAT(world.memory.profile->error, HasSubstr("has no key profile.json"));

  world.server.put("/api/v1/namespaces/a/configmaps/prof", R"({"data": {"profile.json": "{}"}})");
  world.run({reconcile::ReadProfile{}});
  EXPECT_EQ(world.memory.profile->error, "");
  EXPECT_EQ(world.memory.profile->text, "{}");
}

TEST(Executor, TellsOfAForeignServiceOfOurName) {
  World world;
  world.server.put("/api/v1/namespaces/a/services/j", "{}");

  EXPECT_TRUE(world.run({reconcile::CreateService{}}).again);

  EXPECT_EQ(world.memory.foreign_service_owner, "nobody");
}

TEST(Executor, MakesTheControlConfigMapThenChangesIt) {
  World world;
  constexpr auto kMap = "/api/v1/namespaces/a/configmaps/j-control";
  EXPECT_FALSE(world.run({reconcile::ApplyControlConfigMap{}}).error.has_value());
  EXPECT_THAT(world.server.get(kMap), HasSubstr(R"("ca.crt":"CA")"));

  EXPECT_FALSE(world.run({reconcile::ApplyControlConfigMap{}}).error.has_value()) << "ours: 409";
  EXPECT_EQ(world.server.count("PATCH"), 1);
}

TEST(Executor, StopsQuietlyInATerminatingNamespace) {
  World world;
  world.server.fail(
      {.match = "POST",
       .count = 1,
       .response = http::Response{403, {}, R"({"kind": "Status", "reason": "Forbidden",
                       "details": {"causes": [{"reason": "NamespaceTerminating", "message": "x"}]}})"}});

  const Executed executed = world.run({World::pods(1)});

  EXPECT_TRUE(executed.hopeless);
  EXPECT_FALSE(executed.error.has_value());
}

TEST(Executor, KeepsAdaptationStateAndTheRequeue) {
  World world;
  reconcile::AdaptationState state;
  state.memory.announced.retune = "k=4";

  const Executed executed =
      world.run(reconcile::Outcome{.memory = state, .requeue = std::chrono::milliseconds(7)});

  EXPECT_EQ(world.memory.adaptation.memory.announced.retune, "k=4");
  EXPECT_EQ(executed.requeue, std::chrono::milliseconds(7));
}

}  // namespace executor_test
}  // namespace weir::controller
