// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/startup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"
#include "worker/protocol/profile.h"

namespace weir::coordinator::test {
namespace startup_test {

using ::testing::ElementsAre;
using ::testing::Pair;

using Ranks = std::vector<int>;

std::string profile_of(const std::string& device, const std::string& layer = "block0") {
  protocol::Profile profile{.model = "gpt-tiny", .digest = "sha256:1"};
  profile.layers.push_back({.id = layer, .parameter_bytes = 8, .output_bytes_per_sample = 4});
  profile.layers[0].times[device] = {{.samples = 1, .forward = 0.1, .backward = 0.2}};
  return protocol::encode_profile(profile);
}

struct StartupWorld {
  explicit StartupWorld(int workers, bool measure = true, bool probe = false,
                        std::int64_t term = protocol::kFirstTerm)
      : startup(options(workers, measure, probe, term)) {}

  static Options options(int workers, bool measure, bool probe,
                         std::int64_t term = protocol::kFirstTerm) {
    Options result{
        .job_uid = "job", .workers = workers, .measure = measure, .probe = probe, .term = term};
    result.model = {.name = "gpt-tiny", .layers = 4, .digest = "sha256:1"};
    return result;
  }
  void come(int index, const std::string& device = "cpu", std::uint32_t revision = 0) {
    auto it = member(index);
    it.ranks[0].device = device;
    members.hello(++last_session, {.member = it, .revision = revision}, now);
  }
  // Which workers are asked by T now; the step stays in `step`.
  template <class T>
  Ranks asked() {
    step = startup.advance(members, now);
    Ranks result;
    for (const auto& [index, message] : step.send) {
      if (std::holds_alternative<T>(message)) result.push_back(index);
    }
    return result;
  }

