// SPDX-License-Identifier: Apache-2.0
// The whole control API over TLS with its own certificates.
#include "operator/control/control_api.h"

#include <atomic>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "operator/control/certificates.h"
#include "operator/control/job_key.h"
#include "tests/operator/control/fakes.h"
#include "tests/support/temp_dir.h"
#include "worker/http/beast_transport.h"
#include "worker/protocol/codec.h"

namespace weir::control_server {
namespace control_api_test {

using namespace std::chrono_literals;

const std::string kBase = "/v1/namespaces/team-a/pipelinejobs/gpt/";

class ControlApiTest : public testing::Test {
 protected:
  ControlApiTest() {
    cache_.add_job("gpt", "u");
    cache_.add_pod(pod_);
    const auto names = control_names("weir-operator", "weir-system", "127.0.0.1");
    const auto started = [&] {
      return start_control_api({.address = "127.0.0.1",
                                .port = 0,
                                .tls = *issue_leaf(authority_, names, clock_.system_now())},
                               {.cache = cache_,
                                .hub = hub_,
                                .reviewer = reviewer_,
                                .clock = clock_,
                                .seed = "seed",
                                .leading = [] { return true; },
                                .leader = [] { return std::string(); },
                                .observe = [this](const char*, int) { ++answered_; },
                                .observe_review = {}});
    };
    auto server = started();
    EXPECT_TRUE(server.ok()) << server.error().message;
    server_ = *std::move(server);
  }
  std::unique_ptr<http::Transport> client(const std::string& name) const {
    http::Options options{.base_url = "https://127.0.0.1:" + std::to_string(server_->port()),
                          .ca_file = dir_.file("ca.crt", authority_.certificate_pem)};
    options.tls_name = name;
    return *http::make_beast_transport(options);
  }
  Result<http::Response> call(http::Method method, const std::string& what,
                              const std::string& body = "",
                              const std::string& name = "weir-operator.weir-system.svc") const {
    return client(name)->send(
        {method, kBase + what, {{"Authorization", "Bearer " + token_of(*pod_)}}, body},
        std::chrono::steady_clock::now() + 30s, {});
  }

  SystemClock clock_;
  FakeCache cache_;
  Hub hub_{clock_};
  FakeReviewer reviewer_;
  const Authority authority_ = make_authority(clock_.system_now());
  const std::shared_ptr<api::Pod> pod_ = make_pod("gpt", "u", 0);
  test::TempDir dir_;
  std::atomic<int> answered_ = 0;
  std::unique_ptr<ControlApi> server_;
};

TEST_F(ControlApiTest, LetsAWorkerJoinUnderTheNameOfTheService) {
  const auto answer = call(http::Method::kPost, "join",
                           protocol::encode(protocol::Join{
                               .job_uid = "u", .pod = pod_->meta.name, .pod_uid = pod_->meta.uid}));

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  ASSERT_EQ(answer->status, 200) << answer->body;
  EXPECT_EQ(protocol::decode_join_answer(answer->body)->job_key, key_of_job("seed", "u"));
  EXPECT_EQ(answered_, 1);
}

TEST_F(ControlApiTest, LetsAWorkerJoinBesideConnectionsThatSayNothing) {
  std::vector<int> idle;
  for (int i = 0; i < 300; ++i) {
    idle.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(server_->port()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(idle.back(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }

  const auto answer = call(http::Method::kPost, "join",
                           protocol::encode(protocol::Join{
                               .job_uid = "u", .pod = pod_->meta.name, .pod_uid = pod_->meta.uid}));
  for (const int one : idle) close(one);

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 200) << answer->body;
}

TEST_F(ControlApiTest, HasACertificateForItsAddressAndForNobodyElse) {
  EXPECT_TRUE(call(http::Method::kGet, "plan", "", "127.0.0.1").ok());
  EXPECT_FALSE(call(http::Method::kGet, "plan", "", "weir-operator.evil.svc").ok());
}

// An own certificate has the name of the Service and no address: a worker that is redirected to the
// leader's pod asks for the Service's name there, too.
TEST_F(ControlApiTest, RedirectsToALeaderWhoseCertificateHasNoAddress) {
  const std::string service = worker_name("weir-operator", "weir-system");
  const auto own = *issue_leaf(authority_, {service}, clock_.system_now());
  const auto start = [&](bool leads, int leader_port) {
    return *start_control_api(
        {.address = "127.0.0.1", .port = 0, .leader_port = leader_port, .tls = own},
        {.cache = cache_,
         .hub = hub_,
         .reviewer = reviewer_,
         .clock = clock_,
         .seed = "seed",
         .leading = [leads] { return leads; },
         .leader = [] { return std::string("op-0_127.0.0.1_abc"); },
         .observe = {},
         .observe_review = {}});
  };
  const auto leader = start(true, 0);
  const auto follower = start(false, leader->port());
  const auto post = [&](const std::string& url, const std::string& path, const std::string& name) {
    return (*http::make_beast_transport({.base_url = url,
                                         .ca_file = dir_.file("ca.crt", authority_.certificate_pem),
                                         .tls_name = name}))
        ->send({http::Method::kPost, path, {{"Authorization", "Bearer " + token_of(*pod_)}}, "{}"},
               std::chrono::steady_clock::now() + 30s, {});
  };
  const std::string here = "https://127.0.0.1:";

  const auto redirected = post(here + std::to_string(follower->port()), kBase + "report", service);
  ASSERT_TRUE(redirected.ok()) << redirected.error().message;
  ASSERT_EQ(redirected->status, 307) << redirected->body;
  const std::string location = http::header_value(redirected->headers, "Location");
  const std::string to = here + std::to_string(leader->port());
  ASSERT_EQ(location, to + kBase + "report");

  const auto followed = post(to, kBase + "report", service);
  ASSERT_TRUE(followed.ok()) << followed.error().message;
  EXPECT_NE(followed->status, 307);
  EXPECT_FALSE(post(to, kBase + "report", "").ok()) << "the address is not in the certificate";
}

TEST_F(ControlApiTest, AnswersALongPollWhenAPlanIsPublished) {
  std::jthread publisher([this] {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (hub_.open_polls() == 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    hub_.publish_plan("team-a/gpt", "u", 4, "{plan 4}");
  });

  const auto answer = call(http::Method::kGet, "plan?have=3&wait=50");

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "{plan 4}");
  EXPECT_EQ(http::header_value(answer->headers, "ETag"), "\"4\"");
}

TEST_F(ControlApiTest, EndsALongPollWhenItsTimeIsOver) {
  const auto answer = call(http::Method::kGet, "plan?have=3&wait=1");

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 304);
}

TEST_F(ControlApiTest, StopsWithOpenPolls) {
  std::jthread stopper([this] {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (hub_.open_polls() == 0 && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    server_->stop();
  });

  const auto answer = call(http::Method::kGet, "plan?have=0&wait=50");

  EXPECT_TRUE(!answer.ok() || answer->status == 503);
  EXPECT_EQ(hub_.open_polls(), 0U);
}

TEST_F(ControlApiTest, RefusesAStrangersToken) {
  const auto answer =
      client("127.0.0.1")
          ->send({http::Method::kGet, kBase + "plan", {{"Authorization", "Bearer nonsense"}}, ""},
                 std::chrono::steady_clock::now() + 30s, {});

  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 401);
}

}  // namespace control_api_test
}  // namespace weir::control_server
