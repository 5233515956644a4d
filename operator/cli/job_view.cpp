// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/job_view.h"

#include <algorithm>
#include <tuple>

#include <nlohmann/json.hpp>

#include "operator/api/names.h"
#include "operator/cli/status_reader.h"
#include "worker/protocol/codec.h"

namespace weir::cli {
namespace {

using nlohmann::json;

Result<json> parse_object(std::string_view text) {
  json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return invalid("the answer of the API server is no JSON object");
  return object;
}

Result<json> items_of(std::string_view text) {
  WEIR_TRY(json list, parse_object(text));
  const auto items = list.find("items");
  if (items == list.end() || items->is_null()) return json::array();
  if (!items->is_array()) return invalid("the answer of the API server is no list");
  return std::move(*items);
}

JobView job_of(const json& object) {
  JobView job;
  const StatusReader io(object);
  io("metadata.name", job.name);
  io("metadata.namespace", job.namespace_name);
  io("metadata.uid", job.uid);
  io("metadata.creationTimestamp", job.created);
  const auto metadata = object.find("metadata");
  if (metadata != object.end() && metadata->is_object()) {
    const auto notes = metadata->find("annotations");
    job.frozen =
        notes != metadata->end() && notes->is_object() && notes->contains(api::kFreezePlan);
  }
  io("spec.suspend", job.suspended);
  io("spec.managedBy", job.managed_by);
  io("spec.parallelism.dataParallel", job.replicas);
  io("spec.batch.globalBatchSize", job.global_batch);
  io("spec.adaptation.mode", job.adaptation_mode);
  io("spec.checkpoint.path", job.checkpoint_path);
  io("spec.checkpoint.persistentVolumeClaim.claimName", job.checkpoint_claim);
  io("spec.checkpoint.intervalSteps", job.checkpoint_interval_steps);
  io("status", job.status);
  io("status", job.report);
  return job;
}

void make_printable(schedule::Plan& plan) {
  for (schedule::RankPlace& rank : plan.ranks) {
    rank.pod = printable(rank.pod);
    rank.node = printable(rank.node);
  }
  for (std::string& pod : plan.idle) pod = printable(pod);
}

}  // namespace

Result<JobView> read_job(std::string_view text) {
  WEIR_TRY(const json object, parse_object(text));
  return job_of(object);
}

Result<std::vector<JobView>> read_jobs(std::string_view list) {
  WEIR_TRY(const json items, items_of(list));
  std::vector<JobView> jobs;
  for (const json& item : items) jobs.push_back(job_of(item));
  std::ranges::sort(jobs, {},
                    [](const JobView& job) { return std::tie(job.namespace_name, job.name); });
  return jobs;
}

Result<std::vector<JobEvent>> read_events(std::string_view list, const std::string& uid) {
  WEIR_TRY(const json items, items_of(list));
  std::vector<JobEvent> events;
  for (const json& item : items) {
    const StatusReader io(item);
    std::string about;
    io("involvedObject.uid", about);
    if (about != uid) continue;
    JobEvent event;
    // The last of these that is set is when it happened last.
    for (const char* time : {"metadata.creationTimestamp", "firstTimestamp", "eventTime",
                             "lastTimestamp", "series.lastObservedTime"}) {
      io(time, event.time);
    }
    io("type", event.type);
    io("reason", event.reason);
    io("message", event.note);
    events.push_back(std::move(event));
  }
  std::ranges::stable_sort(events, {}, &JobEvent::time);
  return events;
}

Result<std::vector<PlanRecord>> read_plans(std::string_view list, const std::string& uid) {
  WEIR_TRY(const json items, items_of(list));
  std::vector<PlanRecord> plans;
  for (const json& item : items) {
    const StatusReader io(item);
    api::Time made{};
    io("metadata.creationTimestamp", made);
    const auto data = item.find("data");
    if (data == item.end() || !data->is_object()) continue;
    const auto text = data->find("plan.json");
    if (text == data->end() || !text->is_string()) continue;
    auto plan = protocol::decode_plan(text->get_ref<const std::string&>());
    if (!plan || plan->job_uid != uid) continue;
    make_printable(*plan);
    plans.push_back({made, *std::move(plan)});
  }
  std::ranges::sort(plans, std::greater{}, [](const PlanRecord& one) { return one.plan.revision; });
  return plans;
}

const api::Condition* condition(const JobView& job, std::string_view type) {
  const auto found = std::ranges::find(job.status.conditions, type, &api::Condition::type);
  return found == job.status.conditions.end() ? nullptr : &*found;
}

bool is_true(const JobView& job, std::string_view type) {
  const api::Condition* one = condition(job, type);
  return one != nullptr && one->status == "True";
}

}  // namespace weir::cli
