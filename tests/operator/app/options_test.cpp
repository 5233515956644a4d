// SPDX-License-Identifier: Apache-2.0
#include "operator/app/options.h"

#include <algorithm>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::operator_app {
namespace options_test {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  Parsed parsed;
  std::string out, err;
};
Outcome parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "weir-operator");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.parsed = parse_options(static_cast<int>(arguments.size()), arguments.data());
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(Options, NumbersAreDecimalAndFinite) {
  EXPECT_EQ(parse({"run", "--concurrent-reconciles=010"}).parsed.options.concurrent_reconciles, 10);
  EXPECT_EQ(parse({"plan", "--profile=p", "--cluster=c", "--k-max=010"}).parsed.options.plan.k_max,
            10);
  for (const char* argument :
       {"--concurrent-reconciles=0x8", "--concurrent-reconciles=1e1", "--kube-api-qps=nan",
        "--kube-api-burst=inf", "--control-port=-1", "--metrics-port=08080x"}) {
    const auto [parsed, out, err] = parse({"run", argument});
    EXPECT_EQ(parsed.exit_code, 2) << argument;
    EXPECT_THAT(err, AllOf(HasSubstr(std::string(argument, std::string_view(argument).find('='))),
                           HasSubstr("number from")));
  }
  for (const char* argument :
       {"--tolerance=nan", "--max-memory=nan", "--time-limit=nan", "--k-max=0x10"}) {
    EXPECT_EQ(parse({"plan", "--profile=p", "--cluster=c", argument}).parsed.exit_code, 2)
        << argument;
  }
  EXPECT_EQ(parse({"simulate", "--profile=p", "--cluster=c", "--plan=p", "--caps=0x3,1"})
                .parsed.exit_code,
            2);
}

TEST(Options, NamesThatTheApiServerWouldRefuseAreRefused) {
  for (const char* argument :
       {"--name=A", "--name=a\n", "--name=-a", "--namespace=A_B", "--namespace=a.b",
        "--watch-namespaces=*", "--watch-namespaces=a, b", "--watch-namespaces=a,B",
        "--control-service=1a", "--control-service=a.b", "--control-service=",
        "--prometheus-namespace-label=a-b", "--prometheus-namespace-label=1"}) {
    const auto [parsed, out, err] = parse({"run", argument});
    const std::string option(argument, std::string_view(argument).find('='));
    EXPECT_EQ(parsed.exit_code, 2) << argument;
    EXPECT_THAT(err, AllOf(HasSubstr(option + ": '"), HasSubstr(" is no "))) << argument;
    EXPECT_EQ(std::ranges::count(err, '\n'), 1) << err;
  }
  EXPECT_EQ(parse({"run", "--name=team-a.weir", "--namespace=7b", "--watch-namespaces=1e3,a",
                   "--prometheus-namespace-label="})
                .parsed.exit_code,
            -1);
}

TEST(Options, AWrongChoiceIsToldInOneLineWithTheRightOnes) {
  const auto [parsed, out, err] = parse({"run", "--log-level=INFO\nx"});
  EXPECT_EQ(parsed.exit_code, 2);
  EXPECT_THAT(err, AllOf(HasSubstr("--log-level: INFO x not in {debug,error,info,warn}"),
                         testing::EndsWith(")\n")));
  EXPECT_EQ(std::ranges::count(err, '\n'), 1);
}

TEST(Options, TakesAllFlagsOfTheChart) {
  const auto [parsed, out, err] = parse({"run",
                                         "--namespace=weir-system",
                                         "--watch-namespaces=a,b",
                                         "--concurrent-reconciles=4",
                                         "--kube-api-qps=50",
                                         "--kube-api-burst=60",
                                         "--log-level=debug",
                                         "--log-format=text",
                                         "--lease-duration=30s",
                                         "--renew-deadline=20s",
                                         "--retry-period=4s",
                                         "--prometheus-url=http://p:9090",
                                         "--prometheus-scrape-interval=2s",
                                         "--prometheus-namespace-label=",
                                         "--prometheus-bearer-token-file=/t",
                                         "--prometheus-ca-file=/c",
                                         "--prometheus-extra-matchers=cluster=\"x\"",
                                         "--control-port=8443",
                                         "--control-service=weir",
                                         "--control-tls-dir=/tls",
                                         "--metrics-port=8080",
                                         "--health-port=8081"});

  ASSERT_EQ(parsed.exit_code, -1) << err;
  EXPECT_EQ(parsed.options.command, Command::kRun);
  EXPECT_THAT(parsed.options.watch_namespaces, ElementsAre("a", "b"));
  EXPECT_EQ(parsed.options.kube_api_qps, 50);
  EXPECT_EQ(parsed.options.log_level, LogLevel::kDebug);
  EXPECT_EQ(parsed.options.lease_duration, seconds(30));
  EXPECT_EQ(parsed.options.prometheus_scrape_interval, seconds(2));
  EXPECT_EQ(parsed.options.prometheus_namespace_label, "");
  EXPECT_EQ(parsed.options.prometheus_extra_matchers, "cluster=\"x\"");
  EXPECT_EQ(parsed.options.control_service, "weir");
  EXPECT_EQ(parsed.options.control_tls_dir, "/tls");
}

