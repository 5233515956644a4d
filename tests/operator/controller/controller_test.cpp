// SPDX-License-Identifier: Apache-2.0
// Controller, cache and client together on the API server in memory; passes are driven by hand.
#include "operator/controller/controller.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "operator/api/decode.h"
#include "operator/cache/object_cache.h"
#include "operator/kube/auth.h"
#include "tests/support/fake_transport.h"
#include "tests/support/jump_clock.h"

namespace weir::controller {
namespace controller_test {

using nlohmann::json;

constexpr auto kJob = "/apis/weir.dev/v1alpha1/namespaces/a/pipelinejobs/j";
constexpr auto kSpec = R"({"spec": {"worker": {"image": "w:1"},
  "workerGroups": [{"name": "g", "count": 3}],
  "batch": {"globalBatchSize": 8, "microBatchSize": 1}}})";

struct World {
  World() {
    cache.on_change([this](const std::string& key, bool) { controller.queue().add(key); });
    relist();
  }
  // Brings the objects of the API server to the cache, as the watches would.
  void relist() {
    const auto items = [this](const kube::Resource& resource) {
      const auto page = api::decode_list(*client->list(resource, "", ""));
      return std::pair(page->items, page->resource_version);
    };
    const auto jobs = items(kube::pipeline_jobs());
    cache.jobs("").replace(jobs.first, jobs.second);
    const auto pods = items(kube::pods());
    cache.pods("").replace(pods.first, pods.second);
    const auto services = items(kube::services());
    cache.services("").replace(services.first, services.second);
    const auto maps = items(kube::config_maps());
    cache.config_maps("").replace(maps.first, maps.second);
  }
  // Works off the queue, with the cache in step, until nothing is due.
  void settle() {
    for (int i = 0; i < 30; ++i) {
      relist();
      const auto key = controller.queue().try_get();
      if (!key) return;
      controller.reconcile_key(*key);
      controller.queue().done(*key);
    }
    FAIL() << "no fixed point after 30 passes";
  }
  json job() const { return json::parse(server.get(kJob)); }
  std::string condition(const std::string& type) const {
    const json whole = job();
    for (const json& each : whole["status"]["conditions"]) {
      if (each["type"] == type) {
        return each["status"].get<std::string>() + "/" + each["reason"].get<std::string>();
      }
    }
    return "";
  }

  test::JumpClock clock;
  test::FakeTransport server;
  kube::TokenSource token{"", "", clock};
  std::unique_ptr<kube::Client> client = kube::make_client(server, token, clock, {});
  cache::ObjectCache cache{clock, {""}, false};
  kube::EventSender events{*client, clock, "op"};
  std::string gone;
  Controller controller{
      {*client, cache, events, clock, [] { return true; },
       [] { return std::string("https://op:8443"); }, [] { return std::string("CA"); }},
      {.control = [](const std::string&, const std::string&) { return ControlView{}; },
       .estimates = [](const std::string&, const std::string&) { return estimator::Estimates{}; },
       .leading_since = [] { return std::optional<SystemTime>(); },
       .on_gone = [this](const std::string& key) { gone = key; }}};
};

TEST(Controller, BringsAJobToItsPodsAndStops) {
  World world;
  world.server.put(kJob, kSpec);

  world.settle();

  EXPECT_EQ(world.condition("Accepted"), "True/Accepted");
  EXPECT_EQ(world.server.count("POST /api/v1/namespaces/a/pods?fieldValidation=Strict&dryRun"), 1);
  for (const char* name : {"j-g-0", "j-g-1", "j-g-2"}) {
    EXPECT_NE(world.server.get("/api/v1/namespaces/a/pods/" + std::string(name)), "") << name;
  }
  EXPECT_NE(world.server.get("/api/v1/namespaces/a/services/j"), "");
  EXPECT_NE(world.server.get("/api/v1/namespaces/a/configmaps/j-control"), "");
}

