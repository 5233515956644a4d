// SPDX-License-Identifier: Apache-2.0
// A scripted Prometheus: answers by the kind of question, and keeps what was asked.
#include "operator/metrics/prometheus_source.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/metrics/promql.h"
#include "tests/support/manual_clock.h"

namespace weir::metrics {
namespace prometheus_source_test {

using estimator::Direction;
using estimator::Freshness;
using estimator::LinkKey;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kEmpty = R"({"status":"success","data":{"resultType":"matrix","result":[]}})";

class ScriptedPrometheus final : public http::Transport {
 public:
  Result<http::Response> send(const http::Request& request, http::Deadline,
                              std::stop_token) override {
    asked.push_back(request);
    if (fails) return *fails;
    const bool baseline = request.body.find("quantile_over_time") != std::string::npos;
    const bool ops = request.body.find("weir_stage_op_seconds") != std::string::npos;
    return http::Response{status, {}, baseline ? baselines : ops ? op_times : window};
  }
  Result<http::Response> stream(const http::Request&, std::stop_token,
                                const std::function<void(std::string_view)>&) override {
    return Error{Code::kInternal, "not used"};
  }

  std::vector<http::Request> asked;
  std::string window = kEmpty, op_times = kEmpty, baselines = kEmpty;
  std::optional<Error> fails;
  int status = 200;
};

std::string matrix(const std::vector<std::string>& series) {
  std::string all;
  for (const auto& one : series) all += (all.empty() ? "" : ",") + one;
  return R"({"status":"success","data":{"resultType":"matrix","result":[)" + all + "]}}";
}

// One series: part, worker and link of a job of team-a; points as JSON.
std::string series(const std::string& part, const std::string& worker, const std::string& points,
                   const std::string& link = "0-1", const std::string& dir = "fwd",
                   const std::string& ns = "team-a", const std::string& job = "gpt") {
  return R"({"metric":{"series":")" + part + R"(","namespace":")" + ns +
         R"(","pipeline_namespace":"team-a","pipeline_job":")" + job + R"(","worker":")" + worker +
         R"(","replica":"0","link":")" + link + R"(","dir":")" + dir +
         R"(","from_node":"n0","to_node":"n1"},"values":)" + points + "}";
}

class Source : public testing::Test {
 protected:
  // The clock's time, a multiple of the step, plus or minus seconds.
  std::string at(int offset) const {
    return std::to_string(clock_.system_now().time_since_epoch() / seconds(1) + offset);
  }
  std::string step_series(const std::string& worker, int age = 2) const {
    return series("step", worker, "[[" + at(0) + ",\"" + at(-age) + "\"]]");
  }
  JobSamples fetch() {
    auto all = source_.fetch({job_}, {});
    EXPECT_EQ(all.size(), 1U);
    return all[job_.key];
  }

  std::ptrdiff_t baselines_asked() const {
    return std::ranges::count_if(prometheus_.asked, [](const auto& one) {
      return one.body.find("quantile_over_time") != std::string::npos;
    });
  }

  test::ManualClock clock_;
  ScriptedPrometheus prometheus_;
  JobQuery job_{.key = "team-a/gpt", .pods = {"gpt-a-0", "gpt-a-1"}};
  PrometheusSource source_{&prometheus_, clock_, {}};
};

