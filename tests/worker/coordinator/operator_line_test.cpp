// SPDX-License-Identifier: Apache-2.0
// The line to the operator against a scripted Transport: each status of the control API.
#include "worker/coordinator/operator_line.h"

#include <atomic>
#include <deque>
#include <map>

#include <gtest/gtest.h>

#include "tests/support/manual_clock.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/control/recording_engine.h"
#include "tests/worker/coordinator/switch_world.h"
#include "worker/coordinator/control_api.h"
#include "worker/protocol/codec.h"

namespace weir::coordinator::test {
namespace operator_line_test {

using weir::test::eventually;
using weir::test::ManualClock;

const std::string kUrl = "https://weir-operator.weir-system.svc:8443";
const std::string kBase = "/v1/namespaces/ml/pipelinejobs/gpt/";

// The operator as seen from a worker: answers of each call in turn, the last one for ever.
class Operator {
 public:
  void answer(const std::string& call, std::deque<Result<http::Response>> answers) {
    const std::lock_guard lock(mutex_);
    answers_[call] = std::move(answers);
  }
  int calls(const std::string& call) const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(
        std::ranges::count_if(requests_, [&](const auto& r) { return call_of(r) == call; }));
  }
  std::vector<http::Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  std::vector<std::string> hosts() const {
    const std::lock_guard lock(mutex_);
    return hosts_;
  }
  std::vector<std::string> service_urls() const {  // of the transports, as they were made
    const std::lock_guard lock(mutex_);
    return service_urls_;
  }
  TransportFactory factory() {
    return [this](const std::string& base_url,
                  const std::string& service_url) -> Result<std::unique_ptr<http::Transport>> {
      const std::lock_guard lock(mutex_);
      service_urls_.push_back(service_url);
      return std::unique_ptr<http::Transport>(std::make_unique<Line>(*this, base_url));
    };
  }

 private:
  class Line final : public http::Transport {
   public:
    Line(Operator& back, std::string base_url) : back_(back), base_url_(std::move(base_url)) {}
    Result<http::Response> send(const http::Request& request, http::Deadline,
                                std::stop_token stop) override {
      return back_.take(base_url_, request, stop);
    }
    Result<http::Response> stream(const http::Request&, std::stop_token,
                                  const std::function<void(std::string_view)>&) override {
      return Error{Code::kInternal, "not used"};
    }

   private:
    Operator& back_;
    const std::string base_url_;
  };

  static std::string call_of(const http::Request& request) {
    const auto call = request.path.substr(request.path.rfind('/') + 1);
    return call.substr(0, call.find('?'));
  }

  Result<http::Response> take(const std::string& host, const http::Request& request,
                              const std::stop_token& stop) {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      hosts_.push_back(host);
      auto& answers = answers_[call_of(request)];
      if (!answers.empty()) {
        auto result = answers.front();
        if (answers.size() > 1) answers.pop_front();
        if (!result || result->status != kHang) return result;
      }
    }
    SystemClock clock;  // a long poll without an answer
    clock.sleep_until(clock.now() + 1h, stop);
    return Error{Code::kCancelled, "stopped"};
  }

  static constexpr int kHang = 0;
  mutable std::mutex mutex_;  // guards all below
  std::map<std::string, std::deque<Result<http::Response>>> answers_;
  std::vector<http::Request> requests_;
  std::vector<std::string> hosts_, service_urls_;
};

http::Response status(int code, http::Headers headers = {}, std::string body = "") {
  return {.status = code, .headers = std::move(headers), .body = std::move(body)};
}
const http::Response kHangs = status(0);

http::Response plan_answer(std::uint32_t revision) {
  return status(200, {{"ETag", "\"" + std::to_string(revision) + "\""}},
                protocol::encode_plan(plan(revision, schedule::Trigger::kRetune)));
}

std::string authorization(const http::Request& request) {
  for (const auto& [name, value] : request.headers) {
    if (name == "Authorization") return value;
  }
  return "";
}

struct LineWorld {
  LineWorld()
      : options{.url = kUrl,
                .token_file = folder.file("token", "first-token\n"),
                .job_namespace = "ml",
                .job_name = "gpt",
                .job_uid = "job"},
        pusher([this](const std::stop_token& stop) {
          // Time passes quickly, so that pauses end; 100 ms of theirs each 1 ms of ours.
          SystemClock real;
          while (real.sleep_until(real.now() + 1ms, stop)) clock.advance(100ms);
        }) {}

