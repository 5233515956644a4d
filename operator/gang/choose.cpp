// SPDX-License-Identifier: Apache-2.0
#include "operator/gang/kueue.h"
#include "operator/gang/provider.h"
#include "operator/gang/volcano.h"

namespace weir::gang {
namespace {

std::string wanted(const api::PipelineJob& job) {
  const api::JobSpec& spec = job.spec;
  if (spec.gang_provider != "Auto") return spec.gang_provider;
  if (job.meta.labels.contains(kQueueLabel)) return "Kueue";
  if (spec.scheduler_name == kVolcanoScheduler) return "Volcano";
  if (spec.scheduler_name == "kai-scheduler") return "KAI";
  return "None";
}

}  // namespace

const char* name(Provider provider) {
  switch (provider) {
    case Provider::kNone:
      return "None";
    case Provider::kKueue:
      return "Kueue";
    case Provider::kVolcano:
      return "Volcano";
  }
  return "";
}

Choice choose(const api::PipelineJob& job, const std::string& fixed) {
  const std::string asked = fixed.empty() ? wanted(job) : fixed;
  const std::string by_auto = job.spec.gang_provider == "Auto"
                                  ? " (chosen by Auto from the queue label or "
                                    "scheduling.schedulerName)"
                                  : "";
  for (const Provider provider : {Provider::kNone, Provider::kKueue, Provider::kVolcano}) {
    if (asked != name(provider)) continue;
    Choice choice{provider, std::nullopt};
    if (provider == Provider::kKueue && !job.meta.labels.contains(kQueueLabel) &&
        job.spec.gang_queue.empty()) {
      choice.refusal = {
          "InvalidSpec",
          "scheduling.gang.queue: empty, name the LocalQueue or set the job's label " +
              std::string(kQueueLabel)};
    }
    if (provider == Provider::kKueue && job.spec.placement_mode == api::PlacementMode::kPinned) {
      choice.refusal = {"InvalidSpec", "placement.mode: Pinned cannot be used with Kueue" +
                                           by_auto +
                                           ", which chooses the nodes; set it to LateBinding"};
    }
    return choice;
  }
  return {Provider::kNone,
          api::Refusal{"GangProviderUnavailable",
                       "scheduling.gang.provider: " + asked + by_auto +
                           " is not implemented yet, set it to None, Kueue or Volcano"}};
}

PodMarks marks(Provider provider, const api::PipelineJob& job, const std::string& group,
               const std::string& pod_group, int workers) {
  switch (provider) {
    case Provider::kNone:
      return {};
    case Provider::kKueue:
      return kueue_marks(job, group, pod_group, workers);
    case Provider::kVolcano:
      return volcano_marks(job, group);
  }
  return {};
}

std::optional<std::string> encode_object(Provider provider, const api::PipelineJob& job,
                                         int data_parallel) {
  if (provider != Provider::kVolcano) return std::nullopt;
  return volcano_pod_group(job, data_parallel);
}

}  // namespace weir::gang
