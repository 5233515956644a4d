// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/kube/auth.h"
#include "operator/kube/rate_limit.h"
#include "tests/support/fake_transport.h"
#include "tests/support/jump_clock.h"
#include "tests/support/temp_dir.h"

namespace weir::kube {
namespace client_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::FakeTransport;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Pair;

struct World {
  test::JumpClock clock;
  FakeTransport server;
  TokenSource token{"secret", "", clock};
  std::unique_ptr<Client> client = make_client(server, token, clock, {});
};

constexpr auto kPod = R"({"metadata": {"name": "p", "namespace": "a"}})";

TEST(Client, SendsTokenAndAsksForStrictFieldsOnCreate) {
  World world;

  ASSERT_TRUE(world.client->create(pods(), "a", kPod).ok());

  EXPECT_THAT(world.server.requests(),
              ElementsAre("POST /api/v1/namespaces/a/pods?fieldValidation=Strict"));
  EXPECT_THAT(world.server.last_headers(), Contains(Pair("Authorization", "Bearer secret")));
}

TEST(Client, StoresNothingInADryRun) {
  World world;

  ASSERT_TRUE(world.client->create(pods(), "a", kPod, true).ok());

  EXPECT_TRUE(world.server.paths().empty());
}

TEST(Client, AppliesStatusWithForceAndItsFieldManager) {
  World world;
  world.server.put("/apis/weir.dev/v1alpha1/namespaces/a/pipelinejobs/j", "{}");

  ASSERT_TRUE(world.client
                  ->apply(pipeline_jobs(), "a", "j", "status", "weir-operator",
                          R"({"metadata": {"name": "j"}, "status": {"restarts": 1}})")
                  .ok());

  EXPECT_EQ(world.server.requests().back(),
            "PATCH /apis/weir.dev/v1alpha1/namespaces/a/pipelinejobs/j/status"
            "?force=true&fieldManager=weir-operator");
  EXPECT_THAT(world.server.last_headers(),
              Contains(Pair("Content-Type", "application/apply-patch+yaml")));
}

TEST(Client, DeletesOnlyTheUidThatItMeans) {
  World world;
  world.server.put("/api/v1/namespaces/a/pods/p", R"({"metadata": {"uid": "u1"}})");

  const auto wrong = world.client->remove(pods(), "a", "p", "u2");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().reason, "Conflict");

  EXPECT_TRUE(world.client->remove(pods(), "a", "p", "u1").ok());
  EXPECT_TRUE(world.client->remove(pods(), "a", "p", "u1").ok()) << "404 is success";
}

TEST(Client, WaitsAsLongAsTheServerAsks) {
  World world;
  world.server.fail(
      {.match = "GET", .count = 1, .response = http::Response{429, {{"Retry-After", "7"}}, "{}"}});

  world.server.put("/api/v1/namespaces/a/pods/p", "{}");
  EXPECT_TRUE(world.client->get(pods(), "a", "p").ok());

  EXPECT_THAT(world.clock.slept(), ElementsAre(milliseconds(7000)));
}

TEST(Client, GivesUpWaitingAfterAFewTimes) {
  World world;
  world.server.fail(
      {.match = "GET", .count = 100, .response = http::Response{429, {{"retry-after", "1"}}, ""}});

  const auto answer = world.client->get(pods(), "a", "p");

  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kThrottled);
  EXPECT_EQ(world.server.requests().size(), 5U);
}

TEST(Client, NeverRepeatsAfterATimeout) {
  World world;
  world.server.fail({.match = "POST", .count = 1, .error = Error{Code::kTimeout, "idle"}});

  EXPECT_FALSE(world.client->create(pods(), "a", kPod).ok());

  EXPECT_EQ(world.server.requests().size(), 1U);
}

TEST(Client, ReadsTheTokenFileAgainOnceAfter401) {
  const test::TempDir dir;
  const std::string file = dir.file("token", "old\n");
  test::JumpClock clock;
  FakeTransport server;
  TokenSource token("", file, clock);
  const auto client = make_client(server, token, clock, {});
  ASSERT_TRUE(client->list(pods(), "", "").ok());
  dir.file("token", "new\n");
  server.fail({.match = "GET", .count = 1, .response = http::Response{401, {}, ""}});

  EXPECT_TRUE(client->list(pods(), "", "").ok());
  EXPECT_THAT(server.last_headers(), Contains(Pair("Authorization", "Bearer new")));

  server.fail({.match = "GET", .count = 5, .response = http::Response{401, {}, ""}});
  EXPECT_EQ(client->list(pods(), "", "").error().code, Code::kUnauthorized);
}