TEST_F(Source, MakesOneScrapePerPointInTime) {
  prometheus_.window = matrix(
      {step_series("gpt-a-0"), step_series("gpt-a-1"),
       series("goodput", "gpt-a-0",
              "[[" + at(-10) + ",\"100\"],[" + at(-5) + ",\"200\"],[" + at(0) + ",\"300\"]]"),
       series("goodput", "gpt-a-1", "[[" + at(-5) + ",\"50\"]]", "0-1", "bwd"),
       series("rtt", "gpt-a-0", "[[" + at(-5) + ",\"0.001\"],[" + at(0) + ",\"0.002\"]]")});

  const JobSamples samples = fetch();

  EXPECT_EQ(samples.freshness, Freshness::kFresh) << samples.detail;
  EXPECT_EQ(samples.last_sample, clock_.system_now() - seconds(2));
  ASSERT_EQ(samples.scrapes.size(), 3U);
  EXPECT_EQ(samples.scrapes[0].time, clock_.system_now() - seconds(10));
  ASSERT_EQ(samples.scrapes[1].links.size(), 2U);
  const auto& forward = samples.scrapes[1].links[0];
  EXPECT_EQ(forward.link, (LinkKey{0, 0, Direction::kForward}));
  EXPECT_EQ(forward.from_node, "n0");
  EXPECT_DOUBLE_EQ(forward.bytes_per_second, 200);
  EXPECT_DOUBLE_EQ(forward.rtt_seconds, 0.001);
  EXPECT_EQ(samples.scrapes[1].links[1].link.direction, Direction::kBackward);
  EXPECT_DOUBLE_EQ(samples.scrapes[0].links[0].rtt_seconds, 0);
}

TEST_F(Source, KeepsLinksBetweenReplicasApart) {
  const auto points = [&](int rate) {
    return "[[" + at(0) + ",\"" + std::to_string(rate) + "\"]]";
  };
  prometheus_.window =
      matrix({step_series("gpt-a-0"), series("goodput", "gpt-a-0", points(300)),
              series("goodput", "gpt-a-0", points(70), "s1:r2-r0", "sync"),
              series("goodput", "gpt-a-0", points(1), "s1:r0-r2", "sync"),  // labels: replica 0
              series("goodput", "gpt-a-0", points(2), "s1:r0-r0", "sync"),
              series("goodput", "gpt-a-0", points(3), "s1:-r0", "sync"),
              series("goodput", "gpt-a-0", points(4), "sx:r1-r0", "sync"),
              series("goodput", "gpt-a-0", points(5), "0-1", "sync")});

  const JobSamples samples = fetch();

  ASSERT_EQ(samples.scrapes.size(), 1U);
  EXPECT_EQ(samples.scrapes[0].links.size(), 1U);
  ASSERT_EQ(samples.sync_scrapes.size(), 1U);
  ASSERT_EQ(samples.sync_scrapes[0].links.size(), 1U);
  const auto& link = samples.sync_scrapes[0].links[0];
  EXPECT_EQ(link.link, (LinkKey{0, 1, Direction::kSync, 2}));
  EXPECT_DOUBLE_EQ(link.bytes_per_second, 70);
}

TEST_F(Source, TellsTheHighestStepOfTheWorkersThatAreScraped) {
  const std::string twelve = "[[" + at(0) + ",\"12\"]]", forty = "[[" + at(0) + ",\"40\"]]";
  prometheus_.window = matrix({step_series("gpt-a-0"), step_series("gpt-a-1", 61),
                               series("steps", "gpt-a-0", twelve),
                               series("steps", "gpt-a-1", forty),     // not scraped any more
                               series("steps", "stranger", forty)});  // no pod of the job
  EXPECT_EQ(fetch().step, 12);

  prometheus_.window = matrix({step_series("gpt-a-0")});
  EXPECT_EQ(fetch().step, std::nullopt);
}

TEST_F(Source, DropsWhatIsNoRate) {
  prometheus_.window =
      matrix({step_series("gpt-a-0"),
              series("goodput", "gpt-a-0",
                     "[[" + at(-20) + ",\"NaN\"],[" + at(-15) + ",\"+Inf\"],[" + at(-10) +
                         ",\"0\"],[" + at(-5) + ",\"-Inf\"],[" + at(0) + ",\"7\"]]"),
              series("goodput", "gpt-a-0", "[[" + at(0) + ",\"9\"]]", "0-2"),
              series("goodput", "gpt-a-0", "[[" + at(0) + ",\"9\"]]", "x-1"),
              series("goodput", "gpt-a-0", "[[" + at(0) + ",\"9\"]]", "0-1", "up")});

  const JobSamples samples = fetch();

  ASSERT_EQ(samples.scrapes.size(), 1U);
  ASSERT_EQ(samples.scrapes[0].links.size(), 1U);
  EXPECT_DOUBLE_EQ(samples.scrapes[0].links[0].bytes_per_second, 7);
}

