// SPDX-License-Identifier: Apache-2.0
// Two jobs of one controller teach one calibration: the interval of a prediction follows how far
// the predictions of both jobs were off. The real controller, executor and cache run on the API
// server in memory; this test plays kubelets and workers.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "operator/api/decode.h"
#include "operator/cache/object_cache.h"
#include "operator/controller/controller.h"
#include "operator/kube/auth.h"
#include "tests/operator/controller/reconcile/world.h"
#include "tests/support/fake_transport.h"
#include "tests/support/jump_clock.h"
#include "worker/protocol/codec.h"

namespace weir::sim {
namespace one_calibration_test {

using nlohmann::json;
using reconcile::test::kFast;
using reconcile::test::kSlow;

constexpr auto kSpec = R"({"spec": {"worker": {"image": "w:1"},
  "workerGroups": [{"name": "gpu", "count": 4}], "parallelism": {"stages": 4},
  "batch": {"globalBatchSize": 64, "microBatchSize": 4}, "schedule": {"k": {"initial": 1}},
  "adaptation": {"evaluationIntervalSeconds": 5, "retune": {"cooldownSeconds": 0}}}})";
constexpr double kFree = 1.15, kContended = 1.75;  // seconds of a step with k = 1

class Leader {
 public:
  Leader() {
    cache_.on_change([this](const std::string& key, bool) { controller_.queue().add(key); });
  }
  void add(const std::string& name) {
    server_.put("/apis/weir.dev/v1alpha1/namespaces/a/pipelinejobs/" + name, kSpec);
    jobs_["a/" + name];
    for (int i = 0; i < 6; ++i) {
      settle();
      run_pods("a/" + name);
      settle();
      workers("a/" + name).workers_register();
      add_key("a/" + name);
      settle();
      apply("a/" + name);
    }
  }
  // Trains until the plan has been retuned, or for 60 steps; then twenty steps with it. Returns
  // what the status told of the new plan at first.
  api::PlanStatus preempt(const std::string& key, double seconds_after) {
    workers(key).links(kFast, kFast);
    train(key, 20, kFree);
    workers(key).links(kFast, kSlow);
    const auto before = workers(key).job.status.plan.revision;
    for (int i = 0; i < 60 && workers(key).job.status.plan.revision == before; ++i) {
      train(key, 1, kContended);
    }
    const api::PlanStatus retuned = workers(key).job.status.plan;
    apply(key);
    train(key, 20, seconds_after);
    return retuned;
  }

  std::vector<gate::Observation> judged;

