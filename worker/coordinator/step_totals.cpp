// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/step_totals.h"

#include <algorithm>
#include <cmath>

namespace weir::coordinator {

void StepTotals::follow(const schedule::Plan* plan, int incarnation, const std::set<int>& lost) {
  lost_ = lost;
  if (plan == nullptr) return;
  if (plan_ && plan_->revision == plan->revision && incarnation_ == incarnation) return;
  // Ranks of a new generation may go on from an earlier step.
  if (starts_generation(plan_ ? &*plan_ : nullptr, *plan, incarnation)) {
    open_.clear();
    told_ = -1;
  }
  plan_ = *plan;
  incarnation_ = incarnation;
  constexpr std::size_t kRemembered = 4;
  k_of_[plan->revision] = plan->schedule.k;
  if (k_of_.size() > kRemembered) k_of_.erase(k_of_.begin());
}

bool StepTotals::complete(const Open& open, int replicas) const {
  for (int r = 0; r < replicas; ++r) {
    if (!lost_.contains(r) && !(open.first.contains(r) && open.last.contains(r))) return false;
  }
  return true;
}

StepTotal StepTotals::close(Open& open) {
  if (open.losses > 0) open.total.loss = open.loss_sum / open.losses;
  return open.total;
}

std::vector<StepTotal> StepTotals::on_status(const protocol::StageStatus& status) {
  if (!plan_ || status.step <= told_ || status.epoch > plan_->revision) return {};
  const bool first = status.stage == 0;
  const bool last = status.stage == plan_->stage_count() - 1;
  if (!first && !last) return {};
  Open& open = open_[status.step];
  open.total.step = status.step;
  open.total.revision = status.epoch;
  const auto k = k_of_.find(status.epoch);
  open.total.k = k != k_of_.end() ? k->second : plan_->schedule.k;
  if (first && open.first.insert(status.replica).second) {
    open.total.seconds = std::max(open.total.seconds, status.step_seconds);
    open.total.samples += status.samples;
  }
  if (last && open.last.insert(status.replica).second && std::isfinite(status.loss)) {
    open.loss_sum += status.loss;
    ++open.losses;
  }
  std::vector<StepTotal> done;
  while (!open_.empty()) {
    auto& [step, oldest] = *open_.begin();
    const bool patient = open_.rbegin()->first < step + kPatience;
    if (patient && !complete(oldest, plan_->replica_count())) break;
    done.push_back(close(oldest));
    told_ = step;
    open_.erase(open_.begin());
  }
  return done;
}

}  // namespace weir::coordinator