  Result<protocol::JoinAnswer> join_now(std::stop_token stop = {}) {
    return join(options, remote.factory(), clock, {.job_uid = "job", .pod = "p", .pod_uid = "u"},
                std::move(stop));
  }
  void start() {
    source = make_operator_source(options, remote.factory(), clock);
    source->start({.on_plan =
                       [this](const schedule::Plan& p) {
                         const std::lock_guard lock(mutex);
                         plans.push_back(p.revision);
                       },
                   .on_register_wanted = [this] { ++register_wanted; },
                   .on_gone = [this](const std::string&) { ++gone; },
                   .on_bad_plan =
                       [this](std::uint32_t revision, const std::string& why) {
                         const std::lock_guard lock(mutex);
                         bad_plans.emplace_back(revision, why);
                       },
                   .on_trace_wanted =
                       [this](const protocol::TraceWanted& wanted) {
                         const std::lock_guard lock(mutex);
                         wishes.push_back(wanted.id + " " + std::to_string(wanted.steps));
                       },
                   .on_moved = [this](std::int64_t term) { told_term = term; }});
  }
  bool seen(const std::vector<std::uint32_t>& revisions) {
    return eventually([&] {
      const std::lock_guard lock(mutex);
      return plans == revisions;
    });
  }
  bool called(const std::string& call, int times) {
    return eventually([&] { return remote.calls(call) >= times; });
  }

  weir::test::TempDir folder;
  LineOptions options;
  ManualClock clock;
  Operator remote;
  std::mutex mutex;  // guards plans and bad_plans
  std::vector<std::uint32_t> plans;
  std::vector<std::string> wishes;
  std::vector<std::pair<std::uint32_t, std::string>> bad_plans;
  std::atomic<int> register_wanted = 0, gone = 0;
  std::atomic<std::int64_t> told_term = 0;
  std::unique_ptr<PlanSource> source;
  std::jthread pusher;
};

const std::string kJoined = protocol::encode(protocol::JoinAnswer{.job_key = "raw \x01 key"});

TEST(Join, ReturnsTheKeyAndShowsItsToken) {
  LineWorld world;
  world.remote.answer("join", {status(200, {}, kJoined)});

  const auto answer = world.join_now();

  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->job_key, "raw \x01 key");
  const auto request = world.remote.requests().at(0);
  EXPECT_EQ(request.path, kBase + "join");
  EXPECT_EQ(authorization(request), "Bearer first-token");
  EXPECT_TRUE(protocol::decode_join(request.body).ok());
}

TEST(Join, RepeatsUntilTheOperatorIsThereAndKnowsTheJob) {
  LineWorld world;
  world.remote.answer("join",
                      {Error{Code::kUnavailable, "refused"}, status(404), status(403),
                       status(503, {{"retry-after", "2"}}), status(500), status(200, {}, kJoined)});

  EXPECT_TRUE(world.join_now().ok());
  EXPECT_EQ(world.remote.calls("join"), 6);
}

TEST(Join, ReadsTheTokenAgainAfter401) {
  LineWorld world;
  world.remote.answer("join", {status(401), status(401), status(200, {}, kJoined)});
  std::jthread kubelet([&] {
    ASSERT_TRUE(world.called("join", 2));
    world.folder.file("token", "second-token");
  });

  EXPECT_TRUE(world.join_now().ok());

  kubelet.join();
  EXPECT_EQ(world.remote.calls("join"), 3);
}

TEST(Join, EndsWhenNoProtocolVersionFitsOrTheJobIsGone) {
  LineWorld world;
  world.remote.answer("join", {status(400, {}, "protocol 2..3")});
  EXPECT_EQ(world.join_now().error().code, Code::kInvalid);
  world.remote.answer("join", {status(410)});
  EXPECT_EQ(world.join_now().error().code, Code::kGone);
  world.remote.answer("join", {status(409)});
  EXPECT_EQ(world.join_now().error().code, Code::kGone);
}

TEST(Claim, AsksOnceAndNamesTheTerm) {
  LineWorld world;
  const protocol::CoordinatorPlace place{
      .pod = "p1", .pod_uid = "u1", .address = "10.0.0.2:7070", .term = 3};
  world.remote.answer(
      "join", {status(503), status(200, {}, protocol::encode(protocol::JoinAnswer{"key", place}))});
  protocol::Join body{.job_uid = "job", .pod = "p", .pod_uid = "u"};
  body.lost_term = 2;
  const auto ask = [&] {
    return claim(world.options, world.remote.factory(), world.clock, body, {});
  };

  EXPECT_EQ(ask().error().code, Code::kUnavailable);
  EXPECT_EQ(world.remote.calls("join"), 1);
  const auto answer = ask();

  ASSERT_TRUE(answer.ok() && answer->coordinator);
  EXPECT_EQ(answer->coordinator->address, "10.0.0.2:7070");
  EXPECT_EQ(protocol::decode_join(world.remote.requests().at(0).body)->lost_term, 2);
}

