// SPDX-License-Identifier: Apache-2.0
// /metrics of one worker and of the operator, with fixed values, as Prometheus reads it; without
// process_* and what the operator's steps count themselves. Families are sorted by name.
#include <chrono>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "operator/app/exposition.h"
#include "tests/recorded/recording.h"
#include "tests/support/manual_clock.h"
#include "worker/app/exposition.h"
#include "worker/http/beast_transport.h"
#include "worker/telemetry/metric.h"

namespace weir::recorded {
namespace metrics_test {

using namespace std::chrono_literals;  // NOLINT: tests

std::unique_ptr<telemetry::Endpoint> endpoint() {
  auto made = telemetry::make_endpoint(0, "127.0.0.1");
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *std::move(made);
}

std::string page_of(const telemetry::Endpoint& endpoint) {
  const auto client = http::make_beast_transport(
      {.base_url = "http://127.0.0.1:" + std::to_string(endpoint.port())});
  const auto answer = (*client)->send({http::Method::kGet, "/metrics", {}, ""},
                                      std::chrono::steady_clock::now() + 30s, {});
  EXPECT_TRUE(answer.ok()) << answer.error().message;
  std::map<std::string, std::string> families;
  std::istringstream page(answer.ok() ? answer->body : "");
  std::string name;
  for (std::string line; std::getline(page, line);) {
    constexpr std::string_view kHelp = "# HELP ";
    if (line.starts_with(kHelp)) {
      name = line.substr(kHelp.size(), line.find(' ', kHelp.size()) - kHelp.size());
    }
    families[name] += line + "\n";
  }
  std::string text;
  for (const auto& [family, lines] : families) {
    if (!family.starts_with("process_")) text += "\n" + lines;
  }
  return text;
}

engine::Statistics statistics() {
  engine::Statistics s;
  s.replica = 1;
  s.stage = 0;
  s.stages = 2;
  s.epoch = 7;
  s.k = 2;
  s.cap = 4;
  s.step = 10;
  s.skipped_steps = 1;
  s.loss = 2.5;
  s.validation_loss = 1.75;
  s.validation_step = 9;
  s.validation.add(0.3);
  s.iteration.add(0.25);
  s.forward.add(0.003);
  s.backward.add(0.006);
  s.optimizer.add(0.001);
  s.wait_forward_seconds = 0.5;
  s.wait_backward_seconds = 0.75;
  s.credit_seconds = 2;
  s.sync_seconds = 0.125;
  s.sync_by_kind = {{{0.5, 4}, {0.25, 3}, {0.125, 2}}};
  s.group_sizes.add(3);
  s.staleness = 1.5;
  s.sync_bytes_per_second = 1e9;
  s.sync_links = {{.from = 0, .from_node = "n1", .to_node = "n6", .bytes = 9, .busy_seconds = 3}};
  s.replicas = 2;
  s.in_flight_peak = 4;
  s.activation_bytes_peak = 4096;
  s.samples = 80;
  s.tokens = 10240;
  s.rejoins = 1;
  s.lateness.add(0.0001);
  s.overruns = 5;
  s.save.add(0.3);
  s.checkpoint_step = 8;
  s.checkpoint_failures = 1;
  return s;
}

transport::LinkReport link() {
  transport::LinkReport link{.replica = 1, .boundary = 0, .from_node = "n1", .to_node = "n2"};
  link.counters.bytes = 1000;
  link.counters.busy = 500ms;
  link.counters.credit_wait = 250ms;
  link.counters.transfers = 3;
  link.counters.histogram[1] = 2;
  link.counters.histogram[16] = 1;
  link.counters.transfer_seconds_sum = 0.5;
  link.counters.rtt_seconds = 0.001;
  link.counters.nccl = transport::TransferTimes{
      .network = 400ms, .peer = 30ms, .gpu = 2ms, .bytes = 900, .kernel = 500ms, .events = 510ms};
  return link;
}

TEST(RecordedMetrics, OfAWorkerAreTheSame) {
  const app::WorkerLabels labels{.job_namespace = "team-a",
                                 .job_name = "gpt",
                                 .worker = "gpt-gpu-0",
                                 .worker_group = "gpu",
                                 .node = "n1",
                                 .device = "A100",
                                 .transport = "tcp",
                                 .version = "0.1.0",
                                 .emulated = true};
  const auto metrics = endpoint();
  metrics->collect([labels] { return app::worker_families(labels, statistics(), {link()}, 4096); });

  compare_text("metrics-worker.txt", "/metrics of a worker.", page_of(*metrics));
}

operator_app::JobFacts facts() {
  auto job = std::make_shared<api::PipelineJob>();
  job->meta.name = "gpt";
  job->meta.namespace_name = "team-a";
  job->meta.uid = "u-1";
  job->status.restart_reasons = {{"Crashed", 2}, {"NodeLost", 1}};
  job->status.conditions = {{"Ready", "True", "Running", "", 1, SystemTime{}},
                            {"Degraded", "Unknown", "Starting", "", 1, SystemTime{}}};
  job->status.plan.revision = 7;
  job->status.plan.applied_revision = 6;
  job->status.plan.k = 4;
  job->status.plan.predicted_step_seconds = "1.42";
  estimator::Estimates estimates;
  estimates.last_sample = SystemTime{10s};
  estimator::LinkEstimate link;
  link.from_node = "n1";
  link.to_node = "n2";
  link.now = 50;
  link.baseline = 100;
  estimates.links = {link};
  return {job, estimates};
}

TEST(RecordedMetrics, OfTheOperatorAreTheSame) {
  test::ManualClock clock;
  const auto metrics = endpoint();
  operator_app::client_observer (*metrics)("PATCH", 200, 30ms);
  operator_app::client_observer (*metrics)("GET", 0, 2s);
  operator_app::reconcile_observer (*metrics)("requeue_after", 20ms);
  operator_app::planner_observer (*metrics)("retune", 2ms);
  operator_app::apply_observer (*metrics)("regroup", 3s);
  controller::WorkQueue queue(clock, operator_app::queue_callbacks(*metrics));
  queue.add("team-a/gpt");
  clock.advance(2s);
  EXPECT_TRUE(queue.try_get().has_value());
  queue.add_rate_limited("team-a/other");
  clock.advance(3s);
  operator_app::PlanChanges changes;
  changes.count(*facts().job, "PlanRegrouped");
  changes.count(*facts().job, "PlanRolledBack");
  metrics->collect([&] {
    auto families = operator_app::job_families({facts()}, SystemTime{14s});
    families.push_back(changes.family({facts()}));
    for (auto& family : operator_app::queue_families(queue)) families.push_back(std::move(family));
    return families;
  });

  compare_text("metrics-operator.txt", "/metrics of the operator.", page_of(*metrics));
}

}  // namespace metrics_test
}  // namespace weir::recorded
