// SPDX-License-Identifier: Apache-2.0
// The commands against an API server in memory.
#include "operator/cli/commands.h"

#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/cli/connect.h"
#include "operator/kube/auth.h"
#include "tests/operator/cli/jobs.h"
#include "tests/support/fake_transport.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_check.h"
#include "tests/worker/timeline/records.h"
#include "worker/base/digest.h"
#include "worker/timeline/codec.h"

namespace weir::cli {
namespace commands_test {

using namespace test_jobs;  // NOLINT(google-build-using-namespace)
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Commands : public testing::Test {
 protected:
  Commands() {
    server_.put("/apis/weir.dev/v1alpha1/namespaces/demo/pipelinejobs/gpt", running_job().dump());
    for (const std::uint32_t revision : {1U, 2U}) {
      server_.put(
          "/api/v1/namespaces/demo/configmaps/gpt-plan-" + std::to_string(revision),
          config_map_of(plan_of(revision, static_cast<int>(revision)), "2026-01-02T09:24:31Z")
              .dump());
    }
    server_.put("/api/v1/namespaces/demo/events/gpt.1",
                event_of("2026-01-02T09:26:00Z", "Normal", "PlanOutcome", "note\x1b[2J").dump());
  }

  int run(Options options) {
    out_.str("");
    err_.str("");
    options.namespace_name = "demo";
    if (options.job.empty() && !options.all_namespaces) options.job = "gpt";
    return run_command(options, {.client = *client_,
                                 .now = kNow,
                                 .out = out_,
                                 .err = err_,
                                 .request_id = "5f3a",
                                 .sleep = [this](std::chrono::seconds time) {
                                   slept_ += static_cast<int>(time.count());
                                   if (on_sleep_) on_sleep_();
                                 }});
  }
  void refuse(const std::string& match, int status, const std::string& message) {
    const json body = {{"kind", "Status"}, {"message", message}};
    server_.fail({.match = match, .response = http::Response{status, {}, body.dump()}});
  }

  SystemClock clock_;
  test::FakeTransport server_;
  kube::TokenSource token_{"secret", "", clock_};
  std::unique_ptr<kube::Client> client_ = kube::make_client(server_, token_, clock_, {});
  // As the operator writes it.
  void put_part(const std::string& id, int part, int parts, const std::string& octets) {
    const json map = {
        {"metadata",
         {{"name", "gpt-trace-" + std::to_string(part)},
          {"namespace", "demo"},
          {"annotations",
           {{"weir.dev/trace", id},
            {"weir.dev/trace-part", std::to_string(part + 1) + "/" + std::to_string(parts)}}}}},
        {"binaryData", {{"records", to_base64(octets)}}}};
    server_.put("/api/v1/namespaces/demo/configmaps/gpt-trace-" + std::to_string(part), map.dump());
  }
  std::string asked() const {  // by the annotation
    const json job =
        json::parse(server_.get("/apis/weir.dev/v1alpha1/namespaces/demo/pipelinejobs/gpt"));
    return job["metadata"].value("annotations", json::object()).value("weir.dev/trace", "");
  }
  int trace() { return run({.command = Command::kTrace, .steps = 3, .output = trace_}); }

  std::ostringstream out_, err_;
  test::TempDir folder_;
  const std::string trace_ = (folder_.path() / "trace.json").string();
  int slept_ = 0;
  std::function<void()> on_sleep_;
};

TEST_F(Commands, TopListsTheJobsOfAllNamespaces) {
  EXPECT_EQ(run({.command = Command::kTop, .all_namespaces = true}), 0);

  EXPECT_THAT(out_.str(), AllOf(HasSubstr("NAMESPACE  NAME"), HasSubstr("demo       gpt")));
  EXPECT_EQ(server_.count("GET /apis/weir.dev/v1alpha1/pipelinejobs"), 1);
}

TEST_F(Commands, TopOfAJobShowsItsRanks) {
  EXPECT_EQ(run({.command = Command::kTop}), 0);

  EXPECT_THAT(out_.str(), HasSubstr("gpt-l4-1"));
}

TEST_F(Commands, WhyAndPlanReadEventsOfTheCoreGroup) {
  EXPECT_EQ(run({.command = Command::kWhy}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("note [2J"));
  EXPECT_EQ(server_.count("GET /api/v1/namespaces/demo/events?fieldSelector="), 1);
  EXPECT_EQ(run({.command = Command::kPlan}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("k 1 -> 2 (Retune)"));
}

TEST_F(Commands, WhyHelpsWithoutEvents) {
  refuse("/events", 403, "forbidden");

  EXPECT_EQ(run({.command = Command::kWhy}), 0);

  EXPECT_THAT(out_.str(), AllOf(HasSubstr("Main cause"), HasSubstr("Events        not read")));
}

TEST_F(Commands, LogsAskForThePodOfTheRank) {
  server_.fail({.match = "WATCH /api/v1/namespaces/demo/pods/gpt-l4-1/log",
                .response = http::Response{200, {}, ""}});

  EXPECT_EQ(run({.command = Command::kLogs, .rank = 1, .follow = true, .tail = 5}), 0)
      << err_.str();

  EXPECT_EQ(
      server_.requests().back(),
      "WATCH /api/v1/namespaces/demo/pods/gpt-l4-1/log?container=trainer&follow=true&tailLines=5");
  EXPECT_EQ(run({.command = Command::kLogs, .rank = 7}), 1);
  EXPECT_EQ(err_.str(), "kubectl weir: --rank: plan 2 of gpt has the ranks 0 to 1, found 7\n");
}

TEST_F(Commands, ShorthandsSendOnePatch) {
  EXPECT_EQ(run({.command = Command::kSuspend}), 0);
  EXPECT_EQ(server_.last_body(), R"({"spec":{"suspend":true}})");
  EXPECT_EQ(run({.command = Command::kResume}), 0);
  EXPECT_EQ(server_.last_body(), R"({"spec":{"suspend":false}})");
  EXPECT_EQ(out_.str(), "gpt: resumes from step 100\n");
  EXPECT_EQ(run({.command = Command::kScale, .replicas = 3}), 0);
  EXPECT_EQ(server_.last_body(), R"({"spec":{"parallelism":{"dataParallel":3}}})");
  EXPECT_EQ(out_.str(), "gpt: 3 replicas are asked for, 1 so far\n");
  EXPECT_EQ(server_.requests().size(), 3U);
}

TEST_F(Commands, TraceAsksByAnAnnotationAndJoinsTheParts) {
  const auto records = timeline::test::two_stages();
  const std::string octets = encode(records[0]) + encode(records[1]);
  put_part("older", 0, 1, "of another request");
  on_sleep_ = [&] {
    EXPECT_EQ(asked(), "5f3a steps=3");
    if (slept_ == 2) put_part("5f3a", 0, 2, octets.substr(0, 100));
    if (slept_ == 3) put_part("5f3a", 1, 2, octets.substr(100));
  };

  EXPECT_EQ(trace(), 0) << err_.str();

  EXPECT_EQ(out_.str(),
            "demo/gpt: step 8 of 2 of 2 ranks\n" + trace_ +
                ": open it in https://ui.perfetto.dev\n"
                "3 steps were asked for: older ones are not kept, or do not fit into 3.6 MB\n");
  EXPECT_EQ(slept_, 3);
  EXPECT_EQ(asked(), "") << "nobody shall be asked again";
  std::ifstream file(trace_);
  const auto checked = test::check_trace({std::istreambuf_iterator<char>(file), {}});
  EXPECT_THAT(checked.errors, testing::IsEmpty());
  EXPECT_EQ(checked.count("forward"), 2);
}

TEST_F(Commands, TraceOfOneReplicaAsksForIt) {
  Options options{.command = Command::kTrace, .steps = 1, .replica = 1, .output = trace_};
  EXPECT_EQ(run(options), 1);
  EXPECT_EQ(err_.str(), "kubectl weir: --replica: gpt has the replicas 0 to 0, found 1\n");
  options.replica = 0;
  const auto records = timeline::test::two_stages();
  on_sleep_ = [&] {
    EXPECT_EQ(asked(), "5f3a steps=1 replica=0");
    put_part("5f3a", 0, 1, encode(records[0]) + encode(records[1]));
  };
  EXPECT_EQ(run(options), 0) << err_.str();
  EXPECT_EQ(out_.str(), "demo/gpt: step 8 of 2 of 2 ranks\n" + trace_ +
                            ": open it in https://ui.perfetto.dev\n");
}

TEST_F(Commands, TraceOfAJobThatMakesNoStepsIsRefusedAtOnce) {
  json stalled = running_job();
  stalled["status"]["conditions"][0] = condition_of("Ready", "False", "Stalled", "no step");
  server_.put("/apis/weir.dev/v1alpha1/namespaces/demo/pipelinejobs/gpt", stalled.dump());

  EXPECT_EQ(trace(), 1);

  EXPECT_EQ(err_.str(),
            "kubectl weir: gpt: no steps are made now (Stalled): kubectl weir why gpt tells the "
            "reason, trace gpt --flight the last dump\n");
  EXPECT_EQ(server_.count("PATCH"), 0);
}

TEST_F(Commands, TraceShowsTheNewestDumpWithItsReason) {
  const Options flight{.command = Command::kTrace, .flight = true, .output = trace_};
  EXPECT_EQ(run(flight), 1);
  EXPECT_EQ(err_.str(),
            "kubectl weir: gpt: no dump of its flight recorders is kept: one is made when a step "
            "is slow, none comes any more, or a rank is lost\n");
  const auto records = timeline::test::two_stages();
  const std::string path = "/api/v1/namespaces/demo/configmaps/gpt-flight";
  json map = {{"metadata",
               {{"name", "gpt-flight"},
                {"ownerReferences", {{{"uid", "of an earlier job"}}}},
                {"annotations", {{"weir.dev/trace", "flight-9"}, {"weir.dev/trace-part", "1/1"}}}}},
              {"data",
               {{"why", "step 9 took 2 s \x1b[2J(median 1 s)"},
                {"time", to_rfc3339(kNow - std::chrono::minutes(5))}}},
              {"binaryData", {{"records", to_base64(encode(records[0]) + encode(records[1]))}}}};
  server_.put(path, map.dump());
  EXPECT_EQ(run(flight), 1) << "it is not of this job";
  map["metadata"]["ownerReferences"][0]["uid"] = "u-1";
  server_.put(path, map.dump());

  EXPECT_EQ(run(flight), 0) << err_.str();

  EXPECT_EQ(out_.str(),
            "gpt: 5 min ago: step 9 took 2 s [2J(median 1 s)\ndemo/gpt: step 8 of 2 of "
            "2 ranks\n" +
                trace_ + ": open it in https://ui.perfetto.dev\n");
  EXPECT_EQ(server_.count("PATCH"), 0);
  refuse("configmaps", 403, "forbidden");
  EXPECT_EQ(run(flight), 1);
  EXPECT_EQ(err_.str(),
            "kubectl weir: trace needs \"get configmaps\" in namespace demo: ask for role view\n");
}

TEST_F(Commands, TraceSaysInOneLineWhyThereIsNone) {
  EXPECT_EQ(trace(), 1);
  EXPECT_EQ(err_.str(), "kubectl weir: gpt: no trace in 60 s: the last report came 68 s ago\n");
  EXPECT_EQ(asked(), "");
  const std::string path = "/apis/weir.dev/v1alpha1/namespaces/demo/pipelinejobs/gpt";
  on_sleep_ = [&] {
    json stuck = running_job();
    stuck["status"]["conditions"][0] =
        condition_of("Ready", "False", "Recovering", "worker gpt-l4-1 is not ready");
    server_.put(path, stuck.dump());
  };
  EXPECT_EQ(trace(), 1);
  EXPECT_EQ(
      err_.str(),
      "kubectl weir: gpt: no trace in 60 s: the last report came 68 s ago (Recovering: worker "
      "gpt-l4-1 is not ready)\n");
  on_sleep_ = [] {};
  server_.put(path, running_job().dump());

  put_part("5f3a", 0, 1, "");
  EXPECT_EQ(trace(), 1);
  EXPECT_EQ(
      err_.str(),
      "kubectl weir: gpt: its ranks keep no events (--flight-events=0, or workers of an older "
      "release)\n");
  put_part("5f3a", 0, 1, "octets");
  EXPECT_EQ(trace(), 1);
  EXPECT_EQ(err_.str(), "kubectl weir: byte 0: no record begins here\n");

  refuse("PATCH", 403, "forbidden");
  EXPECT_EQ(trace(), 1);
  EXPECT_EQ(
      err_.str(),
      "kubectl weir: trace needs \"patch pipelinejobs\" in namespace demo: ask for role edit, "
      "or read the last dump: kubectl weir trace gpt --flight\n");
  json fresh = running_job();
  fresh["status"].erase("progress");
  server_.put(path, fresh.dump());
  EXPECT_EQ(trace(), 1);
  EXPECT_EQ(err_.str(),
            "kubectl weir: gpt: too few steps have been completed yet (kubectl weir why gpt)\n");
  EXPECT_EQ(out_.str(), "");
}

TEST_F(Commands, ErrorsAreOneLineThatSaysWhatToDo) {
  refuse("PATCH", 403, "forbidden");
  EXPECT_EQ(run({.command = Command::kScale}), 1);
  EXPECT_EQ(
      err_.str(),
      "kubectl weir: scale needs \"patch pipelinejobs\" in namespace demo: ask for role edit\n");
  EXPECT_EQ(run({.command = Command::kWhy, .job = "other"}), 1);
  EXPECT_EQ(
      err_.str(),
      "kubectl weir: no PipelineJob other in namespace demo (kubectl get ppj -A lists all)\n");
  EXPECT_EQ(out_.str(), "");
  server_.fail({.match = "GET", .error = Error{Code::kUnavailable, "h:6443: connect: refused"}});
  EXPECT_EQ(run({.command = Command::kTop, .all_namespaces = true}), 1);
  EXPECT_EQ(err_.str(), "kubectl weir: the API server gives no answer: h:6443: connect: refused\n");
}

TEST(Connect, TakesCredentialsFromMemoryAndPublicCasOnlyWithoutOthers) {
  kube::Credentials credentials;
  credentials.server = "https://h:6443";
  credentials.tls = {.ca_pem = "CA", .cert_pem = "C", .key_pem = "K", .insecure = true};
  credentials.tls_name = "kubernetes";

  const auto options = transport_for(credentials, "/etc/cas");

  EXPECT_EQ(options.ca_pem, "CA");
  EXPECT_EQ(options.ca_file, "");
  EXPECT_EQ(options.key_pem, "K");
  EXPECT_EQ(options.tls_name, "kubernetes");
  EXPECT_TRUE(options.insecure);
  EXPECT_EQ(transport_for({.server = "https://h"}, "/etc/cas").ca_file, "/etc/cas");
}

}  // namespace commands_test
}  // namespace weir::cli
