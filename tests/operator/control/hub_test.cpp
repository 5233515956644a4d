// SPDX-License-Identifier: Apache-2.0
#include "operator/control/hub.h"

#include <optional>

#include <gtest/gtest.h>

#include "tests/operator/control/fakes.h"
#include "tests/support/manual_clock.h"
#include "worker/http/text.h"
#include "worker/protocol/profile.h"

namespace weir::control_server {
namespace hub_test {

using namespace std::chrono_literals;

constexpr const char* kKey = "team-a/gpt";

class HubTest : public testing::Test {
 protected:
  using Answer = std::shared_ptr<std::optional<http::Response>>;
  Answer poll(std::uint32_t have, std::chrono::seconds wait = 50s, const std::string& uid = "u",
              const std::string& pod_uid = "p0") {
    auto answer = std::make_shared<std::optional<http::Response>>();
    hub_.wait_plan(kKey, uid, pod_uid, have, wait,
                   [answer](http::Response response) { *answer = std::move(response); });
    return answer;
  }
  static int status(const Answer& answer) { return *answer ? (*answer)->status : 0; }
  static protocol::Report report(std::int64_t sequence) {
    return {.job_uid = "u", .sequence = sequence};
  }

  test::ManualClock clock_;
  Hub hub_{clock_};
};

TEST_F(HubTest, AnswersAPollAtOnceWhenThereIsANewerPlan) {
  hub_.publish_plan(kKey, "u", 3, "{plan 3}");

  const Answer answer = poll(2);

  ASSERT_EQ(status(answer), 200);
  EXPECT_EQ((*answer)->body, "{plan 3}");
  EXPECT_EQ(http::header_value((*answer)->headers, "ETag"), "\"3\"");
}

TEST_F(HubTest, AnswersAnOpenPollWhenAHigherRevisionIsPublished) {
  hub_.publish_plan(kKey, "u", 3, "{plan 3}");
  const Answer answer = poll(3);
  EXPECT_EQ(hub_.open_polls(), 1U);

  hub_.publish_plan(kKey, "u", 3, "{plan 3}");
  hub_.publish_plan(kKey, "u", 2, "{plan 2}");
  EXPECT_EQ(status(answer), 0);
  hub_.publish_plan(kKey, "u", 4, "{plan 4}");

  ASSERT_EQ(status(answer), 200);
  EXPECT_EQ((*answer)->body, "{plan 4}");
  EXPECT_EQ(hub_.open_polls(), 0U);
}

TEST_F(HubTest, AnswersOnlyThePollsOfThatJob) {
  auto other = std::make_shared<std::optional<http::Response>>();
  hub_.wait_plan("team-a/other", "o", "p0", 0, 50s,
                 [other](http::Response response) { *other = std::move(response); });
  const Answer mine = poll(0);

  hub_.publish_plan(kKey, "u", 1, "{}");

  EXPECT_EQ(status(mine), 200);
  EXPECT_FALSE(other->has_value());
}

TEST_F(HubTest, KeepsTheNewestPlanWhateverTheOrder) {
  hub_.publish_plan(kKey, "u", 5, "{plan 5}");
  hub_.publish_plan(kKey, "u", 4, "{plan 4}");

  EXPECT_EQ((*poll(0))->body, "{plan 5}");
}

TEST_F(HubTest, EndsAPollWith304AfterItsTime) {
  const Answer answer = poll(7, 50s);

  clock_.advance(49s);
  hub_.expire_polls();
  EXPECT_EQ(status(answer), 0);
  clock_.advance(1s);
  hub_.expire_polls();

  ASSERT_EQ(status(answer), 304);
  EXPECT_EQ(http::header_value((*answer)->headers, "ETag"), "\"7\"");
  EXPECT_EQ(hub_.open_polls(), 0U);
}

TEST_F(HubTest, AnswersAtOnceWithoutAWait) {
  EXPECT_EQ(status(poll(0, 0s)), 304);
}

TEST_F(HubTest, EndsTheOldestPollWhenAJobOpensTooMany) {
  const Answer first = poll(0);
  std::vector<Answer> more;
  for (std::size_t i = 0; i < kMaxPollsPerJob; ++i) more.push_back(poll(0));

  EXPECT_EQ(status(first), 304);
  EXPECT_EQ(hub_.open_polls(), kMaxPollsPerJob);
}

TEST_F(HubTest, TellsPollsAndLaterCallersThatAJobIsGone) {
  const Answer answer = poll(0);

  hub_.forget(kKey);

  EXPECT_EQ(status(answer), 410);
  EXPECT_TRUE(hub_.gone(kKey, "u"));
  EXPECT_FALSE(hub_.gone(kKey, "another uid"));
  clock_.advance(kTombstone + 1s);
  EXPECT_FALSE(hub_.gone(kKey, "u"));
}

TEST_F(HubTest, DoesNotMournAJobThatItNeverKnew) {
  hub_.forget(kKey);

  EXPECT_FALSE(hub_.gone(kKey, ""));
  EXPECT_FALSE(hub_.gone(kKey, "u"));
}

// A coordinator that is named later asks no rank that trains to measure.
TEST_F(HubTest, KeepsTheProfileThatAnEarlierCoordinatorHasTold) {
  const protocol::ModelInfo model{.digest = "sha256:1"};
  const std::vector<protocol::Member> members{{.pod = "p1", .node = "n1"},
                                              {.pod = "p2", .node = "n2"}};
  hub_.take_register(kKey, {.job_uid = "u",
                            .model = model,
                            .profile_json = "measured",
                            .links = {{.from_node = "n1", .to_node = "n2"}}});
  hub_.take_register(kKey, {.job_uid = "u", .members = members, .model = model});
  const auto kept = hub_.members(kKey, "u")->body;
  EXPECT_EQ(kept.members.size(), 2U);
  EXPECT_EQ(kept.profile_json, "measured");
  EXPECT_EQ(kept.links.size(), 1U);

  hub_.take_register(kKey, {.job_uid = "u", .model = model, .profile_json = "again"});
  EXPECT_EQ(hub_.members(kKey, "u")->body.profile_json, "again");
  EXPECT_TRUE(hub_.members(kKey, "u")->body.links.empty()) << "its nodes are not there";
  hub_.take_register(kKey, {.job_uid = "u", .model = {.digest = "sha256:2"}});
  EXPECT_EQ(hub_.members(kKey, "u")->body.profile_json, "") << "of another model";
}

std::string profile_of(const std::string& device, double forward, const std::string& layer = "0") {
  protocol::Profile profile{.model = "gpt-tiny", .digest = "sha256:1"};
  profile.layers.push_back({.id = layer, .parameter_bytes = 8, .output_bytes_per_sample = 4});
  profile.layers[0].times[device] = {{.samples = 1, .forward = forward, .backward = 0.2}};
  return protocol::encode_profile(profile);
}

// It measures the newcomers alone, on classes of which no rank trains.
TEST_F(HubTest, AddsToAProfileWhatAnEarlierCoordinatorHasTold) {
  const protocol::ModelInfo model{.digest = "sha256:1"};
  std::vector<protocol::Member> members{{.pod = "p1", .node = "n1", .ranks = {{.device = "A"}}},
                                        {.pod = "p2", .node = "n2", .ranks = {{.device = "B"}}},
                                        {.pod = "p3", .node = "n3", .ranks = {{.device = "B"}}}};
  const auto told = [&](const std::string& profile, std::vector<protocol::ProbedLink> links) {
    hub_.take_register(kKey, {.job_uid = "u",
                              .members = members,
                              .model = model,
                              .profile_json = profile,
                              .links = std::move(links)});
    return hub_.members(kKey, "u")->body;
  };
  told(profile_of("A", 0.1), {{.from_node = "n1", .to_node = "n2", .bytes_per_second = 1},
                              {.from_node = "n2", .to_node = "n1", .bytes_per_second = 2}});
  const auto joined =
      told(profile_of("B", 0.3), {{.from_node = "n2", .to_node = "n3", .bytes_per_second = 3},
                                  {.from_node = "n2", .to_node = "n1", .bytes_per_second = 4}});
  const auto times = protocol::decode_profile(joined.profile_json)->layers[0].times;
  EXPECT_EQ(times.size(), 2U);
  EXPECT_EQ(times.at("A")[0].forward, 0.1);
  EXPECT_EQ(times.at("B")[0].forward, 0.3);
  ASSERT_EQ(joined.links.size(), 3U);
  EXPECT_EQ(joined.links[1].bytes_per_second, 4) << "the newer one";
  EXPECT_EQ(joined.links[2].bytes_per_second, 1);

  const std::string both = joined.profile_json;
  EXPECT_EQ(told(both, {}).profile_json, both);
  EXPECT_EQ(told(profile_of("B", 0.4, "other"), {}).profile_json, profile_of("B", 0.4, "other"));
  told(both, {});
  members.erase(members.begin());
  EXPECT_EQ(told(profile_of("B", 0.5), {}).profile_json, profile_of("B", 0.5))
      << "no member is of class A";
}

// The long poll of one that coordinates no more would last for most of a minute.
TEST_F(HubTest, EndsThePollsOfOthersWhenACoordinatorIsNamed) {
  FakeCache cache;
  cache.add_job("gpt", "u", 3);
  publish_view(hub_, kKey, cache.view(kKey));
  const Answer former = poll(3, 50s, "u", "p0"), next = poll(3, 50s, "u", "p1");
  EXPECT_EQ(status(former), 0) << "nobody is named";

  const auto name = [&](const std::string& uid, std::int64_t term) {
    cache.name_coordinator("gpt", {.pod = "gpt-" + uid, .pod_uid = uid, .term = term});
    publish_view(hub_, kKey, cache.view(kKey));
  };
  name("p1", 2);
  ASSERT_EQ(status(former), 421);
  EXPECT_EQ(http::header_value((*former)->headers, protocol::kTermHeader), "2");
  EXPECT_EQ(status(next), 0);
  EXPECT_EQ(status(poll(0, 50s, "u", "p0")), 421) << "its call was under way";
  EXPECT_EQ(hub_.open_polls(), 1U);

  name("p2", 3);
  EXPECT_EQ(status(next), 421);
  name("p1", 2);
  EXPECT_EQ(status(poll(3, 50s, "u", "p2")), 0) << "a cache that is behind moves nobody";
  name("p2", 3);
  hub_.publish_plan(kKey, "u", 4, "{plan 4}");
  EXPECT_EQ(status(poll(3, 50s, "u", "p2")), 200);
}

TEST_F(HubTest, StartsAnewWhenTheNameBelongsToAnotherJob) {
  hub_.publish_plan(kKey, "u", 9, "{old}");
  hub_.take_register(kKey, {.job_uid = "u"});
  const Answer old = poll(9);

  hub_.publish_plan(kKey, "v", 1, "{new}");

  EXPECT_EQ(status(old), 410);
  EXPECT_FALSE(hub_.members(kKey, "u").has_value());
  EXPECT_FALSE(hub_.members(kKey, "v").has_value());
  EXPECT_EQ((*poll(0, 50s, "v"))->body, "{new}");
}

TEST_F(HubTest, KeepsMembersAndTheLastReport) {
  EXPECT_FALSE(hub_.members(kKey, "u").has_value());
  EXPECT_EQ(hub_.take_report(kKey, report(1)), 428);

  EXPECT_EQ(hub_.take_register(kKey, {.job_uid = "u", .members = {{.pod = "p"}}}), 202);
  clock_.advance(5s);
  EXPECT_EQ(hub_.take_report(kKey, report(1)), 202);

  EXPECT_EQ(hub_.members(kKey, "u")->body.members[0].pod, "p");
  EXPECT_EQ(hub_.members(kKey, "u")->received, clock_.system_now() - 5s);
  EXPECT_EQ(hub_.report(kKey, "u")->body.sequence, 1);
  EXPECT_EQ(hub_.report(kKey, "u")->received, clock_.system_now());
  EXPECT_FALSE(hub_.report(kKey, "v").has_value());
}

TEST_F(HubTest, RefusesReportsOlderThanSeenUntilTheNextRegister) {
  hub_.take_register(kKey, {.job_uid = "u"});

  EXPECT_EQ(hub_.take_report(kKey, report(10)), 202);
  EXPECT_EQ(hub_.take_report(kKey, report(10)), 202);  // a repetition does no harm
  EXPECT_EQ(hub_.take_report(kKey, report(9)), 409);
  hub_.take_register(kKey, {.job_uid = "u"});
  EXPECT_EQ(hub_.take_report(kKey, report(1)), 202);
}

TEST_F(HubTest, TellsOfWhatMattersAndNotOfCounters) {
  std::vector<std::string> reported;
  hub_.on_change([&reported](const std::string& key) { reported.push_back(key); });
  protocol::Report body = report(1);

  hub_.take_register(kKey, {.job_uid = "u"});
  hub_.take_report(kKey, body);
  EXPECT_EQ(reported.size(), 2U);
  body.sequence = 2;
  body.step = 17;
  hub_.take_report(kKey, body);
  EXPECT_EQ(reported.size(), 2U);
  body.last_switch = protocol::LastSwitch{.revision = 2};
  hub_.take_report(kKey, body);
  EXPECT_EQ(reported.size(), 3U);
  body.total_steps = body.step = 20;
  hub_.take_report(kKey, body);
  EXPECT_EQ(reported.size(), 4U);
  body.members = {{.pod = "a"}};
  hub_.take_report(kKey, body);
  EXPECT_EQ(reported.size(), 5U);
  body.members[0].silent_seconds = 5;
  hub_.take_report(kKey, body);
  EXPECT_EQ(reported.size(), 6U);
  body.members[0].silent_seconds = 6;
  hub_.take_report(kKey, body);

  EXPECT_EQ(reported, std::vector<std::string>(6, kKey));
}

TEST_F(HubTest, ReleasesAllPollsAtTheEnd) {
  const Answer answer = poll(0);

  hub_.release_polls();

  EXPECT_EQ(status(answer), 503);
  EXPECT_EQ(hub_.open_polls(), 0U);
}

TEST_F(HubTest, TakesTheNewestPlanOfTheRightOwnerFromTheCache) {
  FakeCache cache;
  cache.add_job("gpt", "u", 10);
  cache.add_plan("gpt", "u", "9", "{9}");
  cache.add_plan("gpt", "u", "10", "{10}");
  cache.add_plan("gpt", "u", "11", "{an answer was lost, and the status goes another way}");
  cache.add_plan("gpt", "stranger", "11", "{11}");
  cache.add_plan("gpt", "u", "12x", "{12}");
  cache.add_plan("gpt", "u", "control", "{}");

  publish_view(hub_, kKey, cache.view(kKey));

  EXPECT_EQ((*poll(0))->body, "{10}");
}

TEST_F(HubTest, KeepsTheNewestClaimOfEachPodForAMinute) {
  EXPECT_TRUE(hub_.claims(kKey, "u").empty());
  hub_.take_claim(kKey, "u", "p1", 1);
  clock_.advance(30s);
  hub_.take_claim(kKey, "u", "p2", 1);
  hub_.take_claim(kKey, "u", "p2", 2);

  auto claims = hub_.claims(kKey, "u");
  ASSERT_EQ(claims.size(), 2U);
  EXPECT_EQ(claims[0].pod_uid, "p1");
  EXPECT_EQ(claims[0].term, 1);
  EXPECT_EQ(claims[1].pod_uid, "p2");
  EXPECT_EQ(claims[1].term, 2);
  EXPECT_EQ(claims[1].received - claims[0].received, 30s);

  clock_.advance(31s);
  hub_.take_claim(kKey, "u", "p2", 2);
  claims = hub_.claims(kKey, "u");
  ASSERT_EQ(claims.size(), 1U) << "that of p1 is old";
  EXPECT_EQ(claims[0].received, clock_.system_now());
}

TEST_F(HubTest, ForgetsClaimsWithTheirJob) {
  hub_.take_claim(kKey, "u", "p1", 1);
  EXPECT_TRUE(hub_.claims(kKey, "another").empty());
  hub_.take_claim(kKey, "next", "p2", 1);
  EXPECT_TRUE(hub_.claims(kKey, "u").empty()) << "another job has the name";
  EXPECT_EQ(hub_.claims(kKey, "next").size(), 1U);
  hub_.forget(kKey);
  EXPECT_TRUE(hub_.claims(kKey, "next").empty());
}

// Workers repeat a claim each second, and a pass for each of them would be too much.
TEST_F(HubTest, TellsOfAClaimOnceInFiveSeconds) {
  int told = 0;
  hub_.on_change([&told](const std::string&) { ++told; });
  for (int second = 0; second < 11; ++second) {
    hub_.take_claim(kKey, "u", "p1", 1);
    clock_.advance(1s);
  }
  EXPECT_EQ(told, 3) << "at 0, 5 and 10 s";
  hub_.take_claim(kKey, "u", "p2", 1);
  EXPECT_EQ(told, 4) << "another pod";
  hub_.take_claim(kKey, "u", "p2", 2);
  EXPECT_EQ(told, 5) << "another term";
}

}  // namespace hub_test
}  // namespace weir::control_server
