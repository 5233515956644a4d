// SPDX-License-Identifier: Apache-2.0
// What /metrics says about a link while training: the link's rate, not the peer's lateness; and
// where the time of a rank goes.
#include <chrono>
#include <cmath>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"
#include "tests/support/broken_connections.h"

namespace weir::test {
namespace links_test {

using testing::Each;

// The last two of eight layers are slow: their stage is late for everything.
std::string late_profile() {
  std::string text = R"({"apiVersion": "weir.dev/profile/v1", "nodes": [)";
  for (int i = 0; i < 8; ++i) {
    const std::string id = i == 0 ? "embed" : i == 7 ? "head" : "hidden" + std::to_string(i - 1);
    const std::string seconds = i < 6 ? "0.0005" : "0.02";
    text += (i > 0 ? ", " : "") + std::string(R"({"id": ")") + id +
            R"(", "parameterBytes": 1, "outputBytesPerSample": 1, "times": {"slow": )" +
            R"([{"samples": 1, "forward": )" + seconds + R"(, "backward": )" + seconds + "}]}}";
  }
  return text + "]}";
}

double part_of(const std::string& page, const std::string& part) {
  return metric(page, {"weir_step_part_seconds_total", "part=\"" + part + "\""}).value_or(-1);
}

// All parts together, and when they were read.
std::pair<double, std::chrono::steady_clock::time_point> parts_at(int port) {
  const auto begin = std::chrono::steady_clock::now();
  std::istringstream page(scrape(port));
  const auto end = std::chrono::steady_clock::now();
  double sum = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("weir_step_part_seconds_total{")) continue;
    sum += std::stod(line.substr(line.rfind(' ') + 1));
  }
  return {sum, begin + (end - begin) / 2};
}

TEST(LinkStatistics, DoNotTakeALateReceiverForASlowLink) {
  const TempDir folder;
  const std::string profile = folder.file("profile.json", late_profile());
  // Eight in flight, five slots: three messages wait for a late slot.
  PlanText plan{.type = "KFKB", .k = 4, .stages = 2, .micro_batches = 16};
  // Tensors of 2 x 64 x 128 floats = 64 KiB, 6.6 ms at 10 MB/s; the receiver takes 80 ms for each.
  Workers workers(plan,
                  {"--model=mlp", "--seq=64", "--vocab=32", "--steps=1000000",
                   "--emulate-profile=" + profile, "--emulate-device=slow", "--pace-rate=10MB"});
  ASSERT_TRUE(workers.reaches(0, 1)) << workers[0].errors();

  const std::string text = scrape(workers[0].logged("metrics_port").value_or(0));

  const auto bytes = metric(text, {"weir_link_bytes_total", R"(dir="fwd")", R"(link="0-1")"});
  const auto busy = metric(text, {"weir_link_busy_seconds_total", R"(dir="fwd")"});
  const auto credit = metric(text, {"weir_link_credit_wait_seconds_total", R"(dir="fwd")"});
  ASSERT_TRUE(bytes && busy && credit) << text;
  EXPECT_GT(*bytes, 10 * 65536);
  EXPECT_GT(*bytes / *busy, 5e6);   // by the late receiver's clock it would be below 1 MB/s
  EXPECT_LT(*bytes / *busy, 11e6);  // nor faster than the link
  EXPECT_GT(*credit, 0.2);
  EXPECT_EQ(metric(text, {"weir_worker_info", R"(emulated="true")", R"(device="slow")"}), 1);
  EXPECT_GT(part_of(text, "gradient_late"), 2 * part_of(text, "gradient_link"));
}

TEST(PartsOfSteps, TellAWaitForASlowLinkFromALateSender) {
  // Tensors of 64 KiB, 33 ms at 2 MB/s, and next to no compute.
  Workers workers({.stages = 2, .micro_batches = 8},
                  {"--model=mlp", "--seq=64", "--vocab=32", "--steps=1000000", "--pace-rate=2MB"});
  ASSERT_TRUE(workers.reaches(1, 3)) << workers[0].errors();

  const std::string text = scrape(workers[1].logged("metrics_port").value_or(0));

  EXPECT_GT(part_of(text, "forward_link"), 2 * part_of(text, "forward_late"));
  EXPECT_GT(part_of(text, "forward_link"), 0.5);
  const double fill = metric(text, {"weir_step_fill_seconds_total"}).value_or(-1);
  EXPECT_GT(fill, 0);
  EXPECT_LT(fill, 0.5 * part_of(text, "forward_link")) << "one message and the header of eight";
}

TEST(PartsOfSteps, OfARankAddUpToTheTimeThatPasses) {
  Workers workers({.stages = 2, .shares = {2, 2}},
                  {"--model=mlp", "--seq=8", "--vocab=32", "--steps=1000000"});
  for (int rank = 0; rank < workers.count(); ++rank) {
    ASSERT_TRUE(workers.reaches(rank, 3)) << workers[0].errors();
  }
  for (int rank = 0; rank < workers.count(); ++rank) {
    const int port = workers[rank].logged("metrics_port").value_or(0);
    // Of a page that took long nobody knows when it was made.
    for (int attempt = 0;; ++attempt) {
      const auto [first, begin] = parts_at(port);
      std::this_thread::sleep_for(std::chrono::seconds(1));
      const auto [second, end] = parts_at(port);
      const double passed = std::chrono::duration<double>(end - begin).count();
      const double off = std::abs(second - first - passed);
      if (off < 0.01 * passed) break;
      ASSERT_LT(attempt, 10) << "rank " << rank << ": " << second - first << " of " << passed;
    }
  }
}

