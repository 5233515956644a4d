// SPDX-License-Identifier: Apache-2.0
// Decisions in the random histories of tests/operator/controller/reconcile/properties_test.cpp:
// 1,000 of them, WEIR_FULL=1: all that are recorded. WEIR_SEED=<seed> prints those of one history.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "tests/operator/controller/reconcile/model.h"
#include "tests/recorded/decisions.h"
#include "tests/recorded/recording.h"
#include "worker/base/digest.h"

namespace weir::recorded {
namespace histories_test {

constexpr std::uint64_t kHistories = 10'000;
constexpr std::uint64_t kNormally = kSanitized ? 20 : 1'000;
constexpr std::uint64_t kInLine = 10;       // histories
constexpr std::size_t kDigits = 8;          // of a history's hash
constexpr int kLength = 14, kRecovers = 8;  // as there: one of 8 is followed to a good end

std::string decisions_of(std::uint64_t seed) {
  reconcile::test::Model model(seed);
  Decisions decisions;
  decisions.listen(model.world);
  for (const auto& event : reconcile::test::random_history(seed, kLength, false)) {
    model.happen(event);
    model.settle(10);
  }
  if (seed % kRecovers == 0) model.recover();
  return decisions.text();
}

TEST(RecordedHistories, DecideAsRecorded) {
  if (const char* one = std::getenv("WEIR_SEED"); one != nullptr) {
    std::fputs(decisions_of(std::strtoull(one, nullptr, 10)).c_str(), stdout);
    return;
  }
  Table table("histories.txt",
              "Decisions in random histories, ten a line: SHA-256, its first 8 digits, of all of a "
              "history's passes.");
  if (const auto why = table.elsewhere()) GTEST_SKIP() << *why;
  const bool all = full() || records();
  for (std::uint64_t first = 1; first <= (all ? kHistories : kNormally); first += kInLine) {
    std::string hashes;
    for (std::uint64_t seed = first; seed < first + kInLine; ++seed) {
      hashes += (hashes.empty() ? "" : " ") + sha256_hex(decisions_of(seed)).substr(0, kDigits);
    }
    table.check("seeds " + std::to_string(first) + " to " + std::to_string(first + kInLine - 1),
                hashes, "WEIR_SEED=<seed> prints the decisions, here and of the commit before");
    if (HasFailure()) return;
  }
  table.finish(!all);
}

}  // namespace histories_test
}  // namespace weir::recorded
