// SPDX-License-Identifier: Apache-2.0
// Reads the page as Prometheus does, over HTTP.
#include <atomic>
#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/http/beast_transport.h"
#include "worker/telemetry/metric.h"
#include "worker/telemetry/process.h"

namespace weir::telemetry {
namespace endpoint_test {

using testing::HasSubstr;
using testing::Not;

// One for all tests. Each test has names of its own, and collectors own what they capture.
Endpoint& endpoint() {
  static const auto shared = make_endpoint(0);
  EXPECT_TRUE(shared.ok()) << shared.error().message;
  return **shared;
}

Result<http::Response> ask(const Endpoint& endpoint, http::Method method, const std::string& path,
                           const http::Headers& headers = {}) {
  const auto client = http::make_beast_transport(
      {.base_url = "http://127.0.0.1:" + std::to_string(endpoint.port())});
  return (*client)->send({method, path, headers, ""},
                         std::chrono::steady_clock::now() + std::chrono::seconds(30), {});
}

std::string page_of(const Endpoint& endpoint) {
  const auto answer = ask(endpoint, http::Method::kGet, "/metrics");
  EXPECT_TRUE(answer.ok()) << answer.error().message;
  return answer.ok() ? answer->body : "";
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Endpoint, ShowsACounterAtZeroFromTheStart) {
  Endpoint& metrics = endpoint();

  metrics.counter("weir_things_total", "Things.", {{"kind", "a"}});

  EXPECT_THAT(page_of(metrics), HasSubstr("weir_things_total{kind=\"a\"} 0\n"));
}

TEST(Endpoint, GivesTheSameCounterForTheSameLabels) {
  Endpoint& metrics = endpoint();

  metrics.counter("weir_others_total", "Things.", {{"kind", "a"}}).add();
  metrics.counter("weir_others_total", "Things.", {{"kind", "a"}}).add(2);
  metrics.counter("weir_others_total", "Things.", {{"kind", "b"}}).add(7);

  const std::string page = page_of(metrics);
  EXPECT_THAT(page, HasSubstr("weir_others_total{kind=\"a\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("weir_others_total{kind=\"b\"} 7\n"));
  EXPECT_EQ(count(page, "# TYPE weir_others_total counter"), 1);
}

TEST(Endpoint, CountsObservationsInBuckets) {
  Endpoint& metrics = endpoint();
  auto& seconds = metrics.histogram("weir_wait_seconds", "Wait.", {}, {0.1, 1});

  for (const double value : {0.05, 0.5, 0.6, 5.0}) seconds.observe(value);

  const std::string page = page_of(metrics);
  EXPECT_THAT(page, HasSubstr("weir_wait_seconds_bucket{le=\"0.1\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("weir_wait_seconds_bucket{le=\"1\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("weir_wait_seconds_bucket{le=\"+Inf\"} 4\n"));
  EXPECT_THAT(page, HasSubstr("weir_wait_seconds_count 4\n"));
}

TEST(Endpoint, BuildsFamiliesAtScrapeTimeSoThatSeriesVanish) {
  Endpoint& metrics = endpoint();
  const auto exists = std::make_shared<std::atomic<bool>>(true);
  metrics.collect([exists] {
    std::vector<Family> out;
    if (*exists) {
      out.push_back({"weir_step", "Step.", Type::kGauge, {{{{"worker", "w"}}, 12, {}}}});
      out.push_back({"weir_t", "T.", Type::kHistogram, {{{}, 0, {{1, 2}, {3, 1, 4}, 9.5}}}});
    }
    return out;
  });

  const std::string before = page_of(metrics);
  *exists = false;
  const std::string after = page_of(metrics);

  EXPECT_THAT(before, HasSubstr("weir_step{worker=\"w\"} 12\n"));
  EXPECT_THAT(before, HasSubstr("weir_t_bucket{le=\"2\"} 4\n"));
  EXPECT_THAT(before, HasSubstr("weir_t_count 8\n"));
  EXPECT_THAT(before, HasSubstr("weir_t_sum 9.5\n"));
  EXPECT_THAT(after, Not(HasSubstr("weir_step")));
}

TEST(Endpoint, JoinsFamiliesOfOneName) {
  Endpoint& metrics = endpoint();
  for (const char* worker : {"a", "b"}) {
    metrics.collect([worker] {
      return std::vector<Family>{
          {"weir_joined", "Step.", Type::kGauge, {{{{"worker", worker}}, 1, {}}}}};
    });
  }

  const std::string page = page_of(metrics);

  EXPECT_EQ(count(page, "# TYPE weir_joined gauge"), 1);
  EXPECT_THAT(page, HasSubstr("weir_joined{worker=\"a\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("weir_joined{worker=\"b\"} 1\n"));
}

TEST(Endpoint, EscapesLabelValues) {
  Endpoint& metrics = endpoint();

  metrics.counter("weir_x_total", "X.", {{"reason", "a \"b\"\nc\\"}});

  EXPECT_THAT(page_of(metrics), HasSubstr("reason=\"a \\\"b\\\"\\nc\\\\\""));
}

TEST(Endpoint, AlwaysShowsTheProcess) {
  const std::string page = page_of(endpoint());

  for (const char* name : {"process_cpu_seconds_total", "process_resident_memory_bytes",
                           "process_open_fds", "process_start_time_seconds"}) {
    EXPECT_THAT(page, HasSubstr(std::string("\n") + name + " "));
  }
}

TEST(Endpoint, NamesTheFormatAsPrometheusWantsIt) {
  const auto answer = ask(endpoint(), http::Method::kGet, "/metrics",
                          {{"Accept", "application/openmetrics-text;version=1.0.0,*/*;q=0.1"}});

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(http::header_value(answer->headers, "Content-Type"),
            "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(http::header_value(answer->headers, "Content-Encoding"), "");
}

TEST(Endpoint, PacksThePageForThoseWhoAskForIt) {
  endpoint().counter("weir_long_total", std::string(2000, 'x'), {});  // a page worth it
  const auto answer =
      ask(endpoint(), http::Method::kGet, "/metrics", {{"Accept-Encoding", "gzip"}});

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(http::header_value(answer->headers, "Content-Encoding"), "gzip");
  EXPECT_EQ(answer->body.substr(0, 2), "\x1f\x8b");
}

TEST(Endpoint, RefusesOtherPathsAndMethods) {
  const auto status = [](http::Method method, const std::string& path) {
    const auto answer = ask(endpoint(), method, path);
    return answer ? answer->status : 0;
  };
  EXPECT_EQ(status(http::Method::kGet, "/metrics?name[]=weir_step"), 200);
  EXPECT_EQ(status(http::Method::kGet, "/"), 404);
  EXPECT_EQ(status(http::Method::kGet, "/metrics/"), 404);
  EXPECT_EQ(status(http::Method::kGet, "/../../etc/passwd"), 404);
  EXPECT_EQ(status(http::Method::kPost, "/metrics"), 405);
}

TEST(Endpoint, ReportsAPortInUse) {
  Endpoint& metrics = endpoint();

  const auto second = make_endpoint(metrics.port());

  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_EQ(second.error().message,
            "metrics port " + std::to_string(metrics.port()) + ": address already in use");
}

// proc(5), with a name that tries to break the line.
TEST(Process, ReadsTheFieldsAfterTheName) {
  const auto stat = parse_stat(
      "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 6000 1048576 300 184", 100,
      4096);

  ASSERT_TRUE(stat.has_value());
  EXPECT_DOUBLE_EQ(stat->cpu_seconds, 3);
  EXPECT_DOUBLE_EQ(stat->threads, 9);
  EXPECT_DOUBLE_EQ(stat->start_seconds, 60);
  EXPECT_DOUBLE_EQ(stat->virtual_bytes, 1048576);
  EXPECT_DOUBLE_EQ(stat->resident_bytes, 300 * 4096.0);
}

TEST(Process, RefusesALineThatIsCut) {
  EXPECT_FALSE(parse_stat("", 100, 4096).has_value());
  EXPECT_FALSE(parse_stat("7 (a) S 1 7", 100, 4096).has_value());
}

TEST(Process, KnowsThisProcess) {
  double resident = 0, start = 0;
  for (const auto& family : process_families()) {
    if (family.name == "process_resident_memory_bytes") resident = family.samples[0].value;
    if (family.name == "process_start_time_seconds") start = family.samples[0].value;
  }

  EXPECT_GT(resident, 1e6);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(start, now, 3600);
}

}  // namespace endpoint_test
}  // namespace weir::telemetry
