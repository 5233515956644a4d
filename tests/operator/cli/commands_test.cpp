// SPDX-License-Identifier: Apache-2.0
// The commands against an API server in memory.
#include "operator/cli/commands.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/cli/connect.h"
#include "operator/kube/auth.h"
#include "tests/operator/cli/jobs.h"
#include "tests/support/fake_transport.h"

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
    return run_command(options, {*client_, kNow, out_, err_});
  }
  void refuse(const std::string& match, int status, const std::string& message) {
    const json body = {{"kind", "Status"}, {"message", message}};
    server_.fail({.match = match, .response = http::Response{status, {}, body.dump()}});
  }

  SystemClock clock_;
  test::FakeTransport server_;
  kube::TokenSource token_{"secret", "", clock_};
  std::unique_ptr<kube::Client> client_ = kube::make_client(server_, token_, clock_, {});
  std::ostringstream out_, err_;
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
