// SPDX-License-Identifier: Apache-2.0
// How changes are judged (operator/adaptation/gate/README.md "Outcome"), with a way back and
// without one, as after a replacement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/adaptation/gate/gate.h"

namespace weir::gate {
namespace rules_test {

using namespace std::chrono_literals;

constexpr std::int64_t kStep = 500;

struct Row {
  const char* what;
  double before, after;
  double error;  // standard error of their ratio
  double predicted;
  std::optional<double> predicted_now;
  Verdict verdict, without_return;
  std::chrono::seconds cooldown;  // after one of 240 s
};

class RulesTable : public testing::TestWithParam<Row> {};

TEST_P(RulesTable, JudgeByTheTable) {
  const Row& row = GetParam();
  for (const bool can_return : {true, false}) {
    SCOPED_TRACE(std::string(row.what) + (can_return ? "" : ", no way back"));
    const Measured measured{.before_seconds = row.before,
                            .after_seconds = row.after,
                            .error = row.error,
                            .predicted_gain = row.predicted,
                            .predicted_now = row.predicted_now,
                            .can_return = can_return};
    const auto result = judge(measured, "offer", kStep, Rules{.cooldown = 60s},
                              {.last_change = {}, .cooldown = 240s}, {});
    EXPECT_EQ(result.verdict, can_return ? row.verdict : row.without_return);
    EXPECT_EQ(result.clock.cooldown, row.cooldown);
    const auto& quarantine = result.record.quarantine;
    EXPECT_EQ(quarantine.empty(), result.verdict != Verdict::kRollback);
    if (result.verdict == Verdict::kRollback) {
      EXPECT_EQ(quarantine.at("offer"), kStep + 100);
    }
  }
}

constexpr auto kKeep = Verdict::kKeep, kMissed = Verdict::kMissed, kBack = Verdict::kRollback;
INSTANTIATE_TEST_SUITE_P(
    All, RulesTable,
    testing::Values(Row{"as promised", 1, 0.8, 0, 0.25, {}, kKeep, kKeep, 120s},
                    Row{"a third of the time", 1, 0.93, 0, 0.25, {}, kKeep, kKeep, 120s},
                    Row{"less", 1, 0.94, 0, 0.25, {}, kMissed, kMissed, 480s},
                    Row{"less, but uncertain", 1, 0.94, 0.08, 0.25, {}, kKeep, kKeep, 120s},
                    Row{"a bit slower", 1, 1.03, 0, 0.25, {}, kMissed, kMissed, 480s},
                    Row{"slower", 1, 1.032, 0, 0.25, {}, kBack, kMissed, 480s},
                    Row{"slower, but uncertain", 1, 1.05, 0.05, 0.25, {}, kMissed, kMissed, 480s},
                    Row{"less is promised now", 1, 0.97, 0, 0.25, 0.04, kKeep, kKeep, 120s},
                    Row{"nothing is promised now", 1, 1.0, 0, 0.25, -0.01, kKeep, kKeep, 120s},
                    Row{"more is promised now", 1, 0.94, 0, 0.05, 0.25, kMissed, kMissed, 480s},
                    Row{"unknown", 0, 1.5, 0, 0.25, {}, kKeep, kKeep, 240s}));

}  // namespace rules_test
}  // namespace weir::gate