TEST(Metrics, OfAStageHaveTheDocumentedNames) {
  Workers workers({.stages = 2}, {"--model=mlp", "--seq=8", "--vocab=32", "--steps=1000000"});
  ASSERT_TRUE(workers.reaches(1, 3)) << workers[0].errors();

  const std::string first = scrape(workers[0].logged("metrics_port").value_or(0));
  const std::string last = scrape(workers[1].logged("metrics_port").value_or(0));

  for (const std::string name :
       {"weir_worker_info", "weir_step", "weir_plan_epoch", "weir_plan_k", "weir_plan_cap",
        "weir_iteration_seconds_bucket", "weir_stage_op_seconds_bucket",
        "weir_stage_idle_seconds_total", "weir_inflight_peak", "weir_activation_bytes_peak",
        "weir_link_bytes_total", "weir_link_busy_seconds_total",
        "weir_link_credit_wait_seconds_total", "weir_link_transfer_seconds_bucket",
        "weir_link_rtt_seconds", "weir_samples_total", "weir_tokens_total", "weir_rejoins_total"}) {
    EXPECT_TRUE(metric(first, {name + "{", R"(worker="worker-0")"})) << name;
    EXPECT_TRUE(metric(last, {name + "{", R"(pipeline_job="standalone")"})) << name;
  }
  EXPECT_FALSE(metric(first, {"weir_loss{"}));
  EXPECT_TRUE(metric(last, {"weir_loss{"}));
  EXPECT_TRUE(metric(first, {"weir_link_bytes_total", R"(dir="fwd")"}));
  EXPECT_FALSE(metric(first, {"weir_link_bytes_total", R"(dir="bwd")"}));  // its receiver only
  EXPECT_GE(*metric(first, {"weir_step{"}), 3);
}

TEST(Metrics, OfReplicasTellOfTheLinksThatTheirSumsTake) {
  Workers workers({.stages = 2, .shares = {2, 2}},
                  {"--model=mlp", "--seq=8", "--vocab=32", "--steps=1000000"});
  ASSERT_TRUE(workers.reaches(3, 3)) << workers[0].errors();

  const std::string page = scrape(workers[3].logged("metrics_port").value_or(0));

  const std::string link = R"(link="s1:r0-r1")";
  const auto bytes = metric(page, {"weir_link_bytes_total", R"(dir="sync")", link});
  const auto busy = metric(page, {"weir_link_busy_seconds_total", R"(dir="sync")", link});
  ASSERT_TRUE(bytes && busy) << page;
  EXPECT_EQ(*bytes > 0, *busy > 0);
}

// Tensors of 2 x 1024 x 128 floats = 1 MiB are cut into parts.
TEST(Connections, OfAnyNumberGiveTheSameLosses) {
  const std::vector<std::string> common = {"--model=mlp", "--seq=1024", "--vocab=32", "--steps=4"};
  const std::vector<std::string> alone = losses_alone(common, 5);
  ASSERT_EQ(alone.size(), 4U);
  for (const int number : {1, 3, 8, 0}) {
    const std::string option = "--connections=" + std::to_string(number);
    Workers workers({}, common, {{option}, {"--connections=2"}});
    EXPECT_THAT(workers.wait_all(), Each(0)) << option << workers[0].errors();
    EXPECT_EQ(losses(workers.steps(1)), alone) << option;
  }
}

TEST(Connections, AreTold) {
  Workers workers({}, {"--model=mlp", "--seq=1024", "--vocab=32", "--steps=1000000"},
                  {{"--connections=3"}, {}});
  ASSERT_TRUE(workers.reaches(0, 2)) << workers[0].errors();
  const std::string page = scrape(workers[0].logged("metrics_port").value_or(0));
  EXPECT_EQ(metric(page, {"weir_link_connections"}), 3) << page;
  EXPECT_EQ(metric(page, {"weir_link_connection_probes_total", "raised"}), 0) << page;
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();
}

TEST(Connections, OneThatIsResetEndsTheStepByItsNameAndAllMeetAgain) {
  Workers workers({}, {"--model=mlp", "--seq=64", "--vocab=32", "--steps=" + std::to_string(kNoEnd),
                       "--connections=3"});
  ASSERT_TRUE(workers.reaches(0, 2)) << workers[0].errors();
  const std::set<int> ports = {workers[0].logged("data_port").value_or(0),
                               workers[1].logged("data_port").value_or(0)};

  ASSERT_TRUE(reset_connection(workers[1].pid(), ports, 1));

  ASSERT_TRUE(workers[0].says("generation of plan 1 broken")) << workers[0].errors();
  EXPECT_THAT(workers[0].errors(),
              testing::ContainsRegex("broken: .*link 0-1 (for|back)ward, connection [1-3] of 3: "));
  EXPECT_TRUE(workers[0].says("PREPARE of plan 1 incarnation 1")) << workers[0].errors();
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();
}

}  // namespace links_test
}  // namespace weir::test
