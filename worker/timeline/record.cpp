// SPDX-License-Identifier: Apache-2.0
#include "worker/timeline/record.h"

#include <set>
#include <utility>

namespace weir::timeline {

Status belong_together(std::span<const RankRecord> records) {
  std::set<std::pair<int, int>> places;
  for (const RankRecord& record : records) {
    const RankRecord& first = records.front();
    if (record.job != first.job) return invalid("records of two jobs");
    if (record.replicas != first.replicas || record.stages != first.stages) {
      return invalid("records of plans with other numbers of replicas or stages");
    }
    if (!places.emplace(record.replica, record.stage).second) {
      return invalid("two records of replica " + std::to_string(record.replica) + ", stage " +
                     std::to_string(record.stage));
    }
  }
  return Unit{};
}

}  // namespace weir::timeline