TEST(Join, EndsWhenStopped) {
  LineWorld world;
  std::stop_source stop;
  stop.request_stop();
  world.remote.answer("join", {status(404)});

  EXPECT_EQ(world.join_now(stop.get_token()).error().code, Code::kCancelled);
}

TEST(OperatorSource, AsksForPlansAboveTheOneItHas) {
  LineWorld world;
  world.remote.answer("plan", {status(304), plan_answer(3), plan_answer(4), kHangs});

  world.start();

  ASSERT_TRUE(world.seen({3, 4}));
  ASSERT_TRUE(world.called("plan", 4));
  const auto requests = world.remote.requests();
  EXPECT_EQ(requests[0].path, kBase + "plan?have=0&wait=50");
  EXPECT_EQ(requests[2].path, kBase + "plan?have=3&wait=50");
  EXPECT_EQ(requests[3].path, kBase + "plan?have=4&wait=50");
}

TEST(OperatorSource, ReportsAPlanThatItCannotReadAndDoesNotAskForItAgain) {
  LineWorld world;
  world.remote.answer(
      "plan", {status(200, {{"etag", "\"5\""}}, R"({"apiVersion": "weir.dev/plan/v9"})"), kHangs});

  world.start();

  ASSERT_TRUE(world.called("plan", 2));
  EXPECT_EQ(world.remote.requests()[1].path, kBase + "plan?have=5&wait=50");
  const std::lock_guard lock(world.mutex);
  ASSERT_EQ(world.bad_plans.size(), 1U);
  EXPECT_EQ(world.bad_plans[0].first, 5U);
  EXPECT_NE(world.bad_plans[0].second.find("weir.dev/plan/v9"), std::string::npos);
}

TEST(OperatorSource, DoesNotSpinOnAnOldRevision) {
  LineWorld world;
  world.remote.answer("plan", {plan_answer(3)});
  const auto start = world.clock.now();

  world.start();

  ASSERT_TRUE(world.called("plan", 4));
  EXPECT_GT(world.clock.now() - start, 1500ms) << "0.5..1 + 1..2 s of pauses";
  EXPECT_TRUE(world.seen({3}));
}

TEST(OperatorSource, RegistersAndReports) {
  LineWorld world;
  world.remote.answer("plan", {kHangs});
  world.remote.answer("register", {status(202)});
  world.remote.answer("report", {status(202)});
  world.start();

  world.source->register_members({.job_uid = "job"});
  world.source->report({.job_uid = "job", .sequence = 7});
  ASSERT_TRUE(world.called("register", 1));
  ASSERT_TRUE(world.called("report", 1));

  for (const auto& request : world.remote.requests()) {
    if (request.path != kBase + "report") continue;
    EXPECT_EQ(request.method, http::Method::kPost);
    EXPECT_EQ(protocol::decode_report(request.body)->sequence, 7);
  }
}

TEST(OperatorSource, TellsOfALaterTermAndGoesOn) {
  LineWorld world;
  world.remote.answer("plan", {kHangs});
  world.remote.answer(
      "report", {status(421, {{"weir-term", "3"}}, "pod p1 coordinates in term 3"), status(202)});
  world.start();

  world.source->report({.job_uid = "job", .sequence = 7});

  EXPECT_TRUE(eventually([&] { return world.told_term == 3; }));
  EXPECT_TRUE(world.called("report", 2)) << "the answer may be of a replica that is behind";
}

TEST(OperatorSource, PassesOnThatAUserWantsSteps) {
  LineWorld world;
  const auto asks = [](const std::string& id, int steps) {
    return status(202, {}, protocol::encode(protocol::ReportAnswer{{{id, steps}}}));
  };
  world.remote.answer("plan", {kHangs});
  world.remote.answer("report", {status(202, {}, "accepted\n"), asks("a", 0), asks("b", 1001),
                                 asks("c", 3), status(202, {}, "{}")});
  world.start();

  for (int i = 0; i < 5; ++i) {
    world.source->report({.job_uid = "job", .sequence = i});
    ASSERT_TRUE(world.called("report", i + 1));
  }

  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(world.mutex);
    return world.wishes == std::vector<std::string>{"c 3"};
  }));
}

