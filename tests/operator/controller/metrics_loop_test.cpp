// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/metrics_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/cache/object_cache.h"
#include "tests/support/jump_clock.h"

namespace weir::controller {
namespace metrics_loop_test {

using estimator::Freshness;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string job(const std::string& name, const std::string& uid, const std::string& trigger,
                int revision, int interval = 15, const std::string& complete = "False") {
  return R"({"metadata": {"name": ")" + name + R"(", "namespace": "a", "resourceVersion": "1",
    "uid": ")" +
         uid + R"("}, "spec": {"adaptation": {"evaluationIntervalSeconds": )" +
         std::to_string(interval) + R"(}}, "status": {"plan": {"revision": )" +
         std::to_string(revision) + R"(, "trigger": ")" + trigger + R"("},
    "conditions": [{"type": "Complete", "status": ")" +
         complete + R"("}]}})";
}

struct World {
  void jobs(const std::vector<std::string>& all) { cache.jobs("").replace(all, "1"); }
  std::vector<std::string> tick() {
    asked.clear();
    loop.tick({});
    return asked;
  }
  test::JumpClock clock;
  cache::ObjectCache cache{clock, {""}, false};
  metrics::JobSamples answer;
  std::vector<std::string> asked, woken;
  MetricsLoop loop{[this](const std::vector<metrics::JobQuery>& queries, const std::stop_token&) {
                     std::map<std::string, metrics::JobSamples> all;
                     for (const auto& query : queries) {
                       asked.push_back(query.key);
                       all[query.key] = answer;
                     }
                     return all;
                   },
                   true, cache, clock, [this](const std::string& key) { woken.push_back(key); }};
};

estimator::Scrape scrape(SystemTime time, double rate) {
  return {time, {{{0, 1, estimator::Direction::kForward}, "n1", "n2", rate, 0}}};
}

TEST(MetricsLoop, AsksForRunningJobsAtTheirOwnInterval) {
  World world;
  world.jobs({job("slow", "u1", "Initial", 1, 60), job("fast", "u2", "Initial", 1, 15),
              job("planless", "u3", "", 0), job("over", "u4", "Initial", 1, 15, "True")});

  EXPECT_THAT(world.tick(), ElementsAre("a/fast", "a/slow"));
  EXPECT_THAT(world.woken, ElementsAre("a/fast", "a/slow"));
  world.clock.advance(seconds(14));
  EXPECT_THAT(world.tick(), IsEmpty());
  world.clock.advance(seconds(1));
  EXPECT_THAT(world.tick(), ElementsAre("a/fast"));
}

TEST(MetricsLoop, PublishesEstimatesOfThatJobOnly) {
  World world;
  world.jobs({job("j", "u1", "Initial", 1)});
  world.answer.freshness = Freshness::kFresh;
  world.answer.scrapes = {scrape(world.clock.system_now(), 1e6)};

  world.tick();

  EXPECT_EQ(world.loop.estimates("a/j", "u1").freshness, Freshness::kFresh);
  EXPECT_EQ(world.loop.estimates("a/j", "u1").links.size(), 1U);
  EXPECT_EQ(world.loop.estimates("a/j", "other").freshness, Freshness::kNoSeries);
}

TEST(MetricsLoop, KeepsSamplesOverARetuneAndDropsThemWithTheGeneration) {
  World world;
  world.answer.freshness = Freshness::kFresh;
  world.jobs({job("j", "u1", "Initial", 1)});
  world.answer.scrapes = {scrape(world.clock.system_now(), 1e6)};
  world.answer.sync_scrapes = {
      {world.clock.system_now(), {{{0, 1, estimator::Direction::kSync, 1}, "n2", "n1", 3e5, 0}}}};
  world.answer.baseline = {{{0, 1, estimator::Direction::kSync, 1}, 2e6}};
  world.tick();
  world.answer.scrapes = world.answer.sync_scrapes = {};

  world.jobs({job("j", "u1", "Retune", 2)});
  world.clock.advance(seconds(15));
  world.tick();
  const auto kept = world.loop.estimates("a/j", "u1");
  EXPECT_EQ(kept.links.size(), 1U);
  EXPECT_EQ(kept.rates.rates.size(), 1U) << "no link between replicas is the tuner's";
  ASSERT_EQ(kept.sync_links.size(), 1U);
  EXPECT_EQ(kept.sync_links[0].now, 3e5);
  EXPECT_EQ(kept.sync_links[0].baseline, 2e6);

  world.jobs({job("j", "u1", "Restart", 3)});
  world.clock.advance(seconds(15));
  world.tick();
  EXPECT_TRUE(world.loop.estimates("a/j", "u1").links.empty());
  EXPECT_TRUE(world.loop.estimates("a/j", "u1").sync_links.empty());
}

