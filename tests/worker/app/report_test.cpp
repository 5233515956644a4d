// SPDX-License-Identifier: Apache-2.0
#include "worker/app/report.h"

#include <fstream>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "worker/app/network.h"
#include "worker/app/own_plan.h"
#include "worker/app/steps.h"
#include "worker/schedule/validate.h"

namespace weir::app {
namespace report_test {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

engine::StepRecord record_of(int stage) {
  return {.step = 4,
          .next_step = 5,
          .epoch = 3,
          .stage = stage,
          .first_stage = stage == 0,
          .last_stage = stage == 1,
          .loss = stage == 1 ? 0.5 : std::numeric_limits<double>::quiet_NaN(),
          .step_seconds = 0.25,
          .iteration_seconds = 0.5,
          .forward_seconds = 0.0625,
          .backward_seconds = 0.125,
          .samples = 64,
          .in_flight_peak = 2,
          .graph_launches = 7,
          .lateness = {20us, 1500us},
          .overruns = 1};
}

TEST(StatusOf, TellsPausesInOpsWithThoseBetweenOps) {
  using protocol::StepPart;
  engine::StepRecord record = record_of(0);
  const auto part = [](StepPart one) { return static_cast<std::size_t>(one); };
  record.parts[part(StepPart::kForward)] = 60ms;
  record.parts[part(StepPart::kBackward)] = 120ms;
  record.parts[part(StepPart::kWeights)] = 5ms;
  record.parts[part(StepPart::kOther)] = 1ms;
  record.pauses = {20ms, 30ms, 9ms};

  const protocol::StageStatus status = status_of(record, 0, 0, 0);

  ASSERT_TRUE(status.parts);
  EXPECT_NEAR(status.parts->of(StepPart::kForward), 0.04, 1e-9);
  EXPECT_NEAR(status.parts->of(StepPart::kBackward), 0.09, 1e-9);
  EXPECT_NEAR(status.parts->of(StepPart::kWeights), 0, 1e-9) << "no part is less than nothing";
  EXPECT_NEAR(status.parts->of(StepPart::kOther), 0.056, 1e-9);
  EXPECT_EQ(status.forward_seconds, 0.0625) << "predictions count with pauses";
}

TEST(SentSince, TellsWhatALinkHasSentSinceTheLastCall) {
  transport::LinkReport link{.channel = transport::Channel::kBackward, .counters = {}};
  link.counters.transfers = 10;
  link.counters.histogram[3] = 8;
  link.counters.busy = 80ms;
  link.counters.rtt_seconds = 0.001;
  SentSince sent;
  sent.take({link});
  link.counters.transfers = 16;
  link.counters.histogram[4] = 3;
  link.counters.busy = 110ms;

  const auto told = sent.take({link}, {{{}, {.error_ratio = 0.0075, .zeroed_ratio = 0.01}}});

  ASSERT_EQ(told.size(), 1U);
  EXPECT_FALSE(told[0].forward);
  EXPECT_EQ(told[0].transfers, 6);
  EXPECT_EQ(told[0].timed, 3);
  EXPECT_NEAR(told[0].seconds, 0.03, 1e-12);
  EXPECT_DOUBLE_EQ(told[0].rtt_seconds, 0.001);
  EXPECT_EQ(told[0].rounding_error, 0.0075) << "that of its direction";
  EXPECT_EQ(told[0].zeroed, 0.01);
}

TEST(SentSince, BeginsAnewWithNewLinks) {
  transport::LinkReport link{.counters = {}};
  link.counters.transfers = 10;
  SentSince sent;
  sent.take({link});
  link.counters.transfers = 4;
  EXPECT_EQ(sent.take({link})[0].transfers, 4);
}

TEST(LossLine, HoldsTheLossExactlyOnTheLastStage) {
  EXPECT_EQ(loss_line(record_of(1), false),
            R"({"step": 4, "epoch": 3, "stage": 1, "loss": 0.5, "loss_hex": "0x1p-1", )"
            R"("step_seconds": 0.25, "iteration_seconds": 0.5, "forward_seconds": 0.0625, )"
            R"("backward_seconds": 0.125, "in_flight_peak": 2, "graph_launches": 7})");
}

TEST(LossLine, HasNoLossOnOtherStages) {
  EXPECT_THAT(loss_line(record_of(0), false), HasSubstr(R"("loss": null, "loss_hex": null)"));
}

TEST(LossLine, TellsTheLatenessOfEmulatedOps) {
  EXPECT_THAT(loss_line(record_of(0), true),
              HasSubstr(R"("overruns": 1, "lateness_us": [20, 1500]})"));
}

TEST(LossLog, WritesALinePerStep) {
  const weir::test::TempDir folder;
  const std::string path = (folder.path() / "loss.jsonl").string();

  {
    auto log = LossLog::open(path);
    ASSERT_TRUE(log);
    (*log)->write(record_of(1), false);
    (*log)->write(record_of(1), false);
  }

  std::ifstream file(path);
  int lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  EXPECT_EQ(lines, 2);
  EXPECT_THAT(LossLog::open("/no/such/folder/x").error().message, HasSubstr("--loss-log"));
}

TEST(LossLog, KeepsTheHistoryOfTheProcessBefore) {
  const weir::test::TempDir folder;
  const std::string path = folder.file("loss.jsonl", "{\"step\": 0}\n");

  (*LossLog::open(path))->write(record_of(1), false);

  std::ifstream file(path);
  std::string first;
  std::getline(file, first);
  EXPECT_EQ(first, "{\"step\": 0}");
}

TEST(StatusOf, CountsCompletedStepsAndSamplesOfStageZero) {
  const auto first = status_of(record_of(0), 100, 200, 30);
  const auto last = status_of(record_of(1), 100, 200, 30);

  EXPECT_EQ(first.step, 5);
  EXPECT_EQ(first.samples, 64);
  EXPECT_EQ(last.samples, 0);
  EXPECT_EQ(last.loss, 0.5);
  EXPECT_EQ(first.memory_peak_bytes, 100);
  EXPECT_EQ(first.memory_limit_bytes, 200);
  EXPECT_EQ(first.memory_free_bytes, 30);
}

TEST(OwnPlan, IsLegal) {
  const schedule::Plan plan = own_plan("uid", "worker-0", "u", 8, 16, 4);

  EXPECT_THAT(schedule::broken_rules(plan, 8), ElementsAre());
}

TEST(HostOf, IsTheNameInAUrl) {
  EXPECT_EQ(host_of("https://weir.weir-system.svc:8443/path"), "weir.weir-system.svc");
  EXPECT_EQ(host_of("http://[fd00::1]:8443"), "fd00::1");
  EXPECT_EQ(host_of("weir:8443"), "weir");
}

TEST(OwnAddresses, AreThoseOfThePodUnlessAnInterfaceIsNamed) {
  EXPECT_THAT(*own_addresses("", "10.0.0.1,fd00::1", ""), ElementsAre("10.0.0.1", "fd00::1"));
  EXPECT_THAT(*own_addresses("", "", "192.0.2.7"), ElementsAre("192.0.2.7"));
  EXPECT_THAT(*own_addresses("", "", ""), ElementsAre("127.0.0.1"));
  EXPECT_THAT(*own_addresses("lo", "10.0.0.1", ""), testing::Contains("127.0.0.1"));
  EXPECT_THAT(own_addresses("nonsense0", "", "").error().message, HasSubstr("nonsense0"));
}

TEST(Steps, RunInTheDocumentedOrder) {
  std::vector<std::string> names;
  for (const Step& step : steps()) names.emplace_back(step.name);

  EXPECT_THAT(names, ElementsAre("open device", "load model", "open data", "metrics endpoint",
                                 "join", "data port", "engine", "coordinator",
                                 "connect to the coordinator", "train"));
}

TEST(Shutdown, CallsItsActionOnceEvenWhenItComesLate) {
  Shutdown shutdown;
  int calls = 0;

  shutdown.request();
  shutdown.on_request([&] { ++calls; });
  shutdown.request();

  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(shutdown.token().stop_requested());
}

}  // namespace report_test
}  // namespace weir::app
