// SPDX-License-Identifier: Apache-2.0
#include "tests/multiproc/switch_moments.h"

#include <chrono>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "worker/base/random.h"

namespace weir::test {

std::string slow_profile() {
  std::string nodes;
  for (int i = 0; i < 8; ++i) {
    const std::string id = i == 0 ? "embed" : i == 7 ? "head" : "hidden" + std::to_string(i - 1);
    nodes += (i > 0 ? ", " : "") + std::string(R"({"id": ")") + id +
             R"(", "times": {"slow": [{"samples": 2, "forward": 0.001, "backward": 0.002}]}})";
  }
  return R"({"apiVersion": "weir.dev/profile/v1", "nodes": [)" + nodes + "]}";
}

bool switch_until(Moment moment, const PlanText& next, Workers& workers, int held,
                  std::uint64_t seed) {
  Random random(seed + 1);
  const std::string number = std::to_string(next.revision);
  const bool hold = moment == Moment::kPrepare || moment == Moment::kReady;
  if (hold) workers[held].signal(SIGSTOP);
  workers.write_plan(next);
  switch (moment) {
    case Moment::kPrepare:
      EXPECT_TRUE(workers[0].says("PREPARE of plan " + number)) << seed;
      break;
    case Moment::kReady:  // of the others: they need some milliseconds
      EXPECT_TRUE(workers[0].says("PREPARE of plan " + number)) << seed;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      break;
    case Moment::kCommit:
      EXPECT_TRUE(workers[0].says("COMMIT of plan " + number)) << seed;
      break;
    case Moment::kAdopted:
      EXPECT_TRUE(workers.adopts(0, static_cast<std::uint32_t>(next.revision))) << seed;
      break;
    case Moment::kAnyTime:
      std::this_thread::sleep_for(
          std::chrono::milliseconds(static_cast<int>(random.uniform() * 600)));
  }
  return hold;
}

void expect_one_plan_a_step(const std::string& which,
                            const std::vector<std::vector<LoggedStep>>& logs,
                            std::uint32_t restart) {
  std::map<std::int64_t, std::uint32_t> epochs;
  for (const auto& log : logs) {
    std::uint32_t newest = 0;
    for (std::size_t i = 0; i < log.size() && log[i].epoch < restart; ++i) {
      const auto [known, fresh] = epochs.emplace(log[i].step, log[i].epoch);
      EXPECT_EQ(known->second, log[i].epoch) << which << " step " << log[i].step;
      EXPECT_GE(log[i].epoch, newest) << which << ": back to the old plan";
      newest = log[i].epoch;
    }
  }
}

}  // namespace weir::test
