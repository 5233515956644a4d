// SPDX-License-Identifier: Apache-2.0
#include "operator/cache/object_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/jump_clock.h"

namespace weir::cache {
namespace object_cache_test {

using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string object(const std::string& name, const std::string& version, const std::string& uid,
                   const std::string& job = "", const std::string& ns = "a") {
  return R"({"metadata": {"name": ")" + name + R"(", "namespace": ")" + ns +
         R"(", "resourceVersion": ")" + version + R"(", "uid": ")" + uid + "\"" +
         (job.empty() ? "" : R"(, "labels": {"weir.dev/job-name": ")" + job + "\"}") + "}}";
}
api::WatchEvent event(const std::string& type, const std::string& version,
                      const std::string& json = "") {
  api::WatchEvent out;
  out.type = type;
  out.resource_version = version;
  out.object = json;
  return out;
}

struct World {
  explicit World(std::vector<std::string> scopes = {""}) : cache(clock, std::move(scopes), true) {
    cache.on_change([this](const std::string& key, bool first) {
      reported.push_back(key + (first ? " first" : ""));
    });
  }
  std::vector<std::string> take() { return std::exchange(reported, {}); }
  test::JumpClock clock;
  ObjectCache cache;
  std::vector<std::string> reported;
};

TEST(Reached, ComparesVersionsAsBigNumbers) {
  EXPECT_TRUE(reached("10", "9"));
  EXPECT_FALSE(reached("9", "10"));
  EXPECT_TRUE(reached("99999999999999999999999", "99999999999999999999998"));
  EXPECT_TRUE(reached("x", "x"));
  EXPECT_FALSE(reached("x", "1"));
}

TEST(ObjectCache, ShowsAJobWithItsObjects) {
  World world;
  world.cache.jobs("").replace({object("j", "1", "u")}, "5");
  world.cache.pods("").replace(
      {object("j-b", "2", "p2", "j"), object("j-a", "2", "p1", "j"), object("k-a", "2", "p3", "k")},
      "5");
  world.cache.services("").replace({object("j", "3", "s", "j")}, "5");
  world.cache.config_maps("").replace({object("j-control", "4", "c", "j")}, "5");

  const JobView view = world.cache.view("a/j");

  ASSERT_TRUE(view.job && view.service);
  ASSERT_EQ(view.pods.size(), 2U);
  EXPECT_EQ(view.pods[0]->meta.name, "j-a");
  EXPECT_EQ(view.config_maps.size(), 1U);
  EXPECT_EQ(world.cache.pod_by_uid("p3")->meta.name, "k-a");
  EXPECT_FALSE(world.cache.view("a/k").job);
  EXPECT_THAT(world.cache.job_keys(), ElementsAre("a/j"));
}

TEST(ObjectCache, TellsOfChangesAndOfTheFirstListApart) {
  World world;
  const auto pods = world.cache.pods("");
  pods.replace({object("p", "1", "u", "j")}, "5");
  EXPECT_THAT(world.take(), ElementsAre("a/j first"));

  pods.replace({object("p", "1", "u", "j")}, "6");
  EXPECT_THAT(world.take(), IsEmpty()) << "nothing has changed";
  pods.event(event("MODIFIED", "7", object("p", "7", "u", "j")));
  EXPECT_THAT(world.take(), ElementsAre("a/j"));
  pods.event(event("BOOKMARK", "9"));
  EXPECT_THAT(world.take(), IsEmpty());
}

TEST(ObjectCache, TakesWhatAListLacksForDeleted) {
  World world;
  const auto pods = world.cache.pods("");
  pods.replace({object("p", "1", "u1", "j"), object("q", "1", "u2", "j")}, "5");
  world.take();

  pods.replace({object("q", "1", "u2", "j")}, "8");

  EXPECT_THAT(world.take(), ElementsAre("a/j"));
  EXPECT_EQ(world.cache.view("a/j").pods.size(), 1U);
  EXPECT_FALSE(world.cache.pod_by_uid("u1"));
}