 private:
  reconcile::test::World& workers(const std::string& key) { return jobs_.at(key); }
  void add_key(const std::string& key) { controller_.queue().add(key); }
  void relist() {
    const auto bring = [this](const kube::Resource& resource, kube::Sink sink) {
      const auto page = api::decode_list(*client_->list(resource, "", ""));
      sink.replace(page->items, page->resource_version);
    };
    bring(kube::pipeline_jobs(), cache_.jobs(""));
    bring(kube::pods(), cache_.pods(""));
    bring(kube::services(), cache_.services(""));
    bring(kube::config_maps(), cache_.config_maps(""));
    for (auto& [key, world] : jobs_) {
      const auto view = cache_.view(key);
      if (view.job) world.job = *view.job;
      world.pods.clear();
      for (const auto& pod : view.pods) world.pods.push_back(*pod);
      std::map<std::uint32_t, schedule::Plan> plans;
      for (const auto& map : view.config_maps) {
        if (!map->data.contains("plan.json")) continue;
        const auto plan = protocol::decode_plan(map->data.at("plan.json"));
        plans[plan->revision] = *plan;
      }
      world.plans.clear();
      for (const auto& [revision, plan] : plans) world.plans.push_back(plan);
      world.now = clock_.system_now();
    }
  }
  void settle() {
    constexpr int kMost = 8;  // requests that wait move the clock, so some job may be due again
    for (int i = 0; i < kMost; ++i) {
      relist();
      const auto key = controller_.queue().try_get();
      if (!key) return;
      controller_.reconcile_key(*key);
      controller_.queue().done(*key);
    }
    relist();
  }
  void run_pods(const std::string& key) {
    int node = 0;
    for (const auto& pod : cache_.view(key).pods) {
      const std::string path = "/api/v1/namespaces/a/pods/" + pod->meta.name;
      json object = json::parse(server_.get(path));
      ++node;
      if (object["spec"].contains("nodeName")) continue;
      object["spec"]["nodeName"] = "n" + std::to_string(node);
      object["status"] = {
          {"phase", "Running"},
          {"podIPs", {{{"ip", "10.0.0." + std::to_string(node)}}}},
          {"conditions", {{{"type", "Ready"}, {"status", "True"}}}},
          {"containerStatuses", {{{"name", "trainer"}, {"state", {{"running", json::object()}}}}}}};
      server_.put(path, object.dump());
    }
  }
  void apply(const std::string& key) {
    relist();
    workers(key).coordinator_applies();
    add_key(key);
    settle();
  }
  void train(const std::string& key, int steps, double seconds) {
    for (int i = 0; i < steps; ++i) {
      const std::chrono::nanoseconds step(static_cast<std::int64_t>(1e9 * seconds));
      clock_.advance(step);
      auto& world = workers(key);
      world.now = clock_.system_now();
      for (Time& scraped : world.estimates.rates.times) {
        scraped += std::chrono::duration_cast<Time::duration>(step);
      }
      world.report->body.step += 1;
      world.report->received = world.now;
      world.report->body.samples_per_second = 64 / seconds;
      add_key(key);
      settle();
    }
  }
  using Time = reconcile::Time;

  test::JumpClock clock_;
  test::FakeTransport server_;
  kube::TokenSource token_{"", "", clock_};
  std::unique_ptr<kube::Client> client_ = kube::make_client(server_, token_, clock_, {});
  cache::ObjectCache cache_{clock_, {""}, false};
  kube::EventSender events_{*client_, clock_, "op"};
  std::map<std::string, reconcile::test::World> jobs_;
  controller::Controller controller_{
      {*client_, cache_, events_, clock_, [] { return true; },
       [] { return std::string("https://op:8443"); }, [] { return std::string("CA"); }},
      {.control =
           [this](const std::string& key, const std::string&) {
             const auto& world = jobs_.at(key);
             return controller::ControlView{world.members, world.report};
           },
       .estimates = [this](const std::string& key,
                           const std::string&) { return jobs_.at(key).estimates; },
       .leading_since = [] { return std::optional<SystemTime>(SystemTime{}); },
       .on_gone = [](const std::string&) {},
       .judged = [this](const gate::Observation& one) { judged.push_back(one); }}};
};

TEST(OneCalibration, IsTaughtByAllJobsOfAController) {
  Leader leader;
  leader.add("one");
  leader.add("two");

  const api::PlanStatus one = leader.preempt("a/one", 1.15);
  ASSERT_EQ(leader.judged.size(), 1U);
  const api::PlanStatus two = leader.preempt("a/two", 1.35);
  ASSERT_EQ(leader.judged.size(), 2U);

  // The second job's interval is the one that the first job's outcome has left.
  gate::Calibration calibration;
  const auto interval = [&](const api::PlanStatus& plan) {
    return gate::interval_text(
        calibration.around(std::stod(plan.predicted_gain_percent) / 100, gate::Tier::kRetune));
  };
  EXPECT_EQ(one.predicted_gain_interval, interval(one));
  EXPECT_NE(two.predicted_gain_interval, interval(two));
  gate::learn(calibration, leader.judged[0]);
  EXPECT_EQ(two.predicted_gain_interval, interval(two));
}

}  // namespace one_calibration_test
}  // namespace weir::sim
