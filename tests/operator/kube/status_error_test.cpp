// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/status_error.h"

#include <gtest/gtest.h>

namespace weir::kube {
namespace status_error_test {

TEST(StatusError, ReadsReasonMessageAndCauses) {
  const ApiError error =
      decode_status_error({422, {}, R"({"kind": "Status", "reason": "Invalid", "message": "bad",
        "details": {"causes": [{"field": "spec.x", "message": "too long"},
                               {"reason": "NamespaceTerminating", "message": "going"}]}})"});

  EXPECT_EQ(error.http_status, 422);
  EXPECT_EQ(error.code, Code::kInvalid);
  EXPECT_EQ(error.reason, "Invalid");
  EXPECT_EQ(error.causes,
            (std::vector<std::string>{"spec.x: too long", "NamespaceTerminating: going"}));
}

TEST(StatusError, MapsStatusToCode) {
  const struct {
    int status;
    Code code;
  } cases[] = {{401, Code::kUnauthorized}, {403, Code::kForbidden}, {404, Code::kNotFound},
               {409, Code::kConflict},     {410, Code::kGone},      {429, Code::kThrottled},
               {400, Code::kInvalid},      {500, Code::kInternal},  {502, Code::kUnavailable},
               {503, Code::kUnavailable},  {504, Code::kTimeout}};
  for (const auto& c : cases) {
    EXPECT_EQ(decode_status_error({c.status, {}, ""}).code, c.code) << c.status;
  }
}

TEST(StatusError, TakesWhateverAProxyAnswers) {
  const ApiError error =
      decode_status_error({502, {{"retry-after", "12"}}, "<html>bad gateway</html>"});

  EXPECT_EQ(error.message, "HTTP 502 <html>bad gateway</html>");
  EXPECT_EQ(error.retry_after, std::chrono::seconds(12));
  EXPECT_FALSE(decode_status_error({503, {{"Retry-After", "-5"}}, ""}).retry_after.has_value());
}

TEST(StatusError, KnowsATerminatingNamespace) {
  const auto terminating = decode_status_error(
      {403, {}, R"({"kind": "Status", "reason": "Forbidden", "message": "no", "details": {"causes":
        [{"reason": "NamespaceTerminating", "message": "namespace a is being terminated",
          "field": "metadata.namespace"}]}})"});

  EXPECT_TRUE(is_namespace_terminating(terminating));
  EXPECT_FALSE(is_namespace_terminating(decode_status_error({403, {}, ""})));
}

}  // namespace status_error_test
}  // namespace weir::kube
