// SPDX-License-Identifier: Apache-2.0
// Prometheus servers as people have them: behind a login, a tenant's header, a path, an agent.
#include "operator/metrics/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace weir::metrics {
namespace answer_test {

std::string why_not(const std::string& text) {
  const auto result = decode_result(text, "vector");
  return result ? "" : result.error().message;
}

TEST(Answer, IsTakenWhenItIsOfTheKindAskedFor) {
  const auto result = decode_result(
      R"({"status":"success","data":{"resultType":"vector","result":[{}, {}]}})", "vector");

  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ((*result)["data"]["result"].size(), 2U);
}

TEST(Answer, OfAnotherKindIsNamed) {
  EXPECT_EQ(why_not(R"({"status":"success","data":{"resultType":"scalar","result":[1,"4"]}})"),
            "answer of Prometheus: the result is no vector but a scalar");
  EXPECT_EQ(why_not("<html><title>Sign in</title></html>"),
            "answer of Prometheus: a page of HTML, not JSON");
  EXPECT_EQ(why_not(R"({"status":)"), "answer of Prometheus: not a JSON object");
  EXPECT_EQ(why_not("{}"), "answer of Prometheus: status is neither success nor error");
  EXPECT_EQ(why_not(R"({"status":"success"})"), "answer of Prometheus: no data");
  EXPECT_EQ(why_not(R"({"status":"error","errorType":"bad_data","error":"parse error"})"),
            "bad_data: parse error");
}

TEST(Refusal, TellsTheStatusTheReasonAndWhatHelps) {
  const struct {
    http::Response response;
    const char* text;
  } cases[] = {
      {{302, {{"Location", "/login?next=/&token=x"}}, ""},
       "Prometheus answered 302: a redirect to /login (it requires a login or has moved; check the "
       "URL)"},
      {{401, {}, "no org id\nmore"},
       "Prometheus answered 401: no org id (set a token, a password or a tenant's header)"},
      {{404, {}, "404 page not found"},
       "Prometheus answered 404: 404 page not found (set the URL to the part before /api/v1)"},
      {{422, {}, R"({"status":"error","errorType":"execution","error":"unavailable with Agent"})"},
       "Prometheus answered 422: execution: unavailable with Agent"},
      {{502, {}, "<html>bad gateway</html>"}, "Prometheus answered 502"},
      {{503, {}, "{\"other\": 1}"}, "Prometheus answered 503"},
      {{500, {}, std::string("bad\x01 ") + std::string(500, 'x')},
       nullptr},  // cut, and no control character
  };
  for (const auto& c : cases) {
    const std::string text = refusal(c.response);
    if (c.text != nullptr) {
      EXPECT_EQ(text, c.text);
    }
    EXPECT_LT(text.size(), 300U);
    EXPECT_EQ(text.find('\x01'), std::string::npos);
  }
}

}  // namespace answer_test
}  // namespace weir::metrics
