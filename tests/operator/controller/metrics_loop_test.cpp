// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/metrics_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/cache/object_cache.h"
#include "tests/support/jump_clock.h"

namespace weir::controller {
namespace {

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
  world.tick();
  world.answer.scrapes = {};

  world.jobs({job("j", "u1", "Retune", 2)});
  world.clock.advance(seconds(15));
  world.tick();
  EXPECT_EQ(world.loop.estimates("a/j", "u1").links.size(), 1U);

  world.jobs({job("j", "u1", "Restart", 3)});
  world.clock.advance(seconds(15));
  world.tick();
  EXPECT_TRUE(world.loop.estimates("a/j", "u1").links.empty());
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

TEST(MetricsLoop, SaysWhenNothingIsConfigured) {
  test::JumpClock clock;
  cache::ObjectCache cache(clock, {""}, false);
  const MetricsLoop loop({}, false, cache, clock, [](const std::string&) {});

  EXPECT_EQ(loop.estimates("a/j", "u").freshness, Freshness::kNotConfigured);
}

}  // namespace
}  // namespace weir::controller
