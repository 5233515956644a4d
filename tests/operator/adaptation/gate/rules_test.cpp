// SPDX-License-Identifier: Apache-2.0
// The table of rules (operator/adaptation/gate/README.md "Rules"): how each kind of change is
// judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/adaptation/gate/gate.h"

namespace weir::gate {
namespace rules_test {

using namespace std::chrono_literals;

enum class Kind : unsigned char { kRetune, kShares, kRepartition, kReplace };

constexpr std::int64_t kStep = 500;

struct Result {
  Verdict verdict;
  std::chrono::seconds cooldown;
  std::optional<std::int64_t> kept_out_until;
};

Result judged(Kind kind, Measured measured, std::chrono::seconds cooldown) {
  Rules rules{.cooldown = 60s};
  if (kind == Kind::kRepartition || kind == Kind::kReplace) {
    rules.when_rates_changed = Rules::Changed::kMissedOnly;
  }
  if (kind == Kind::kReplace) measured.rates_unchanged = false;  // the old node is left
  const auto result =
      judge(measured, "offer", kStep, rules, {.last_change = {}, .cooldown = cooldown}, {});
  const auto& quarantine = result.record.quarantine;
  return {result.verdict, result.clock.cooldown,
          quarantine.empty() ? std::nullopt : std::optional(quarantine.at("offer"))};
}

struct Row {
  const char* what;
  double before, after, predicted;
  bool unchanged;
  // By kind: retune and shares; repartition; replace.
  std::vector<Verdict> verdicts;
  std::vector<std::chrono::seconds> cooldowns;  // after one of 240 s
};

class RulesTable : public testing::TestWithParam<Row> {};

TEST_P(RulesTable, JudgeEachKindByTheTable) {
  const Row& row = GetParam();
  const Measured measured{row.before, row.after, row.predicted, row.unchanged};
  const Kind kinds[] = {Kind::kRetune, Kind::kShares, Kind::kRepartition, Kind::kReplace};
  for (const Kind kind : kinds) {
    const std::size_t column = kind == Kind::kReplace ? 2 : kind == Kind::kRepartition ? 1 : 0;
    SCOPED_TRACE(std::string(row.what) + ", kind " + std::to_string(static_cast<int>(kind)));
    const Result result = judged(kind, measured, 240s);
    EXPECT_EQ(result.verdict, row.verdicts[column]);
    EXPECT_EQ(result.cooldown, row.cooldowns[column]);
    EXPECT_EQ(result.kept_out_until,
              result.verdict == Verdict::kRollback ? std::optional(kStep + 100) : std::nullopt);
  }
}

constexpr auto kKeep = Verdict::kKeep, kMissed = Verdict::kMissed, kBack = Verdict::kRollback;
INSTANTIATE_TEST_SUITE_P(
    All, RulesTable,
    testing::Values(
        Row{"as promised", 1, 0.8, 0.25, true, {kKeep, kKeep, kKeep}, {120s, 120s, 120s}},
        Row{"a third of the time", 1, 0.93, 0.25, true, {kKeep, kKeep, kKeep}, {120s, 120s, 120s}},
        Row{"less", 1, 0.94, 0.25, true, {kMissed, kMissed, kMissed}, {480s, 480s, 480s}},
        Row{"a bit slower", 1, 1.03, 0.25, true, {kMissed, kMissed, kMissed}, {480s, 480s, 480s}},
        Row{"slower", 1, 1.031, 0.25, true, {kBack, kBack, kMissed}, {480s, 480s, 480s}},
        Row{"as promised, changed", 1, 0.8, 0.25, false, {kKeep, kKeep, kKeep}, {240s, 120s, 120s}},
        Row{"less, changed", 1, 0.94, 0.25, false, {kKeep, kMissed, kMissed}, {240s, 480s, 480s}},
        Row{"slower, changed", 1, 1.5, 0.25, false, {kKeep, kMissed, kMissed}, {240s, 480s, 480s}},
        Row{"unknown", 0, 1.5, 0.25, true, {kKeep, kKeep, kKeep}, {240s, 240s, 240s}}));

}  // namespace rules_test
}  // namespace weir::gate