// A series that a worker exports about a replica; the part "own" has no replica.
std::string counter(const std::string& part, const std::string& worker, const std::string& replica,
                    const std::string& points, const std::string& ns = "team-a") {
  return R"({"metric":{"series":")" + part + R"(","namespace":")" + ns +
         R"(","pipeline_namespace":"team-a","pipeline_job":"gpt","worker":")" + worker + "\"" +
         (replica.empty() ? "" : R"(,"replica":")" + replica + "\"") + R"(},"values":)" + points +
         "}";
}

TEST_F(Source, ReadsBothCountersOfEachReplicaAtOnePointInTime) {
  prometheus_.window = matrix(
      {step_series("gpt-a-0"), step_series("gpt-a-1"),
       counter("own", "gpt-a-0", "", "[[" + at(-5) + ",\"7\"],[" + at(0) + ",\"9\"]]"),
       counter("own", "gpt-a-1", "", "[[" + at(0) + ",\"9\"]]"),
       counter("replica", "gpt-a-0", "0", "[[" + at(-5) + ",\"7.5\"],[" + at(0) + ",\"9.5\"]]"),
       counter("replica", "gpt-a-1", "1", "[[" + at(-5) + ",\"14\"],[" + at(0) + ",\"18\"]]"),
       counter("sync", "gpt-a-1", "1", "[[" + at(0) + ",\"1e6\"]]")});

  const auto replicas = fetch().replicas;

  ASSERT_EQ(replicas.size(), 2U);
  EXPECT_EQ(replicas[0].time, clock_.system_now() - seconds(5));
  ASSERT_EQ(replicas[0].replicas.size(), 1U) << "no steps of gpt-a-1 at that time";
  EXPECT_EQ(replicas[0].replicas.at(0).steps, 7);
  EXPECT_DOUBLE_EQ(replicas[0].replicas.at(0).seconds, 7.5);
  ASSERT_EQ(replicas[1].replicas.size(), 2U);
  EXPECT_EQ(replicas[1].replicas.at(1).steps, 9);
  EXPECT_DOUBLE_EQ(replicas[1].replicas.at(1).seconds, 18);
  EXPECT_DOUBLE_EQ(replicas[1].replicas.at(1).sync_bytes_per_second, 1e6);
  EXPECT_DOUBLE_EQ(replicas[1].replicas.at(0).sync_bytes_per_second, 0);
}

TEST_F(Source, DropsForgedCountersOfReplicas) {
  const std::string steps = "[[" + at(0) + ",\"9\"]]", slow = "[[" + at(0) + ",\"900\"]]";
  prometheus_.window = matrix(
      {step_series("gpt-a-0"), counter("own", "gpt-a-0", "", steps),
       counter("replica", "gpt-a-0", "0", steps), counter("own", "gpt-a-1", "", steps, "evil"),
       counter("replica", "gpt-a-1", "1", slow, "evil"), counter("own", "stranger", "", steps),
       counter("replica", "stranger", "2", slow)});

  const auto replicas = fetch().replicas;

  ASSERT_EQ(replicas.size(), 1U);
  ASSERT_EQ(replicas[0].replicas.size(), 1U);
  EXPECT_DOUBLE_EQ(replicas[0].replicas.at(0).seconds, 9);
}

