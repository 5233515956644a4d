// SPDX-License-Identifier: Apache-2.0
// The queries to Prometheus (operator/adaptation/costing/README.md "Inputs") as text. Pure. Every
// query groups by the label in which Prometheus keeps the pod's namespace, so that forged series
// can be dropped.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace weir::metrics {

// Values of label `series` in the answer to the window query. The label says to which part of the
// query a series belongs.
constexpr const char* kGoodput = "goodput";         // bytes per busy second
constexpr const char* kRtt = "rtt";                 // seconds
constexpr const char* kStep = "step";               // time of the newest weir_step sample
constexpr const char* kSteps = "steps";             // completed steps
constexpr const char* kReplicaSeconds = "replica";  // of steps, without waiting for other replicas
constexpr const char* kSyncRate = "sync";           // bytes per second of the last sync
constexpr const char* kPackedSums = "packed";  // bytes of packed sums over those before packing
// Steps that the worker has done itself. With sync.mode Partial a slow replica skips some.
constexpr const char* kOwnSteps = "own";

struct QueryLabels {
  std::string namespace_label;  // "" = namespaces are not checked
  std::string extra_matchers;
  // The query is limited to these jobs ("namespace/name", names that the CRD allows); empty = all.
  std::vector<std::string> jobs;
};

// One query for goodput and round trip of every link, age and steps of every worker, the counters
// of replicas, and how small packed sums are.
std::string window_query(const QueryLabels& labels, std::chrono::seconds window);
// Mean seconds of a forward and a backward per worker and stage over 5 min.
std::string op_time_query(const QueryLabels& labels);
// 95 % quantile of each link's goodput over 1 h.
std::string baseline_query(const QueryLabels& labels);

}  // namespace weir::metrics
