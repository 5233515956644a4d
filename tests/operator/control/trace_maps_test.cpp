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
#include "worker/base/time_text.h"

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
  int keep_flight(const std::string& octets) {
    const auto answer =
        maps_.keep(job_, {"flight-9", 0, 1, octets, api::FlightNote{"step 9 took 2 s", {}}});
    return answer.status;
  }
  std::string flight_path(const std::string& job) const {
    return "/api/v1/namespaces/team-a/configmaps/" + job + "-flight";
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
  std::vector<std::string> events_;
  TraceMaps maps_{*client_, clock_, [this] { return leads_; },
                  [this](const api::PipelineJob& job, const api::Event& event) {
                    events_.push_back(job.meta.name + " " + event.reason + ": " + event.note);
                  }};
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

TEST_F(TraceMapsTest, KeepsTheNewestDumpOfAJobAsLongAsTheJob) {
  ASSERT_EQ(keep_flight("older"), 202);
  ASSERT_EQ(keep_flight("newer"), 202);

  const json kept = json::parse(server_.get(flight_path("gpt")), nullptr, false);
  EXPECT_EQ(kept["binaryData"]["records"], to_base64("newer"));
  EXPECT_EQ(kept["data"]["why"], "step 9 took 2 s");
  EXPECT_EQ(kept["data"]["time"], to_rfc3339(clock_.system_now()));
  EXPECT_EQ(kept["metadata"]["labels"], (json{{"weir.dev/report-of", "gpt"}}));
  EXPECT_EQ(kept["metadata"]["ownerReferences"][0]["uid"], "u");
  EXPECT_EQ(events_,
            std::vector<std::string>(
                2, "gpt FlightRecorded: step 9 took 2 s (kubectl weir trace gpt --flight)"));
  clock_.advance(2 * TraceMaps::kLife);
  maps_.sweep();
  EXPECT_NE(server_.get(flight_path("gpt")), "");

  server_.put(flight_path("gpt"), R"({"metadata": {"name": "gpt-flight"}})");
  EXPECT_EQ(keep_flight("theirs"), 409);
  EXPECT_EQ(events_.size(), 2U);
}

TEST_F(TraceMapsTest, DumpsOfAllJobsHaveARoomOfTheirOwnFromWhichTheOldestGo) {
  maps_.limit_flights_for_test(4096);
  const std::string large(1024, 'x');
  for (const char* name : {"a", "b", "c", "d", "a"}) {
    job_.meta.name = name;
    ASSERT_EQ(keep_flight(large), 202) << name;
  }
  job_.meta.name = "e";
  ASSERT_EQ(keep_flight(large), 202);
  EXPECT_EQ(server_.get(flight_path("b")), "");
  for (const char* name : {"a", "c", "d", "e"}) EXPECT_NE(server_.get(flight_path(name)), "");
  EXPECT_EQ(keep("octets"), 202) << "what a user asks for has room";
}

TEST_F(TraceMapsTest, SaysThatTheApiServerDoesNotTakeIt) {
  server_.fail({.match = "PATCH",
                .response = http::Response{403, {}, R"({"kind":"Status","message":"no"})"}});
  EXPECT_EQ(keep("octets"), 503);
  EXPECT_THAT(told_, HasSubstr("no"));
}

}  // namespace trace_maps_test
}  // namespace weir::control_server