TEST(Controller, WritesNothingWhenNothingChanges) {
  World world;
  world.server.put(kJob, kSpec);
  world.settle();
  const auto before = world.server.count("PATCH") + world.server.count("POST");

  world.controller.queue().add("a/j");
  world.settle();

  EXPECT_EQ(world.server.count("PATCH") + world.server.count("POST"), before);
}

TEST(Controller, RefusesWhatIsNotBuiltWithTheFieldInTheCondition) {
  World world;
  json spec = json::parse(kSpec);
  spec["spec"]["placement"]["mode"] = "Solver";
  world.server.put(kJob, spec.dump());

  world.settle();

  EXPECT_EQ(world.condition("Accepted"), "False/NotImplemented");
  EXPECT_EQ(world.server.count("POST /api/v1/namespaces/a/pods"), 0);
}

TEST(Controller, TriesAgainAfterAnErrorWithABackOff) {
  World world;
  world.server.put(kJob, kSpec);
  world.server.fail({.match = "POST /api/v1/namespaces/a/services",
                     .count = 3,
                     .error = Error{Code::kUnavailable, "refused"}});

  for (int i = 0; i < 5; ++i) {
    world.settle();
    world.clock.advance(std::chrono::seconds(1));
  }

  EXPECT_NE(world.server.get("/api/v1/namespaces/a/services/j"), "");
  EXPECT_EQ(world.server.count("POST /api/v1/namespaces/a/services"), 4);
}

TEST(Controller, TellsARefusalInStatusWithinOnePassAndTriesAgainSoon) {
  World world;
  world.server.put(kJob, kSpec);
  world.server.fail({.match = "dryRun", .count = 1});  // as usual
  world.server.fail(
      {.match = "pods?fieldValidation=Strict",
       .count = 1,
       .response = http::Response{403, {}, R"({"kind": "Status", "reason": "Forbidden",
           "message": "pods is forbidden: violates PodSecurity"})"}});
  world.settle();

  EXPECT_EQ(world.condition("PodsScheduled"), "False/CreateRefused");
  EXPECT_TRUE(world.job()["status"].contains("startTime"));

  world.clock.advance(std::chrono::seconds(31));
  world.settle();
  EXPECT_NE(world.server.get("/api/v1/namespaces/a/pods/j-g-2"), "");
  EXPECT_NE(world.condition("PodsScheduled"), "False/CreateRefused");
}

TEST(Controller, WaitsUntilTheCacheHasSeenItsWrites) {
  World world;
  world.server.put(kJob, kSpec);
  world.relist();
  world.controller.reconcile_key("a/j");  // dry run
  world.controller.reconcile_key("a/j");  // makes pods; the cache does not see them
  const auto before = world.server.requests().size();

  world.controller.reconcile_key("a/j");

  EXPECT_EQ(world.server.requests().size(), before);
}

TEST(Controller, ForgetsAJobThatIsGone) {
  World world;
  world.server.put(kJob, kSpec);
  world.settle();

  world.server.remove(kJob);
  world.settle();

  EXPECT_EQ(world.gone, "a/j");
}

constexpr auto kOldPod = R"({"metadata": {"name": "j-g-0", "namespace": "a", "uid": "old-pod",
  "labels": {"weir.dev/job-name": "j", "weir.dev/attempt": "0"}, "ownerReferences":
    [{"uid": "old-job", "controller": true}]}})";

TEST(Controller, AJobWaitsForThePodsOfItsPredecessor) {
  World world;
  world.server.put("/api/v1/namespaces/a/pods/j-g-0", kOldPod);
  world.server.put(kJob, kSpec);
  world.settle();

  EXPECT_EQ(world.condition("Accepted"), "True/Accepted");
  EXPECT_EQ(world.condition("PodsScheduled"), "False/WaitingForPredecessor");
  EXPECT_EQ(world.condition("Ready"), "False/Pending");
  EXPECT_EQ(world.server.get("/api/v1/namespaces/a/pods/j-g-1"), "");

  world.server.remove("/api/v1/namespaces/a/pods/j-g-0");
  world.settle();  // the watch brings its end

  for (const char* name : {"j-g-0", "j-g-1", "j-g-2"}) {
    EXPECT_NE(world.server.get("/api/v1/namespaces/a/pods/" + std::string(name)), "") << name;
  }
}

