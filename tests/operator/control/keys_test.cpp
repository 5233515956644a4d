// SPDX-License-Identifier: Apache-2.0
// Keys, TokenReview and certificates, against a scripted API server.
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/control/authenticator.h"
#include "operator/control/certificates.h"
#include "operator/control/job_key.h"
#include "worker/base/digest.h"

namespace weir::control_server {
namespace keys_test {

using kube::ApiError;
using kube::ApiResult;
using testing::HasSubstr;

const KeysSecret kSecret{"weir-system", "weir-two-keys"};

ApiError api_error(int status) {
  return {.http_status = status, .code = Code::kInternal, .message = std::to_string(status)};
}

// Secrets in a map; TokenReviews answered with a fixed text.
class ScriptedClient final : public kube::Client {
 public:
  ApiResult<std::string> get(const kube::Resource&, const std::string&,
                             const std::string& name) override {
    if (get_fails) return *get_fails;
    if (!secrets.contains(name)) return api_error(404);
    return secrets[name];
  }
  ApiResult<std::string> create(const kube::Resource& resource, const std::string&,
                                const std::string& body, bool) override {
    if (resource.plural == "tokenreviews") {
      review_body = body;
      return review_answer;
    }
    if (faster_replica) {
      secrets[kSecret.name] = *std::exchange(faster_replica, std::nullopt);
      return api_error(409);
    }
    secrets[kSecret.name] = body;
    return body;
  }
  ApiResult<std::string> list(const kube::Resource&, const std::string&,
                              const std::string&) override {
    return api_error(500);
  }
  ApiResult<std::string> update(const kube::Resource&, const std::string&, const std::string&,
                                const std::string&) override {
    return api_error(500);
  }
  ApiResult<std::string> apply(const kube::Resource&, const std::string&, const std::string&,
                               const std::string&, const std::string&,
                               const std::string&) override {
    return api_error(500);
  }
  ApiResult<std::string> merge_patch(const kube::Resource&, const std::string&, const std::string&,
                                     const std::string&) override {
    return api_error(500);
  }
  ApiResult<Unit> remove(const kube::Resource&, const std::string&, const std::string&,
                         const std::string&) override {
    return api_error(500);
  }
  ApiResult<Unit> watch(const kube::Resource&, const std::string&, const std::string&,
                        std::stop_token, const std::function<void(std::string_view)>&) override {
    return api_error(500);
  }
  ApiResult<Unit> lines(const kube::Resource&, const std::string&, const std::string&,
                        const std::string&, const std::string&, std::stop_token,
                        const std::function<void(std::string_view)>&) override {
    return api_error(500);
  }

  std::map<std::string, std::string> secrets;
  std::optional<ApiError> get_fails;
  std::optional<std::string> faster_replica;
  std::string review_body, review_answer;
};

const SystemTime kNow = std::chrono::system_clock::now();

TEST(Keys, AreMadeOnceAndThenRead) {
  ScriptedClient client;

  const auto first = ensure_keys(client, kSecret, kNow);
  const auto second = ensure_keys(client, kSecret, kNow);

  ASSERT_TRUE(first.ok()) << first.error().message;
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(first->seed.size(), 32U);
  EXPECT_EQ(first->seed, second->seed);
  EXPECT_EQ(first->authority.certificate_pem, second->authority.certificate_pem);
  EXPECT_EQ(first->authority.key_pem, second->authority.key_pem);
}

TEST(Keys, KeepTheOwnAuthorityForReplicasWithoutIt) {
  ScriptedClient client;
  ASSERT_TRUE(ensure_keys(client, kSecret, kNow, "own CA").ok());

  const auto read = ensure_keys(client, kSecret, kNow);

  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->own.pem, "own CA");
  EXPECT_EQ(read->own.since, SystemTime{}) << "no worker can have another bundle";
  EXPECT_THAT(bundle_of(*read), HasSubstr("own CA"));
}

TEST(Keys, OfAFasterReplicaAreTaken) {
  ScriptedClient other, client;
  const auto theirs = ensure_keys(other, kSecret, kNow);
  client.faster_replica = other.secrets[kSecret.name];

  const auto ours = ensure_keys(client, kSecret, kNow);

  ASSERT_TRUE(ours.ok()) << ours.error().message;
  EXPECT_EQ(ours->seed, theirs->seed);
}

TEST(Keys, AreNotReplacedWhenTheyCannotBeRead) {
  ScriptedClient client;
  client.secrets[kSecret.name] = R"({"data":{"ca.crt":"eA==","ca.key":"eA=="}})";
  const auto damaged = ensure_keys(client, kSecret, kNow);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, Code::kInvalid);
  EXPECT_THAT(damaged.error().message, HasSubstr("data[\"seed\"]"));