TEST_F(Source, AReplicaWhoseWorkerWasReplacedIsCountedByTheNewOne) {
  job_.pods = {"gpt-a-0", "gpt-a-0-1"};
  const std::string one = "[[" + at(0) + ",\"1\"]]", many = "[[" + at(0) + ",\"500\"]]";
  prometheus_.window =
      matrix({step_series("gpt-a-0", 40), step_series("gpt-a-0-1"),
              counter("own", "gpt-a-0", "", many), counter("replica", "gpt-a-0", "0", many),
              counter("own", "gpt-a-0-1", "", one), counter("replica", "gpt-a-0-1", "0", one)});

  const auto replicas = fetch().replicas;

  ASSERT_EQ(replicas.size(), 1U);
  EXPECT_EQ(replicas[0].replicas.at(0).steps, 1);
}

TEST_F(Source, TellsHowSmallPackedSumsAreByTheMedianOfTheWorkers) {
  job_.pods = {"gpt-a-0", "gpt-a-1", "gpt-a-2"};
  const auto packed = [&](const std::string& worker, const std::string& value,
                          const std::string& ns = "team-a") {
    return counter("packed", worker, "",
                   "[[" + at(-5) + ",\"0.9\"],[" + at(0) + ",\"" + value + "\"]]", ns);
  };
  EXPECT_EQ(fetch().packed_part, std::nullopt);
  prometheus_.window = matrix({step_series("gpt-a-0"), packed("gpt-a-0", "0.55"),
                               packed("gpt-a-1", "0.6"), packed("gpt-a-2", "1e9"),
                               packed("stranger", "0.2"), packed("gpt-a-0", "0.2", "evil")});
  EXPECT_DOUBLE_EQ(fetch().packed_part.value_or(0), 0.6);
  for (const auto& [value, part] : {std::pair("1e9", 1.0), {"1e-9", 0.125}}) {
    prometheus_.window = matrix({step_series("gpt-a-0"), packed("gpt-a-0", value)});
    EXPECT_DOUBLE_EQ(fetch().packed_part.value_or(0), part);
  }
  prometheus_.window = matrix(
      {step_series("gpt-a-0"), counter("packed", "gpt-a-0", "", "[[" + at(0) + ",\"NaN\"]]")});
  EXPECT_EQ(fetch().packed_part, std::nullopt) << "0/0: nothing is packed";
  ASSERT_FALSE(prometheus_.asked.empty());
  EXPECT_THAT(prometheus_.asked.front().body, HasSubstr("weir_sync_payload_bytes_total"));
}

TEST_F(Source, DropsForgedSeriesOfAnotherNamespace) {
  prometheus_.window =
      matrix({step_series("gpt-a-0"), series("goodput", "gpt-a-0", "[[" + at(0) + ",\"100\"]]"),
              series("goodput", "gpt-a-1", "[[" + at(0) + ",\"1\"]]", "1-2", "fwd", "evil")});

  const JobSamples samples = fetch();

  ASSERT_EQ(samples.scrapes.size(), 1U);
  ASSERT_EQ(samples.scrapes[0].links.size(), 1U);
  EXPECT_DOUBLE_EQ(samples.scrapes[0].links[0].bytes_per_second, 100);
}

TEST_F(Source, DropsSeriesOfAWorkerThatIsNoPodOfTheJob) {
  prometheus_.window =
      matrix({step_series("stranger"), series("goodput", "stranger", "[[" + at(0) + ",\"1\"]]")});

  const JobSamples samples = fetch();

  EXPECT_EQ(samples.freshness, Freshness::kNoSeries);
  EXPECT_THAT(samples.detail, HasSubstr("2 series of other pods were dropped"));
  EXPECT_TRUE(samples.scrapes.empty());
}

TEST_F(Source, SaysThatTheNamespaceLabelMayBeWrong) {
  prometheus_.window =
      matrix({series("step", "gpt-a-0", "[[" + at(0) + ",\"" + at(0) + "\"]]", "0-1", "fwd", "")});

  EXPECT_THAT(fetch().detail, HasSubstr("1 series without label namespace of this namespace"));
}

