// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/tool/report_json.h"

#include <nlohmann/json.hpp>

namespace weir::planner {
namespace {

using nlohmann::ordered_json;

ordered_json stage_json(const StageReport& stage) {
  return {{"nodes", stage.nodes},
          {"class", stage.device_class},
          {"ranks", stage.ranks},
          {"servers", stage.servers},
          {"forwardSeconds", stage.forward},
          {"backwardSeconds", stage.backward},
          {"updateSeconds", stage.update},
          {"syncSeconds", stage.sync},
          {"cutBytes", stage.cut_bytes},
          {"sendForwardSeconds", stage.send_forward},
          {"sendBackwardSeconds", stage.send_backward}};
}

ordered_json memory_json(const StageMemoryReport& memory) {
  return {{"staticBytes", memory.static_bytes},       {"stashBytes", memory.stash_bytes},
          {"transientBytes", memory.transient_bytes}, {"bufferBytes", memory.buffer_bytes},
          {"totalBytes", memory.total_bytes},         {"limitBytes", memory.limit_bytes}};
}

ordered_json timeline_json(const PlanReport& report) {
  ordered_json stages = ordered_json::array();
  for (const StageTimeline& line : report.timeline) {
    stages.push_back({{"warmUpSeconds", line.warm_up},
                      {"steadySeconds", line.steady},
                      {"drainSeconds", line.drain},
                      {"busySeconds", line.busy},
                      {"idleInputSeconds", line.idle_input},
                      {"idleGradientSeconds", line.idle_gradient},
                      {"idleSyncSeconds", line.idle_sync}});
  }
  ordered_json json = {{"periodSeconds", report.period_seconds},
                       {"setBy", report.period_cause},
                       {"sumFormSeconds", report.sum_seconds},
                       {"pivotFormSeconds", report.pivot_seconds},
                       {"boundSeconds", report.bound_seconds}};
  if (report.split_bound_seconds > 0) json["splitBoundSeconds"] = report.split_bound_seconds;
  if (report.whole_step_seconds > 0) json["wholeStepSeconds"] = report.whole_step_seconds;
  if (report.tied_bytes > 0) {
    json["tie"] = {{"bytes", report.tied_bytes}, {"seconds", report.tie_seconds}};
  }
  json["stages"] = std::move(stages);
  return json;
}

ordered_json candidate_json(const KCandidate& candidate) {
  ordered_json json = {{"k", candidate.k}};
  if (!candidate.why_not.empty()) {
    json["whyNot"] = candidate.why_not;
    return json;
  }
  json["stepSeconds"] = candidate.step_seconds;
  json["caps"] = candidate.caps;
  if (candidate.split) {
    json["split"] = {{"held", candidate.split->held}, {"postponed", candidate.split->postponed}};
  }
  json["memoryBytes"] = candidate.memory_bytes;
  return json;
}

ordered_json sensitivity_json(const LinkSensitivity& it) {
  ordered_json json = {{"boundary", it.boundary}, {"stepSecondsPerShare", it.step_per_share}};
  if (!it.switch_share) return json;
  json["switchShare"] = *it.switch_share;
  json["candidate"] = {{"k", it.switch_k}, {"caps", it.switch_caps}, {"gain", it.switch_gain}};
  return json;
}

ordered_json comparison_json(const Comparison& it) {
  ordered_json json = {{"name", it.name}};
  if (!it.why_not.empty()) {
    json["whyNot"] = it.why_not;
    return json;
  }
  json["stepSeconds"] = it.step_seconds;
  json["k"] = it.k;
  ordered_json stages = ordered_json::array();
  for (std::size_t s = 0; s < it.stages.size(); ++s) {
    const ordered_json layers = {it.stages[s].first, it.stages[s].last};
    stages.push_back({{"layers", layers}, {"ranks", it.ranks[s]}});
  }
  json["stages"] = std::move(stages);
  return json;
}

template <class T, class F>
ordered_json list_json(const std::vector<T>& items, const F& one) {
  ordered_json list = ordered_json::array();
  for (const T& item : items) list.push_back(one(item));
  return list;
}

}  // namespace

std::string encode_report(const PlanReport& report, bool explain) {
  ordered_json search = {{"ideals", report.search.ideals},
                         {"boundaries", report.search.boundaries},
                         {"pairs", report.search.pairs}};
  if (explain) search["details"] = report.search.details;
  const Optimality& optimality = report.optimality;
  ordered_json json = {
      {"apiVersion", "weir.dev/planreport/v1"},
      {"objective", {{"name", report.objective}, {"value", report.objective_seconds}}},
      {"optimality",
       {{"status", optimality.status},
        {"gap", optimality.gap},
        {"formula", optimality.formula},
        {"lowerBound", optimality.lower_bound},
        {"upperBound", optimality.upper_bound}}},
      {"order", report.order},
      {"stages", list_json(report.stages, stage_json)},
      {"memory", list_json(report.memory, memory_json)},
      {"timeline", timeline_json(report)},
      {"candidates", list_json(report.candidates, candidate_json)},
      {"sensitivity", list_json(report.sensitivity, sensitivity_json)},
      {"search", std::move(search)},
      {"idleDevices", report.idle_devices},
      {"idleReason", report.idle_reason},
      {"warnings", report.warnings}};
  if (!report.comparisons.empty())
    json["comparisons"] = list_json(report.comparisons, comparison_json);
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace weir::planner
