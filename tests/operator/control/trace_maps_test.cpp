// SPDX-License-Identifier: Apache-2.0
// ConfigMaps of traces against an API server in memory.
#include "operator/control/trace_maps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "operator/kube/auth.h"
#include "tests/support/fake_transport.h"
#include "tests/support/manual_clock.h"
#include "worker/base/digest.h"

namespace weir::control_server {
namespace trace_maps_test {

using nlohmann::json;
using testing::HasSubstr;

class TraceMapsTest : public testing::Test {
 protected:
  TraceMapsTest() {
    job_.meta.name = "gpt";
    job_.meta.namespace_name = "team-a";
    job_.meta.uid = "u";
  }
  int keep(const std::string& octets, int part = 0, int parts = 1) {
    const auto answer = maps_.keep(job_, {"5f3a", part, parts, octets});
    told_ = answer.body;
    return answer.status;
  }
  std::string path(int part) const {
    return "/api/v1/namespaces/team-a/configmaps/" + job_.meta.name + "-trace-" +
           std::to_string(part);
  }
  json map(int part) const { return json::parse(server_.get(path(part)), nullptr, false); }

  test::ManualClock clock_;
  test::FakeTransport server_;
  kube::TokenSource token_{"secret", "", clock_};
  std::unique_ptr<kube::Client> client_ = kube::make_client(server_, token_, clock_, {});
  bool leads_ = true;
  TraceMaps maps_{*client_, clock_, [this] { return leads_; }};
  api::PipelineJob job_;
  std::string told_;
};

TEST_F(TraceMapsTest, KeepsAPartAsAConfigMapOfTheJobThatTheOperatorDoesNotWatch) {
  const std::string octets("\0\xff octets", 9);

  ASSERT_EQ(keep(octets, 1, 2), 202) << told_;

  const json kept = map(1);
  EXPECT_EQ(kept["binaryData"]["records"], to_base64(octets));
  EXPECT_EQ(kept["metadata"]["annotations"],
            (json{{"weir.dev/trace", "5f3a"}, {"weir.dev/trace-part", "2/2"}}));
  EXPECT_EQ(kept["metadata"]["labels"], (json{{"weir.dev/report-of", "gpt"}}));
  EXPECT_EQ(kept["metadata"]["ownerReferences"][0]["uid"], "u");
}

TEST_F(TraceMapsTest, ReplacesItsOwnAndLeavesThoseOfOthersAlone) {
  ASSERT_EQ(keep("first"), 202);
  ASSERT_EQ(keep("second"), 202);
  EXPECT_EQ(map(0)["binaryData"]["records"], to_base64("second"));

  server_.put(path(1), R"({"metadata": {"name": "gpt-trace-1"}, "data": {"a": "theirs"}})");
  EXPECT_EQ(keep("third", 1, 2), 409);
  EXPECT_THAT(told_, HasSubstr("gpt-trace-1 exists"));
  EXPECT_EQ(map(1)["data"]["a"], "theirs");
}

TEST_F(TraceMapsTest, WritesOnlyAsTheLeader) {
  leads_ = false;
  EXPECT_EQ(keep("octets"), 503);
  EXPECT_EQ(server_.get(path(0)), "");
}

TEST_F(TraceMapsTest, KeepsNoMoreThanItsShareOfMemoryForTenMinutes) {
  const std::string large(TraceMaps::kMostBytes / 4, 'x');
  for (const char* name : {"a", "b", "c", "d"}) {
    job_.meta.name = name;
    ASSERT_EQ(keep(large), 202);
  }
  ASSERT_EQ(keep(large), 202) << "in the place of its last one";
  job_.meta.name = "gpt";
  EXPECT_EQ(keep(large), 429);

  clock_.advance(TraceMaps::kLife - std::chrono::seconds(1));
  maps_.sweep();
  EXPECT_EQ(keep(large), 429);
  clock_.advance(std::chrono::seconds(1));
  maps_.sweep();

  EXPECT_EQ(server_.get("/api/v1/namespaces/team-a/configmaps/a-trace-0"), "");
  EXPECT_EQ(keep(large), 202);
}

TEST_F(TraceMapsTest, SaysThatTheApiServerDoesNotTakeIt) {
  server_.fail({.match = "PATCH",
                .response = http::Response{403, {}, R"({"kind":"Status","message":"no"})"}});
  EXPECT_EQ(keep("octets"), 503);
  EXPECT_THAT(told_, HasSubstr("no"));
}

}  // namespace trace_maps_test
}  // namespace weir::control_server
