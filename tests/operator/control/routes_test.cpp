// SPDX-License-Identifier: Apache-2.0
// Every status of worker/protocol/README.md "Control API", without a network.
#include "operator/control/routes.h"

#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/control/job_key.h"
#include "tests/operator/control/fakes.h"
#include "tests/support/manual_clock.h"
#include "worker/http/text.h"
#include "worker/protocol/codec.h"

namespace weir::control_server {
namespace routes_test {

using http::Method;
using testing::AnyOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kBase = "/v1/namespaces/team-a/pipelinejobs/gpt/";

class RoutesTest : public testing::Test {
 protected:
  RoutesTest() {
    cache_.add_job("gpt", "u", 3);
    for (int i = 0; i < 2; ++i) {
      pods_[i] = make_pod("gpt", "u", i);
      cache_.add_pod(pods_[i]);
    }
  }
  http::Response call(Method method, const std::string& path, const std::string& token,
                      const std::string& body = "") {
    http::Request request{method, path, {}, body};
    if (!token.empty()) request.headers.emplace_back("authorization", "Bearer " + token);
    if (auto refused = routes_.refuse_early(request)) return *refused;
    const auto answer = std::make_shared<http::Response>();  // a poll may outlive this call
    routes_.handle({.request = request, .remote_address = "", .proven = {}},
                   [answer](http::Response response) { *answer = std::move(response); });
    return *answer;  // status 0: still open
  }
  http::Response post(const std::string& what, const std::string& body, int pod = 0) {
    return call(Method::kPost, kBase + what, token_of(*pods_[pod]), body);
  }
  std::string join_body(int pod = 0, std::optional<std::int64_t> lost_term = {}) const {
    return protocol::encode(protocol::Join{.job_uid = "u",
                                           .pod = pods_[pod]->meta.name,
                                           .pod_uid = pods_[pod]->meta.uid,
                                           .worker_index = pod,
                                           .lost_term = lost_term});
  }
  // As worker 1 is told.
  std::optional<protocol::CoordinatorPlace> coordinator() {
    const auto answer = post("join", join_body(1), 1);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return protocol::decode_join_answer(answer.body)->coordinator;
  }
  void second_coordinates(std::int64_t term = 2) {
    cache_.name_coordinator("gpt", {.pod = pods_[1]->meta.name,
                                    .pod_uid = pods_[1]->meta.uid,
                                    .lost_pod_uid = pods_[0]->meta.uid,
                                    .term = term});
  }
  static std::string register_body(const std::string& uid = "u") {
    return protocol::encode(protocol::Register{.job_uid = uid, .model = {"gpt", 4, ""}});
  }
  static std::string report_body(std::int64_t sequence, const std::string& uid = "u") {
    return protocol::encode(protocol::Report{.job_uid = uid, .sequence = sequence});
  }

