// SPDX-License-Identifier: Apache-2.0
// The names that dashboards know, on the real /metrics page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/app/exposition.h"
#include "operator/app/prometheus_headers.h"
#include "operator/app/version.h"
#include "tests/support/jump_clock.h"
#include "tests/support/temp_dir.h"
#include "worker/http/beast_transport.h"

namespace weir::operator_app {
namespace observers_test {

using std::chrono::seconds;
using ::testing::HasSubstr;

std::string page(telemetry::Endpoint& metrics) {
  SystemClock clock;
  const auto transport = http::make_beast_transport(
      {.base_url = "http://127.0.0.1:" + std::to_string(metrics.port())});
  const auto answer =
      (*transport)->send({http::Method::kGet, "/metrics", {}, ""}, clock.now() + seconds(10), {});
  return answer ? answer->body : answer.error().message;
}

TEST(Observers, ExistAtZeroFromTheStart) {
  const auto metrics = *telemetry::make_endpoint(0);
  test::JumpClock clock;
  controller::WorkQueue queue(clock, queue_callbacks(*metrics));
  metrics->collect([&queue] { return queue_families(queue); });
  planner_observer(*metrics);
  apply_observer(*metrics);
  prediction_observer(*metrics);

  const std::string text = page(*metrics);

  for (const char* series :
       {"workqueue_depth{name=\"pipelinejob\"} 0", "workqueue_adds_total{name=\"pipelinejob\"} 0",
        "workqueue_retries_total{name=\"pipelinejob\"} 0",
        "workqueue_queue_duration_seconds_count{name=\"pipelinejob\"} 0",
        "workqueue_work_duration_seconds_count{name=\"pipelinejob\"} 0",
        "workqueue_unfinished_work_seconds{name=\"pipelinejob\"} 0",
        "workqueue_longest_running_processor_seconds{name=\"pipelinejob\"} 0",
        "weir_planner_seconds_count{kind=\"initial\"} 0",
        "weir_planner_seconds_count{kind=\"evaluate\"} 0",
        "weir_plan_apply_seconds_count{tier=\"retune\"} 0",
        "weir_prediction_error_ratio_count{tier=\"replace\"} 0",
        "weir_prediction_interval_total{inside=\"false\",tier=\"regroup\"} 0"}) {
    EXPECT_THAT(text, HasSubstr(series));
  }
}

TEST(Observers, CountTheLifeOfAKeyInTheQueue) {
  const auto metrics = *telemetry::make_endpoint(0);
  test::JumpClock clock;
  controller::WorkQueue queue(clock, queue_callbacks(*metrics));
  metrics->collect([&queue] { return queue_families(queue); });

  queue.add("a/j");
  queue.add("a/j");  // waits already
  clock.advance(seconds(2));
  ASSERT_EQ(queue.try_get(), "a/j");
  clock.advance(seconds(3));
  EXPECT_THAT(page(*metrics),
              HasSubstr("workqueue_longest_running_processor_seconds{name=\"pipelinejob\"} 3"));
  queue.done("a/j");
  queue.add_rate_limited("a/j");

  const std::string text = page(*metrics);
  for (const char* series : {"workqueue_adds_total{name=\"pipelinejob\"} 1",
                             "workqueue_queue_duration_seconds_sum{name=\"pipelinejob\"} 2",
                             "workqueue_work_duration_seconds_sum{name=\"pipelinejob\"} 3",
                             "workqueue_retries_total{name=\"pipelinejob\"} 1",
                             "workqueue_unfinished_work_seconds{name=\"pipelinejob\"} 0"}) {
    EXPECT_THAT(text, HasSubstr(series));
  }
}

TEST(Observers, PutPlansIntoTheirKind) {
  const auto metrics = *telemetry::make_endpoint(0);
  planner_observer (*metrics)("initial", seconds(2));
  apply_observer (*metrics)("retune", seconds(4));
  apply_observer (*metrics)("nonsense", seconds(4));

  const std::string text = page(*metrics);

  EXPECT_THAT(text, HasSubstr("weir_planner_seconds_sum{kind=\"initial\"} 2"));
  EXPECT_THAT(text, HasSubstr("weir_plan_apply_seconds_sum{tier=\"retune\"} 4"));
  EXPECT_EQ(text.find("nonsense"), std::string::npos);
}

TEST(Observers, CountPredictionsByTheirTierAndInterval) {
  const auto metrics = *telemetry::make_endpoint(0);
  const auto judged = prediction_observer(*metrics);
  judged({.tier = gate::Tier::kRegroup, .predicted = 0.2, .measured = 0, .inside = false});
  judged({.tier = gate::Tier::kRegroup, .predicted = 0.2, .measured = 0.2, .inside = true});

  const std::string text = page(*metrics);

  EXPECT_THAT(text, HasSubstr("weir_prediction_error_ratio_sum{tier=\"regroup\"} 2.2"));
  for (const char* inside : {"true", "false"}) {
    EXPECT_THAT(text, HasSubstr("weir_prediction_interval_total{inside=\"" + std::string(inside) +
                                "\",tier=\"regroup\"} 1"));
  }
}

TEST(Revision, IsNeverEmpty) {
  EXPECT_NE(std::string(revision()), "");
}

std::string authorization(const Options& options, Clock& clock) {
  return http::header_value(prometheus_headers(options, clock)(), "Authorization");
}

TEST(PrometheusHeaders, AreThoseOfTheOptionsAndFollowTheirFiles) {
  const test::TempDir folder;
  test::JumpClock clock;
  Options options;
  EXPECT_FALSE(prometheus_headers(options, clock));

  options.prometheus_basic_auth_dir = folder.path();
  folder.file("username", "ada");
  folder.file("password", "secret\n");
  options.prometheus_headers = {{"X-Scope-OrgID", "a"}};
  const auto basic = prometheus_headers(options, clock);
  EXPECT_EQ(basic(),
            (http::Headers{{"X-Scope-OrgID", "a"}, {"Authorization", "Basic YWRhOnNlY3JldA=="}}));
  folder.file("password", "rotated");
  clock.advance(seconds(61));
  EXPECT_EQ(http::header_value(basic(), "Authorization"), "Basic YWRhOnJvdGF0ZWQ=");

  options.prometheus_basic_auth_dir.clear();
  options.prometheus_bearer_token_file = folder.file("token", "t");
  EXPECT_EQ(authorization(options, clock), "Bearer t");
}

}  // namespace observers_test
}  // namespace weir::operator_app