TEST(Client, KeepsToItsBudget) {
  test::JumpClock clock;
  FakeTransport server;
  TokenSource token("", "", clock);
  const auto client = make_client(server, token, clock, {.requests_per_second = 10, .burst = 2});
  const SteadyTime begin = clock.now();

  for (int i = 0; i < 12; ++i) ASSERT_TRUE(client->list(pods(), "", "").ok());

  EXPECT_EQ(clock.now() - begin, seconds(1));
}

TEST(Client, EndsAWatchAtALineThatIsTooLong) {
  class LongLine final : public http::Transport {
   public:
    Result<http::Response> send(const http::Request&, http::Deadline, std::stop_token) override {
      return Error{Code::kInternal, "not used"};
    }
    Result<http::Response> stream(const http::Request&, std::stop_token stop,
                                  const std::function<void(std::string_view)>& on_bytes) override {
      const std::string chunk(1U << 20, 'x');
      for (int i = 0; i < 100 && !stop.stop_requested(); ++i) on_bytes(chunk);
      chunks_stopped = stop.stop_requested();
      return Error{Code::kCancelled, "stopped"};
    }
    bool chunks_stopped = false;
  };
  LongLine server;
  test::JumpClock clock;
  TokenSource token("", "", clock);
  const auto client = make_client(server, token, clock, {});

  const auto result = client->watch(pods(), "", "?watch=true", {}, [](std::string_view) {});

  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kInvalid);
  EXPECT_TRUE(server.chunks_stopped);
}

TEST(Client, ReadsTheLinesOfALogToTheLastOne) {
  class OneAnswer final : public http::Transport {
   public:
    Result<http::Response> send(const http::Request&, http::Deadline, std::stop_token) override {
      return Error{Code::kInternal, "not expected"};
    }
    Result<http::Response> stream(const http::Request& request, std::stop_token,
                                  const std::function<void(std::string_view)>& on_bytes) override {
      path = request.path;
      for (const char* chunk : {"one\ntw", "o\n\nlast"}) on_bytes(chunk);
      return http::Response{200, {}, ""};
    }
    std::string path;
  };
  test::JumpClock clock;
  OneAnswer server;
  TokenSource token{"secret", "", clock};
  const auto client = make_client(server, token, clock, {});
  std::vector<std::string> lines;

  const auto answer = client->lines(pods(), "a", "p/q", "log", "?tailLines=3", {},
                                    [&](std::string_view line) { lines.emplace_back(line); });

  ASSERT_TRUE(answer.ok());
  EXPECT_THAT(lines, ElementsAre("one", "two", "", "last"));
  EXPECT_EQ(server.path, "/api/v1/namespaces/a/pods/p%2Fq/log?tailLines=3");
}

TEST(TokenSource, ReadsAgainAfterAMinuteAndKeepsTheOldOneWithoutAFile) {
  const test::TempDir dir;
  const std::string file = dir.file("token", "one\n");
  test::JumpClock clock;
  TokenSource token("", file, clock);
  EXPECT_EQ(token.token(), "one");
  dir.file("token", "two\n");

  clock.advance(seconds(59));
  EXPECT_EQ(token.token(), "one");
  clock.advance(seconds(2));
  EXPECT_EQ(token.token(), "two");
  std::filesystem::remove(file);
  clock.advance(seconds(61));
  EXPECT_EQ(token.token(), "two");
}

TEST(RateLimit, LendsToWaitersInOrder) {
  RateLimit limit(10, 1);
  const SteadyTime now{seconds(100)};

  EXPECT_EQ(limit.take(now), now);
  EXPECT_EQ(limit.take(now), now + milliseconds(100));
  EXPECT_EQ(limit.take(now), now + milliseconds(200));
  EXPECT_EQ(limit.take(now + seconds(10)), now + seconds(10));
}

}  // namespace client_test
}  // namespace weir::kube