TEST(Options, ReadsDurationsWithUnits) {
  EXPECT_EQ(parse({"run", "--lease-duration=2m"}).parsed.options.lease_duration, seconds(120));
  EXPECT_EQ(parse({"run", "--lease-duration=40"}).parsed.options.lease_duration, seconds(40));
}

TEST(Options, RefusesWithCode2AndTheFlag) {
  const struct {
    std::vector<const char*> arguments;
    const char* message;
  } cases[] = {
      {{"run", "--nonsense"}, "--nonsense"},
      {{"run", "--lease-duration=soon"}, "'soon' is no duration such as 15s or 2m"},
      {{"run", "--lease-duration=0s"}, "--lease-duration"},
      {{"run", "--renew-deadline=20s"}, "must be below --lease-duration"},
      {{"run", "--retry-period=10s"}, "must be below --renew-deadline"},
      {{"run", "--control-port=8080"}, "--control-port: must differ from --metrics-port"},
      {{"run", "--name="}, "--name"},
      {{"run", "--prometheus-url=prometheus.monitoring.svc:9090"},
       "--prometheus-url: URL \"prometheus.monitoring.svc:9090\": starts neither with http://"},
      {{"check", "--prometheus-header=X-Scope-OrgID"}, "expected NAME: VALUE"},
      {{"check", "--prometheus-header=X-Scope-OrgID:"}, "X-Scope-OrgID has no value"},
      {{"check", "--prometheus-header=a b: c"}, "expected NAME: VALUE"},
      {{"plan", "--profile=x", "--cluster=2xA", "--micro-batch=0"}, "--micro-batch"},
      {{"run", "--metrics-port=70000"}, "--metrics-port"},
      {{"run", "--log-level=loud"}, "--log-level"},
      {{"run", "--prometheus-basic-auth-dir=/a", "--prometheus-bearer-token-file=/b"},
       "excludes --prometheus-bearer-token-file"},
      {{}, "subcommand"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = parse(c.arguments);
    EXPECT_EQ(outcome.parsed.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(c.message));
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  }
}

TEST(Options, NeverPrintAPassword) {
  for (const char* url : {"http://reader:s3cret@p:9090", "http://reader:s3c/ret@p", "s3cret@p"}) {
    const std::string argument = std::string("--prometheus-url=") + url;
    const Outcome outcome = parse({"check", argument.c_str()});
    EXPECT_EQ(outcome.parsed.exit_code, 2);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("***@p"), HasSubstr("--prometheus-basic-auth-dir"),
                                   Not(HasSubstr("s3c"))));
  }
}

TEST(Options, OfTwoThatAreTheSameTheLastOneCounts) {
  const auto [parsed, out, err] =
      parse({"run", "--log-level=info", "--control-port=1", "--log-level=debug", "--control-port=2",
             "--watch-namespaces=a", "--watch-namespaces=b,c"});

  ASSERT_EQ(parsed.exit_code, -1) << err;
  EXPECT_EQ(parsed.options.log_level, LogLevel::kDebug);
  EXPECT_EQ(parsed.options.control_port, 2);
  EXPECT_THAT(parsed.options.watch_namespaces, ElementsAre("a", "b", "c"));
}

// Sets a variable of the environment, and unsets it at the end of the scope.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

TEST(Options, OfRunAndCheckComeFromTheEnvironmentOfTheContainer) {
  const Environment url("WEIR_PROMETHEUS_URL", "http://p:9090"),
      namespaces("WEIR_WATCH_NAMESPACES", "a,b"), name("WEIR_NAME", "two-operator"),
      headers("WEIR_PROMETHEUS_HEADERS", "X-Scope-OrgID: a|b, c\nX-Other: d");
  for (const char* command : {"run", "check"}) {
    const Options options = parse({command, "--prometheus-header=A: b"}).parsed.options;
    EXPECT_EQ(options.prometheus_url, "http://p:9090");
    EXPECT_EQ(options.name, "two-operator");
    EXPECT_THAT(options.watch_namespaces, ElementsAre("a", "b"));
    EXPECT_EQ(options.prometheus_headers, (http::Headers{{"A", "b"}})) << "an option comes first";
    EXPECT_EQ(parse({command, "--prometheus-url=http://q"}).parsed.options.prometheus_url,
              "http://q");
    EXPECT_EQ(parse({command}).parsed.options.prometheus_headers,
              (http::Headers{{"X-Scope-OrgID", "a|b, c"}, {"X-Other", "d"}}));
  }
}

TEST(Options, PrintHelpOfEveryCommandWithCode0) {
  const struct {
    std::vector<const char*> arguments;
    const char* holds;
  } cases[] = {
      {{"--help"}, "check"},
      {{"run", "--help"}, "--lease-duration"},
      {{"check", "--help"}, "--control-address"},
      {{"version", "--help"}, "version"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = parse(c.arguments);
    EXPECT_EQ(outcome.parsed.exit_code, 0);
    EXPECT_THAT(outcome.out, HasSubstr(c.holds));
  }
}

TEST(Options, KnowsTheOtherCommands) {
  EXPECT_EQ(parse({"version"}).parsed.options.command, Command::kVersion);
  const Options check =
      parse({"check", "--kubeconfig=/k", "--control-address=op:1"}).parsed.options;
  EXPECT_EQ(check.kubeconfig, "/k");
  EXPECT_EQ(check.control_address, "op:1");
}

}  // namespace options_test
}  // namespace weir::operator_app