TEST(ObjectCache, ForgetsTheOldUidOfANameThatCameBack) {
  World world;
  const auto pods = world.cache.pods("");
  pods.replace({object("p", "1", "u1", "j")}, "5");

  pods.event(event("MODIFIED", "6", object("p", "6", "u2", "j")));

  EXPECT_FALSE(world.cache.pod_by_uid("u1"));
  EXPECT_TRUE(world.cache.pod_by_uid("u2"));
}

TEST(ObjectCache, DeletesWithTheEvent) {
  World world;
  const auto pods = world.cache.pods("");
  pods.replace({object("p", "1", "u1", "j")}, "5");

  pods.event(event("DELETED", "6", object("p", "6", "u1", "j")));

  EXPECT_TRUE(world.cache.view("a/j").pods.empty());
}

TEST(ObjectCache, IsSyncedOnceEveryResourceOfEveryScopeWasListed) {
  World world({"a", "b"});
  for (const char* scope : {"a", "b"}) {
    world.cache.jobs(scope).replace({}, "1");
    world.cache.pods(scope).replace({}, "1");
    world.cache.services(scope).replace({}, "1");
    EXPECT_FALSE(world.cache.synced());
    world.cache.config_maps(scope).replace({}, "1");
  }
  EXPECT_FALSE(world.cache.synced());
  world.cache.nodes_sink().replace({}, "1");
  EXPECT_TRUE(world.cache.synced());
}

TEST(ObjectCache, KeepsOtherNamespacesInAListOfOne) {
  World world({"a", "b"});
  world.cache.pods("a").replace({object("p", "1", "u1", "j", "a")}, "5");

  world.cache.pods("b").replace({object("p", "1", "u2", "j", "b")}, "5");

  EXPECT_EQ(world.cache.view("a/j").pods.size(), 1U);
  EXPECT_EQ(world.cache.view("b/j").pods.size(), 1U);
}

TEST(ObjectCache, WaitsForItsOwnWrites) {
  World world;
  const auto pods = world.cache.pods("");
  pods.replace({}, "5");

  world.cache.expect("a/j", "Pod", "p", "7");
  EXPECT_FALSE(world.cache.caught_up("a/j"));
  EXPECT_TRUE(world.cache.caught_up("a/other"));
  pods.event(event("ADDED", "6", object("q", "6", "u", "k")));
  EXPECT_FALSE(world.cache.caught_up("a/j"));
  pods.event(event("BOOKMARK", "8"));
  EXPECT_TRUE(world.cache.caught_up("a/j"));
}

// Each namespace has a watch of its own: what another one has brought says nothing about ours.
TEST(ObjectCache, WaitsForItsOwnWritesInItsOwnNamespace) {
  World world({"a", "b"});
  const auto ours = world.cache.jobs("a"), others = world.cache.jobs("b");
  ours.replace({}, "5");
  others.replace({}, "5");

  world.cache.expect("a/j", "PipelineJob", "j", "7");
  others.event(event("MODIFIED", "9", object("k", "9", "u", "", "b")));
  EXPECT_FALSE(world.cache.caught_up("a/j"));
  ours.event(event("MODIFIED", "7", object("j", "7", "u", "", "a")));
  EXPECT_TRUE(world.cache.caught_up("a/j"));
}