TEST_F(Source, BelievesTheWorkerThatWasSeenLast) {
  prometheus_.window =
      matrix({step_series("gpt-a-0", 1), step_series("gpt-a-1", 40),
              series("goodput", "gpt-a-0", "[[" + at(0) + ",\"100\"]]"),
              series("goodput", "gpt-a-1", "[[" + at(-5) + ",\"8\"],[" + at(0) + ",\"9\"]]")});

  const JobSamples samples = fetch();

  ASSERT_EQ(samples.scrapes.size(), 2U);
  ASSERT_EQ(samples.scrapes[1].links.size(), 1U);
  EXPECT_DOUBLE_EQ(samples.scrapes[1].links[0].bytes_per_second, 100);
}

TEST_F(Source, SaysWhyNothingIsKnown) {
  EXPECT_EQ(fetch().freshness, Freshness::kNoSeries);

  prometheus_.window = matrix({step_series("gpt-a-0", 61)});
  JobSamples samples = fetch();
  EXPECT_EQ(samples.freshness, Freshness::kStale);
  EXPECT_EQ(samples.detail, "the newest weir_step is 61 s old, the limit 60 s");

  PrometheusSource none(nullptr, clock_, {});
  EXPECT_EQ(none.fetch({job_}, {})[job_.key].freshness, Freshness::kNotConfigured);
}

TEST_F(Source, ReportsFailedQueriesWithTheirReason) {
  std::vector<std::string> reasons;
  PrometheusSource source(&prometheus_, clock_, {.observe = [&](const char* reason, auto) {
    reasons.emplace_back(reason);
  }});
  const auto fetch_one = [&] { return source.fetch({job_}, {})[job_.key]; };

  prometheus_.fails = Error{Code::kTimeout, "prometheus:9090: no answer"};
  JobSamples samples = fetch_one();
  EXPECT_EQ(samples.freshness, Freshness::kQueryFailed);
  EXPECT_EQ(samples.detail, "query to Prometheus: prometheus:9090: no answer");
  EXPECT_EQ(prometheus_.asked.size(), 1U);  // no further question in this tick

  prometheus_.fails.reset();
  prometheus_.status = 400;
  prometheus_.window =
      R"({"status":"error","errorType":"bad_data","error":"parse error: unexpected end"})";
  EXPECT_EQ(fetch_one().detail, "Prometheus answered 400: bad_data: parse error: unexpected end");

  prometheus_.status = 502;
  prometheus_.window = "<html>bad gateway</html>";
  EXPECT_EQ(fetch_one().detail, "Prometheus answered 502");

  prometheus_.status = 200;
  samples = fetch_one();
  EXPECT_EQ(samples.freshness, Freshness::kQueryFailed);
  EXPECT_EQ(samples.detail, "answer of Prometheus: a page of HTML, not JSON");
  EXPECT_EQ(reasons, (std::vector<std::string>{"transport", "prometheus", "prometheus", "decode"}));
}

TEST_F(Source, AcceptsWarnings) {
  prometheus_.window = matrix({step_series("gpt-a-0")});
  prometheus_.window.insert(1, R"("warnings":["PromQL info: metric might not be a counter"],)");

  EXPECT_EQ(fetch().freshness, Freshness::kFresh);
}

TEST_F(Source, ReadsMeanOpTimesPerStage) {
  const auto op = [&](const char* worker, const char* stage, const char* name, const char* value) {
    return std::string(R"({"metric":{"namespace":"team-a","pipeline_namespace":"team-a",)") +
           R"("pipeline_job":"gpt","worker":")" + worker + R"(","stage":")" + stage +
           R"(","op":")" + name + R"("},"values":[[)" + at(0) + ",\"" + value + "\"]]}";
  };
  prometheus_.window = matrix({step_series("gpt-a-0")});
  prometheus_.op_times = matrix({op("gpt-a-0", "0", "F", "0.02"), op("gpt-a-0", "0", "B", "0.04"),
                                 op("gpt-a-1", "0", "F", "0.04"), op("gpt-a-1", "0", "B", "0.06"),
                                 op("gpt-a-0", "1", "F", "0.01"), op("gpt-a-0", "2", "F", "NaN"),
                                 op("x", "3", "F", "1")});

  const JobSamples samples = fetch();

  ASSERT_EQ(samples.stage_seconds.size(), 1U);  // stage 1 has no backward yet
  EXPECT_DOUBLE_EQ(samples.stage_seconds.at(0).first, 0.03);
  EXPECT_DOUBLE_EQ(samples.stage_seconds.at(0).second, 0.05);
}