  test::ManualClock clock_;
  FakeCache cache_;
  Hub hub_{clock_};
  FakeReviewer reviewer_;
  Authenticator authenticator_{reviewer_, clock_, {}};
  bool leading_ = true;
  int dropped_ = 0;  // fields of reports
  std::vector<api::TracePart> traces_;
  std::string leader_ = "weir-operator-1_10.0.0.9_abc";
  Routes routes_{{cache_, hub_, authenticator_, "seed", [this] { return leading_; },
                  [this] { return leader_; }, 8443, [this](int fields) { dropped_ += fields; },
                  [this](const api::PipelineJob& job, const api::TracePart& part) {
                    EXPECT_EQ(job.meta.uid, "u");
                    traces_.push_back(part);
                    return http::plain_text(202, "accepted");
                  }}};
  std::shared_ptr<api::Pod> pods_[2];
};

TEST_F(RoutesTest, JoinGivesEveryWorkerTheKeyOfItsJob) {
  for (int pod : {0, 1}) {
    const auto answer = post("join", join_body(pod), pod);

    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(protocol::decode_join_answer(answer.body)->job_key, key_of_job("seed", "u"));
  }
}

TEST_F(RoutesTest, JoinIsServedByAFollowerToo) {
  leading_ = false;

  EXPECT_EQ(post("join", join_body()).status, 200);
}

TEST_F(RoutesTest, JoinRefusesAPodThatClaimsToBeAnother) {
  EXPECT_EQ(post("join", join_body(1), 0).status, 403);
}

TEST_F(RoutesTest, JoinWithoutACommonProtocolIs400) {
  protocol::Join join = *protocol::decode_join(join_body());
  join.protocol_min = 7;
  join.protocol_max = 9;

  const auto answer = post("join", protocol::encode(join));

  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("protocol: 7 to 9"));
}

TEST_F(RoutesTest, BadBodiesAre400WithTheField) {
  EXPECT_EQ(post("join", "{").status, 400);
  EXPECT_EQ(post("report", "[]").status, 400);
  const auto answer = post("register", R"({"jobUid":"u","members":3})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.body, "members: 3 is not a list\n");
}

TEST_F(RoutesTest, LargeBodiesAre413ByRoute) {
  EXPECT_EQ(post("join", std::string(kMaxJoinBody + 1, ' ')).status, 413);
  EXPECT_EQ(post("report", std::string(kMaxReportBody + 1, ' ')).status, 413);
  EXPECT_EQ(post("register", std::string(kMaxRegisterBody + 1, ' ')).status, 413);
  EXPECT_EQ(post("register", std::string(kMaxReportBody + 1, ' ')).status, 400);
}

TEST_F(RoutesTest, UnknownPathsAre404AndWrongMethods405) {
  const std::string token = token_of(*pods_[0]);
  for (const char* path :
       {"/", "/v1/namespaces/team-a/pipelinejobs/gpt", "/v1/namespaces/team-a/pipelinejobs/gpt/x",
        "/v1/namespaces/team-a/pods/gpt/plan", "/v1/namespaces/team-a/pipelinejobs/gpt/plan/x",
        "/v1/namespaces/../pipelinejobs/gpt/..", "/v1/namespaces//pipelinejobs/gpt/plan",
        "/v1/namespaces/team-a/pipelinejobs/g%2Ft/plan"}) {
    EXPECT_EQ(call(Method::kGet, path, token).status, 404) << path;
  }
  EXPECT_EQ(call(Method::kGet, kBase + "join", token).status, 405);
  EXPECT_EQ(call(Method::kPost, kBase + "plan", token).status, 405);
}

TEST_F(RoutesTest, MissingOrRejectedTokensAre401) {
  EXPECT_EQ(call(Method::kPost, kBase + "join", "", join_body()).status, 401);
  EXPECT_EQ(call(Method::kPost, kBase + "join", "nonsense", join_body()).status, 401);
}

TEST_F(RoutesTest, AnApiServerThatDoesNotAnswerIs503) {
  reviewer_.fails = Error{Code::kTimeout, "no answer"};

  const auto answer = post("join", join_body());

  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(http::header_value(answer.headers, "Retry-After"), "1");
}

TEST_F(RoutesTest, TooManyNewTokensAre429) {
  for (int i = 0; i < static_cast<int>(kReviewsPerSecond); ++i) {
    call(Method::kPost, kBase + "join", "noise" + std::to_string(i), "{}");
  }

  const auto answer = post("join", join_body());

  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(http::header_value(answer.headers, "Retry-After"), "1");
}

TEST_F(RoutesTest, ATokenOfAnotherJobsPodIs403) {
  cache_.add_job("other", "o");
  const auto stranger = make_pod("other", "o", 0);
  cache_.add_pod(stranger);
  const std::string token = token_of(*stranger);

  EXPECT_EQ(call(Method::kPost, kBase + "join", token, join_body()).status, 403);
  EXPECT_EQ(call(Method::kPost, kBase + "register", token, register_body()).status, 403);
  EXPECT_EQ(call(Method::kGet, kBase + "plan?have=0&wait=0", token).status, 403);
  EXPECT_EQ(call(Method::kPost, kBase + "report", token, report_body(1)).status, 403);
}

TEST_F(RoutesTest, AnUnknownPodOrAForgedNameIs403) {
  EXPECT_EQ(call(Method::kPost, kBase + "join", "gpt-a-0/unknown-uid", join_body()).status, 403);
  EXPECT_EQ(call(Method::kPost, kBase + "join", "evil/" + pods_[0]->meta.uid, join_body()).status,
            403);
}

TEST_F(RoutesTest, ThePathOfAnotherNamespaceIs403) {
  EXPECT_EQ(call(Method::kPost, "/v1/namespaces/team-b/pipelinejobs/gpt/join", token_of(*pods_[0]),
                 join_body())
                .status,
            403);
}

TEST_F(RoutesTest, OnlyTheCoordinatorMayDoMoreThanJoin) {
  const auto answer = post("register", register_body(), 1);
  EXPECT_EQ(answer.status, 421);
  EXPECT_EQ(answer.body, "pod gpt-a-0 coordinates in term 1\n");
  EXPECT_EQ(http::header_value(answer.headers, "Weir-Term"), "1");
  EXPECT_EQ(post("report", report_body(1), 1).status, 421);
  EXPECT_EQ(call(Method::kGet, kBase + "plan", token_of(*pods_[1])).status, 421);
}

TEST_F(RoutesTest, TheNamedCoordinatorMayDoMoreThanJoinAndTheFormerMayNot) {
  second_coordinates(3);

  EXPECT_EQ(post("register", register_body(), 1).status, 202);
  EXPECT_EQ(post("report", report_body(1), 1).status, 202);
  for (const bool leading : {true, false}) {
    leading_ = leading;
    const auto answer = post("report", report_body(2), 0);
    EXPECT_EQ(answer.status, 421);
    EXPECT_EQ(answer.body, "pod gpt-a-1 coordinates in term 3\n");
    EXPECT_EQ(http::header_value(answer.headers, "Weir-Term"), "3");
    EXPECT_EQ(call(Method::kGet, kBase + "plan", token_of(*pods_[0])).status, 421);
  }
}

TEST_F(RoutesTest, JoinNamesTheNewestPodOfIndexZeroUntilAnotherIsNamed) {
  EXPECT_EQ(coordinator()->pod_uid, "u-pod-0");
  EXPECT_EQ(coordinator()->address, "") << "it has no address yet";
  const auto again = make_pod("gpt", "u", 0);
  again->meta.name = "gpt-a-0-1";
  again->meta.uid = "u-again";
  again->meta.labels["weir.dev/attempt"] = "1";
  again->ips = {"10.0.0.7", "fd00::7"};
  cache_.add_pod(again);
  const auto stranger = make_pod("gpt", "earlier", 0);
  stranger->meta.labels["weir.dev/attempt"] = "9";
  cache_.add_pod(stranger);

  EXPECT_EQ(coordinator()->pod, "gpt-a-0-1");
  EXPECT_EQ(coordinator()->pod_uid, "u-again");
  EXPECT_EQ(coordinator()->address, "10.0.0.7:7070");
  EXPECT_EQ(coordinator()->term, 1);
  EXPECT_EQ(coordinator()->lost_pod_uid, "");
  EXPECT_EQ(post("report", report_body(1), 0).status, 428) << "it still runs, and may report";

  pods_[1]->ips = {"fd00::8"};
  second_coordinates();
  EXPECT_EQ(coordinator()->pod_uid, "u-pod-1");
  EXPECT_EQ(coordinator()->address, "[fd00::8]:7070");
  EXPECT_EQ(coordinator()->term, 2);
  EXPECT_EQ(coordinator()->lost_pod_uid, "u-pod-0");
}

TEST_F(RoutesTest, WhoJoinsWaitsWhileTheCoordinatorIsChosen) {
  second_coordinates();
  cache_.remove_pod("u-pod-1");

  for (const auto lost_term : {std::optional<std::int64_t>(), std::optional<std::int64_t>(1)}) {
    const auto answer = post("join", join_body(0, lost_term));
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.body, "the coordinator is being chosen\n");
    EXPECT_EQ(http::header_value(answer.headers, "Retry-After"), "1");
    const auto claims = hub_.claims("team-a/gpt", "u");
    ASSERT_EQ(claims.size(), 1U) << "a new process knows no term, but votes";
    EXPECT_EQ(claims[0].term, 2);
    hub_.forget("team-a/gpt");
  }
  leading_ = false;
  EXPECT_EQ(post("join", join_body(0)).status, 307);
  leading_ = true;
  const auto former = post("report", report_body(1));
  EXPECT_EQ(former.status, 421);
  EXPECT_EQ(http::header_value(former.headers, "Weir-Term"), "2");
}

TEST_F(RoutesTest, BeforeThePodOfIndexZeroIsThereNobodyIsNamed) {
  cache_.remove_pod("u-pod-0");
  EXPECT_FALSE(coordinator());
}

TEST_F(RoutesTest, AClaimReachesTheHubOfTheLeaderOnly) {
  cache_.add_job("gpt", "u", 0);
  EXPECT_EQ(post("join", join_body(1), 1).status, 200);
  EXPECT_EQ(post("join", join_body(1, 1), 1).status, 200);
  EXPECT_TRUE(hub_.claims("team-a/gpt", "u").empty()) << "no claim, and one without a plan";
  cache_.add_job("gpt", "u", 1);
  leading_ = false;
  const auto redirected = post("join", join_body(1, 1), 1);
  EXPECT_EQ(redirected.status, 307);
  EXPECT_EQ(http::header_value(redirected.headers, "Location"),
            "https://10.0.0.9:8443" + kBase + "join");
  EXPECT_TRUE(hub_.claims("team-a/gpt", "u").empty());

  leading_ = true;
  const auto answer = post("join", join_body(1, 1), 1);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(protocol::decode_join_answer(answer.body)->coordinator->pod_uid, "u-pod-0");
  const auto claims = hub_.claims("team-a/gpt", "u");
  ASSERT_EQ(claims.size(), 1U);
  EXPECT_EQ(claims[0].pod_uid, "u-pod-1");
  EXPECT_EQ(claims[0].term, 1);
  EXPECT_EQ(post("join", join_body(1, 1), 0).status, 403) << "of another pod";
}

TEST_F(RoutesTest, AJobThatIsNotThereYetIs404AndADeletedOne410) {
  cache_.remove_job("gpt");
  EXPECT_EQ(post("join", join_body()).status, 404);

  hub_.publish_plan("team-a/gpt", "u", 1, "{}");
  hub_.forget("team-a/gpt");

  EXPECT_EQ(post("join", join_body()).status, 410);
  EXPECT_EQ(post("report", report_body(1)).status, 410);
}

TEST_F(RoutesTest, AJobThatIsBeingDeletedIs410) {
  cache_.mark_deleting("gpt");

  EXPECT_EQ(call(Method::kGet, kBase + "plan", token_of(*pods_[0])).status, 410);
}

TEST_F(RoutesTest, AnotherJobUnderTheNameIs409) {
  EXPECT_EQ(post("register", register_body("v")).status, 409);
  EXPECT_EQ(post("report", report_body(1, "v")).status, 409);
  cache_.add_job("gpt", "v");
  EXPECT_EQ(post("join", join_body()).status, 409);
}

TEST_F(RoutesTest, ReportsNeedMembersAndRisingSequences) {
  EXPECT_EQ(post("report", report_body(5)).status, 428);
  EXPECT_EQ(post("register", register_body()).status, 202);
  EXPECT_EQ(post("report", report_body(5)).status, 202);
  EXPECT_EQ(post("report", report_body(4)).status, 409);
  EXPECT_EQ(hub_.report("team-a/gpt", "u")->body.sequence, 5);
}

TEST_F(RoutesTest, FieldsThatCannotBeAreDroppedAndCountedAndTheRestCounts) {
  protocol::Report report{.job_uid = "u", .sequence = 1, .step = 7};
  report.segment = protocol::Segment{.revision = 1, .steps = 8, .step_seconds = 1.5};
  report.segment->ranks = {{.stage = 0, .forward_seconds = 0.1, .backward_seconds = 0.2},
                           {.stage = -1, .forward_seconds = 0.1, .backward_seconds = 0.2}};
  report.segment->links = {{.boundary = 0, .seconds = 1e12, .timed = 3, .transfers = 4}};
  ASSERT_EQ(post("register", register_body()).status, 202);

  EXPECT_EQ(post("report", protocol::encode(report)).status, 202);

  EXPECT_EQ(dropped_, 2);
  const auto kept = hub_.report("team-a/gpt", "u");
  EXPECT_EQ(kept->body.step, 7);
  EXPECT_EQ(kept->body.segment->step_seconds, 1.5);
  EXPECT_EQ(kept->body.segment->ranks.size(), 1U);
}

TEST_F(RoutesTest, TheAnswerToAReportSaysWhichStepsAUserWants) {
  post("register", register_body());
  EXPECT_EQ(post("report", report_body(1)).body, "{}");
  cache_.annotate("gpt", "weir.dev/trace", "5f-3a steps=3");

  const auto answer = protocol::decode_report_answer(post("report", report_body(2)).body);

  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->trace, (protocol::TraceWanted{"5f-3a", 3}));
  for (const char* wrong : {"foo", "5f3a steps=", "5f3a steps=0", "5f3a steps=1001", " steps=3",
                            "5F steps=3", "a/b steps=3", "a steps=3 "}) {
    cache_.annotate("gpt", "weir.dev/trace", wrong);
    EXPECT_EQ(post("report", report_body(3)).body, "{}") << wrong;
  }
}

