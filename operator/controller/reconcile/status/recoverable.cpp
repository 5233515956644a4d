// SPDX-License-Identifier: Apache-2.0
// Condition Recoverable: the cost of a loss now.
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "operator/controller/reconcile/status/status.h"

namespace weir::reconcile {
namespace {

// The workers do not hold it.
Recoverability not_held(bool checkpoint, const std::string& why) {
  return {"False", checkpoint ? "CheckpointOnly" : "Nothing",
          why + (checkpoint ? "; the steps since the newest checkpoint would be done again"
                            : "; there is no checkpoint: all steps would be done again")};
}

// Replicas hold each other's stages. The least protected stage lies on the fewest nodes.
Recoverability of_replicas(const schedule::Plan& plan) {
  std::map<int, std::set<std::string>> nodes;
  std::map<int, std::string> pods;
  for (const schedule::RankPlace& rank : plan.ranks) {
    if (!rank.node.empty()) nodes[rank.stage].insert(rank.node);
    pods[rank.stage] += (pods[rank.stage].empty() ? "" : ", ") + rank.pod;
  }
  const std::string each =
      "each stage is held by " + std::to_string(plan.replica_count()) + " workers";
  for (const auto& [stage, where] : nodes) {
    if (where.size() > 1) continue;
    return {"True", "Peers",
            each + "; those of stage " + std::to_string(stage) + " (" + pods[stage] +
                ") are all on node " + *where.begin() + ", whose loss would cost it"};
  }
  return {"True", "Peers", each};
}

// The number in "each 4 steps"; 0 if there is none.
int interval_of(const std::string& copies) {
  constexpr std::string_view kEach = "each ";
  if (!copies.starts_with(kEach)) return 0;
  int steps = 0;
  for (std::size_t at = kEach.size(); at < copies.size() && copies[at] >= '0' && copies[at] <= '9';
       ++at) {
    if (steps < 1'000'000) steps = 10 * steps + (copies[at] - '0');
  }
  return steps;
}

}  // namespace

Recoverability recoverability(const schedule::Plan& plan, const std::string& copies,
                              bool checkpoint, bool whole_job) {
  if (whole_job) return not_held(checkpoint, "restartScope Job makes all pods again");
  if (plan.replica_count() > 1) return of_replicas(plan);
  const int interval = interval_of(copies);
  if (interval == 0) {
    return not_held(checkpoint, copies.empty()
                                    ? "each stage is held by one worker only, without copies"
                                    : "copies in memory: " + copies);
  }
  const std::string cost = std::to_string(2 * interval - 1) + " steps";
  if (copies.find("with copies on neighbors") != std::string::npos) {
    return {"True", "Copies", "a loss costs about " + cost + " at most: copies " + copies};
  }
  return not_held(checkpoint, "the end of a process costs about " + cost +
                                  " at most, but copies go with their pod: " + copies);
}

void show_recoverable(const View& view, Draft& draft) {
  if (view.plan == nullptr || !draft.is("Ready", "True") || !view.snapshot.report) return;
  const protocol::Report& report = view.snapshot.report->body;
  schedule::Plan trains = *view.plan;
  for (const int lost : report.lost_replicas) {
    const auto left = std::erase_if(
        trains.ranks, [&](const schedule::RankPlace& rank) { return rank.replica == lost; });
    if (left > 0 && trains.replica_count() > 1) trains.micro_batches.pop_back();
  }
  // A coordinator that has just begun does not know the copies yet.
  const bool unknown = trains.replica_count() == 1 && report.snapshots.empty();
  if (unknown && draft.has_reason("Recoverable", "Copies")) return;
  const Recoverability now =
      recoverability(trains, report.snapshots, report.last_checkpoint_step >= 0,
                     view.spec().restart_scope == api::RestartScope::kJob);
  if (now.status == "False" && draft.is("Recoverable", "True")) {
    draft.event("Warning", "NotRecoverable", now.message, "Report");
    draft.status.recovery.recoverable_until = view.now();
  }
  draft.set("Recoverable", now.status, now.reason, now.message);
}

}  // namespace weir::reconcile