TEST_F(Source, AsksForBaselinesEveryFiveMinutesAndKeepsThem) {
  prometheus_.window = matrix({step_series("gpt-a-0")});
  prometheus_.baselines = matrix({series("", "gpt-a-0", "[[" + at(0) + ",\"900\"]]")});

  EXPECT_DOUBLE_EQ(fetch().baseline.at({0, 0, Direction::kForward}), 900);
  clock_.advance(seconds(299));
  EXPECT_EQ(fetch().baseline.size(), 1U);
  EXPECT_EQ(baselines_asked(), 1);
  clock_.advance(seconds(1));
  fetch();

  EXPECT_EQ(baselines_asked(), 2);
}

// Jobs are asked for at times of their own; all of them are in each answer.
TEST_F(Source, KeepsTheBaselinesOfJobsThatAreNotAskedForNow) {
  const JobQuery other{.key = "team-a/other", .pods = {"other-a-0"}};
  const auto answer = [&](const char* mine, const char* others) {
    const auto rate = [&](const char* value) { return "[[" + at(0) + ",\"" + value + "\"]]"; };
    return matrix({series("", "gpt-a-0", rate(mine)),
                   series("", "other-a-0", rate(others), "0-1", "fwd", "team-a", "other")});
  };
  const auto baseline_of_other = [&] {
    return source_.fetch({other}, {})["team-a/other"].baseline[{0, 0, Direction::kForward}];
  };
  prometheus_.window = matrix({step_series("gpt-a-0")});
  prometheus_.baselines = answer("900", "500");
  fetch();
  EXPECT_DOUBLE_EQ(baseline_of_other(), 500);
  clock_.advance(seconds(300));
  prometheus_.baselines = answer("901", "501");
  fetch();

  EXPECT_DOUBLE_EQ(baseline_of_other(), 501);
  EXPECT_EQ(baselines_asked(), 2);
}

TEST_F(Source, AsksOncePerDistinctWindowForAllJobs) {
  source_.fetch({{.key = "a/x", .window = seconds(30)},
                 {.key = "b/y", .window = seconds(30)},
                 {.key = "b/z", .window = seconds(60)}},
                {});

  int windows = 0;
  for (const auto& request : prometheus_.asked) {
    EXPECT_EQ(request.method, http::Method::kPost);
    EXPECT_EQ(request.path, "/api/v1/query_range");
    if (request.body.find("weir_step") != std::string::npos) ++windows;
  }
  EXPECT_EQ(windows, 2);
  EXPECT_EQ(prometheus_.asked.size(), 4U);  // and op times, baselines
}

TEST_F(Source, AnOwnWindowIsAskedLastAndAboutItsJobsOnly) {
  source_.fetch({{.key = "a/x", .window = seconds(3)},
                 {.key = "a/y", .window = seconds(3600)},
                 {.key = "b/z"}},
                {});

  std::vector<std::string> bodies;
  for (const auto& request : prometheus_.asked) bodies.push_back(request.body);
  ASSERT_EQ(bodies.size(), 5U);  // and op times, baselines
  EXPECT_THAT(bodies[0], HasSubstr("%5B10s%5D"));
  EXPECT_THAT(bodies[0], HasSubstr("pipeline_job%21%3D%22%22")) << "about all jobs";
  for (const auto& [body, window, name] :
       {std::tuple(bodies[1], "%5B3s%5D", "x"), std::tuple(bodies[2], "%5B3600s%5D", "y")}) {
    EXPECT_THAT(body, HasSubstr(window));
    EXPECT_THAT(body, HasSubstr(std::string("pipeline_namespace%3D~%22a%22%2Cpipeline_job%3D~%22") +
                                name + "%22"));
    EXPECT_THAT(body, testing::Not(HasSubstr("pipeline_job%21%3D")));
  }
}