TEST_F(RoutesTest, OnlyTheCoordinatorPostsPartsOfATraceAndOnlyToTheLeader) {
  const std::string path = "trace?id=5f3a&part=1&parts=2";
  EXPECT_EQ(post(path, "octets").status, 202);
  ASSERT_EQ(traces_.size(), 1U);
  EXPECT_EQ(traces_[0].id, "5f3a");
  EXPECT_EQ(traces_[0].part, 1);
  EXPECT_EQ(traces_[0].parts, 2);
  EXPECT_EQ(traces_[0].octets, "octets");

  EXPECT_EQ(post(path, "octets", 1).status, 421);
  EXPECT_EQ(post(path, std::string(kMaxTraceBody + 1, 'x')).status, 413);
  for (const char* query : {"", "?id=5f3a", "?id=5f3a&part=2&parts=2", "?id=5f3a&part=0&parts=5",
                            "?id=5f3a&part=-1&parts=2", "?id=../x&part=0&parts=1"}) {
    EXPECT_EQ(post(std::string("trace") + query, "x").status, 400) << query;
  }
  leading_ = false;
  EXPECT_EQ(post(path, "octets").status, 307);
  EXPECT_EQ(traces_.size(), 1U);
}

TEST_F(RoutesTest, TheCoordinatorPostsADumpWithItsReason) {
  const std::string dump = "trace?id=flight-9&part=0&parts=1&kind=flight&why=";
  EXPECT_EQ(post(dump + "step%209%1B%0A%3A%20slow", "octets").status, 202);
  ASSERT_EQ(traces_.size(), 1U);
  ASSERT_TRUE(traces_[0].flight);
  EXPECT_THAT(traces_[0].flight->why, StartsWith("step 9"));
  EXPECT_THAT(traces_[0].flight->why, EndsWith(": slow"));
  EXPECT_THAT(traces_[0].flight->why, Not(AnyOf(HasSubstr("\n"), HasSubstr("\x1b"))));
  EXPECT_EQ(traces_[0].config_map("gpt"), "gpt-flight");

  EXPECT_EQ(post(dump + std::string(2000, 'x'), "octets").status, 202);
  EXPECT_EQ(traces_[1].flight->why.size(), protocol::kMostWhyBytes);
  EXPECT_EQ(post("trace?id=a&part=0&parts=2&kind=flight", "octets").status, 400);
  EXPECT_EQ(post("trace?id=a&part=0&parts=1&kind=other", "octets").status, 400);
}

