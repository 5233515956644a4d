// SPDX-License-Identifier: Apache-2.0
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "operator/app/check_command.h"
#include "operator/control/certificates.h"
#include "operator/control/job_key.h"
#include "operator/kube/auth.h"
#include "tests/support/jump_clock.h"
#include "tests/support/temp_dir.h"

namespace weir::operator_app {
namespace check_test {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// An API server that says what is allowed, and a Prometheus or control API that gives one answer.
class Server final : public http::Transport {
 public:
  Result<http::Response> send(const http::Request& request, http::Deadline,
                              std::stop_token) override {
    last = request;
    if (fails) return *fails;
    if (request.path.find("selfsubjectaccessreviews") == std::string::npos) return answer;
    const json asked = json::parse(request.body)["spec"]["resourceAttributes"];
    const std::string resource =
        asked["resource"].get<std::string>() +
        (asked.contains("subresource") ? "/" + asked["subresource"].get<std::string>() : "");
    const std::string what = asked["verb"].get<std::string>() + " " + resource;
    reviews.push_back(what + " " + asked["namespace"].get<std::string>() + " " +
                      asked["name"].get<std::string>());
    return http::Response{201, {}, json{{"status", {{"allowed", what != refused}}}}.dump()};
  }
  Result<http::Response> stream(const http::Request&, std::stop_token,
                                const std::function<void(std::string_view)>&) override {
    return Error{Code::kInternal, "no streams here"};
  }

  http::Response answer{200, {}, "{}"};
  std::optional<Error> fails;
  std::string refused;  // "create pods"
  http::Request last;
  std::vector<std::string> reviews;
};

struct World {
  std::string server = "https://api.example.com:6443";
  World() {
    options.namespace_name = "weir-system";
    options.prometheus_url = "http://p:9090";
    prometheus.answer.body =
        R"({"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, "4"]}]}})";
  }
  int check() {
    out.str("");
    return check_cluster(options,
                         {*client, clock, out, prometheus_there ? &prometheus : nullptr, headers,
                          [this](const std::string& ca_pem) {
                            trusted = ca_pem;
                            auto made = std::make_unique<Server>();
                            made->fails = control_fails;
                            return made;
                          },
                          server});
  }

  test::JumpClock clock;
  Server api, prometheus;
  bool prometheus_there = true;
  std::function<http::Headers()> headers;
  std::optional<Error> control_fails;
  std::string trusted = "not asked";
  kube::TokenSource token{"", "", clock};
  std::unique_ptr<kube::Client> client = kube::make_client(api, token, clock, {});
  Options options;
  std::ostringstream out;
};

TEST(Check, IsContentWithACompleteCluster) {
  World world;

  EXPECT_EQ(world.check(), 0);

  EXPECT_THAT(world.out.str(),
              AllOf(HasSubstr("ok       CRD pipelinejobs.weir.dev is served"),
                    HasSubstr("ok       may get, list, watch, create, patch, delete pods"),
                    HasSubstr("ok       weir_link_bytes_total is scraped"),
                    Not(HasSubstr("MISSING")), Not(HasSubstr("note"))));
}

TEST(Check, AsksForEachVerbWhereItIsNeeded) {
  World world;
  world.options.watch_namespaces = {"a", "b"};

  world.check();

  const auto asked = [&](const std::string& review) {
    return std::ranges::count(world.api.reviews, review);
  };
  EXPECT_EQ(asked("create pods a "), 1);
  EXPECT_EQ(asked("create pods b "), 1);
  EXPECT_EQ(asked("patch pipelinejobs/status a "), 1);
  EXPECT_EQ(asked("create leases weir-system "), 1);
  EXPECT_EQ(asked("update leases weir-system weir-operator"), 1);
  EXPECT_EQ(asked("get secrets weir-system weir-operator-keys"), 1);
  EXPECT_EQ(asked("create tokenreviews  "), 1);
}

TEST(Check, AsksForTheObjectsOfItsOwnName) {
  World world;
  world.options.name = "two-operator";

  world.check();

  EXPECT_THAT(world.api.reviews, Contains("update leases weir-system two-operator"));
  EXPECT_THAT(world.api.reviews, Contains("get secrets weir-system two-operator-keys"));
}

TEST(Check, NamesAMissingVerbWithItsResource) {
  World world;
  world.api.refused = "create pods";

  EXPECT_EQ(world.check(), 1);

  EXPECT_THAT(world.out.str(), HasSubstr("MISSING  may not create pods in all namespaces"));
}

TEST(Check, OnlyNotesWhatTheOperatorCanDoWithout) {
  World world;
  world.api.refused = "watch nodes";
  world.prometheus_there = false;

  EXPECT_EQ(world.check(), 0);

  EXPECT_THAT(world.out.str(),
              AllOf(HasSubstr("note     may not watch nodes: plans use no topology"),
                    HasSubstr("note     Prometheus is not configured")));
}

TEST(Check, TellsAMissingCrdFromAForbiddenOne) {
  World world;
  world.api.answer = {404, {}, "404 page not found"};
  EXPECT_EQ(world.check(), 1);
  EXPECT_THAT(world.out.str(), HasSubstr("MISSING  CRD pipelinejobs.weir.dev: not installed"));

  world.api.answer = {403, {}, "{}"};
  world.api.refused = "list pipelinejobs";
  EXPECT_EQ(world.check(), 1);
  EXPECT_THAT(world.out.str(), AllOf(HasSubstr("note     CRD pipelinejobs.weir.dev: unknown"),
                                     HasSubstr("MISSING  may not list pipelinejobs")));
}

