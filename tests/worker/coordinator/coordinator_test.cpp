// SPDX-License-Identifier: Apache-2.0
// Coordinator and agents over real sockets; the engines are recording fakes, plans come from
// memory.
#include "worker/coordinator/coordinator.h"

#include <mutex>

#include <gtest/gtest.h>

#include "tests/worker/control/recording_engine.h"
#include "tests/worker/coordinator/memory_source.h"
#include "tests/worker/coordinator/switch_world.h"
#include "worker/control/agent.h"
#include "worker/protocol/profile.h"

namespace weir::coordinator::test {
namespace coordinator_test {

using protocol::Outcome;
using schedule::Trigger;
using weir::test::eventually;
using weir::test::RecordingEngine;

const std::string kKey = "the key of the job";
SystemClock kClock;

std::string profile() {
  protocol::Profile result{.model = "gpt-tiny", .digest = "sha256:1"};
  result.layers.push_back({.id = "block0", .parameter_bytes = 8, .output_bytes_per_sample = 4});
  result.layers[0].times["cpu"] = {{.samples = 1, .forward = 0.1, .backward = 0.2}};
  return protocol::encode_profile(result);
}

struct Rank {
  Rank(int worker, int port, const std::string& key = kKey, const std::string& rate = "0.1")
      : index(worker) {
    control::AgentOptions options{.coordinator = "127.0.0.1:" + std::to_string(port),
                                  .job_uid = "job",
                                  .member = member(worker),
                                  .settings = {{"--lr", rate}},
                                  .features = {protocol::kStepsFeature}};
    engine.measured = {.profile_json = profile()};
    agent = engine.start_agent(options, {.job_key = [key] { return key; },
                                         .on_refused =
                                             [this](const std::string& reason) {
                                               const std::lock_guard lock(mutex);
                                               refused = reason;
                                             }});
  }
  void finish_step(std::uint32_t epoch, std::int64_t step, double loss = 0) {
    engine.tell(protocol::StageStatus{.epoch = epoch, .step = step, .stage = index, .loss = loss});
  }

  std::string refusal() {
    const std::lock_guard lock(mutex);
    return refused;
  }

  int index;
  RecordingEngine engine;
  std::mutex mutex;  // guards refused
  std::string refused;
  std::unique_ptr<control::Agent> agent;
};

struct Cluster {
  explicit Cluster(int workers = 3) {
    Options options{.listen_ip = "127.0.0.1",
                    .port = 0,
                    .job_uid = "job",
                    .workers = workers,
                    .settings = {{"--lr", "0.1"}},
                    .total_steps = 100,
                    .measure = true};
    options.model = {.name = "gpt-tiny", .layers = workers, .digest = "sha256:1"};
    auto started =
        start_coordinator(options, kKey, source.front(), [](const std::string&) {}, {kClock});
    EXPECT_TRUE(started.ok());
    coordinator = *std::move(started);
    for (int index = 0; index < workers; ++index) start(index);
  }
  void start(int index) {
    if (index >= static_cast<int>(ranks.size())) ranks.resize(static_cast<std::size_t>(index) + 1);
    ranks[static_cast<std::size_t>(index)] = std::make_unique<Rank>(index, coordinator->port());
  }
  Rank& rank(int index) { return *ranks[static_cast<std::size_t>(index)]; }
  bool all_called(const std::string& call) {
    return eventually([&] {
      return std::ranges::all_of(ranks, [&](const auto& r) { return r->engine.called(call); });
    });
  }
  // As ranks do when they have dropped a step: each holds one layer.
  void all_tell(std::int64_t step) {
    for (const auto& r : ranks) {
      if (!r) continue;
      r->engine.tell(protocol::Inventory{
          .history = 1,
          .held = {{.first = r->index, .last = r->index, .step = step, .history = 1}}});
    }
  }
  void all_finish_step(std::uint32_t epoch, std::int64_t step) {
    for (const auto& r : ranks) r->finish_step(epoch, step, 2.5);
  }
  // Plan 1 is in force, two steps are done.
  void train() {
    ASSERT_TRUE(eventually([&] { return !source.registers().empty(); }));
    source.offer(plan(1, Trigger::kInitial));
    ASSERT_TRUE(all_called("go 1"));
    all_finish_step(1, 1);
    all_finish_step(1, 2);
    ASSERT_TRUE(eventually([&] { return source.outcome(1, Outcome::kApplied).has_value(); }));
  }

