// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "worker/coordinator/plan_switch.h"

namespace weir::coordinator {
namespace {

// Names the ranks of a plan without ranks (file source): stage s of replica r is worker r S + s.
Status name_ranks(schedule::Plan& plan, const Members& members) {
  const int stages = plan.stage_count();
  for (int replica = 0; replica < static_cast<int>(plan.micro_batches.size()); ++replica) {
    for (int stage = 0; stage < stages; ++stage) {
      const int index = replica * stages + stage;
      const auto* member = members.find(index);
      if (member == nullptr || !member->connected()) {
        return Error{Code::kUnavailable, "worker " + std::to_string(index) + " is not connected"};
      }
      plan.ranks.push_back({.pod = member->member.pod, .replica = replica, .stage = stage});
    }
  }
  return Unit{};
}

}  // namespace

Result<schedule::Plan> fill_plan(schedule::Plan plan, const std::string& job_uid,
                                 const Members& members) {
  const std::string revision = "plan " + std::to_string(plan.revision);
  if (plan.job_uid.empty()) plan.job_uid = job_uid;
  if (plan.job_uid != job_uid) return invalid(revision + " is of another job: " + plan.job_uid);
  if (plan.ranks.empty()) {
    WEIR_TRY([[maybe_unused]] auto named, name_ranks(plan, members));
  }
  for (auto& rank : plan.ranks) {
    const auto* member = members.by_pod(rank.pod);
    if (member == nullptr || !member->connected()) {
      return Error{Code::kUnavailable, "pod " + rank.pod + " is not connected"};
    }
    if (!rank.pod_uid.empty() && rank.pod_uid != member->member.pod_uid) {
      return Error{Code::kUnavailable, "pod " + rank.pod + " with uid " + rank.pod_uid +
                                           " is not connected, but uid " + member->member.pod_uid};
    }
    rank.pod_uid = member->member.pod_uid;
    rank.data_port = member->member.data_port;
    if (rank.node.empty()) rank.node = member->member.node;
    if (rank.ip.empty() && !member->member.ips.empty()) rank.ip = member->member.ips.front();
    if (rank.ip.empty()) return invalid("pod " + rank.pod + ": its HELLO has no address");
  }
  return plan;
}

}  // namespace weir::coordinator