TEST(OperatorSource, PostsATraceInPartsAndGivesItUpWhereNobodyTakesIt) {
  LineWorld world;
  world.remote.answer("plan", {kHangs});
  world.remote.answer("trace", {status(202), status(503), status(202), status(404)});
  world.start();
  const std::string first(protocol::kMaxTracePartBytes, 'x');

  world.source->post_trace("a", first + "rest");
  ASSERT_TRUE(world.called("trace", 3));
  std::vector<http::Request> sent;
  for (const auto& request : world.remote.requests()) {
    if (request.path.starts_with(kBase + "trace")) sent.push_back(request);
  }
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_EQ(sent[0].path, kBase + "trace?id=a&part=0&parts=2");
  EXPECT_EQ(sent[0].body, first);
  EXPECT_EQ(sent[1].path, kBase + "trace?id=a&part=1&parts=2");
  EXPECT_EQ(sent[2].path, sent[1].path);
  EXPECT_EQ(sent[2].body, "rest");

  world.source->post_trace("b", "");  // a rank keeps nothing: the user is told
  ASSERT_TRUE(world.called("trace", 3 + 4));
  world.source->post_trace("c", "x");
  ASSERT_TRUE(world.called("trace", 3 + 8));
  EXPECT_EQ(world.remote.requests().back().path, kBase + "trace?id=c&part=0&parts=1");
}

TEST(OperatorSource, PostsADumpBesideATrace) {
  LineWorld world;
  world.remote.answer("plan", {kHangs});
  world.remote.answer("trace", {status(202)});
  world.start();

  world.source->post_flight({.id = "flight-9", .why = "step 9: slow", .octets = "x"});
  world.source->post_trace("a", "y");
  ASSERT_TRUE(world.called("trace", 2));

  std::set<std::string> sent;
  for (const auto& request : world.remote.requests()) {
    if (request.path.starts_with(kBase + "trace")) sent.insert(request.path + " " + request.body);
  }
  EXPECT_EQ(sent, (std::set<std::string>{kBase + "trace?id=a&part=0&parts=1 y",
                                         kBase + "trace?id=flight-9&part=0&parts=1&kind=flight&why="
                                                 "step%209%3A%20slow x"}));
}

TEST(OperatorSource, FollowsARedirectOnceWithItsToken) {
  LineWorld world;
  world.remote.answer("plan", {kHangs});
  world.remote.answer("report",
                      {status(307, {{"location", "https://10.0.0.9:8443" + kBase + "report"}}),
                       status(202), kHangs});
  world.start();

  world.source->report({.job_uid = "job", .sequence = 1});
  ASSERT_TRUE(world.called("report", 2));

  std::vector<std::string> hosts;
  const auto requests = world.remote.requests();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].path != kBase + "report") continue;
    hosts.push_back(world.remote.hosts()[i]);
    EXPECT_EQ(authorization(requests[i]), "Bearer first-token");
  }
  EXPECT_EQ(hosts, (std::vector<std::string>{kUrl, "https://10.0.0.9:8443"}));
}

// The operator is installed anew with another port while a job runs: the kubelet brings its new
// address as a file, and the certificate is that of the new name.
TEST(OperatorSource, GoesWhereTheOperatorIsNow) {
  LineWorld world;
  world.options.url_file = (world.folder.path() / "url").string();
  world.remote.answer("plan", {kHangs});
  world.remote.answer("report", {status(202)});
  world.start();
  world.source->report({.job_uid = "job", .sequence = 1});
  ASSERT_TRUE(world.called("report", 1));

  world.folder.file("url", "https://weir.other.svc:9443\n");
  world.remote.answer("report", {status(202)});
  world.source->report({.job_uid = "job", .sequence = 2});
  ASSERT_TRUE(world.called("report", 2));

  EXPECT_EQ(world.remote.hosts().back(), "https://weir.other.svc:9443");
  EXPECT_EQ(world.remote.service_urls().back(), "https://weir.other.svc:9443");
}

TEST(OperatorSource, DoesNotFollowARedirectToPlainHttpOrForEver) {
  LineWorld world;
  world.remote.answer("plan", {kHangs});
  world.remote.answer("report",
                      {status(307, {{"Location", "http://10.0.0.9:8443" + kBase + "report"}}),
                       status(307, {{"Location", "https://10.0.0.8:8443" + kBase + "report"}}),
                       status(307, {{"Location", "https://10.0.0.7:8443" + kBase + "report"}}),
                       status(202), kHangs});
  world.start();

  world.source->report({.job_uid = "job", .sequence = 1});
  ASSERT_TRUE(world.called("report", 4));

  for (const auto& host : world.remote.hosts()) {
    EXPECT_TRUE(host == kUrl || host == "https://10.0.0.8:8443") << host;
  }
}