TEST_F(Source, AWindowThatTheJobLeavesOpenIsFiveScrapes) {
  source_.fetch({{.key = "a/x"}}, {});
  EXPECT_THAT(prometheus_.asked.front().body, testing::HasSubstr("%5B10s%5D"));
}

TEST_F(Source, AsksForThirtyTwoPointsOnAGridOfScrapes) {
  clock_.advance(seconds(3));  // between two points
  fetch();

  const std::string& body = prometheus_.asked.front().body;
  EXPECT_THAT(body,
              HasSubstr("&start=" + at(-1 - 31 * 2) + "&end=" + at(-1) + "&step=2&timeout=5s"));
}

TEST_F(Source, SendsFurtherHeaders) {
  PrometheusSource source(&prometheus_, clock_, {.headers = [] {
    return http::Headers{{"Authorization", "Bearer t"}, {"X-Scope-OrgID", "a"}};
  }});

  source.fetch({job_}, {});

  const http::Headers& sent = prometheus_.asked.front().headers;
  EXPECT_EQ(http::header_value(sent, "Authorization"), "Bearer t");
  EXPECT_EQ(http::header_value(sent, "X-Scope-OrgID"), "a");
}

TEST(PromQl, GroupsByTheNamespaceThatPrometheusSets) {
  const std::string query = window_query({"namespace", ""}, seconds(30));

  EXPECT_THAT(query, HasSubstr("sum by (namespace,pipeline_namespace,pipeline_job,worker,replica,"
                               "link,dir,from_node,to_node) "
                               "(increase(weir_link_bytes_total{pipeline_job!=\"\"}[30s])) / sum"));
  EXPECT_THAT(query, HasSubstr("(timestamp(weir_step{pipeline_job!=\"\"}))"));
  EXPECT_THAT(query, HasSubstr("worker) (weir_step{pipeline_job!=\"\"}), \"series\", \"steps\""));
  EXPECT_THAT(
      query,
      HasSubstr("worker) (weir_iteration_seconds_count{pipeline_job!=\"\"}), \"series\", \"own\""));
}

TEST(PromQl, LeavesTheNamespaceOutAndAddsMatchers) {
  const std::string query = op_time_query({"", "cluster=\"a\""});

  EXPECT_THAT(query, HasSubstr("by (pipeline_namespace,pipeline_job,worker,stage)"));
  EXPECT_THAT(query, HasSubstr("{pipeline_job!=\"\",op=~\"B|W\",cluster=\"a\"}"));
  EXPECT_THAT(query, HasSubstr("{pipeline_job!=\"\",op=\"B\",cluster=\"a\"}"));
  EXPECT_THAT(query, Not(HasSubstr("(namespace")));
}

TEST(Matrix, RefusesHostileAnswers) {
  for (const std::string& text : std::vector<std::string>{
           "", "[]", "{}", R"({"status":"success"})", R"({"status":"success","data":3})",
           R"({"status":"success","data":{"resultType":"vector","result":[]}})",
           R"({"status":"success","data":{"resultType":"matrix","result":{}}})", matrix({"7"}),
           matrix({R"({"metric":{"a":1}})"}), matrix({R"({"values":3})"}),
           matrix({R"({"values":[[1]]})"}), matrix({R"({"values":[["1","2"]]})"}),
           matrix({R"({"values":[[1e300,"2"]]})"}), "{\"a\":" + std::string(100'000, '[')}) {
    const auto decoded = decode_matrix(text);

    ASSERT_FALSE(decoded.ok()) << text.substr(0, 80);
    EXPECT_EQ(decoded.error().code, Code::kInvalid);
  }
}

}  // namespace prometheus_source_test
}  // namespace weir::metrics
