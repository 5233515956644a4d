// SPDX-License-Identifier: Apache-2.0
// A plan in status.
#include <algorithm>

#include "operator/controller/reconcile/plans/plans.h"
#include "operator/facts/planning.h"
#include "worker/schedule/search_split.h"

namespace weir::reconcile {
namespace {

int mean_share(const schedule::Plan& plan) {
  const int replicas = std::max(1, plan.replica_count());
  const int all = static_cast<int>(plan.step_micro_batches());
  return (all + replicas / 2) / replicas;
}

// One entry for a stage of all replicas; group and node are those of replica 0.
api::StageStatus stage_view(const View& view, const schedule::Plan& plan,
                            const schedule::RankPlace& rank) {
  const auto s = static_cast<std::size_t>(rank.stage);
  std::string group;
  for (const auto& slot : view.slots) {
    if (slot.pod && slot.pod->meta.uid == rank.pod_uid) group = slot.group;
  }
  return {rank.stage,
          plan.replica_count(),
          plan.stages[s].first,
          plan.stages[s].last,
          plan.schedule.caps[s],
          group,
          rank.node};
}

std::string split_text(const View& view, const Draft& draft, const schedule::Plan& plan) {
  if (plan.schedule.split) return schedule::describe(*plan.schedule.split);
  const facts::Memo* memo = view.snapshot.memo;
  const planner::Model* model = memo != nullptr && memo->model ? &*memo->model : nullptr;
  const std::string& shown = draft.status.plan.split;
  // A new leader may not know yet what the one before has shown.
  const bool unknown = !view.snapshot.members || model == nullptr;
  if (unknown && shown.starts_with("no") && draft.status.plan.revision == plan.revision) {
    return shown;
  }
  const std::string why = facts::why_whole(facts_of(view, draft), model);
  return why.empty() ? "no" : "no: " + why;
}

}  // namespace

std::string codecs_without_effect(const View& view, const Draft& draft) {
  const api::CompressSpec& compress = view.spec().adaptation.compress;
  const bool finest = compress.coarsest == api::Coarsest::kBf16;
  if ((!compress.enabled && !finest) || !view.snapshot.members) return "";
  std::string why_not;
  const auto model = model_of(facts_of(view, draft), why_not);
  if (!model) return "";
  if (model->number_bytes == 0) {
    return compress.enabled ? "; adaptation.compress: has no effect on layers of one's own, which "
                              "may hand on several tensors"
                            : "";
  }
  constexpr int kBytesOfFloat = 4;
  if (!finest || model->number_bytes == kBytesOfFloat) return "";
  return "; adaptation.compress.coarsest: BF16 has no effect on a bf16 job, allow Int8";
}

std::string idle_text(const View& view, const schedule::Plan& plan) {
  if (plan.idle.empty()) return "";
  constexpr std::size_t kNamed = 4;
  std::string names;
  for (std::size_t i = 0; i < std::min(plan.idle.size(), kNamed); ++i)
    names += (i == 0 ? "" : ", ") + plan.idle[i];
  if (plan.idle.size() > kNamed) names += ", ...";
  const std::size_t all = plan.idle.size() + plan.ranks.size();
  const int layers = view.snapshot.members ? view.snapshot.members->body.model.layers : 0;
  const bool too_many = layers > 0 && all > static_cast<std::size_t>(layers * plan.replica_count());
  return std::to_string(plan.idle.size()) + " of " + std::to_string(all) +
         " workers have no stage (" + names + ")" +
         (too_many ? ": the model has " + std::to_string(layers) + " layers" : "");
}

void show_plan(const View& view, Draft& draft, const schedule::Plan& plan) {
  auto& status = draft.status.plan;
  status.k = plan.schedule.k;
  status.micro_batch_size = plan.schedule.micro_batch_size;
  status.micro_batches = mean_share(plan);
  status.stage_count = plan.stage_count();
  status.split = split_text(view, draft, plan);
  status.codecs = schedule::describe(plan.codecs);
  status.stages.clear();
  for (const auto& rank : plan.ranks) {
    if (rank.replica == 0) status.stages.push_back(stage_view(view, plan, rank));
  }
}

}  // namespace weir::reconcile