TEST_F(RoutesTest, AFollowerNamesTheLeaderByItsIp) {
  leading_ = false;

  const auto answer = post("report", report_body(1));

  EXPECT_EQ(answer.status, 307);
  EXPECT_EQ(http::header_value(answer.headers, "Location"),
            "https://10.0.0.9:8443" + kBase + "report");
  leader_ = "weir-operator-1_fd00::9_abc";
  EXPECT_THAT(http::header_value(post("register", register_body()).headers, "Location"),
              HasSubstr("https://[fd00::9]:8443/"));
  leader_ = "";
  EXPECT_EQ(post("report", report_body(1)).status, 503);
}

TEST_F(RoutesTest, PlansComeFromTheNewestConfigMapOnAnyReplica) {
  leading_ = false;
  const std::string token = token_of(*pods_[0]);
  cache_.add_plan("gpt", "u", "3", "{plan 3}");

  const auto answer = call(Method::kGet, kBase + "plan?have=2&wait=50", token);

  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "{plan 3}");
  EXPECT_EQ(http::header_value(answer.headers, "ETag"), "\"3\"");
  EXPECT_EQ(call(Method::kGet, kBase + "plan?have=3&wait=0", token).status, 304);
  EXPECT_EQ(call(Method::kGet, kBase + "plan?have=3&wait=50", token).status, 0);  // open
  EXPECT_EQ(hub_.open_polls(), 1U);
}