  MemorySource source;
  std::unique_ptr<Coordinator> coordinator;
  std::vector<std::unique_ptr<Rank>> ranks;
};

TEST(Coordinator, MeasuresRegistersAndAppliesTheFirstPlan) {
  Cluster cluster;

  ASSERT_TRUE(eventually([&] { return !cluster.source.registers().empty(); }));
  const auto body = cluster.source.registers()[0];
  EXPECT_EQ(body.members.size(), 3U);
  EXPECT_EQ(body.members[2].pod, "pod-2");
  EXPECT_EQ(body.profile_json, profile());

  cluster.train();

  EXPECT_EQ(cluster.rank(2).engine.calls(),
            (std::vector<std::string>{"prepare 1 incarnation 0", "commit 1 at 0", "go 1"}));
  EXPECT_EQ(cluster.source.known(), 1U);
  EXPECT_EQ(cluster.source.reports().back().plan_revision, 1U);
}

TEST(Coordinator, RefusesARankThatTrainsSomethingElse) {
  Cluster cluster;
  cluster.train();

  Rank other(1, cluster.coordinator->port(), kKey, "0.2");

  ASSERT_TRUE(eventually([&] { return !other.refusal().empty(); }));
  EXPECT_EQ(other.refusal(),
            "worker 1 does not train what worker 0 trains: --lr is 0.2, worker 0 has 0.1");
  cluster.all_finish_step(1, 3);  // nobody else was disturbed
  EXPECT_EQ(cluster.rank(1).refusal(), "");
  EXPECT_TRUE(cluster.rank(1).agent->connected());
}

TEST(Coordinator, TellsOfAnExportInItsReports) {
  Cluster cluster;
  cluster.train();
  EXPECT_FALSE(cluster.source.reports().back().exported.has_value());

  const protocol::Exported made{.folder = "/ckpt/hf", .step = 100, .bytes = 42};
  cluster.coordinator->exported(made, std::chrono::steady_clock::now() + std::chrono::seconds(3));

  const auto told = cluster.source.reports().back().exported;
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->folder, "/ckpt/hf");
  EXPECT_EQ(told->step, 100);
}

TEST(Coordinator, GathersTheNewestCompleteStepsOfAllRanksOnce) {
  Cluster cluster;
  cluster.train();
  for (std::int64_t step = 3; step <= 9; ++step) cluster.all_finish_step(1, step);
  ASSERT_TRUE(eventually([&] {
    cluster.source.want_trace({.id = "a", .steps = 3});  // as with each report
    return !cluster.source.traces().empty();
  }));

  const auto [id, octets] = cluster.source.traces()[0];
  EXPECT_EQ(id, "a");
  const std::string one = octets.substr(0, octets.size() / 3);
  EXPECT_EQ(octets, one + one + one);
  cluster.source.want_trace({.id = "a", .steps = 3});
  cluster.source.want_trace({.id = "b", .steps = 1000});
  ASSERT_TRUE(eventually([&] { return cluster.source.traces().size() == 2; }));
  EXPECT_EQ(cluster.source.traces()[1], std::pair(std::string("b"), std::string("0-7;0-7;0-7;")));
}

TEST(Coordinator, RetunesThroughStageZero) {
  Cluster cluster;
  cluster.train();
  auto retuned = plan(2, Trigger::kRetune);
  retuned.schedule.k = 2;
  retuned.schedule.dispatch = schedule::Dispatch::kHint;
  retuned.schedule.caps = {6, 4, 2};

  cluster.source.offer(retuned);
  ASSERT_TRUE(cluster.all_called("prepare 2 incarnation 0"));
  ASSERT_TRUE(eventually([&] { return cluster.rank(0).engine.called("commit 2 at 0"); }));
  cluster.all_finish_step(2, 3);

  ASSERT_TRUE(eventually([&] { return cluster.source.outcome(2, Outcome::kApplied).has_value(); }));
  EXPECT_EQ(cluster.source.outcome(2, Outcome::kApplied)->step, 2);
  EXPECT_FALSE(cluster.rank(1).engine.called("commit 2 at 0"));
  EXPECT_DOUBLE_EQ(cluster.source.reports().back().loss, 2.5);
}

TEST(Coordinator, ReportsARejectAndKeepsThePlan) {
  Cluster cluster;
  cluster.train();
  cluster.rank(1).engine.prepare_answer = "needs 9 GB";

  cluster.source.offer(plan(2, Trigger::kRetune));

  ASSERT_TRUE(eventually([&] { return cluster.source.outcome(2, Outcome::kRefused).has_value(); }));
  EXPECT_EQ(cluster.source.outcome(2, Outcome::kRefused)->reason, "pod-1: needs 9 GB");
  ASSERT_TRUE(cluster.all_called("abort 2"));
  EXPECT_EQ(cluster.source.reports().back().plan_revision, 1U);
}

TEST(Coordinator, TellsTheOthersOfADeadRankAndJoinsAgainWhenItIsBack) {
  Cluster cluster;
  cluster.train();

  cluster.ranks[1].reset();
  ASSERT_TRUE(eventually([&] { return cluster.rank(0).engine.called("lost stage 1"); }));
  ASSERT_TRUE(eventually([&] { return cluster.rank(2).engine.called("lost stage 1"); }));
  cluster.all_tell(2);
  cluster.start(1);

  ASSERT_TRUE(cluster.all_called("prepare 1 incarnation 1"));
  ASSERT_TRUE(cluster.all_called("go 1"));
  cluster.all_finish_step(1, 1);
  EXPECT_TRUE(eventually([&] { return cluster.source.reports().back().incarnation == 1; }));
}

TEST(Coordinator, ABrokenLinkBetweenLivingRanksIsJoinedAgain) {
  Cluster cluster;
  cluster.train();

  cluster.rank(1).agent->send(
      protocol::PeerLost{.stage = 2, .revision = 1, .reason = "reset by peer"});
  cluster.all_tell(2);

  ASSERT_TRUE(cluster.all_called("prepare 1 incarnation 1"));
  ASSERT_TRUE(cluster.all_called("commit 1 at 2"));
  EXPECT_TRUE(cluster.rank(2).engine.called("lost stage 2"));
  EXPECT_FALSE(cluster.rank(1).engine.called("lost stage 2")) << "it has told so itself";
}

TEST(Coordinator, RegistersAgainForANewLeaderAndForANewPod) {
  Cluster cluster;
  ASSERT_TRUE(eventually([&] { return cluster.source.registers().size() == 1; }));
  cluster.source.ask_for_register();
  ASSERT_TRUE(eventually([&] { return cluster.source.registers().size() == 2; }));

  cluster.ranks[2].reset();
  control::AgentOptions options{
      .coordinator = "127.0.0.1:" + std::to_string(cluster.coordinator->port()),
      .job_uid = "job",
      .member = member(2, "uid-later")};
  RecordingEngine engine;
  const auto agent = engine.start_agent(options, {.job_key = [] { return kKey; }});

  ASSERT_TRUE(eventually([&] { return cluster.source.registers().size() == 3; }));
  EXPECT_EQ(cluster.source.registers()[2].members[2].pod_uid, "uid-later");
}

TEST(Coordinator, ReportsADocumentThatCannotBeReadAsRefused) {
  Cluster cluster;
  cluster.train();

  cluster.source.refuse(2, "apiVersion: weir.dev/plan/v9 is unknown");

  EXPECT_TRUE(eventually([&] { return cluster.source.outcome(2, Outcome::kRefused).has_value(); }));
}

TEST(Coordinator, AWorkerWithAWrongKeyIsNoMember) {
  Cluster cluster(2);
  const Rank stranger(5, cluster.coordinator->port(), "a guess");

  ASSERT_TRUE(eventually([&] { return !cluster.source.registers().empty(); }));

  EXPECT_EQ(cluster.source.registers()[0].members.size(), 2U);
  EXPECT_FALSE(stranger.agent->connected());
}

TEST(Coordinator, WaitsAtTheEndForAllRanksAndReportsTheLastStep) {
  Cluster cluster;
  cluster.train();
  cluster.all_finish_step(1, 100);
  for (const auto& rank : cluster.ranks) rank->agent->send(protocol::Leave{.reason = "finished"});

  cluster.coordinator->finish(std::chrono::steady_clock::now() + 30s);

  EXPECT_EQ(cluster.source.reports().back().step, 100);
  cluster.ranks[0].reset();  // its end is no loss
  EXPECT_FALSE(cluster.rank(1).engine.called("lost stage 0"));
}

TEST(Coordinator, DoesNotWaitAtTheEndBeyondTheDeadline) {
  Cluster cluster;
  cluster.train();

  cluster.coordinator->finish(std::chrono::steady_clock::now() + 50ms);

  EXPECT_EQ(cluster.source.reports().back().step, 2);
}

TEST(Coordinator, NamesAPortThatIsTaken) {
  MemorySource source, other;
  const auto first = start_coordinator({.listen_ip = "127.0.0.1", .port = 0, .job_uid = "job"},
                                       kKey, source.front(), [](const std::string&) {}, {kClock});
  ASSERT_TRUE(first.ok());

  const auto second =
      start_coordinator({.listen_ip = "127.0.0.1", .port = (*first)->port(), .job_uid = "job"},
                        kKey, other.front(), [](const std::string&) {}, {kClock});

  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

}  // namespace coordinator_test
}  // namespace weir::coordinator::test
