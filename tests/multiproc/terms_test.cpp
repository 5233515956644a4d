// SPDX-License-Identifier: Apache-2.0
// Another worker coordinates when the one that did so is gone or stands still: no step is lost, no
// bit of the loss changes, and the former coordinator comes back as a rank.
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/operated_job.h"
#include "tests/multiproc/played_operator.h"
#include "tests/multiproc/workers.h"
#include "worker/protocol/codec.h"

namespace weir::test {
namespace terms_test {

constexpr int kStages = 2, kReplicas = 2, kWorkers = kStages * kReplicas;
constexpr std::size_t kEnough = 20;  // steps, which take longer than a cover or a join

schedule::Plan plan() {
  auto read = protocol::decode_plan(
      PlanText{.state = "Checkpoint", .stages = kStages, .shares = std::vector<int>(kReplicas, 4)}
          .json());
  EXPECT_TRUE(read) << read.error().message;
  read->job_uid = "u";
  return *read;
}

std::vector<std::string> model() {
  return {"--model=mlp", "--seq=8", "--vocab=32", "--lr=0.01", "--steps=" + std::to_string(kNoEnd)};
}

std::vector<std::string> common() {
  std::vector<std::string> words = model();
  words.insert(words.end(), {"--profile-source=ConfigMap", "--lost-after=2"});
  return words;
}

// Writes a plan of one rank, which has the state that its ranks hold.
schedule::Plan alone(const std::string& pod, int revision) {
  auto read = protocol::decode_plan(PlanText{.trigger = revision == 1 ? "Initial" : "Restart",
                                             .state = revision == 1 ? "Checkpoint" : "Recover",
                                             .revision = revision,
                                             .stages = 1,
                                             .shares = {4}}
                                        .json());
  EXPECT_TRUE(read) << read.error().message;
  read->job_uid = "u";
  read->ranks = {{.pod = pod}};
  return *read;
}

// No other worker has a rank, and the idle one has measured nothing.
TEST(TermsOfOneRank, AnIdleWorkerCoordinatesAndTakesTheRank) {
  PlayedOperator by("127.0.0.1");
  const auto pods = pods_with_addresses(2);
  auto words = model();
  words.emplace_back("--lost-after=2");
  OperatedJob job(by, pods, words);
  const auto registered = [&](std::size_t members, const std::string& first) {
    return eventually([&] {
      const auto now = by.registered().members;
      return now.size() == members && now[0].pod == first;
    });
  };
  const auto trains = [&](std::size_t worker) {
    const auto done = [&] { return logged_steps(job.loss_log(worker)).size(); };
    return eventually([&, before = done()] { return done() >= before + kEnough; });
  };
  ASSERT_TRUE(registered(2, pods[0].name)) << job.errors();
  by.use(alone(pods[0].name, 1));
  ASSERT_TRUE(trains(0)) << job.errors();

  job.worker(0).signal(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return by.claims(1) == 1; })) << job.errors(1);
  by.name({.pod = pods[1].name,
           .pod_uid = pods[1].uid,
           .address = pods[1].host.address + ":" + std::to_string(protocol::kControlPort),
           .term = 2,
           .lost_pod_uid = pods[0].uid});
  ASSERT_TRUE(registered(1, pods[1].name)) << job.errors(1);
  by.use(alone(pods[1].name, 2));
  ASSERT_TRUE(trains(1)) << job.errors(1);

  job.worker(0).signal(SIGCONT);
  ASSERT_TRUE(registered(2, pods[0].name)) << "it is a worker without a rank: " << job.errors();
  ASSERT_TRUE(trains(1)) << job.errors(1);
  const auto log = logged_steps(job.loss_log(1));
  const auto expected = losses_alone(model(), 4, log.size());
  ASSERT_EQ(expected.size(), log.size());
  for (std::size_t i = 0; i < log.size(); ++i) EXPECT_EQ(log[i].loss_hex, expected[i]) << i;
}

// Replica r has the workers 2 r and 2 r + 1.
class Terms : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(goes_on(1) && goes_on(3)) << job_.errors(); }

  std::vector<LoggedStep> steps(std::size_t worker) const {
    return logged_steps(job_.loss_log(worker));
  }
  bool goes_on(std::size_t worker) const {
    const std::size_t before = steps(worker).size();
    return eventually([&] { return steps(worker).size() >= before + kEnough; });
  }
  void name(std::size_t worker, std::int64_t term) {
    by_.name({.pod = pods_[worker].name,
              .pod_uid = pods_[worker].uid,
              .address = pods_[worker].host.address + ":" + std::to_string(protocol::kControlPort),
              .term = term,
              .lost_pod_uid = pods_[std::exchange(coordinator_, worker)].uid});
  }
  bool claimed(std::int64_t term) const {
    return eventually([&] { return by_.claims(term) == kWorkers - 1; });
  }
  // Worker 3 has each step once, and its loss is that of one process.
  void check_losses() const {
    const auto log = steps(3);
    const auto expected = losses_alone(model(), kReplicas * 4, log.size());
    ASSERT_EQ(expected.size(), log.size());
    for (std::size_t i = 0; i < log.size(); ++i) {
      ASSERT_EQ(log[i].step, static_cast<std::int64_t>(i));
      EXPECT_EQ(log[i].loss_hex, expected[i]) << "step " << i;
    }
  }

  std::size_t coordinator_ = 0;  // that was named last
  PlayedOperator by_{plan()};
  std::vector<OperatedPod> pods_ = pods_with_addresses(kWorkers);
  OperatedJob job_{by_, pods_, common()};
};

TEST_F(Terms, AnotherWorkerCoordinatesWhenTheFirstIsGoneWhichComesBackAsARank) {
  job_.worker(0).signal(SIGKILL);
  ASSERT_TRUE(claimed(1)) << job_.errors(2);
  name(1, 2);
  ASSERT_TRUE(goes_on(3)) << job_.errors(1);

  job_.restart(0);
  ASSERT_TRUE(goes_on(1)) << job_.errors(1) << job_.errors(0);
  EXPECT_THAT(job_.errors(0), testing::Not(testing::HasSubstr("control_port")));
  check_losses();
}

// Its connections stay open, as those of a machine that is gone.
TEST_F(Terms, ACoordinatorThatStandsStillGivesItsRoleUpWhenItGoesOn) {
  job_.worker(0).signal(SIGSTOP);
  ASSERT_TRUE(claimed(1)) << job_.errors(2);
  name(2, 2);
  ASSERT_TRUE(goes_on(3)) << job_.errors(2);

  job_.worker(0).signal(SIGCONT);
  ASSERT_TRUE(goes_on(1)) << job_.errors(2) << job_.errors(0);
  EXPECT_THAT(job_.errors(0), testing::HasSubstr("another coordinator is named"));
  check_losses();
}

TEST_F(Terms, TheSecondCoordinatorIsReplacedInItsTurn) {
  job_.worker(0).signal(SIGKILL);
  ASSERT_TRUE(claimed(1));
  name(1, 2);
  ASSERT_TRUE(goes_on(3)) << job_.errors(1);
  job_.restart(0);
  ASSERT_TRUE(goes_on(1)) << job_.errors(1);

  job_.worker(1).signal(SIGKILL);
  ASSERT_TRUE(claimed(2)) << job_.errors(2);
  name(0, 3);
  ASSERT_TRUE(goes_on(3)) << job_.errors(0);
  check_losses();
}

}  // namespace terms_test
}  // namespace weir::test