  client.get_fails = api_error(403);
  EXPECT_FALSE(ensure_keys(client, kSecret, kNow).ok());
  EXPECT_EQ(client.secrets[kSecret.name].find("seed"), std::string::npos);
}

TEST(Keys, OfJobsDifferAndAreTheSameOnEveryReplica) {
  EXPECT_EQ(key_of_job("seed", "a"), key_of_job("seed", "a"));
  EXPECT_NE(key_of_job("seed", "a"), key_of_job("seed", "b"));
  EXPECT_NE(key_of_job("seed", "a"), key_of_job("other", "a"));
  EXPECT_EQ(key_of_job("seed", "a"), hmac_sha256("seed", "a"));
}

TEST(Certificates, RefuseAnAuthorityThatIsNone) {
  const Authority authority = make_authority(kNow);
  EXPECT_FALSE(issue_leaf({"x", "y"}, {"a"}, kNow).ok());
  EXPECT_FALSE(
      issue_leaf({authority.certificate_pem, make_authority(kNow).key_pem}, {"a"}, kNow).ok());
}

TEST(Certificates, NameTheServiceInAllItsForms) {
  EXPECT_EQ(control_names("weir", "sys", "10.0.0.9"),
            (std::vector<std::string>{"weir", "weir.sys", "weir.sys.svc",
                                      "weir.sys.svc.cluster.local", "10.0.0.9"}));
}

constexpr const char* kAccepted = R"({"status":{"authenticated":true,
  "audiences":["weir.dev/control"],
  "user":{"username":"system:serviceaccount:team-a:default","extra":{
    "authentication.kubernetes.io/pod-name":["gpt-a-0"],
    "authentication.kubernetes.io/pod-uid":["uid-0"]}}}})";

class Review : public testing::Test {
 protected:
  Result<Identity> review(const std::string& answer) {
    client_.review_answer = answer;
    return make_token_reviewer(client_)->review("secret-token");
  }
  static std::string without(const std::string& part, const std::string& instead) {
    std::string text = kAccepted;
    return text.replace(text.find(part), part.size(), instead);
  }
  ScriptedClient client_;
};

TEST_F(Review, TakesThePodFromTheUsersExtra) {
  const auto identity = review(kAccepted);

  ASSERT_TRUE(identity.ok()) << identity.error().message;
  EXPECT_EQ(identity->pod_name, "gpt-a-0");
  EXPECT_EQ(identity->pod_uid, "uid-0");
  EXPECT_THAT(client_.review_body, HasSubstr(R"("audiences":["weir.dev/control"])"));
  EXPECT_THAT(client_.review_body, HasSubstr(R"("token":"secret-token")"));
}

TEST_F(Review, RejectsWhatIsNotAPodsTokenForUs) {
  for (const std::string& answer :
       {without("true", "false"), without("\"weir.dev/control\"", "\"https://kubernetes\""),
        without("[\"weir.dev/control\"]", "[]"), without("pod-uid", "node-uid"),
        without("[\"gpt-a-0\"]", "[]"), std::string(R"({"status":{"error":"expired"}})")}) {
    const auto identity = review(answer);

    ASSERT_FALSE(identity.ok()) << answer;
    EXPECT_EQ(identity.error().code, Code::kUnauthorized) << answer;
  }
}

TEST_F(Review, CannotTellFromANonsenseAnswer) {
  for (const char* answer : {"", "[]", "{}", "{\"status\":3}"}) {
    const auto identity = review(answer);

    ASSERT_FALSE(identity.ok()) << answer;
    EXPECT_EQ(identity.error().code, Code::kInternal) << answer;
  }
}

}  // namespace keys_test
}  // namespace weir::control_server