TEST(ObjectCache, ShowsPodGroupsOnceTheyAreWatched) {
  test::JumpClock clock;
  ObjectCache cache(clock, {""}, false, true);
  for (const auto& sink :
       {cache.jobs(""), cache.pods(""), cache.services(""), cache.config_maps("")}) {
    sink.replace({}, "5");
  }
  EXPECT_FALSE(cache.synced());
  const auto groups = cache.pod_groups("");
  groups.replace({}, "");  // not installed
  EXPECT_TRUE(cache.synced());
  cache.expect("a/j", "PodGroup", "j", "7");
  EXPECT_TRUE(cache.caught_up("a/j")) << "no watch would report it";
  EXPECT_FALSE(cache.view("a/j").pod_groups_watched);

  groups.replace({}, "6");
  cache.expect("a/j", "PodGroup", "j", "7");
  EXPECT_FALSE(cache.caught_up("a/j"));
  groups.event(event("ADDED", "7", R"({"metadata": {"name": "j", "namespace": "a",
    "resourceVersion": "7", "uid": "g", "labels": {"weir.dev/job-name": "j"}},
    "status": {"phase": "Pending", "conditions": [
      {"type": "Scheduled", "status": "False", "message": "old"},
      {"type": "Unschedulable", "status": "True", "message": "queue is full"}]}})"));
  EXPECT_TRUE(cache.caught_up("a/j"));
  const JobView view = cache.view("a/j");
  EXPECT_TRUE(view.pod_groups_watched);
  ASSERT_NE(view.pod_group, nullptr);
  EXPECT_EQ(view.pod_group->phase, "Pending");
  EXPECT_EQ(view.pod_group->why, "queue is full");
}

TEST(ObjectCache, StopsWaitingAfterFiveMinutes) {
  World world;
  world.cache.expect("a/j", "Pod", "p", "7");

  world.clock.advance(minutes(4));
  EXPECT_FALSE(world.cache.caught_up("a/j"));
  world.clock.advance(minutes(2));
  EXPECT_TRUE(world.cache.caught_up("a/j"));
}

TEST(ObjectCache, CountsEachDifferenceToAList) {
  World world;
  const auto pods = world.cache.pods("");
  pods.replace({object("p", "1", "u1", "j"), object("q", "1", "u2", "j")}, "5");

  EXPECT_EQ(pods.compare({object("p", "1", "u1", "j"), object("q", "1", "u2", "j")}), 0);
  EXPECT_EQ(pods.compare({object("p", "2", "u1", "j"), object("q", "1", "u2", "j")}), 1);
  EXPECT_EQ(pods.compare({object("p", "1", "u1", "j"), object("r", "1", "u3", "j")}), 2);
}

TEST(ObjectCache, IsStaleWhenAWatchHasBeenBrokenForLong) {
  World world;
  const auto jobs = world.cache.jobs("");
  jobs.connected(false);
  world.clock.advance(seconds(100));
  jobs.connected(false);  // still; the first moment counts
  EXPECT_FALSE(world.cache.stale(minutes(2)));
  world.clock.advance(seconds(30));
  EXPECT_TRUE(world.cache.stale(minutes(2)));

  jobs.connected(true);
  EXPECT_FALSE(world.cache.stale(minutes(2)));
}

TEST(ObjectCache, SharesOneTableOfNodesUntilOneChanges) {
  World world;
  EXPECT_TRUE(world.cache.nodes()->empty());
  world.cache.nodes_sink().replace(
      {object("n2", "1", "u2", "", ""), object("n1", "1", "u1", "", "")}, "1");
  const auto table = world.cache.nodes();
  EXPECT_EQ(table->at("n1")->meta.uid, "u1");
  EXPECT_EQ(world.cache.nodes(), table);

  world.cache.nodes_sink().event(event("DELETED", "2", object("n1", "2", "u1", "", "")));

  EXPECT_EQ(table->size(), 2U);
  EXPECT_EQ(world.cache.nodes()->size(), 1U);
  EXPECT_TRUE(world.cache.nodes()->contains("n2"));
}

TEST(ObjectCache, SkipsAnObjectThatItCannotRead) {
  World world;

  world.cache.pods("").replace({"{", object("p", "1", "u1", "j")}, "5");

  EXPECT_EQ(world.cache.view("a/j").pods.size(), 1U);
}

}  // namespace object_cache_test
}  // namespace weir::cache