TEST(OperatorSource, SaysThatANewLeaderWantsTheMembersAgain) {
  LineWorld world;
  world.remote.answer("plan", {kHangs});
  world.remote.answer("report", {status(428), status(202)});
  world.start();

  world.source->report({.job_uid = "job", .sequence = 1});

  ASSERT_TRUE(eventually([&] { return world.register_wanted == 1; }));
  ASSERT_TRUE(world.called("report", 2)) << "the report is sent again";
}

TEST(OperatorSource, DropsWhatTheOperatorCannotRead) {
  LineWorld world;
  world.remote.answer("plan", {kHangs});
  world.remote.answer("register", {status(413)});
  world.remote.answer("report", {status(400), status(202)});
  world.start();

  world.source->register_members({.job_uid = "job"});
  world.source->report({.job_uid = "job", .sequence = 1});
  ASSERT_TRUE(world.called("report", 1));
  world.source->report({.job_uid = "job", .sequence = 2});
  ASSERT_TRUE(world.called("report", 2));

  EXPECT_EQ(world.remote.calls("register"), 1);
}

TEST(OperatorSource, KeepsTheNewestReportWhileTheOperatorIsAway) {
  LineWorld world;
  world.remote.answer("plan", {kHangs});
  world.remote.answer(
      "report", {Error{Code::kUnavailable, "refused"}, status(429), status(503), status(202)});
  world.start();
  world.source->report({.job_uid = "job", .sequence = 1});
  ASSERT_TRUE(world.called("report", 1));

  world.source->report({.job_uid = "job", .sequence = 2});
  world.source->flush(world.clock.now() + 1h);

  EXPECT_EQ(world.remote.calls("report"), 4);
  EXPECT_EQ(protocol::decode_report(world.remote.requests().back().body)->sequence, 2);
}

TEST(OperatorSource, WaitsAsLongAsRetryAfterSays) {
  LineWorld world;
  world.remote.answer("plan", {kHangs});
  world.remote.answer("report", {status(503, {{"Retry-After", "20"}}), status(202)});
  const auto start = world.clock.now();
  world.start();

  world.source->report({.job_uid = "job", .sequence = 1});

  ASSERT_TRUE(world.called("report", 2));
  EXPECT_GE(world.clock.now() - start, 20s);
}

TEST(OperatorSource, RegistersSoonWhenANewLeaderCameAfterALongTime) {
  LineWorld world;
  world.remote.answer("plan", {kHangs});
  std::deque<Result<http::Response>> answers(12, status(503));
  answers.push_back(status(428));
  answers.push_back(status(202));
  world.remote.answer("report", answers);
  world.start();

  world.source->report({.job_uid = "job", .sequence = 1});
  ASSERT_TRUE(world.called("report", 13));
  const auto found = world.clock.now();
  ASSERT_TRUE(world.called("report", 14));

  EXPECT_LT(world.clock.now() - found, 3s) << "the pauses begin anew";
}

TEST(BackOff, GrowsToAFewSecondsAndNoMore) {
  BackOff back_off(7);
  EXPECT_LE(back_off.next({}), 1s);
  std::chrono::milliseconds longest{0}, shortest{1h};
  for (int i = 0; i < 100; ++i) {
    const auto pause = back_off.next({});
    longest = std::max(longest, pause);
    if (i >= 4) shortest = std::min(shortest, pause);
  }
  EXPECT_LE(longest, 8s);
  EXPECT_GE(longest, 7s);
  EXPECT_GE(shortest, 4s);
  EXPECT_EQ(back_off.next(300s), 300s);
}

TEST(OperatorSource, StopsWhenAnotherJobHasTheName) {
  LineWorld world;
  world.remote.answer("plan", {kHangs});
  world.remote.answer("report", {status(409), status(202)});
  world.start();

  world.source->report({.job_uid = "job", .sequence = 1});
  ASSERT_TRUE(world.called("report", 1));
  world.source->report({.job_uid = "job", .sequence = 2});
  world.source->flush(world.clock.now() + 1h);

  EXPECT_EQ(world.remote.calls("report"), 1);
  EXPECT_EQ(world.gone, 0);
}

TEST(OperatorSource, TellsOnceThatTheJobIsDeleted) {
  LineWorld world;
  world.remote.answer("plan", {status(410)});
  world.remote.answer("report", {status(410)});
  world.start();

  world.source->report({.job_uid = "job", .sequence = 1});

  ASSERT_TRUE(eventually([&] { return world.gone == 1; }));
  world.source.reset();
  EXPECT_EQ(world.gone, 1);
}

}  // namespace operator_line_test
}  // namespace weir::coordinator::test
