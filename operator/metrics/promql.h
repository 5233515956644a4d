// SPDX-License-Identifier: Apache-2.0
// The questions to Prometheus (operator/tuner/README.md "Inputs"). Pure text. Every
// query groups by the label that Prometheus itself sets for the namespace, to drop forged series.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace weir::metrics {

// Label `series` of the window query's answer: which of its parts a series belongs to.
constexpr const char* kGoodput = "goodput";  // bytes per busy second
constexpr const char* kRtt = "rtt";          // seconds
constexpr const char* kStep = "step";        // time of the newest weir_step sample
// Of workers that tell of a replica: completed steps, seconds of them without waiting for other
// replicas, bytes per second of the last sync. The first has no label replica.
constexpr const char *kSteps = "steps", *kReplicaSeconds = "replica", *kSyncRate = "sync";
// Steps that a worker has done itself: with sync.mode Partial a slow replica passes over some.
constexpr const char* kOwnSteps = "own";

struct QueryLabels {
  std::string namespace_label;  // "" = off
  std::string extra_matchers;
  // Those of these jobs only ("namespace/name", names that the CRD allows); empty = of all.
  std::vector<std::string> jobs;
};

// Goodput and round trip of every link, age and steps of every worker, and what replicas have
// counted, in one question.
std::string window_query(const QueryLabels& labels, std::chrono::seconds window);
// Mean seconds of F and B per worker and stage over 5 min.
std::string op_time_query(const QueryLabels& labels);
// 95 % quantile of goodput over 1 h.
std::string baseline_query(const QueryLabels& labels);

}  // namespace weir::metrics
