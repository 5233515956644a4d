// SPDX-License-Identifier: Apache-2.0
#include "operator/api/validate.h"

#include <functional>

#include <gtest/gtest.h>

namespace weir::api {
namespace validate_test {

JobSpec plain() {
  JobSpec spec;
  spec.worker.image = "i:1";
  spec.worker_groups.push_back({.name = "w", .count = 4});
  return spec;
}

TEST(Refuse, AcceptsTheDefaults) {
  EXPECT_FALSE(refuse(plain(), 5).has_value());
}

TEST(Refuse, NamesFieldAndValueOfWhatIsNotBuilt) {
  const struct {
    std::function<void(JobSpec&)> edit;
    const char *reason, *start;
  } cases[] = {
      {[](JobSpec& s) { s.data_parallel = 2; }, "InvalidSpec",
       "parallelism.dataParallel: 2 does not divide batch.globalBatchSize 1"},
      {[](JobSpec& s) {
         s.data_parallel = 3;
         s.global_batch = 64;
         s.micro_batch_size = 4;
       },
       "InvalidSpec", "parallelism.dataParallel: 3 x batch.microBatchSize 4 does not divide"},
      {[](JobSpec& s) { s.min_data_parallel = 2; }, "NotImplemented",
       "parallelism.minDataParallel: 2"},
      {[](JobSpec& s) { s.worker_groups[0].ranks_per_worker = 8; }, "NotImplemented",
       "workerGroups[w].ranksPerWorker: 8"},
      {[](JobSpec& s) { s.worker_groups[0].spares = 17; }, "InvalidSpec",
       "workerGroups[w].spares: 17 is not in 0 .. 16"},
      {[](JobSpec& s) { s.sync_mode = "Family"; }, "NotImplemented", "sync.mode: Family"},
      {[](JobSpec& s) { s.adaptation.window_seconds = 19; }, "InvalidSpec",
       "adaptation.metrics.windowSeconds: 19 is below 4 scrape intervals of 5 s"},
      {[](JobSpec& s) { s.placement_mode = "Solver"; }, "NotImplemented", "placement.mode: Solver"},
      {[](JobSpec& s) { s.network_interface = "ib0"; }, "NotImplemented", "network.interface: ib0"},
      {[](JobSpec& s) { s.restart_scope = "Node"; }, "NotImplemented",
       "failurePolicy.restartScope: Node"},
      {[](JobSpec& s) { s.neighbor_copies = "Disk"; }, "NotImplemented",
       "recovery.neighborCopies: Disk"},
      {[](JobSpec& s) { s.failure_rules.push_back({.name = "r", .action = "Page"}); },
       "NotImplemented", "failurePolicy.rules[r].action: Page"},
      {[](JobSpec& s) { s.failure_rules.push_back({.name = "r", .action = "Restart"}); },
       "InvalidSpec", "failurePolicy.rules[r]: has neither"},
  };
  for (const auto& c : cases) {
    JobSpec spec = plain();
    c.edit(spec);
    const auto refusal = refuse(spec, 5);
    ASSERT_TRUE(refusal.has_value()) << c.start;
    EXPECT_EQ(refusal->reason, c.reason);
    EXPECT_TRUE(refusal->message.starts_with(c.start)) << refusal->message;
  }
}

TEST(SetCondition, MovesTheTimeOnlyWithTheStatus) {
  const Time first{}, second = first + std::chrono::hours(1);
  std::vector<Condition> conditions;
  set_condition(conditions, {"Ready", "False", "Pending", "", 1, first});

  set_condition(conditions, {"Ready", "False", "Starting", "4 of 4", 2, second});
  EXPECT_EQ(find_condition(conditions, "Ready")->since, first);
  EXPECT_EQ(find_condition(conditions, "Ready")->reason, "Starting");

  set_condition(conditions, {"Ready", "True", "Running", "", 2, second});
  EXPECT_EQ(find_condition(conditions, "Ready")->since, second);
  EXPECT_EQ(conditions.size(), 1U);
}

}  // namespace validate_test
}  // namespace weir::api
