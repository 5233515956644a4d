// SPDX-License-Identifier: Apache-2.0
// Decisions in whole loops (tests/sim/whole_loop.h). Normally a few short ones; WEIR_FULL=1: all
// hours that are recorded. WEIR_SEED=<seed> prints the decisions of one; with WEIR_RECORD=1 and
// WEIR_FULL=1 WEIR_SEEDS=<first>-<last> records these hours beside those that are there.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/recorded/decisions.h"
#include "tests/recorded/recording.h"
#include "tests/sim/whole_loop.h"
#include "worker/base/digest.h"

namespace weir::recorded {
namespace whole_loops_test {

constexpr int kHour = 3600, kShort = 600;  // virtual seconds
constexpr std::size_t kParts = 4;          // ctest runs them beside each other
// Cheap ones, in which tiers change plans, go back, and workers die.
constexpr std::array<std::uint64_t, kParts> kShortSeeds{1, 3, 6, 11};

constexpr const char* name_of(int horizon) {
  return horizon == kHour ? "hour" : "short";
}

std::string key_of(std::uint64_t seed, int horizon) {
  char text[64];  // in the order of the file
  std::snprintf(text, sizeof text, "%s, seed %03llu", name_of(horizon),
                static_cast<unsigned long long>(seed));
  return text;
}

std::string decisions_of(std::uint64_t seed, int horizon) {
  sim::LoopCase one = sim::random_case(seed);
  one.horizon = horizon;
  sim::WholeLoop loop(one, "Auto", seed);
  Decisions decisions;
  loop.listen([&](reconcile::test::World& world) { decisions.listen(world); });
  loop.run();
  return decisions.text();
}

std::vector<std::uint64_t> recorded_hours(const Table& table) {
  const std::string begins = std::string(name_of(kHour)) + ", seed ";
  std::vector<std::uint64_t> seeds;
  for (const std::string& key : table.keys()) {
    if (key.starts_with(begins)) {
      seeds.push_back(std::strtoull(key.c_str() + begins.size(), nullptr, 10));
    }
  }
  return seeds;
}

std::vector<std::uint64_t> seeds_of(std::size_t part, const Table& table) {
  if (!full()) return {kShortSeeds[part]};
  std::vector<std::uint64_t> all = recorded_hours(table), mine;
  if (const char* some = std::getenv("WEIR_SEEDS"); some != nullptr) {
    char* rest = nullptr;
    const std::uint64_t first = std::strtoull(some, &rest, 10);
    const std::uint64_t last = *rest == '-' ? std::strtoull(rest + 1, nullptr, 10) : first;
    all.clear();
    for (std::uint64_t seed = first; seed <= last; ++seed) all.push_back(seed);
  }
  for (std::size_t i = part; i < all.size(); i += kParts) mine.push_back(all[i]);
  return mine;
}

class RecordedWholeLoops : public ::testing::TestWithParam<std::size_t> {};

TEST_P(RecordedWholeLoops, DecideAsRecorded) {
  const int horizon = full() ? kHour : kShort;
  if (const char* one = std::getenv("WEIR_SEED"); one != nullptr) {
    if (GetParam() == 0) {
      std::fputs(decisions_of(std::strtoull(one, nullptr, 10), horizon).c_str(), stdout);
    }
    return;
  }
  if (kSanitized) GTEST_SKIP() << "a minute or more under sanitizers";
  Table table(
      "whole_loops.txt",
      "Decisions in whole loops: SHA-256 of all passes of one. Hours: with WEIR_FULL=1, too.",
      true);
  if (const auto why = table.elsewhere()) GTEST_SKIP() << *why;
  for (const std::uint64_t seed : seeds_of(GetParam(), table)) {
    table.check(key_of(seed, horizon), sha256_hex(decisions_of(seed, horizon)),
                std::string(full() ? "WEIR_FULL=1 " : "") + "WEIR_SEED=" + std::to_string(seed) +
                    " prints the decisions, here and of the commit before");
  }
  table.finish(/*part=*/true);
}

INSTANTIATE_TEST_SUITE_P(All, RecordedWholeLoops, ::testing::Range<std::size_t>(0, kParts));

}  // namespace whole_loops_test
}  // namespace weir::recorded
