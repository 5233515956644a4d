// SPDX-License-Identifier: Apache-2.0
// /metrics of one worker and of the operator, with fixed values, as Prometheus reads it; without
// process_* and what the operator's steps count themselves. Families are sorted by name.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

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
  schedule::Plan plan;
  plan.revision = 7;
  plan.schedule.k = 2;
  plan.schedule.caps = {4, 2};
  plan.micro_batches = {4, 4};
  plan.ranks = {{.node = "n6", .replica = 0}, {.node = "n1", .replica = 1}};
  engine::Recorder recorder;
  recorder.stage_built(1, 0, 2, true, 0);
  recorder.plan_adopted(plan, 0);
  recorder.forward_done(3ms, 4, 4096);
  recorder.backward_done(6ms, 4096);
  recorder.weights_done(2ms);
  recorder.optimizer_done(1ms);
  recorder.booked(protocol::StepPart::kForwardLate, 500ms);
  recorder.booked(protocol::StepPart::kGradientLate, 750ms);
  recorder.booked(protocol::StepPart::kFullLink, 500ms);
  recorder.booked(protocol::StepPart::kFullPeer, 2s);
  recorder.booked(protocol::StepPart::kSum, 125ms);
  transport::CollectiveCounters counters{.bytes_sent = 3000, .busy = 3us};
  counters.received[0] = {.bytes = 9, .counted_bytes = 9, .busy = 3s};
  recorder.synchronized(counters, 500ms);
  recorder.averaged(250ms, 3, 0.5, 1e8);
  recorder.averaged(125ms, 1, 1.5, 1e9);
  recorder.validated(9, 1.75, 300ms);
  const std::array<std::chrono::nanoseconds, 1> late{100us};
  recorder.lateness(late, 5);
  recorder.checkpoint_written(300ms);
  recorder.checkpoint_complete(8);
  recorder.checkpoint_failed();
  recorder.step_done(
      {.step = 9,
       .next_step = 10,
       .first_stage = true,
       .skipped = true,
       .loss = 2.5,
       .iteration_seconds = 0.25,
       .sent = {{{.bits = 8.25, .rounded = true, .error_ratio = 0.0075, .zeroed_ratio = 0.01},
                 {.bits = 32}}},
       .compressed = true,
       .samples = 80},
      128);
  engine::Statistics all = recorder.read();
  all.copied_bytes = 900;
  all.copy_step = 7;
  all.snapshot_bytes = 2700;
  all.snapshot_wait_seconds = 0.125;
  return all;
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

const app::WorkerLabels kWorker{.job_namespace = "team-a",
                                .job_name = "gpt",
                                .worker = "gpt-gpu-0",
                                .worker_group = "gpu",
                                .node = "n1",
                                .device = "A100",
                                .transport = "tcp",
                                .version = "0.1.0",
                                .emulated = true};

TEST(RecordedMetrics, OfAWorkerAreTheSame) {
  const auto metrics = endpoint();
  metrics->collect([] { return app::worker_families(kWorker, statistics(), {link()}, 4096, 1); });

  compare_text("metrics-worker.txt", "/metrics of a worker.", page_of(*metrics));
}

std::string number(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

// "0.001 x 2^i", or all bounds if they are no such series.
std::string text_of(const std::vector<double>& bounds) {
  const double factor = bounds[1] / bounds[0];
  bool series = true;
  std::string all;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    all += (i == 0 ? "" : " ") + number(bounds[i]);
    if (i > 0) series = series && std::abs(bounds[i] / bounds[i - 1] - factor) < 1e-9;
  }
  return series ? number(bounds[0]) + " x " + number(factor) + "^i" : all;
}

// The labels behind those of each series. A label that tells the samples apart has its values, too.
std::string labels_of(const telemetry::Family& family) {
  constexpr std::size_t kCommon = 3;
  std::string text;
  const telemetry::Labels& first = family.samples[0].labels;
  for (std::size_t i = kCommon; i < first.size(); ++i) {
    std::set<std::string> different;
    std::string values;
    for (const telemetry::Sample& sample : family.samples) {
      different.insert(sample.labels[i].second);
      values += (values.empty() ? "=" : ", ") + sample.labels[i].second;
    }
    const bool link = i + 1 < first.size() && first[i + 1].first == "link";
    const bool kinds = family.samples.size() > 2 && different.size() == family.samples.size();
    text += (text.empty() ? "" : ", ") + (link ? "L" : first[i].first) + (kinds ? values : "");
    if (link) i += 4;
  }
  return text;
}

std::string row_of(const telemetry::Family& family) {
  std::string type = family.type == telemetry::Type::kCounter ? "counter" : "gauge";
  if (family.type == telemetry::Type::kHistogram) {
    type = "histogram: " + text_of(family.samples[0].histogram.bounds);
  }
  return "| `" + family.name + "` | " + type + " | " + labels_of(family) + " | " + family.help +
         " |\n";
}

TEST(RecordedMetrics, OfAWorkerAreInTheReadme) {
  engine::Statistics idle = statistics();
  idle.stage = -1;
  const auto without_stage = app::worker_families(kWorker, idle, {}, -1, 1);
  const std::string head =
      "| Metric | Type, buckets | Other labels | Meaning |\n|---|---|---|---|\n";
  std::string text = head, with_stage = head;
  for (const auto& family : app::worker_families(kWorker, statistics(), {link()}, 4096, 1)) {
    const bool always = std::ranges::find(without_stage, family.name, &telemetry::Family::name) !=
                        without_stage.end();
    (always ? text : with_stage) += row_of(family);
  }

  compare_section("worker/telemetry/README.md", text + "\nWith a stage:\n\n" + with_stage);
}

operator_app::JobFacts facts() {
  auto job = std::make_shared<api::PipelineJob>();
  job->meta.name = "gpt";
  job->meta.namespace_name = "team-a";
  job->meta.uid = "u-1";
  job->status.restart_reasons = {{"Crashed", 2}, {"NodeLost", 1}};
  job->status.recovery.lost_steps = 41;
  job->status.conditions = {{"Ready", "True", "Running", "", 1, SystemTime{}},
                            {"Degraded", "Unknown", "Starting", "", 1, SystemTime{}}};
  job->status.plan.revision = 7;
  job->status.plan.applied_revision = 6;
  job->status.plan.k = 4;
  job->status.plan.predicted_step_seconds = "1.42";
  job->status.plan.bound_percent_simulated = 3;
  job->status.plan.bound_percent_measured = 5;
  job->status.plan.trigger = "Retune";
  job->status.plan.predicted_gain_percent = "26.1";
  job->status.plan.measured_gain_percent = "26.7";
  job->report.total_steps = 1000;
  job->report.micro_batch_shares = {10, 6};
  job->report.performance.lines = {
      {"Compute", "950.5"}, {"NotExplained", "-2.5"}, {"Foreign", "1.0"}};
  job->report.performance.cause = "SlowLink";
  job->report.performance.cause_seconds = "0.321";
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
  operator_app::prediction_observer (*metrics)(
      {.tier = gate::Tier::kRetune, .predicted = 0.261, .measured = 0.267, .inside = true});
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