TEST_F(RoutesTest, NobodyWaitsLongerThanFiftySeconds) {
  call(Method::kGet, kBase + "plan?wait=999999", token_of(*pods_[0]));
  EXPECT_EQ(hub_.open_polls(), 1U);

  clock_.advance(kMaxWait);
  hub_.expire_polls();

  EXPECT_EQ(hub_.open_polls(), 0U);
}

TEST_F(RoutesTest, BadParametersOfPlanAre400) {
  const std::string token = token_of(*pods_[0]);
  for (const char* query : {"have=x", "have=-1", "have=4294967296", "have=1&wait=x", "wait=-3"}) {
    EXPECT_EQ(call(Method::kGet, kBase + "plan?" + query, token).status, 400) << query;
  }
}

TEST_F(RoutesTest, NothingIsServedBeforeTheCacheIsFilled) {
  cache_.set_synced(false);

  EXPECT_EQ(post("join", join_body()).status, 503);
}

TEST_F(RoutesTest, TokensAreReviewedOnceAMinute) {
  post("join", join_body());
  post("join", join_body());
  EXPECT_EQ(reviewer_.asked, 1);
  clock_.advance(kAcceptedFor);
  post("join", join_body());
  EXPECT_EQ(reviewer_.asked, 2);

  for (int i = 0; i < 3; ++i) call(Method::kPost, kBase + "join", "nonsense", join_body());
  EXPECT_EQ(reviewer_.asked, 3);
  clock_.advance(kRejectedFor);
  call(Method::kPost, kBase + "join", "nonsense", join_body());
  EXPECT_EQ(reviewer_.asked, 4);
}

}  // namespace routes_test
}  // namespace weir::control_server
