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