TEST(Check, EndsWithCode2WithoutAnApiServer) {
  World world;
  world.api.fails = Error{Code::kUnavailable, "refused"};

  world.server = "https://reader:secret@api.example.com:6443";
  EXPECT_EQ(world.check(), 2);

  EXPECT_THAT(world.out.str(),
              HasSubstr("MISSING  API server at https://***@api.example.com:6443: refused"));
}

TEST(Check, SaysHowPrometheusFails) {
  World world;
  world.prometheus.fails = Error{Code::kUnavailable, "no route"};
  EXPECT_EQ(world.check(), 1);
  EXPECT_THAT(world.out.str(), HasSubstr("MISSING  Prometheus at http://p:9090: no route"));

  world.prometheus.fails = Error{Code::kTimeout, "Operation canceled"};
  EXPECT_EQ(world.check(), 1);
  EXPECT_THAT(world.out.str(), HasSubstr("http://p:9090: no answer in time (10 s)"));

  world.prometheus.fails.reset();
  world.prometheus.answer = {401, {}, "no org id"};
  EXPECT_EQ(world.check(), 1);
  EXPECT_THAT(world.out.str(), HasSubstr("http://p:9090: Prometheus answered 401: no org id"));

  world.prometheus.answer = {200, {}, "<html>"};
  EXPECT_EQ(world.check(), 1);
  EXPECT_THAT(world.out.str(), HasSubstr("a page of HTML"));

  world.prometheus.answer = {
      200, {}, R"({"status": "success", "data": {"resultType": "scalar", "result": [1, "4"]}})"};
  EXPECT_EQ(world.check(), 1);
  EXPECT_THAT(world.out.str(), HasSubstr("no vector but a scalar"));

  world.prometheus.answer = {
      200, {}, R"({"status": "success", "data": {"resultType": "vector", "result": []}})"};
  EXPECT_EQ(world.check(), 0);
  EXPECT_THAT(world.out.str(), HasSubstr("note     weir_link_bytes_total has no series"));
}

TEST(Check, ShowsPrometheusItsHeaders) {
  World world;
  world.headers = [] { return http::Headers{{"Authorization", "Basic x"}}; };

  world.check();

  EXPECT_EQ(http::header_value(world.prometheus.last.headers, "Authorization"), "Basic x");
}

TEST(Check, TriesTheControlApiWithTheAuthorityOfTheSecret) {
  World world;
  world.check();
  EXPECT_EQ(world.trusted, "not asked") << "no address was given";

  world.options.control_address = "op:8443";
  EXPECT_EQ(world.check(), 0);
  EXPECT_THAT(world.out.str(), AllOf(HasSubstr("ok       control API at op:8443 answers"),
                                     HasSubstr("note     its certificate was not verified")));

  world.api.answer.body = R"({"data": {"ca.crt": "Q0E=", "ca.key": "eA==", "seed": "eA=="}})";
  EXPECT_EQ(world.check(), 0);
  EXPECT_EQ(world.trusted, "CA");
  EXPECT_THAT(world.out.str(), Not(HasSubstr("not verified")));

  world.control_fails = Error{Code::kUnavailable, "Error in SSL handshake"};
  EXPECT_EQ(world.check(), 1);
  EXPECT_THAT(world.out.str(),
              HasSubstr("MISSING  control API at op:8443: Error in SSL handshake"));
}

TEST(Check, JudgesTheOwnCertificateAsRunDoes) {
  World world;
  const test::TempDir folder;
  const auto authority = control_server::make_authority(world.clock.system_now());
  const auto leaf = control_server::issue_leaf(authority, {"op.sys.svc"}, world.clock.system_now());
  folder.file("tls.crt", leaf->certificate_pem);
  folder.file("tls.key", leaf->key_pem);
  folder.file("ca.crt", authority.certificate_pem);
  world.options.control_tls_dir = folder.path().string();

  world.options.control_address = "op.sys.svc:8443";
  EXPECT_EQ(world.check(), 0);
  EXPECT_THAT(world.out.str(), HasSubstr("ok       own certificate in " + folder.path().string() +
                                         " is for op.sys.svc, until 20"));

  world.options.control_address = "op.other.svc:8443";
  EXPECT_EQ(world.check(), 1);
  EXPECT_THAT(world.out.str(), HasSubstr("MISSING  own certificate: " + folder.path().string() +
                                         "/tls.crt: is not for op.other.svc"));
}

TEST(Check, TrustsTheOwnAuthorityOfTheSecret) {
  World world;
  world.options.control_address = "op:8443";
  world.api.answer.body =
      R"({"data": {"ca.crt": "Q0E=", "ca.key": "eA==", "seed": "eA==", "own.crt": "T1dO",)"
      R"( "own.since": "MjAyNi0wMS0wMVQwMDowMDowMFo="}})";

  EXPECT_EQ(world.check(), 0);

  EXPECT_EQ(world.trusted, "CAOWN");
}

}  // namespace check_test
}  // namespace weir::operator_app
