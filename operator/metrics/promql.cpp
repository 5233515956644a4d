// SPDX-License-Identifier: Apache-2.0
#include "operator/metrics/promql.h"

#include <set>

#include "worker/base/text.h"
#include "worker/protocol/metric_names.h"

namespace weir::metrics {
namespace {

namespace metric = protocol::metric;

constexpr const char* kJob = "pipeline_namespace,pipeline_job,worker";
constexpr const char* kLink = ",replica,link,dir,from_node,to_node";

std::string group(const QueryLabels& labels, const std::string& more) {
  const std::string first = labels.namespace_label.empty() ? "" : labels.namespace_label + ",";
  return " by (" + first + kJob + more + ") ";
}

// Matches a superset of the jobs: the name of one with the namespace of another matches, too.
std::string of_jobs(const std::vector<std::string>& keys) {
  std::set<std::string> namespaces, names;
  for (const std::string& key : keys) {
    const auto slash = key.find('/');
    namespaces.insert(key.substr(0, slash));
    names.insert(key.substr(slash + 1));
  }
  const auto any = [](const auto& words) { return "=~\"" + joined(words, "|") + "\""; };
  return "pipeline_namespace" + any(namespaces) + ",pipeline_job" + any(names);
}

std::string selector(const std::string& name, const QueryLabels& labels,
                     const std::string& more = "") {
  const std::string extra = labels.extra_matchers.empty() ? "" : "," + labels.extra_matchers;
  const std::string jobs = labels.jobs.empty() ? "pipeline_job!=\"\"" : of_jobs(labels.jobs);
  return name + "{" + jobs + more + extra + "}";
}

std::string increase(const std::string& name, const QueryLabels& labels, const std::string& window,
                     const std::string& more = "") {
  return "increase(" + selector(name, labels, more) + "[" + window + "])";
}

std::string goodput(const QueryLabels& labels, const std::string& window) {
  const std::string by = group(labels, kLink);
  return "sum" + by + "(" + increase(metric::kLinkBytes, labels, window) + ") / sum" + by + "(" +
         increase(metric::kLinkBusySeconds, labels, window) + ")";
}

// "> 0" drops the NaN of a worker that has packed nothing.
std::string packed_part(const QueryLabels& labels, const std::string& window) {
  const std::string by = "sum" + group(labels, "");
  const auto packed = [&](const char* name) {
    return by + "(" + increase(name, labels, window, ",encoding=\"packed\"") + ")";
  };
  return packed(metric::kSyncBytes) + " / " + packed(metric::kSyncPayloadBytes) + " > 0";
}

// Stage 0 does the last backward of a step. So its time without the wait for other replicas is the
// replica's own time, while the times of later stages include waiting for stage 0.
std::string of_first_stage(const std::string& name, const QueryLabels& labels) {
  const std::string by = "max" + group(labels, ",replica");
  return "(" + by + "(" + selector(name, labels) + ") and " + by + "(" +
         selector(metric::kWorkerInfo, labels, ",stage=\"0\"") + "))";
}

std::string marked(const std::string& query, const char* part) {
  return "label_replace(" + query + ", \"series\", \"" + part + "\", \"\", \"\")";
}

}  // namespace

std::string window_query(const QueryLabels& labels, std::chrono::seconds window) {
  const std::string length = std::to_string(window.count()) + "s";
  return marked(goodput(labels, length), kGoodput) + " or " +
         marked(
             "max" + group(labels, kLink) + "(" + selector(metric::kLinkRttSeconds, labels) + ")",
             kRtt) +
         " or " +
         marked("max" + group(labels, "") + "(timestamp(" + selector(metric::kStep, labels) + "))",
                kStep) +
         " or " +
         marked("max" + group(labels, "") + "(" + selector(metric::kStep, labels) + ")", kSteps) +
         " or " +
         marked("max" + group(labels, "") + "(" +
                    selector(std::string(metric::kIterationSeconds) + "_count", labels) + ")",
                kOwnSteps) +
         " or " + marked(of_first_stage(metric::kReplicaStepSeconds, labels), kReplicaSeconds) +
         " or " + marked(of_first_stage(metric::kSyncBusBandwidth, labels), kSyncRate) + " or " +
         marked(packed_part(labels, length), kPackedSums);
}

// The window may hold steps of plans with whole and with split backwards. Seconds of B and W over
// the number of B are those of a whole backward under both.
std::string op_time_query(const QueryLabels& labels) {
  const std::string by = group(labels, ",stage");
  const std::string name = metric::kStageOpSeconds;
  const auto seconds = [&](const char* ops, const char* op) {
    return "label_replace(sum" + by + "(" +
           increase(name + "_sum", labels, "5m", std::string(",op=~\"") + ops + "\"") + ") / sum" +
           by + "(" + increase(name + "_count", labels, "5m", std::string(",op=\"") + op + "\"") +
           "), \"op\", \"" + op + "\", \"\", \"\")";
  };
  return seconds("F", "F") + " or " + seconds("B|W", "B");
}

std::string baseline_query(const QueryLabels& labels) {
  // "> 0" drops the NaN of windows without traffic, which the quantile would count as lowest
  // values.
  return "quantile_over_time(0.95, (" + goodput(labels, "1m") + " > 0)[1h:30s])";
}

}  // namespace weir::metrics