TEST(Controller, AJobThatHasAnOrphansNameIsRefused) {
  World world;
  json orphan = json::parse(kOldPod);
  orphan["metadata"].erase("ownerReferences");
  world.server.put("/api/v1/namespaces/a/pods/j-g-0", orphan.dump());
  world.server.put(kJob, kSpec);
  world.settle();

  EXPECT_EQ(world.condition("Accepted"), "False/NameConflict");
  EXPECT_EQ(world.server.get("/api/v1/namespaces/a/pods/j-g-1"), "");
}

TEST(Controller, WhatAUserHasLabelledIsInNobodysWay) {
  World world;
  for (const auto* path :
       {"/api/v1/namespaces/a/configmaps/text", "/api/v1/namespaces/a/pods/debug"}) {
    const std::string name = std::string(path).substr(std::string(path).rfind('/') + 1);
    world.server.put(path, R"({"metadata": {"name": ")" + name + R"(", "namespace": "a",
      "labels": {"weir.dev/job-name": "j"}}})");
  }
  world.server.put(kJob, kSpec);
  world.settle();

  EXPECT_EQ(world.condition("Accepted"), "True/Accepted");
  EXPECT_NE(world.server.get("/api/v1/namespaces/a/pods/j-g-0"), "");
}

TEST(Controller, TwoJobsWhosePodsWouldHaveOneNameBothRun) {
  World world;
  world.server.put("/api/v1/namespaces/a/pods/j-g-0", R"({"metadata": {"name": "j-g-0",
    "namespace": "a", "uid": "other-pod", "labels": {"weir.dev/job-name": "other"},
    "ownerReferences": [{"uid": "other-job", "controller": true}]}})");
  world.server.put(kJob, kSpec);
  world.settle();

  EXPECT_EQ(world.condition("Accepted"), "True/Accepted");
  const json pod = json::parse(world.server.get("/api/v1/namespaces/a/pods/j-g-0-1"));
  EXPECT_EQ(pod["spec"]["hostname"], "j-g-0");
  EXPECT_NE(world.server.get("/api/v1/namespaces/a/pods/j-g-1"), "");
}

TEST(Controller, StopsItsThreads) {
  World world;
  world.controller.start();
  world.server.put(kJob, kSpec);
  world.relist();

  // The clock jumps at each sleep while the threads work in real time: no deadline of it is fair.
  EXPECT_TRUE(world.controller.stop(SteadyTime::max()));
}

TEST(PlannedKind, TellsTheTunersWorkFromThePlanners) {
  const auto kind = [](const reconcile::AdaptationState& after,
                       std::optional<schedule::Trigger> trigger) {
    reconcile::Outcome outcome{.memory = after};
    if (trigger) {
      reconcile::CreatePlan create;
      create.plan.trigger = *trigger;
      outcome.requests.emplace_back(create);
    }
    return planned_kind({}, outcome);
  };
  reconcile::AdaptationState looked, searched;
  looked.memory.last_evaluation = searched.memory.last_evaluation = SystemTime{};
  searched.memory.repartition.searches = 1;

  EXPECT_EQ(kind({}, std::nullopt), "");
  EXPECT_EQ(kind(looked, std::nullopt), "evaluate");
  EXPECT_EQ(kind(searched, std::nullopt), "regroup") << "the plan stayed";
  EXPECT_EQ(kind(searched, schedule::Trigger::kRegroup), "regroup");
  EXPECT_EQ(kind(looked, schedule::Trigger::kRetune), "retune");
  EXPECT_EQ(kind({}, schedule::Trigger::kRestart), "restart");
}

}  // namespace controller_test
}  // namespace weir::controller
