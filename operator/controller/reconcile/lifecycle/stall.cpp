// SPDX-License-Identifier: Apache-2.0
// A stall: who waits for whom while no step is completed, as the coordinator has found out.
#include <algorithm>
#include <string>

#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "worker/timeline/waits.h"

namespace weir::reconcile {

std::optional<Stalled> stalled(const View& view, const Draft& draft) {
  const auto& report = view.snapshot.report;
  if (!report || !report->body.stall || view.plan == nullptr || silent(view, draft) ||
      report->body.plan_revision != view.plan->revision) {
    return std::nullopt;
  }
  auto waits = timeline::waits_of(*report->body.stall, *view.plan);
  if (!waits) return std::nullopt;
  const int stages = view.plan->stage_count();
  const std::string now = timeline::text_of(*waits, stages);
  for (timeline::Doing& rank : waits->ranks) rank.since = {};
  return Stalled{.lasting = timeline::text_of(*waits, stages),
                 .first = "no step for " + number(report->body.stall->seconds, 0) +
                          " s after step " + std::to_string(report->body.step) + ": " + now};
}

}  // namespace weir::reconcile