TEST(MetricsLoop, RemembersHowSmallPackedSumsWereUnderPlansThatPackNone) {
  World world;
  world.answer.freshness = Freshness::kFresh;
  world.jobs({job("j", "u1", "Initial", 1)});
  world.tick();
  EXPECT_EQ(world.loop.estimates("a/j", "u1").packed_part, 1);
  world.answer.packed_part = 0.6;
  world.clock.advance(seconds(15));
  world.tick();
  EXPECT_EQ(world.loop.estimates("a/j", "u1").packed_part, 0.6);

  world.answer.packed_part.reset();
  world.jobs({job("j", "u1", "Regroup", 2)});
  world.clock.advance(seconds(15));
  world.tick();
  EXPECT_EQ(world.loop.estimates("a/j", "u1").packed_part, 0.6);
}

// A job whose newest plan is applied, refused, or being applied.
std::string settled_job(int revision, int applied, const std::string& replan) {
  return R"({"metadata": {"name": "j", "namespace": "a", "resourceVersion": "1", "uid": "u1"},
    "spec": {}, "status": {"plan": {"revision": )" +
         std::to_string(revision) + R"(, "appliedRevision": )" + std::to_string(applied) +
         R"(, "trigger": "Retune"}, "conditions": [{"type": "ReplanInProgress", "status": ")" +
         replan + R"("}]}})";
}

estimator::ReplicaScrape counters(SystemTime time, std::int64_t steps) {
  const auto seconds_each = static_cast<double>(steps);
  return {time, {{0, {steps, seconds_each, 0}}, {1, {steps, 2 * seconds_each, 0}}}};
}

TEST(MetricsLoop, MeasuresReplicasAnewUnderEachPlan) {
  World world;
  world.answer.freshness = Freshness::kFresh;
  std::int64_t steps = 100;
  const auto ticks = [&](int count) {
    for (int i = 0; i < count; ++i) {
      world.clock.advance(seconds(15));
      world.answer.replicas.push_back(counters(world.clock.system_now(), steps += 10));
      world.tick();
    }
    return world.loop.estimates("a/j", "u1");
  };
  world.jobs({settled_job(1, 1, "False")});
  const auto first = ticks(3);
  EXPECT_EQ(first.replicas_revision, 1);
  ASSERT_EQ(first.replicas.speeds.size(), 2U);
  EXPECT_DOUBLE_EQ(first.replicas.speeds.at(1).seconds, 2);
  EXPECT_DOUBLE_EQ(first.replicas.speeds.at(1).others_seconds, 1);

  world.jobs({settled_job(2, 1, "True")});
  EXPECT_EQ(ticks(1).replicas_revision, 0) << "both plans run while one is being applied";

  world.jobs({settled_job(2, 2, "False")});
  EXPECT_TRUE(ticks(1).replicas.speeds.empty()) << "what is older is not of this plan";
  const auto second = ticks(2);
  EXPECT_EQ(second.replicas_revision, 2);
  EXPECT_EQ(second.replicas.speeds.at(0).steps, 10);

  world.jobs({settled_job(3, 2, "False")});  // refused: the plan before goes on
  EXPECT_EQ(ticks(1).replicas_revision, 2);
  EXPECT_EQ(world.loop.estimates("a/j", "u1").replicas.speeds.at(0).steps, 20);
}

TEST(MetricsLoop, RemembersSinceWhenTheStepStandsStill) {
  World world;
  world.jobs({job("j", "u1", "Initial", 1)});
  world.answer.freshness = Freshness::kFresh;
  const auto tick_with = [&](std::optional<std::int64_t> step) {
    world.answer.step = step;
    world.clock.advance(seconds(15));
    world.tick();
    return world.loop.estimates("a/j", "u1").progress;
  };
  tick_with(7);
  const SystemTime moved = world.clock.system_now();
  EXPECT_EQ(tick_with(7)->since, moved);
  EXPECT_EQ(tick_with(std::nullopt), std::nullopt);
  EXPECT_EQ(tick_with(7)->since, moved);
  const auto next = tick_with(8);
  EXPECT_EQ(next->since, world.clock.system_now());
}

TEST(MetricsLoop, ForgetsAJobThatIsGone) {
  World world;
  world.answer.freshness = Freshness::kFresh;
  world.answer.scrapes = {scrape(world.clock.system_now(), 1e6)};
  world.jobs({job("j", "u1", "Initial", 1)});
  world.tick();

  world.jobs({});
  world.clock.advance(seconds(15));
  world.tick();

  EXPECT_TRUE(world.loop.estimates("a/j", "u1").links.empty());
}

TEST(MetricsLoop, SaysWhenNothingIsConfiguredAndWakesNobodyForIt) {
  test::JumpClock clock;
  cache::ObjectCache cache(clock, {""}, false);
  cache.jobs("").replace({job("j", "u", "Initial", 1)}, "1");
  MetricsLoop loop({}, false, cache, clock,
                   [](const std::string& key) { ADD_FAILURE() << key << " is woken"; });

  loop.tick({});

  EXPECT_EQ(loop.estimates("a/j", "u").freshness, Freshness::kNotConfigured);
}

}  // namespace metrics_loop_test
}  // namespace weir::controller