  Startup startup;
  Members members;
  SteadyTime now = SteadyTime(1h);
  control::SessionId last_session = 0;
  Startup::Step step;
};

TEST(Startup, RegistersAtOnceWhenAllAreThere) {
  StartupWorld world(2, false);
  world.come(0);
  world.asked<protocol::Measure>();
  EXPECT_FALSE(world.step.register_now);

  world.come(1);
  world.asked<protocol::Measure>();

  ASSERT_TRUE(world.step.register_now);
  EXPECT_EQ(world.step.register_now->members.size(), 2U);
  EXPECT_EQ(world.step.register_now->model.name, "gpt-tiny");
  EXPECT_EQ(world.step.register_now->profile_json, "");
  world.asked<protocol::Measure>();
  EXPECT_FALSE(world.step.register_now) << "nothing has changed";
}

TEST(Startup, RegistersAnIncompleteSetOneSecondAfterTheLastChange) {
  StartupWorld world(3, false);
  world.come(0);
  world.now += 900ms;
  world.come(1);
  world.now += 900ms;
  world.asked<protocol::Measure>();
  EXPECT_FALSE(world.step.register_now);

  world.now += 100ms;
  world.asked<protocol::Measure>();

  ASSERT_TRUE(world.step.register_now);
  EXPECT_EQ(world.step.register_now->members.size(), 2U);
}

TEST(Startup, AsksOneRankOfEachDeviceClassToMeasure) {
  StartupWorld world(4);
  world.come(0, "A");
  world.come(1, "A");
  world.come(2, "B");
  world.come(3, "B");

  EXPECT_EQ(world.asked<protocol::Measure>(), (Ranks{0, 2}));
  EXPECT_EQ(world.asked<protocol::Measure>(), Ranks{}) << "once";
  world.startup.measured(0, {.profile_json = profile_of("A")});
  world.asked<protocol::Measure>();
  EXPECT_FALSE(world.step.register_now);
  world.startup.measured(2, {.profile_json = profile_of("B")});
  world.asked<protocol::Measure>();

  ASSERT_TRUE(world.step.register_now);
  EXPECT_NE(world.step.register_now->profile_json.find("\"A\""), std::string::npos);
  EXPECT_NE(world.step.register_now->profile_json.find("\"B\""), std::string::npos);
}

TEST(Startup, AsksForTheRoundsThatTheJobWants) {
  Options options = StartupWorld::options(1, true, false);
  options.measure_rounds = 17;
  Startup startup(options);
  Members members;
  const SteadyTime now(1h);
  members.hello(1, {.member = member(0)}, now);

  const auto step = startup.advance(members, now);

  ASSERT_EQ(step.send.size(), 1U);
  EXPECT_EQ(std::get<protocol::Measure>(step.send[0].second).rounds, 17);
}

TEST(Startup, AsksAnotherRankWhenTheMeasuringOneIsLost) {
  StartupWorld world(2);
  world.come(0);
  world.come(1);
  EXPECT_EQ(world.asked<protocol::Measure>(), Ranks{0});

  world.startup.lost(0);
  world.members.closed(1);

  EXPECT_EQ(world.asked<protocol::Measure>(), Ranks{1});
}

TEST(Startup, LeavesARankThatTrainsAlone) {
  StartupWorld world(2);
  world.come(0, "cpu", 4);
  world.come(1, "cpu", 4);

  EXPECT_EQ(world.asked<protocol::Measure>(), Ranks{});

  EXPECT_TRUE(world.step.register_now);
}

// A coordinator whose ranks go on is waited for: nothing is trained until it has reported.
TEST(Startup, RegistersBeforeItMeasuresWhereRanksHaveTrained) {
  for (const std::int64_t term : {protocol::kFirstTerm, protocol::kFirstTerm + 1}) {
    StartupWorld world(3, true, true, term);
    world.come(0, "cpu", 4);
    world.come(1, "cpu");  // a process that is back
    world.come(8192, "cpu");
    world.come(2, "B");  // a class that the operator does not know yet
    EXPECT_EQ(world.asked<protocol::Measure>(), Ranks{2})
        << "the others are of a class that trains";
    ASSERT_TRUE(world.step.register_now) << term;
    EXPECT_EQ(world.step.register_now->members.size(), 3U) << "but for the one that measures";
    EXPECT_EQ(world.step.register_now->profile_json, "");
    EXPECT_EQ(world.asked<protocol::Measure>(), Ranks{});
    EXPECT_FALSE(world.step.register_now) << "nothing has changed";

    world.startup.measured(2, {.profile_json = profile_of("B")});
    world.asked<protocol::Probe>();
    world.now += 10s;
    for (int i = 0; i < 8; ++i) {
      for (const int index : world.asked<protocol::Probe>())
        world.startup.probed(index, {.bytes_per_second = 5e6});
      if (world.step.register_now) break;
    }
    ASSERT_TRUE(world.step.register_now) << "what the newcomer has measured";
    EXPECT_EQ(world.step.register_now->profile_json, profile_of("B"));
    EXPECT_EQ(world.step.register_now->members.size(), 4U);
    EXPECT_FALSE(world.step.register_now->links.empty());
    world.asked<protocol::Measure>();
    EXPECT_FALSE(world.step.register_now);

    // A new leader of the operator does not know what an earlier coordinator has told. Worker 1 is
    // idle in the plan that the others train.
    world.members.ready_state(1, {.revision = 4});
    world.members.inventory(1, {.history = 2});
    world.now += 30s;
    EXPECT_EQ(world.asked<protocol::Measure>(), Ranks{1}) << "one of those that stay idle";
    world.come(3, "cpu");
    world.now += 1s;
    world.asked<protocol::Measure>();
    ASSERT_TRUE(world.step.register_now);
    EXPECT_EQ(world.step.register_now->members.size(), 5U) << "the operator may need them";
    StartupWorld other = world;
    other.startup.measured(1, {.error = "this worker trains"});
    other.now += 30s;
    EXPECT_EQ(other.asked<protocol::Measure>(), Ranks{3}) << "another one of the class";
    world.startup.measured(1, {.profile_json = profile_of("cpu")});
    world.asked<protocol::Measure>();
    ASSERT_TRUE(world.step.register_now);
    EXPECT_NE(world.step.register_now->profile_json.find("\"cpu\""), std::string::npos);
  }
}

// It has been asked to measure before the others had found their coordinator again. The operator
// knows its class, and a PREPARE ends its measuring.
TEST(Startup, ARankThatStillMeasuresIsToldOfBesideThoseThatHaveTrained) {
  StartupWorld world(2);
  world.come(0);
  world.now += 1s;
  EXPECT_EQ(world.asked<protocol::Measure>(), Ranks{0});
  EXPECT_FALSE(world.step.register_now);
  world.come(1, "cpu", 4);
  world.asked<protocol::Measure>();
  ASSERT_TRUE(world.step.register_now);
  EXPECT_EQ(world.step.register_now->members.size(), 2U);
  world.startup.measured(0, {.error = "stopped"});
  world.asked<protocol::Measure>();
  EXPECT_TRUE(world.step.register_now);
}

// As a spare that coordinates in the place of the only rank, which it is soon to be.
TEST(Startup, OfALaterTermRegistersAtOnceAndMeasuresIfNobodyTrainsThen) {
  StartupWorld world(1, true, false, 2);
  world.come(8192);
  world.now += 1s;
  EXPECT_EQ(world.asked<protocol::Measure>(), Ranks{});
  ASSERT_TRUE(world.step.register_now);
  world.now += 29s;
  EXPECT_EQ(world.asked<protocol::Measure>(), Ranks{});
  EXPECT_FALSE(world.step.register_now);

  StartupWorld trains = world;
  trains.members.status(8192, {.epoch = 2, .step = 1});
  trains.now += 60s;
  EXPECT_EQ(trains.asked<protocol::Measure>(), Ranks{});

  world.now += 1s;
  EXPECT_EQ(world.asked<protocol::Measure>(), Ranks{8192}) << "a new leader may have no profile";
  world.startup.measured(8192, {.profile_json = profile_of("cpu")});
  world.asked<protocol::Measure>();
  ASSERT_TRUE(world.step.register_now);
  EXPECT_EQ(world.step.register_now->profile_json, profile_of("cpu"));
}

TEST(Startup, RegistersWithoutAProfileAndSaysSoWhenMeasuringFails) {
  StartupWorld world(1);
  world.come(0);
  world.asked<protocol::Measure>();
  world.startup.measured(0, {.error = "out of memory"});

  world.asked<protocol::Measure>();

  ASSERT_TRUE(world.step.register_now);
  EXPECT_EQ(world.step.register_now->profile_json, "");
  ASSERT_EQ(world.step.warnings.size(), 1U);
  EXPECT_EQ(world.step.warnings[0], "worker 0 could not measure: out of memory");
}

TEST(Startup, GivesUpOnMeasuringAfterTheStartupTimeout) {
  StartupWorld world(1);
  world.come(0);
  world.asked<protocol::Measure>();
  world.now += 900s;

  world.asked<protocol::Measure>();

  EXPECT_TRUE(world.step.register_now);
  EXPECT_FALSE(world.step.warnings.empty());
}

TEST(Startup, RegistersAgainAfterAChangeAndForANewLeader) {
  StartupWorld world(2);
  world.come(0);
  world.come(1);
  world.asked<protocol::Measure>();
  world.startup.measured(0, {.profile_json = profile_of("cpu")});
  world.asked<protocol::Measure>();
  ASSERT_TRUE(world.step.register_now);

  world.startup.register_again();
  world.asked<protocol::Measure>();
  ASSERT_TRUE(world.step.register_now);
  EXPECT_EQ(world.step.register_now->profile_json, profile_of("cpu"));

  world.members.closed(2);
  world.members.hello(9, {.member = member(1, "uid-later")}, world.now);
  EXPECT_EQ(world.asked<protocol::Measure>(), Ranks{}) << "the class is measured";
  ASSERT_TRUE(world.step.register_now);
  EXPECT_EQ(world.step.register_now->members[1].pod_uid, "uid-later");
}

TEST(Startup, ProbesNeighboursInBothDirectionsAndNoRankTwiceAtATime) {
  StartupWorld world(4, false, true);
  for (int index = 0; index < 4; ++index) world.come(index);

  EXPECT_EQ(world.asked<protocol::Probe>(), (Ranks{0, 2}));
  world.startup.probed(0, {.bytes_per_second = 5e6, .rtt_seconds = 0.001});
  EXPECT_EQ(world.asked<protocol::Probe>(), Ranks{}) << "2 -> 3 still runs";
  world.now += 2s;
  EXPECT_EQ(world.asked<protocol::Probe>(), Ranks{1});
  world.startup.probed(1, {});  // could not
  EXPECT_EQ(world.asked<protocol::Probe>(), (Ranks{1, 3})) << "the other way";
  world.startup.probed(1, {.bytes_per_second = 9e6, .rtt_seconds = 0.001});
  world.startup.probed(3, {.bytes_per_second = 7e6, .rtt_seconds = 0.001});
  EXPECT_EQ(world.asked<protocol::Probe>(), Ranks{2});
  world.startup.probed(2, {.bytes_per_second = 8e6, .rtt_seconds = 0.001});
  EXPECT_EQ(world.asked<protocol::Probe>(), Ranks{2}) << "again, since there was no answer";
  world.startup.probed(2, {.bytes_per_second = 6e6, .rtt_seconds = 0.001});
  EXPECT_EQ(world.asked<protocol::Probe>(), Ranks{1});
  world.startup.probed(1, {});
  world.asked<protocol::Probe>();

  ASSERT_TRUE(world.step.register_now);
  std::vector<std::pair<std::string, double>> links;
  for (const auto& link : world.step.register_now->links) {
    links.emplace_back(link.from_node + " " + link.to_node, link.bytes_per_second);
  }
  EXPECT_THAT(links, ElementsAre(Pair("node-0 node-1", 5e6), Pair("node-1 node-0", 9e6),
                                 Pair("node-2 node-1", 8e6), Pair("node-2 node-3", 6e6),
                                 Pair("node-3 node-2", 7e6)));
}

TEST(Startup, ProbesALinkAgainThatLooksSlowAndTakesTheBetterFigure) {
  StartupWorld world(3, false, true);
  for (int index = 0; index < 3; ++index) world.come(index);
  const auto answers = [&](int index, double rate) {
    EXPECT_EQ(world.asked<protocol::Probe>(), Ranks{index});
    world.startup.probed(index, {.bytes_per_second = rate, .rtt_seconds = 0.001});
  };
  answers(0, 4e8);
  answers(1, 1e8);
  answers(1, 5e8);
  answers(2, 5e6);
  answers(1, 4e8);  // 1 -> 2 and 2 -> 1 again
  answers(2, 4e6);
  world.asked<protocol::Probe>();

  ASSERT_TRUE(world.step.register_now);
  std::vector<double> rates;
  for (const auto& link : world.step.register_now->links) rates.push_back(link.bytes_per_second);
  EXPECT_THAT(rates, ElementsAre(4e8, 5e8, 4e8, 5e6)) << "by worker: 0-1, 1-0, 1-2, 2-1";
}

TEST(Startup, ProbesNobodyWhoTrains) {
  StartupWorld world(3, false, true);
  world.come(0, "cpu", 4);  // survivors of a coordinator that is gone
  world.come(1, "cpu", 4);
  world.come(2);
  EXPECT_EQ(world.asked<protocol::Probe>(), Ranks{});
  ASSERT_TRUE(world.step.register_now);
  EXPECT_TRUE(world.step.register_now->links.empty());
}

TEST(MergeProfiles, RefusesPartsOfDifferentLayers) {
  const auto merged = merge_profiles({profile_of("A"), profile_of("B", "other")});

  ASSERT_FALSE(merged.ok());
  EXPECT_EQ(merged.error().code, Code::kInvalid);
}

TEST(MergeProfiles, RefusesTextThatIsNoProfile) {
  EXPECT_FALSE(merge_profiles({profile_of("A"), "[1, 2"}).ok());
  EXPECT_FALSE(merge_profiles({profile_of("A"), "{}"}).ok());
}

}  // namespace startup_test
}  // namespace weir::coordinator::test
